// SPDX-License-Identifier: Apache-2.0
#include "agent/policy/chain_diff.h"

#include <algorithm>
#include <cstddef>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "agent/policy/nft_copies.h"
#include "agent/policy/ownership.h"

namespace kipt::agent {
namespace {

using netlink::ObservedChain;
using netlink::ObservedRule;
using netlink::RuleHandle;

constexpr size_t kNone = static_cast<size_t>(-1);
constexpr char kDamaged[] = "damaged: it lost its match";

// A packet that matches reaches the next rule, without a way through another chain.
bool PassesOn(const ObservedRule& rule) {
  return !netlink::IsTerminal(rule) && !LeadsElsewhere(rule);
}

// That it turns on or off.
uint32_t BitsChanged(const ObservedRule& rule) {
  const netlink::Marks marks = netlink::MarksOf(rule);
  return marks.set | marks.cleared;
}

class ChainDiffer {
 public:
  ChainDiffer(const DesiredChain& desired, const std::vector<ObservedRule>& observed,
              const PolicyInput& input, bool claimed, netlink::Walk& walk, Diff& diff)
      : desired_(desired),
        observed_(observed),
        input_(input),
        claimed_(claimed),
        walk_(walk),
        diff_(diff),
        places_(observed_.size()),
        found_(desired.rules.size(), kNone) {
    for (const DesiredRule& rule : desired.rules) tested_.Add(rule.rule);
  }

  void Run() {
    const bool unguarded = FindDamages();
    FindOurs();
    // A working form that kube-proxy keeps is left alone: ours would last until its next sync.
    const bool complete = !absl::c_linear_search(found_, kNone);
    const bool theirs = !complete && claimed_ && !unguarded && LeaveToKubeProxy();
    if (!theirs) AddMissing();
    if (desired_.id.table == netlink::Table::kNat) ReportWhatPrecedes();
    for (size_t i = 0; i < observed_.size(); ++i) {
      const std::string& removal = places_[i].removal;
      if (removal.empty() || (theirs && removal != kDamaged)) continue;
      diff_.changes.push_back({Deletion(desired_.id, observed_[i]), removal});
    }
    ListStale();
  }

 private:
  // What an observed rule is, and what happens to it.
  struct Place {
    // Index of the desired rule that it is.
    size_t desired = kNone;
    // Else, what kubelet wrote.
    std::optional<KubeletForm> form = {};
    // Why it is removed; empty where it stays.
    std::string removal = {};
  };

  // True: there is damage that only our own rules, put before it, can repair.
  bool FindDamages() {
    bool unguarded = false;
    std::vector<Damage> damages = FindDamage(desired_.id, observed_);
    absl::c_move(FindForeignDrops(desired_.id, observed_, walk_), std::back_inserter(damages));
    absl::c_move(FindVoidedMarks(desired_.id, observed_), std::back_inserter(damages));
    for (const Damage& damage : damages) {
      const bool damaged = damage.condition == Condition::kDamagedRule;
      const bool repaired = damaged && (damage.delete_rule || input_.mode == Mode::kLegacy);
      diff_.findings.push_back({damage.condition, desired_.id, damage.message, repaired});
      unguarded |= damaged && !damage.delete_rule;
      if (damage.delete_rule) places_[damage.index].removal = kDamaged;
    }
    return unguarded;
  }

  void FindOurs() {
    for (size_t i = 0; i < observed_.size(); ++i) Judge(observed_[i], places_[i]);
    while (end_ < observed_.size() && !EndsOurs(end_)) ++end_;
    // Take each of ours where it is, the earlier first; in an ordered chain after the one before.
    size_t from = 0;
    for (size_t desired = 0; desired < found_.size(); ++desired) {
      for (size_t i = desired_.ordered ? from : 0; i < end_; ++i) {
        if (places_[i].desired != desired) continue;
        found_[desired] = i;
        from = i + 1;
        break;
      }
    }
    anchor_ = from;
    while (anchor_ < end_ && (claimed_ || !DecidesFirst(anchor_) || MayFeed(anchor_))) ++anchor_;
    std::vector<size_t> last = found_;  // of those that stay
    for (size_t i = 0; i < observed_.size(); ++i) {
      const size_t desired = places_[i].desired;
      if (desired == kNone || found_[desired] == i) continue;
      if (IsSecondTry(i, last[desired])) {
        last[desired] = i;
        continue;
      }
      places_[i].removal = found_[desired] != kNone ? "duplicate"
                           : i > end_               ? "comes after a rule that may decide first"
                                                    : "is out of order";
    }
  }

  // A copy is opaque.
  void Judge(const ObservedRule& observed, Place& place) const {
    if (const std::optional<NftCopy> copy = RecognizeCopy(desired_.id, observed)) {
      place.form = copy->form;
      if (copy->wrong || IsSuperseded(copy->form)) place.removal = kSupersededCopy;
    }
    if (observed.rule() == nullptr) return;
    const auto own = absl::c_find_if(desired_.rules, [&](const DesiredRule& candidate) {
      return candidate.rule == *observed.rule();
    });
    if (own != desired_.rules.end()) {
      place.desired = static_cast<size_t>(own - desired_.rules.begin());
      return;
    }
    place.form = RecognizeKubeletForm(desired_.id, *observed.rule());
    if (!place.form) return;
    if (IsSuperseded(*place.form)) {
      place.removal = absl::StrCat("superseded: ", place.form->description);
    }
  }

  // In cleanup mode nothing supersedes it (it is stale), and kube-proxy's is left alone. Another
  // label than ours in a chain of labels is superseded in both.
  bool IsSuperseded(const KubeletForm& form) const {
    return (input_.mode == Mode::kLegacy || form.label) &&
           !(form.shared_with_kube_proxy && claimed_);
  }

  // A rule that stays, is not of this chain's set, and may decide about a packet before ours do.
  bool DecidesFirst(size_t index) const {
    const ObservedRule& observed = observed_[index];
    const Place& place = places_[index];
    if (place.desired != kNone || !place.removal.empty()) return false;
    if (!PassesOn(observed)) return netlink::MayDecide(observed);
    // Ours sets the mark also after a rule that changes it; before, it would do so in vain.
    return netlink::MayDecide(observed) && !IsMarkingChain(desired_.id) &&
           (place.form || !MarksForOthers(observed));
  }

  // It changes marks, and none that ours act on.
  bool MarksForOthers(const ObservedRule& observed) const {
    return BitsChanged(observed) != 0 && !MayChange(observed, tested_);
  }

  // Whether it may set a mark that ours act on, so that ours act on fewer packets above it. Where
  // the order does not count, the one below stays besides (IsSecondTry).
  bool MayFeed(size_t index) const {
    return desired_.ordered && PassesOn(observed_[index]) &&
           (netlink::MarksSet(observed_[index]) & tested_.bits) != 0;
  }

  // Whether one of ours has an effect below `last`, which is equal, or below the place for it,
  // because another program's rule in between may change the mark that it tests or sets.
  bool IsSecondTry(size_t index, size_t last) const {
    if (desired_.ordered) return false;
    const netlink::Rule& rule = desired_.rules[places_[index].desired].rule;
    TestedMarks acts_on;
    acts_on.Add(rule);
    acts_on.bits |= netlink::MarksOf(rule).set;
    for (size_t i = last != kNone ? last : end_; i < index; ++i) {
      const Place& place = places_[i];
      if (place.desired == kNone && place.removal.empty() && MayChange(observed_[i], acts_on)) {
        return true;
      }
    }
    return false;
  }

  // Whether it decides for all packets: no packet passes the rule, or it changes the mark of each
  // that ours act on.
  bool DecidesForAll(size_t index) const {
    const ObservedRule& observed = observed_[index];
    return netlink::IsUnconditionalTerminal(observed) ||
           (netlink::IsUnconditional(observed) && (BitsChanged(observed) & tested_.bits) != 0);
  }

  // Ours belong before this rule. In table nat a rule that decides for some packets stays where it
  // is, as the hairpin rule of kube-proxy's IPVS mode does: to insert ours above would change which
  // packets are masqueraded. kube-proxy's next sync removes what decides for all of them.
  bool EndsOurs(size_t index) const {
    if (!DecidesFirst(index) || MayFeed(index)) return false;
    const netlink::Rule* rule = observed_[index].rule();
    return desired_.id.table != netlink::Table::kNat ||
           (rule != nullptr && (places_[index].form || LostItsMatch(desired_.id, *rule))) ||
           (!claimed_ && DecidesForAll(index));
  }

  void ReportWhatPrecedes() {
    size_t end = anchor_;
    for (size_t i = 0; i < observed_.size(); ++i) {
      const Place& place = places_[i];
      if (place.removal.empty() && (place.desired != kNone || place.form)) end = i;
    }
    std::vector<std::string> above;
    for (size_t i = 0; i < end; ++i) {
      if (!DecidesFirst(i) || places_[i].form || IsIpvsHairpin(observed_[i].opaque())) continue;
      above.push_back(absl::StrCat("\"", RuleText(desired_.id, observed_[i]), "\""));
      if (!DecidesForAll(i) || MayFeed(i)) continue;
      diff_.findings.push_back({Condition::kShadowedRules, desired_.id,
                                absl::StrCat(above.back(),
                                             " above these rules decides first "
                                             "about every packet: delete it"),
                                false});
      return;
    }
    if (above.empty()) return;
    const size_t more = above.size() - 1;
    diff_.findings.push_back(
        {Condition::kPrecedingRule, desired_.id,
         absl::StrCat(above.front(), more == 0 ? "" : absl::StrCat(" and ", more, " more"),
                      " above these rules ", more == 0 ? "decides" : "decide",
                      " first about the packets that match: nothing to do if that is intended"),
         false});
  }

  // Whether kube-proxy's rules do the work, in another form than ours; notes that.
  bool LeaveToKubeProxy() {
    std::vector<ObservedRule> whole;
    for (size_t i = 0; i < observed_.size(); ++i) {
      if (places_[i].removal != kDamaged) whole.push_back(observed_[i]);
    }
    const std::optional<int> bit = CompleteSetBit(desired_.id, whole);
    if (!bit.has_value()) return false;
    const int ours = input_.bits.masquerade;
    const bool conflict = *bit != ours;
    diff_.findings.push_back(
        {conflict ? Condition::kBitConflict : Condition::kOlderFormKept, desired_.id,
         conflict
             ? absl::StrCat("kube-proxy uses mark bit ", *bit, ", this agent was given bit ", ours,
                            ": give both the same --iptables-masquerade-bit; until then "
                            "kube-proxy's rules stay, and packets that others mark with bit ",
                            ours, " are not masqueraded")
             : "kube-proxy keeps an older form of these rules, which does the same work: "
               "nothing to do",
         false});
    return true;
  }

  void AddMissing() {
    int inserted = 0;
    for (size_t i = 0; i < desired_.rules.size(); ++i) {
      const DesiredRule& rule = desired_.rules[i];
      if (found_[i] != kNone) {
        diff_.in_place.push_back(
            {desired_.id, RuleText(desired_.id, observed_[found_[i]]), std::string(rule.reason)});
        continue;
      }
      const size_t before = Anchor(i);
      netlink::AddRule add = {.chain = desired_.id, .rule = rule.rule};
      if (before < observed_.size()) {
        add.before = observed_[before].handle;
        // Those inserted so far are above it.
        add.number = static_cast<int>(before) + ++inserted;
      }
      diff_.changes.push_back({std::move(add), std::string(rule.reason)});
    }
  }

  // The rule before which a missing one of ours is inserted; the end: append.
  size_t Anchor(size_t desired) const {
    if (!desired_.ordered) return anchor_;
    const auto later = std::find_if(found_.begin() + static_cast<ptrdiff_t>(desired), found_.end(),
                                    [](size_t index) { return index != kNone; });
    return later != found_.end() ? *later : anchor_;
  }

  // What a kubelet of another mode or bit left here, and no change removes.
  void ListStale() {
    for (size_t i = 0; i < observed_.size(); ++i) {
      const Place& place = places_[i];
      if (!place.form || !place.removal.empty()) continue;
      ListUndesired(input_, desired_.id, place.form->shared_with_kube_proxy && claimed_,
                    {desired_.id, RuleText(desired_.id, observed_[i]),
                     absl::StrCat(" (", place.form->description, ")")},
                    diff_);
    }
  }

  const DesiredChain& desired_;
  const std::vector<ObservedRule>& observed_;
  const PolicyInput& input_;
  bool claimed_;
  netlink::Walk& walk_;
  Diff& diff_;
  TestedMarks tested_;  // by ours
  std::vector<Place> places_;
  // Per desired rule: the index of the observed rule that is it; kNone where it must be added.
  std::vector<size_t> found_;
  // The first rule before which ours belong, and where a missing one is inserted if none of ours
  // comes after it.
  size_t end_ = 0;
  size_t anchor_ = 0;
};

}  // namespace

void TestedMarks::Add(const netlink::Rule& rule) {
  bits |= netlink::MarksOf(rule).tested;
  labels |= rule.conn_label.has_value();
}

bool LeadsElsewhere(const netlink::ObservedRule& rule) {
  return netlink::JumpTarget(rule) != nullptr ||
         (netlink::IsPerhapsTerminal(rule) && !netlink::IsTerminal(rule));
}

bool MayChange(const netlink::ObservedRule& rule, const TestedMarks& tested) {
  if ((BitsChanged(rule) & tested.bits) != 0) return true;
  if (tested.labels && netlink::LabelsSet(rule).any()) return true;
  return LeadsElsewhere(rule) && (tested.bits != 0 || tested.labels);
}

std::string ChainText(const netlink::ChainId& chain) {
  return absl::StrCat(":", chain.name, " - [0:0]");
}

std::string WhyNotDesired(const PolicyInput& input, const netlink::ChainId& chain) {
  if (!IsLabelChain(chain)) return absl::StrCat("not part of ", ModeName(input.mode), " mode");
  return input.labels ? "this node has no connection labels" : "ConnLabelMarking is off";
}

namespace {

std::string WhyStale(const PolicyInput& input, const netlink::ChainId& chain) {
  if (input.mode == Mode::kOff) return "stale, kept: --make-iptables-util-chains=false";
  if (!absl::c_linear_search(input.families, chain.family)) {
    return "stale, kept: this family is not managed (--ip-families)";
  }
  return absl::StrCat("stale, kept: ", WhyNotDesired(input, chain));
}

}  // namespace

void ListUndesired(const PolicyInput& input, const netlink::ChainId& chain, bool kube_proxys,
                   ExistingItem item, Diff& diff) {
  item.reason = absl::StrCat(
      kube_proxys ? "kube-proxy's: it uses this chain too" : WhyStale(input, chain), item.reason);
  (kube_proxys ? diff.of_kube_proxy : diff.stale).push_back(std::move(item));
}

void DiffChain(const DesiredChain& desired, const ObservedChain* observed, const PolicyInput& input,
               bool claimed, netlink::Walk& walk, Diff& diff) {
  if (observed == nullptr) {
    diff.changes.push_back({netlink::CreateChain{desired.id}, std::string(desired.reason)});
  } else {
    diff.in_place.push_back({desired.id, ChainText(desired.id), std::string(desired.reason)});
  }
  const std::vector<ObservedRule> none;
  ChainDiffer(desired, observed != nullptr ? observed->rules : none, input, claimed, walk, diff)
      .Run();
}

}  // namespace kipt::agent
