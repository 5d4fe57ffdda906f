// SPDX-License-Identifier: Apache-2.0
#include "tests/skew/advise/pair_facts.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"

namespace kipt::skew {
namespace {

using About = PairFact::About;
using Kubelet = PairFact::Kubelet;
using Proxy = PairFact::Proxy;

// Sources: KEP-3178; kubernetes #92275, #84422, #85527 (KUBE-MARK-DROP up to 1.19), #110289 (1.25
// drops by itself), #114470 (the martian rule of 1.27), #91569 (CVE-2020-8558); the captured runs
// behind the matrix.
PairFact Fact(About about, Kubelet kubelet, Proxy proxy, std::vector<TraitOfOne> traits, Harm harm,
              const char* headline, const char* text, int kubelet_minor = 0, int proxy_minor = 0) {
  return {about,    kubelet, proxy,         std::move(traits), harm,
          headline, text,    kubelet_minor, proxy_minor};
}

const PairFact kFacts[] = {
    Fact(
        About::kDropping, Kubelet::kCleansUp, Proxy::kIptables,
        {{Trait::kDropsByMarkDrop}, {Trait::kMakesMarkDrop, false}}, Harm::kNoService,
        "no service would work",
        "kube-proxy up to 1.19 jumps to nat/KUBE-MARK-DROP and does not make it. Without a kubelet "
        "that makes it, iptables-restore fails once a load balancer needs the chain. So does "
        "externalTrafficPolicy: Local without local endpoints. Table filter is written, table nat "
        "is "
        "not, and no service works (kubernetes #92275).",
        27, 19),
    Fact(About::kDropping, Kubelet::kCleansUp, Proxy::kIptables, {{Trait::kMakesMarkDrop}},
         Harm::kFailsOpen, "what must be dropped would be let through",
         "kube-proxy 1.20 to 1.24 drops by nat/KUBE-MARK-DROP, makes the chain, and leaves it to "
         "kubelet to fill it. A kubelet with IPTablesOwnershipCleanup does not fill it. Packets "
         "that "
         "load balancer source ranges must keep out then reach the node's own programs or the next "
         "hop. The same applies to externalTrafficPolicy: Local without local endpoints. It fails "
         "open, and nothing logs it.",
         27, 24),
    Fact(About::kDropping, Kubelet::kCleansUp, Proxy::kIpvs, {{Trait::kIpvsDropsByMarkDrop}},
         Harm::kFailsOpen, "what must be dropped would be let through",
         "kube-proxy's IPVS mode up to 1.24 sends what load balancer source ranges refuse from its "
         "nat/KUBE-FIREWALL to nat/KUBE-MARK-DROP. Only kubelet fills that chain. With "
         "IPTablesOwnershipCleanup the chain is empty, and these packets are let through."),
    Fact(
        About::kDropping, Kubelet::kKeepsMarks, Proxy::kIptablesOrIpvs,
        {{Trait::kJumpsInIpv4Only}, {Trait::kDropsByMarkDrop}}, Harm::kFailsOpen,
        "what must be dropped would be let through on IPv6",
        "kubelet 1.25 to 1.27 with IPTablesOwnershipCleanup off fills IPv6's filter/KUBE-FIREWALL, "
        "but makes no jumps to it from INPUT and OUTPUT. Once the jumps of an older kubelet are "
        "gone, "
        "IPv6 packets that kube-proxy up to 1.24 marks for dropping are let through.",
        25, 24),
    Fact(
        About::kMarkMasq, Kubelet::kCleansUp, Proxy::kNftables, {}, Harm::kThirdParties,
        "no component would make KUBE-MARK-MASQ",
        "With kube-proxy's nftables mode and IPTablesOwnershipCleanup, no component makes "
        "nat/KUBE-MARK-MASQ and nat/KUBE-POSTROUTING. If the CNI plugin portmap is configured with "
        "externalSetMarkChain: KUBE-MARK-MASQ, its ADD fails, and pods with host ports do not "
        "start. "
        "Without that setting portmap uses a chain of its own."),
    Fact(
        About::kMarkDrop, Kubelet::kKeepsMarks, Proxy::kIptables, {{Trait::kOwnMartianRule}},
        Harm::kThirdParties, "third parties that drop by KUBE-MARK-DROP would stop dropping",
        "kube-proxy since 1.27 empties IPv4's filter/KUBE-FIREWALL at every sync (with "
        "localhostNodePorts, the default). This also removes kubelet's rule that drops marked "
        "packets; kubelet writes the rule again only when it starts or its canary is missing. "
        "kube-proxy itself no longer needs the rule; third parties that drop by nat/KUBE-MARK-DROP "
        "lose it on IPv4.",
        26, 27),
    Fact(About::kMarkDrop, Kubelet::kCleansUp, Proxy::kIptablesOrIpvs,
         {{Trait::kDropsByMarkDrop, false}}, Harm::kThirdParties,
         "third parties that drop by KUBE-MARK-DROP would stop dropping",
         "No component makes or fills nat/KUBE-MARK-DROP: kube-proxy since 1.25 drops in table "
         "filter, "
         "and kubelet has given up the chain. Third parties that jump to it cannot add their rules "
         "on "
         "a node that has booted since.",
         27, 27),
    Fact(
        About::kMarkDrop, Kubelet::kKeepsMarks, Proxy::kIptablesOrIpvs,
        {{Trait::kJumpsInIpv4Only},
         {Trait::kDropsByMarkDrop, false},
         {Trait::kOwnMartianRule, false}},
        Harm::kThirdParties,
        "third parties that drop by KUBE-MARK-DROP would stop dropping on IPv6",
        "kubelet 1.25 to 1.27 with IPTablesOwnershipCleanup off makes no IPv6 jumps from INPUT and "
        "OUTPUT to filter/KUBE-FIREWALL. Third parties that drop by nat/KUBE-MARK-DROP do not drop "
        "on "
        "IPv6.",
        25, 25),
    Fact(About::kMartians, Kubelet::kAny, Proxy::kIptablesOrIpvs,
         {{Trait::kMartianRule, false}, {Trait::kOwnMartianRule, false}}, Harm::kNone, "",
         "Neither writes the rule against martian packets, which kubelet has since 1.19 (and "
         "1.18.4, "
         "1.17.7, 1.16.11), and kube-proxy since 1.27. Neighbours reach programs that listen on "
         "127.0.0.1 (CVE-2020-8558).",
         17, 17),
};

bool Fits(const PairFact& fact, const Pair& pair) {
  const bool cleans_up = CleansUp(pair.kubelet);
  if (fact.kubelet_does == Kubelet::kCleansUp && !cleans_up) return false;
  if (fact.kubelet_does == Kubelet::kKeepsMarks && cleans_up) return false;
  const ProxyMode mode = pair.proxy.mode;
  const bool mode_fits = (fact.proxy_is == Proxy::kIptables && mode == ProxyMode::kIptables) ||
                         (fact.proxy_is == Proxy::kIpvs && mode == ProxyMode::kIpvs) ||
                         (fact.proxy_is == Proxy::kNftables && mode == ProxyMode::kNftables) ||
                         (fact.proxy_is == Proxy::kIptablesOrIpvs && mode != ProxyMode::kNftables);
  return mode_fits &&
         std::all_of(fact.traits.begin(), fact.traits.end(), [&pair](const TraitOfOne& of_one) {
           const bool of_kubelet = RowOf(of_one.trait).component == Component::kKubelet;
           return of_one.does ==
                  Does(of_kubelet ? pair.kubelet.version : pair.proxy.version, of_one.trait);
         });
}

bool SameGenerations(const Pair& a, const Pair& b) {
  return GenerationOf(a.kubelet) == GenerationOf(b.kubelet) &&
         GenerationOf(a.proxy) == GenerationOf(b.proxy);
}

// One setting of the gate and the releases that refuse it, or warn of it.
struct GateRow {
  bool (*holds)(Version version);
  // Not set: however it is set.
  std::optional<bool> set_to;
  bool refused;
  const char* text;
};
const GateRow kGateRows[] = {
    {[](Version version) { return version.minor < RowOf(Trait::kGateKnown).first; }, std::nullopt,
     true,
     "does not know the feature gate IPTablesOwnershipCleanup, which came with 1.25, and does not "
     "start where it is named"},
    {[](Version version) { return Does(version, Trait::kGateLocked); }, false, true,
     "does not start with IPTablesOwnershipCleanup=false: the gate is GA and locked to true"},
    {[](Version version) { return Does(version, Trait::kGateLocked); }, true, false,
     "warns of IPTablesOwnershipCleanup=true: the gate is GA, and gone in 1.30"},
    {[](Version version) { return version.minor > RowOf(Trait::kGateKnown).last; }, std::nullopt,
     true,
     "does not start where IPTablesOwnershipCleanup is named, whatever it is set to: the gate was "
     "removed in 1.30"},
};

const GateRow* GateRowOf(const KubeletVersion& kubelet) {
  if (!kubelet.ownership_cleanup.has_value()) return nullptr;
  for (const GateRow& row : kGateRows) {
    const bool fits = !row.set_to.has_value() || row.set_to == kubelet.ownership_cleanup;
    if (row.holds(kubelet.version) && fits) return &row;
  }
  return nullptr;
}

std::string GateText(const KubeletVersion& kubelet, bool refused) {
  const GateRow* row = GateRowOf(kubelet);
  if (row == nullptr || row->refused != refused) return "";
  return absl::StrCat("kubelet ", featuregates::ToString(kubelet.version), " ", row->text);
}

}  // namespace

std::vector<const PairFact*> FactsOf(const Pair& pair) {
  std::vector<const PairFact*> facts;
  for (const PairFact& fact : kFacts) {
    const bool known = std::any_of(facts.begin(), facts.end(), [&](const PairFact* earlier) {
      return earlier->about == fact.about;
    });
    if (!known && Fits(fact, pair)) facts.push_back(&fact);
  }
  return facts;
}

Harm HarmOf(const Pair& pair) {
  Harm worst = Harm::kNone;
  for (const PairFact* fact : FactsOf(pair)) worst = std::max(worst, fact->harm);
  return worst;
}

std::vector<std::string> CellsOn(Path path, const Pair& pair) {
  std::vector<std::string> ids;
  for (const Cell& cell : DefaultCells({path})) {
    if (cell.mode == testing::IptablesMode::kNft && cell.actor == Actor::kKubelet &&
        cell.company == Company::kNobody && SameGenerations(cell.pair, pair)) {
      ids.push_back(CellId(cell));
    }
  }
  return ids;
}

std::vector<std::string> CellsOf(const PairFact& fact, const Pair& pair) {
  std::vector<std::string> ids = CellsOn(Path::kBoot, pair);
  if (ids.empty() && fact.shown_by_kubelet != 0) {
    ids = CellsOn(Path::kBoot,
                  {{{1, fact.shown_by_kubelet}, {}}, {{1, fact.shown_by_proxy}, pair.proxy.mode}});
  }
  return ids;
}

std::string WhyRefused(const KubeletVersion& kubelet) { return GateText(kubelet, true); }

std::string GateWarning(const KubeletVersion& kubelet) { return GateText(kubelet, false); }

}  // namespace kipt::skew
