// SPDX-License-Identifier: Apache-2.0
#include "agent/audit/mark_path.h"

// Before linux/netfilter.h, or the two redefine each other.
#include <netinet/in.h>
// Then the kernel's.
#include <linux/netfilter.h>

#include <map>
#include <optional>
#include <set>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/match.h"
#include "absl/strings/string_view.h"
#include "agent/audit/chain_owner.h"
#include "agent/policy/rule_forms.h"

namespace kipt::agent {
namespace {

using netlink::ChainHook;
using netlink::Rule;
using netlink::Survey;
using netlink::SurveyChain;
using netlink::SurveyChains;
using netlink::SurveyRule;
using netlink::TableId;

// Where iptables' table nat marks and masquerades, and table filter drops.
constexpr int32_t kMarksAt = -100;
constexpr int32_t kMasqueradesAt = 100;
constexpr int32_t kDropsAt = 0;
// After the last hook of ip_vs in INPUT (ip_vs_ops: NF_IP_PRI_NAT_SRC - 1).
constexpr int32_t kAfterIpvs = 100;

// ---- which packets match ----

enum class Share : uint8_t { kNone, kSome, kAll };

// How many of the packets with `bit` match, as far as the test of the mark shows.
Share MarkShare(const netlink::MarkMatch& mark, uint32_t bit) {
  const bool differs = (mark.mask & bit) != 0 && (mark.value & bit) == 0;
  const bool equals = mark.mask == bit && mark.value == bit;
  if (mark.negated ? equals : differs) return Share::kNone;
  return (mark.negated ? differs : equals) ? Share::kAll : Share::kSome;
}

// How many of the packets with `bit`, or without it, match `rule`.
Share ShareOf(netlink::Family family, const SurveyRule& rule, uint32_t bit, bool marked) {
  const netlink::OpaqueRule* opaque = rule.opaque();
  if (opaque != nullptr && opaque->family && opaque->family != family) return Share::kNone;
  const std::optional<netlink::MarkMatch>& mark = KnownMatches(rule).mark;
  if (!mark) return TestsMarkAlone(rule) ? Share::kAll : Share::kSome;
  // Without the bit, each test of this one bit has the opposite result.
  Share share = marked ? MarkShare(*mark, bit) : Share::kSome;
  if (!marked && mark->mask == bit) {
    share = MarkShare({.value = mark->value ^ bit, .mask = bit, .negated = mark->negated}, bit);
  }
  return share != Share::kAll || TestsMarkAlone(rule) ? share : Share::kSome;
}

// ---- where packets pass ----

// Whether packets come with the bit; nothing where none comes that could have it, or it no longer
// matters. Another chain of the priority that acts may run before: it counts.
std::optional<bool> ComesMarked(const ChainHook& at, const MarkPath& path) {
  const auto until = [&](bool passes, int32_t last) {
    return passes && at.priority <= last ? std::optional<bool>(true) : std::nullopt;
  };
  switch (at.hook) {
    case NF_INET_PRE_ROUTING:
      return at.priority < kMarksAt ? std::nullopt : std::optional<bool>(at.priority > kMarksAt);
    case NF_INET_LOCAL_IN:
      return path.masquerades ? until(path.ipvs, kAfterIpvs - 1) : until(true, kDropsAt);
    case NF_INET_FORWARD:
      return path.masquerades ? until(true, INT32_MAX) : until(path.drops_forwarded, kDropsAt);
    case NF_INET_LOCAL_OUT:
      // What ip_vs sends has passed table nat in PREROUTING.
      if (path.masquerades && path.ipvs && !at.nat) return true;
      if (at.priority < kMarksAt) return std::nullopt;
      if (at.priority == kMarksAt) return false;
      return until(true, path.masquerades ? INT32_MAX : kDropsAt);
    case NF_INET_POST_ROUTING:
      return until(path.masquerades, kMasqueradesAt);
    default:
      return std::nullopt;
  }
}

// Outer packets of a tunnel, which inherit the mark of the inner ones: kube-ovn, for one, clears it
// there, because their checksums are wrong otherwise (flannel-io/flannel#1279).
bool IsOfTunnel(const SurveyRule& rule) {
  const netlink::OpaqueRule* opaque = rule.opaque();
  if (opaque == nullptr || !absl::StrContains(opaque->text, "-p udp ")) return false;
  // Geneve; VXLAN as assigned, and Linux' default.
  constexpr absl::string_view kPorts[] = {" --dport 6081 ", " --dport 4789 ", " --dport 8472 "};
  return absl::c_any_of(
      kPorts, [&](absl::string_view port) { return absl::StrContains(opaque->text, port); });
}

bool IsKubernetesOrOurs(Owner owner) { return IsKubernetes(owner) || owner == Owner::kThisAgent; }

// One table's chains, walked through as packets with the bit do.
class ClearedWalk {
 public:
  ClearedWalk(const MarkPath& path, const TableId& table, const SurveyChains& chains)
      : path_(path), table_(table), chains_(chains) {}

  // Whether packets may have the bit when they leave the chain, if those that come are `marked`.
  bool Visit(const std::string& name, const SurveyChain& chain, bool marked, int depth = 0) {
    const auto [known, is_new] = seen_.try_emplace({&chain, marked}, marked);
    if (!is_new || depth > netlink::kDeepestJump) return known->second;
    bool returned = false;
    for (const SurveyRule& rule : chain.rules) {
      const Share share = ShareOf(path_.family, rule, path_.bit, marked);
      if (share == Share::kNone) continue;
      const bool all = share == Share::kAll;
      marked = AfterMarks({&table_, &name, &rule}, chain.base, marked, all);
      const auto callee = chains_.find(std::string(JumpOf(rule)));
      bool leaving = marked;
      if (callee != chains_.end()) {
        leaving = Visit(callee->first, callee->second, marked, depth + 1);
        // kube-proxy's DNAT or ACCEPT keeps what it has marked to masquerade from the next rule.
        if (path_.masquerades && !marked && IsOfKubeProxy(callee->first)) leaving = false;
        // A goto.
        if (IsTerminal(rule)) returned = returned || leaving;
      } else if (Returns(rule)) {
        returned = returned || marked;
      }
      if (all && IsTerminal(rule)) {
        marked = false;
        break;
      }
      if (callee != chains_.end() && !IsTerminal(rule)) marked = leaving || (marked && !all);
    }
    return known->second = returned || marked;
  }

  const std::vector<MarkRule>& found() const { return found_; }

 private:
  // What `rule` does with the mark itself.
  bool AfterMarks(const MarkRule& at, bool base, bool marked, bool all) {
    const netlink::Marks marks = MarksOf(*at.rule);
    const bool clears = marked && (marks.cleared & path_.bit) != 0;
    const bool sets = !marked && (marks.set & path_.bit) != 0 && marks.set != netlink::kAllMarks;
    if (!clears && !sets) return marked;
    if (IsKubernetesOrOurs(OwnerOfRule(table_, *at.chain, base, *at.rule))) {
      return sets || !all;
    }
    if (clears && !IsOfTunnel(*at.rule) && !ActsInstead(at) && noted_.insert(at.rule).second)
      found_.push_back(at);
    return marked;
  }

  // What the rule clears, a later one of its chain masquerades or drops all the same.
  bool ActsInstead(const MarkRule& at) const {
    const std::vector<SurveyRule>& rules = chains_.at(*at.chain).rules;
    for (const SurveyRule* next = at.rule + 1; next != rules.data() + rules.size(); ++next) {
      const bool acts = IsMarkAction(*next, path_.masquerades);
      if (acts && IsUnconditional(*next)) return true;
      if (!acts && (IsTerminal(*next) || !JumpOf(*next).empty())) return false;
    }
    return false;
  }

  bool IsOfKubeProxy(const std::string& chain) const {
    const Owner owner = OwnerOfChain(table_, chain);
    return IsKubernetes(owner) && owner != Owner::kKubelet;
  }

  const MarkPath& path_;
  const TableId& table_;
  const SurveyChains& chains_;
  std::map<std::pair<const SurveyChain*, bool>, bool> seen_;
  std::set<const SurveyRule*> noted_;
  std::vector<MarkRule> found_;
};

// One table's chains, to find what acts on the bit.
class ActingWalk {
 public:
  ActingWalk(const MarkPath& path, const TableId& table, const SurveyChains& chains)
      : path_(path), table_(table), chains_(chains) {}

  // `only`: all packets that come have the bit.
  bool Acts(const std::string& name, const SurveyChain& chain, bool only, int depth = 0) {
    if (!seen_.insert({&chain, only}).second || depth > netlink::kDeepestJump) return false;
    for (const SurveyRule& rule : chain.rules) {
      const bool unmarked_match =
          ShareOf(path_.family, rule, path_.bit, /*marked=*/false) != Share::kNone;
      const bool marked_match =
          ShareOf(path_.family, rule, path_.bit, /*marked=*/true) != Share::kNone;
      const bool here = marked_match && (only || !unmarked_match || Requires(rule));
      const auto callee = chains_.find(std::string(JumpOf(rule)));
      if (callee != chains_.end() && marked_match &&
          !IsKubernetesOrOurs(OwnerOfChain(table_, callee->first)) &&
          Acts(callee->first, callee->second, here, depth + 1)) {
        return true;
      }
      if (here && IsMarkAction(rule, path_.masquerades) &&
          !IsKubernetesOrOurs(OwnerOfRule(table_, name, chain.base, rule))) {
        return true;
      }
      // What has no bit has left the chain.
      only = only || (!marked_match && IsTerminal(rule) &&
                      ShareOf(path_.family, rule, path_.bit, /*marked=*/false) == Share::kAll);
    }
    return false;
  }

 private:
  // A test of several bits, ours among them.
  bool Requires(const SurveyRule& rule) const {
    const std::optional<netlink::MarkMatch>& mark = KnownMatches(rule).mark;
    return mark && !mark->negated && (mark->mask & mark->value & path_.bit) != 0;
  }

  const MarkPath& path_;
  const TableId& table_;
  const SurveyChains& chains_;
  std::set<std::pair<const SurveyChain*, bool>> seen_;
};

}  // namespace

bool TestsMarkAlone(const SurveyRule& rule) {
  Rule known = KnownMatches(rule);
  known.target = netlink::NoTarget{};
  known.mark.reset();
  const netlink::OpaqueRule* opaque = rule.opaque();
  return IsUnconditional(known) &&
         (opaque == nullptr || (opaque->all_known && !opaque->in_interface));
}

bool PassesFamily(const TableId& table, netlink::Family family) {
  return table.family == netlink::FamilyName(family) || table.family == "inet";
}

bool IsMarkAction(const SurveyRule& rule, bool masquerades) {
  const std::string target = TargetName(rule);
  if (!masquerades) return target == "DROP" || target == "REJECT";
  // nft's statements `masquerade` and, where packets leave, `snat`; they are no targets.
  const netlink::OpaqueRule* opaque = rule.opaque();
  return target == "MASQUERADE" || target == "SNAT" ||
         (opaque != nullptr && (absl::StrContains(opaque->text, "[nft masq]") ||
                                absl::StrContains(opaque->text, "[nft nat]")));
}

std::vector<MarkRule> FindClearedMarks(const Survey& survey, const MarkPath& path) {
  std::vector<MarkRule> found;
  for (const auto& [table, chains] : survey.tables) {
    if (!PassesFamily(table, path.family)) continue;
    ClearedWalk walk(path, table, chains);
    for (const auto& [name, chain] : chains) {
      const std::optional<ChainHook> at = HookOf(table, name, chain);
      const std::optional<bool> marked = at ? ComesMarked(*at, path) : std::nullopt;
      if (marked) walk.Visit(name, chain, *marked);
      // Also before any rule jumps there.
      if (table.name == "nat" && (name == kMarkMasqChain || name == kMarkDropChain)) {
        walk.Visit(name, chain, /*marked=*/false);
      }
    }
    found.insert(found.end(), walk.found().begin(), walk.found().end());
  }
  return found;
}

bool OthersActOnMark(const Survey& survey, const MarkPath& path) {
  for (const auto& [table, chains] : survey.tables) {
    if (!PassesFamily(table, path.family)) continue;
    ActingWalk walk(path, table, chains);
    for (const auto& [name, chain] : chains) {
      const std::optional<ChainHook> at = HookOf(table, name, chain);
      if (!at || (at->hook == NF_INET_POST_ROUTING) != path.masquerades) continue;
      if (walk.Acts(name, chain, /*only=*/false)) return true;
    }
  }
  return false;
}

}  // namespace kipt::agent
