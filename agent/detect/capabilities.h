// SPDX-License-Identifier: Apache-2.0
//
// What Kubernetes' software on a node needs of the kernel, and whether this kernel has it, by
// reading files only. A netlink request, and every program of iptables, ipset or nft, would load
// modules.
#ifndef KIPT_AGENT_DETECT_CAPABILITIES_H_
#define KIPT_AGENT_DETECT_CAPABILITIES_H_

#include <optional>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "agent/detect/rule_support.h"
#include "netlink/ruleset.h"

namespace kipt::agent {

// A feature of the kernel that one software needs. Views are of static storage.
struct Capability {
  absl::string_view feature;  // "match nfacct"
  absl::string_view module;   // "xt_nfacct"; empty where none decides
  // It needs this for this family alone.
  std::optional<netlink::Family> family = {};
  // Releases of the software, inclusive: "1.31"; empty: all on that side.
  absl::string_view since;
  absl::string_view until;
  absl::string_view why;
  // False: the software works without it.
  bool needed = true;
  ModuleState state = ModuleState::kUnknown;
  std::string reason = {};  // how the state is known

  bool operator==(const Capability&) const = default;
};

struct SoftwareCapabilities {
  absl::string_view software;  // "kube-proxy-nftables"
  std::vector<Capability> capabilities = {};
  // The worst of what is needed: missing, unknown, loadable, present.
  ModuleState state = ModuleState::kPresent;
  // Where a part is missing without which more fails than that part: what happens.
  std::vector<std::string> findings = {};
};

struct CapabilityReport {
  std::string kernel;  // "6.1.0-50-amd64"; empty: it cannot be read
  std::vector<SoftwareCapabilities> software = {};
};

// What ReadCapabilities takes.
inline constexpr absl::string_view kCapabilitySoftware =
    "all, iptables-nft, iptables-legacy, kubelet, kube-proxy-iptables, kube-proxy-ipvs, "
    "kube-proxy-nftables, portmap, portmap-nftables, kube-iptables-agent";

// `only` is one of kCapabilitySoftware. Features of a family that is not in `families` are left
// out.
CapabilityReport ReadCapabilities(const KernelPaths& paths,
                                  absl::Span<const netlink::Family> families,
                                  absl::string_view only = "all");

// As FindModule, of the module that decides a feature of these tables, such as "IPVS".
ModuleState FeatureState(const KernelPaths& paths, absl::string_view feature);

// "present", "loadable", "missing", "unknown".
absl::string_view CapabilityStateName(ModuleState state);

}  // namespace kipt::agent

#endif  // KIPT_AGENT_DETECT_CAPABILITIES_H_
