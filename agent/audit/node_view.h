// SPDX-License-Identifier: Apache-2.0
//
// What an audit reads of a node: rules, and what surrounds them. One that has many rules is
// gathered in little memory.
#ifndef KIPT_AGENT_AUDIT_NODE_VIEW_H_
#define KIPT_AGENT_AUDIT_NODE_VIEW_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "agent/audit/chain_owner.h"
#include "agent/detect/capabilities.h"
#include "agent/detect/device_marks.h"
#include "agent/detect/mode_evidence.h"
#include "agent/detect/routing.h"
#include "agent/policy/dependents.h"
#include "netlink/backend.h"
#include "netlink/survey.h"

namespace kipt::agent {

// ---- what is about to be changed ----

enum class NodeChange : uint8_t {
  kOwnershipCleanup,      // the gate IPTablesOwnershipCleanup (KEP-3178)
  kKubeProxyNftables,     // kube-proxy's mode becomes nftables (KEP-5343)
  kKubeProxyIpvsRemoval,  // kube-proxy loses its IPVS mode (KEP-5495)
  kIptablesNft,           // programs move from iptables-legacy to iptables-nft
};
// "ownership-cleanup", ...: values of --before.
absl::string_view ChangeName(NodeChange change);
std::optional<NodeChange> ChangeFromName(absl::string_view name);

// ---- what an audit reads ----

enum class BootRefusal : uint8_t {
  kNone,
  kChain,   // a line jumps to a chain of Kubernetes that the file does not declare
  kObject,  // a line needs an nfacct object or an ipset that nothing makes at boot
  kSyntax,  // nft cannot read its own listing of a rule that iptables wrote
};

// Saved rules that name chains of Kubernetes, in a file that is loaded at boot.
struct SavedRules {
  std::string file;
  size_t count = 0;                     // of lines
  std::vector<std::string> lines = {};  // the first, "12: -A ..."
  bool native = false;                  // in nft's words
  // Why loading the file at boot fails.
  BootRefusal refusal = BootRefusal::kNone;

  bool operator==(const SavedRules&) const = default;
};

// What a change depends on beyond rules. Empty where it was not asked for, or cannot be read.
struct ChangeFacts {
  std::string kernel = {};                        // uname -r
  std::vector<Capability> missing = {};           // what nftables mode needs of the kernel
  std::string nft_path = {};                      // the host's nft, which is not run
  std::string nft_version = {};                   // "1.0.6"
  std::map<std::string, uint64_t> counters = {};  // of nfacct, in packets
  std::vector<SavedRules> saved = {};
  bool has_ip_vs = false;                              // `modprobe ip_vs` would succeed
  bool ipvs_device = false;                            // kube-ipvs0
  std::map<std::string, size_t> ipvs_schedulers = {};  // how many virtual services use each
  std::string no_nft_compat = {};                      // why iptables-nft can hold no rules
  // Why kubelet's probe of the iptables fails, beyond rules.
  std::string lock_holder = {};  // "held by process 4711 (iptables)", for some time
  std::string no_nat = {};       // "table nat, IPv6"

  bool operator==(const ChangeFacts&) const = default;
};

// Rules that an audit counts and does not keep (SiftedNodeView).
struct LeftOutRules {
  size_t count = 0;
  uint64_t packets = 0;

  bool operator==(const LeftOutRules&) const = default;
};
struct LeftOut {
  // By the family and the rules' owner.
  std::map<std::pair<std::string, Owner>, LeftOutRules> rules = {};
  // Those of kube-proxy's that jump to a chain of kubelet's: by the family and
  // "nat/KUBE-MARK-MASQ".
  std::map<std::pair<std::string, std::string>, LeftOutRules> uses = {};
  // Those that iptables cannot list, by the family and the table.
  std::map<std::pair<std::string, std::string>, LeftOutRules> unlistable = {};
  // Some rule's counter is not zero.
  bool counted = false;
  // Rules that an audit needs, and that are more than it holds. They are in none of the above.
  size_t too_many = 0;

  bool operator==(const LeftOut&) const = default;
};

// One network namespace and what surrounds it. A source that cannot be read is a problem; the
// others are read all the same.
struct NodeView {
  // NetworkNamespace::name: "/run/netns/pod1", "pid 123 (nginx)". Empty for the gathering thread's.
  std::string name = {};
  // One for each iptables mode that has a table, "nft" first, with every rule.
  std::vector<netlink::Survey> surveys = {};
  // What is left out of them, by their modes.
  std::map<std::string, LeftOut> left_out = {};
  // Other programs changed the rules of a mode while it was read, again and again.
  bool torn = false;
  // Empty in a view of another namespace than the gathering thread's.
  CniConfigs cni = {};
  std::vector<FwmarkRule> ip_rules = {};
  std::vector<DeviceMark> device_marks = {};
  // ReadRouteLocalnet.
  RouteLocalnet route_localnet = {};
  // Where route_localnet is on: every martian packet is dropped, as `status` judges it in either
  // iptables mode.
  bool martians_dropped = false;
  ChangeFacts facts = {};
  // What could not be read, and why: "nft tables: ...". `cni` has its own.
  std::vector<std::string> problems = {};
  // What may exist on the node and is not mounted in this pod: "saved rules: ...".
  std::vector<std::string> hidden = {};

  bool operator==(const NodeView&) const = default;
};

// One attempt to read the rules of a mode.
using TakeSurvey = std::function<absl::StatusOr<netlink::Survey>(netlink::Backend& backend)>;

// The rules of the calling thread's network namespace, as `take` reads them, and nothing else.
// Leaves no trace, as GatherNodeView.
NodeView GatherRules(const ModeSources& sources, const TakeSurvey& take);

// The calling thread's network namespace. Leaves no trace: creates no table and chain, loads no
// module, and runs no program where there are no tables of iptables-legacy. Waits 2 s for a lock
// that is held.
NodeView GatherNodeView(const ModeSources& sources, const CniConfigs& cni,
                        NodeChange change = NodeChange::kOwnershipCleanup);

// How a view is gathered in little memory.
struct SiftOptions {
  // Bits of the packet mark: rules that set or test one of them are kept.
  uint32_t marks = 0;
  // Called before each chain is read; may wait. Its error ends the reading, as a problem.
  std::function<absl::Status()> pause = [] { return absl::OkStatus(); };
};

// The same for all of `changes`, with the rules that an audit without an allow list needs: a few of
// those that a program makes for each service, endpoint or pod, and all that touch kubelet's chains
// or `marks`, up to 1,000 of an iptables mode. `left_out` counts the others.
//
// Audit() then has the same findings with the same counts. Where both iptables modes have the same
// chains of kube-proxy's, it names fewer of them.
NodeView SiftedNodeView(const ModeSources& sources, const CniConfigs& cni,
                        absl::Span<const NodeChange> changes, const SiftOptions& options);

// GatherNodeView for every network namespace that can be seen (ListNetworkNamespaces), the calling
// thread's first. Visits each on a thread of its own, one after another. One that cannot be entered
// (CAP_SYS_ADMIN) is a view with a problem; the first view reports namespaces that may be missing.
//
// `sources` must be SystemModeSources: they open what the asking thread's namespace has.
std::vector<NodeView> GatherAllNamespaces(const ModeSources& sources, const CniConfigs& cni,
                                          NodeChange change);

}  // namespace kipt::agent

#endif  // KIPT_AGENT_AUDIT_NODE_VIEW_H_
