// SPDX-License-Identifier: Apache-2.0
//
// What a Kubernetes version means for a node's iptables chains, and which versions may meet on a
// node. A version is a minor: where patch releases differ, the newest counts, but for 1.17
// and 1.18, which stand for their first patch releases (before kubernetes #92035).
#ifndef KIPT_TESTS_SKEW_VERSIONS_VERSIONS_H_
#define KIPT_TESTS_SKEW_VERSIONS_VERSIONS_H_

#include <optional>
#include <string>
#include <vector>

#include "tests/skew/versions/traits.h"
#include "tests/support/kubelet_sequence.h"

namespace kipt::skew {

// All of them, the oldest first.
std::vector<Version> AllVersions();

// kubelet with its gate IPTablesOwnershipCleanup.
struct KubeletVersion {
  Version version = kNewest;
  // As given by --feature-gates; not set: the version's default. The gate can be set in 1.25, 1.26
  // and 1.27 only: before it is unknown, in 1.28 locked, from 1.30 on gone.
  std::optional<bool> ownership_cleanup = {};

  bool operator==(const KubeletVersion&) const = default;
};

// Whether this kubelet keeps only the hint and the martian rule.
bool CleansUp(const KubeletVersion& kubelet);
// What it tells iptables to do.
testing::KubeletForm FormOf(const KubeletVersion& kubelet);
// "1.26", "1.26 gate on".
std::string ToString(const KubeletVersion& kubelet);

enum class ProxyMode { kIptables, kIpvs, kNftables };
// "iptables", "ipvs", "nftables".
const char* NameOf(ProxyMode mode);

struct ProxyVersion {
  Version version = kNewest;
  ProxyMode mode = ProxyMode::kIptables;

  bool operator==(const ProxyVersion&) const = default;
};
// "1.26", "1.26 ipvs".
std::string ToString(const ProxyVersion& proxy);
// Whether it leaves it to KUBE-MARK-DROP to drop.
bool MarksToDrop(const ProxyVersion& proxy);

// Kubelets, and proxies, that do the same to iptables are of one generation. It is named by its
// oldest version, with default gates: "1.20" is that of 1.20 to 1.23, "1.25" that of all with the
// gate off, "1.27" that of all up to 1.32 with the gate on. The table of traits decides.
KubeletVersion GenerationOf(const KubeletVersion& kubelet);
ProxyVersion GenerationOf(const ProxyVersion& proxy);

// Whether Kubernetes' version skew policy allows the two on one node, under some version of the API
// server: the page of kubernetes.io/releases/version-skew-policy of the newer one's time.
bool IsAllowed(Version kubelet, Version proxy);

}  // namespace kipt::skew

#endif  // KIPT_TESTS_SKEW_VERSIONS_VERSIONS_H_
