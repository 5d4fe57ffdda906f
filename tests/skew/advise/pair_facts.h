// SPDX-License-Identifier: Apache-2.0
//
// What a kubelet and a kube-proxy do to each other by what they write to iptables, as a table. On a
// node that boots with the two: in place, what older ones left may hide it until the next reboot.
#ifndef KIPT_TESTS_SKEW_ADVISE_PAIR_FACTS_H_
#define KIPT_TESTS_SKEW_ADVISE_PAIR_FACTS_H_

#include <string>
#include <vector>

#include "tests/skew/matrix/cell.h"
#include "tests/skew/versions/versions.h"

namespace kipt::skew {

// From bad to worst.
enum class Harm {
  kNone,
  // Only what uses kubelet's chains without being Kubernetes.
  kThirdParties,
  // What must be dropped is let through.
  kFailsOpen,
  // No service works.
  kNoService,
};

struct TraitOfOne {
  Trait trait;
  bool does = true;
};

struct PairFact {
  enum class Kubelet { kAny, kKeepsMarks, kCleansUp };
  enum class Proxy { kIptables, kIpvs, kNftables, kIptablesOrIpvs };
  // Of the facts about one thing the first that fits holds.
  enum class About { kDropping, kMarkMasq, kMarkDrop, kMartians };

  About about;
  Kubelet kubelet_does;
  Proxy proxy_is;
  // Traits that the two have, or have not.
  std::vector<TraitOfOne> traits;
  Harm harm;
  // What goes wrong, for "Not safe: ...".
  const char* headline;
  // The fact.
  const char* text;
  // A pair whose cells show it (path boot), where the matrix has none of the very generations;
  // minors, 0: none.
  int shown_by_kubelet;
  int shown_by_proxy;
};

// Those that hold for the pair, the table's order.
std::vector<const PairFact*> FactsOf(const Pair& pair);
// The worst of them.
Harm HarmOf(const Pair& pair);
// Cells of the default matrix that show `fact` of `pair`, with kubelet itself, nft.
std::vector<std::string> CellsOf(const PairFact& fact, const Pair& pair);
// Cells of the default matrix on `path` whose pair is of these generations.
std::vector<std::string> CellsOn(Path path, const Pair& pair);

// Why a kubelet does not start with this setting of the gate; empty: it does.
std::string WhyRefused(const KubeletVersion& kubelet);
// Why nothing else is wrong with naming it, but something is to be said; empty: nothing.
std::string GateWarning(const KubeletVersion& kubelet);

}  // namespace kipt::skew

#endif  // KIPT_TESTS_SKEW_ADVISE_PAIR_FACTS_H_
