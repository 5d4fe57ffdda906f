// SPDX-License-Identifier: Apache-2.0
//
// The audit judges a chain by the kube-proxy that is on the node now; an upgrade is judged by those
// that the plan names.
#include "tests/skew/advise/live_facts.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/string_view.h"
#include "agent/audit/audit.h"
#include "agent/audit/chain_owner.h"

namespace kipt::skew {
namespace {

using agent::AuditFinding;
using agent::AuditKind;
using agent::AuditSeverity;
using agent::FamilyChains;
using agent::KubeProxyFacts;
using agent::KubeProxyMode;

constexpr uint32_t kMasqueradeMark = uint32_t{1} << 14;
constexpr uint32_t kDropMark = uint32_t{1} << 15;
constexpr absl::string_view kMarkDrop = "nat/KUBE-MARK-DROP";

bool Lives(const KubeProxyFacts& proxy) {
  return proxy.mode == KubeProxyMode::kIptables || proxy.mode == KubeProxyMode::kIpvs ||
         proxy.mode == KubeProxyMode::kNftables;
}

class Facts {
 public:
  Facts(const agent::NodeView& view, const UpgradePlan& plan)
      : view_(view),
        plan_(plan),
        proxy_from_(plan.proxy_from.value_or(ProxyVersion{plan.from.version})),
        proxy_to_(plan.proxy_to.value_or(ProxyVersion{plan.to.version, proxy_from_.mode})) {}

  LiveNode Find() && {
    const agent::AuditReport report = agent::Audit(
        {&view_, 1}, {.mode = CleansUp(plan_.from) ? agent::Mode::kCleanup : agent::Mode::kLegacy});
    for (const KubeProxyFacts& proxy : report.kube_proxy) AddProxy(proxy);
    for (const AuditFinding& finding : report.findings) AddFinding(finding);
    for (const netlink::Survey& survey : view_.surveys) {
      for (const netlink::Family family : netlink::kFamilies) {
        const FamilyChains chains(survey, family);
        AddBits(chains);
        AddResidue(chains);
      }
    }
    std::stable_sort(node_.facts.begin(), node_.facts.end(),
                     [](const auto& a, const auto& b) { return a.blocking > b.blocking; });
    return std::move(node_);
  }

 private:
  std::string To() const { return absl::StrCat("kubelet ", ToString(plan_.to)); }
  std::string ProxyTo() const { return absl::StrCat("kube-proxy ", ToString(proxy_to_)); }

  void Add(std::string what, std::string means, bool blocking) {
    LiveNode::Fact fact = {std::move(what), std::move(means), blocking};
    const bool known = std::any_of(node_.facts.begin(), node_.facts.end(), [&](const auto& other) {
      return other.what == fact.what && other.means == fact.means;
    });
    if (!known) node_.facts.push_back(std::move(fact));
  }

  // ---- kube-proxy itself ----

  void AddProxy(const KubeProxyFacts& proxy) {
    if (!Lives(proxy)) return;
    const std::string text = absl::StrCat(std::string(agent::KubeProxyModeName(proxy.mode)),
                                          " mode, ", agent::GenerationText(proxy));
    // IPv4 comes first.
    if (!node_.proxy_generation.has_value()) node_.proxy_generation = text;
    const int minor = proxy_from_.version.minor;
    const bool fits =
        std::string(agent::KubeProxyModeName(proxy.mode)) == NameOf(proxy_from_.mode) &&
        (proxy.oldest == 0 || proxy.oldest <= minor) &&
        (proxy.newest == 0 || minor <= proxy.newest);
    if (fits) return;
    Add(absl::StrCat("kube-proxy's rules are those of ", text, ", but the plan assumes ",
                     ToString(proxy_from_)),
        "Run advise again with the version and mode that this node has.", true);
  }

  // ---- what the audit found ----

  void AddFinding(const AuditFinding& finding) {
    switch (finding.kind) {
      case AuditKind::kChainUser:
      case AuditKind::kCniConfig:
      case AuditKind::kMarkBitSet:
        if (finding.severity != AuditSeverity::kInfo) AddUser(finding);
        return;
      case AuditKind::kKubeProxyUsesMarkDrop:
        if (finding.severity != AuditSeverity::kInfo) AddProxyThatMarks(finding);
        return;
      case AuditKind::kMarkMasqEmpty:
      case AuditKind::kMarkMasqUnheard:
      case AuditKind::kMarkDropEmpty:
      case AuditKind::kMarkDropUnheard:
        if (finding.count != 0) Quote(finding, "Already now: ");
        return;
      case AuditKind::kPrivateChainUser:
      case AuditKind::kForeignRule:
      case AuditKind::kMarkBitTested:
      case AuditKind::kMarkBitCleared:
      case AuditKind::kIpRuleFwmark:
      case AuditKind::kDeviceMark:
      case AuditKind::kRouteLocalnetExposed:
      case AuditKind::kSameChainInBothModes:
      case AuditKind::kShadowedByOtherMode:
      case AuditKind::kTwoHints:
      case AuditKind::kIptablesProbeFails:
      case AuditKind::kFamilySkipped:
      case AuditKind::kTableIncompatible:
      case AuditKind::kKubeProxyLeftOver:
      case AuditKind::kKubeProxyJumpLost:
      case AuditKind::kKpng:
      case AuditKind::kCniConfigUnreadable:
      case AuditKind::kNotSeen:
        Quote(finding, "");
        return;
      // Nothing to do, or of changes that advise does not plan.
      default:
        return;
    }
  }

  void Quote(const AuditFinding& finding, absl::string_view prefix) {
    if (finding.severity == AuditSeverity::kInfo && finding.kind != AuditKind::kKubeProxyLeftOver) {
      return;
    }
    std::string means = finding.consequence;
    if (!finding.remedy.empty()) absl::StrAppend(&means, means.empty() ? "" : " ", finding.remedy);
    std::string what = finding.message;
    if (!finding.details.empty()) absl::StrAppend(&what, " (", finding.details.front(), ")");
    Add(std::move(what), means.empty() ? means : absl::StrCat(std::string(prefix), means), false);
  }

  // Somebody uses `finding.chain`, or what it does to a mark.
  void AddUser(const AuditFinding& finding) {
    std::string what = finding.message;
    if (!finding.rules.empty()) {
      absl::StrAppend(&what, " (-A ", finding.rules.front().chain, " ", finding.rules.front().text,
                      ")");
    } else if (!finding.details.empty()) {
      absl::StrAppend(&what, " (", finding.details.front(), ")");
    }
    const auto [blocking, fate] = FateOf(finding);
    Add(std::move(what), blocking ? absl::StrCat(fate, " ", finding.remedy) : fate, blocking);
  }

  // What becomes of the chain that `finding` is about, and whether its users lose by it.
  std::pair<bool, std::string> FateOf(const AuditFinding& finding) const {
    const bool drops = finding.chain == std::string(kMarkDrop);
    const bool masquerades = absl::StrContains(finding.chain, "KUBE-MARK-MASQ") ||
                             absl::StrContains(finding.chain, "KUBE-POSTROUTING");
    if (!drops && !masquerades) return {false, finding.consequence};
    if (CleansUp(plan_.to)) {
      if (drops) {
        return {true,
                absl::StrCat(To(), " does not keep KUBE-MARK-DROP: it works until you reboot, ",
                             "and then drops nothing.")};
      }
      if (proxy_to_.mode == ProxyMode::kNftables) {
        return {true, absl::StrCat("Neither ", To(), " nor ", ProxyTo(),
                                   " makes KUBE-MARK-MASQ: it ", "works until you reboot.")};
      }
      return {false, absl::StrCat(ProxyTo(),
                                  " also makes the chain, but Kubernetes does not promise "
                                  "it.")};
    }
    if (drops && proxy_to_.mode == ProxyMode::kIptables &&
        Does(proxy_to_.version, Trait::kOwnMartianRule) && finding.family != "ip6") {
      return {true, absl::StrCat(ProxyTo(), " empties IPv4's filter/KUBE-FIREWALL at every sync: ",
                                 "what this marks is not dropped.")};
    }
    return {false, absl::StrCat(To(), " keeps the chain.")};
  }

  void AddProxyThatMarks(const AuditFinding& finding) {
    const bool stays = MarksToDrop(proxy_to_);
    if (!CleansUp(plan_.to)) {
      Add(finding.message, absl::StrCat(To(), " keeps filling it."), false);
    } else if (stays) {
      Add(finding.message,
          absl::StrCat(To(), " does not fill it, and ", ProxyTo(), " needs it filled. ",
                       finding.remedy),
          true);
    } else {
      Add(finding.message,
          absl::StrCat("It must be ", ProxyTo(), " before kubelet is ", ToString(plan_.to), "."),
          false);
    }
  }

  // ---- marks and residue ----

  static uint32_t BitsSetIn(const FamilyChains& chains, absl::string_view name) {
    uint32_t bits = 0;
    const netlink::SurveyChain* chain = chains.Find("nat", name);
    if (chain == nullptr) return bits;
    for (const netlink::SurveyRule& rule : chain->rules) bits |= MarksSet(rule);
    return bits;
  }

  void AddBits(const FamilyChains& chains) {
    const uint32_t masquerade = BitsSetIn(chains, "KUBE-MARK-MASQ");
    if ((masquerade & ~kMasqueradeMark) != 0) {
      const bool both = (masquerade & kMasqueradeMark) != 0;
      Add(absl::StrFormat("nat/KUBE-MARK-MASQ sets mark 0x%x, not 0x%x alone", masquerade,
                          kMasqueradeMark),
          absl::StrCat(
              both ? "kubelet and kube-proxy have different masquerade bits. "
                   : "kube-proxy's --iptables-masquerade-bit is not 14. ",
              "kube-proxy's bit counts; packets that another program marks with 0x4000 are not "
              "masqueraded. Give kubelet the same bit up to 1.27, and no such flag from 1.31 on."),
          false);
    }
    const uint32_t drop = BitsSetIn(chains, "KUBE-MARK-DROP");
    if ((drop & ~kDropMark) != 0) {
      Add(absl::StrFormat("nat/KUBE-MARK-DROP sets mark 0x%x, not 0x%x", drop, kDropMark),
          "kubelet was given --iptables-drop-bit: it has no effect from 1.28 on, and kubelet 1.31 "
          "does not start with it.",
          !Does(plan_.to.version, Trait::kBitFlags) && Does(plan_.from.version, Trait::kBitFlags));
    }
    if (masquerade != 0 && (masquerade & drop) != 0) {
      Add(absl::StrFormat("mark 0x%x means both masquerade and drop", masquerade & drop),
          "Connections from the node itself to a service are dropped: configure two different "
          "bits.",
          false);
    }
  }

  void AddResidue(const FamilyChains& chains) {
    if (!CleansUp(plan_.from)) return;
    const bool proxy_makes_drop = MarksToDrop(proxy_from_);
    const bool filled = BitsSetIn(chains, "KUBE-MARK-DROP") != 0;
    if (filled || (chains.Has("nat", "KUBE-MARK-DROP") && !proxy_makes_drop)) {
      Add(absl::StrCat(std::string(kMarkDrop), " exists, but kubelet ", ToString(plan_.from),
                       " does not make it"),
          filled && proxy_makes_drop
              ? "An older kubelet left it, and kube-proxy uses it to drop packets. This works "
                "until you reboot; then these packets are let through."
              : "An older kubelet left it: programs that use it work until you reboot.",
          false);
    }
    if (chains.Has("nat", "KUBE-MARK-MASQ") && proxy_from_.mode == ProxyMode::kNftables) {
      Add(absl::StrCat("nat/KUBE-MARK-MASQ exists, but neither kubelet ", ToString(plan_.from),
                       " nor kube-proxy's nftables mode makes it"),
          "An older version left it: programs that use it work until you reboot.", false);
    }
  }

  const agent::NodeView& view_;
  const UpgradePlan& plan_;
  const ProxyVersion proxy_from_;
  const ProxyVersion proxy_to_;
  LiveNode node_;
};

}  // namespace

LiveNode LiveFacts(const agent::NodeView& view, const UpgradePlan& plan) {
  return Facts(view, plan).Find();
}

}  // namespace kipt::skew
