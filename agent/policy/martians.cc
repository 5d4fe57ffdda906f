// SPDX-License-Identifier: Apache-2.0
#include "agent/policy/martians.h"

// Before linux/netfilter.h, or the two redefine each other.
#include <netinet/in.h>
// Then the kernel's.
#include <linux/netfilter.h>

#include <algorithm>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <variant>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "agent/policy/rule_forms.h"
#include "netlink/reach.h"

namespace kipt::agent {
namespace {

using netlink::ChainId;
using netlink::Family;
using netlink::ObservedChain;
using netlink::ObservedRule;
using netlink::Table;

ChainId Firewall() { return {Family::kIPv4, Table::kFilter, std::string(kFirewallChain)}; }
ChainId Input() { return {Family::kIPv4, Table::kFilter, "INPUT"}; }
bool IsIPv4Filter(const ChainId& id) {
  return id.family == Family::kIPv4 && id.table == Table::kFilter;
}

// Whether another program's rule drops every packet that comes so far.
bool DropsTheRest(const ObservedChain& input, netlink::Walk& walk) {
  for (const ObservedRule& rule : input.rules) {
    if (walk.Drops(Input(), rule)) return true;
    if (walk.Stops(Input(), rule)) return false;
  }
  return false;
}

bool HoldsMartianRule(const ObservedChain& firewall, netlink::Walk& walk) {
  for (const ObservedRule& rule : firewall.rules) {
    if (IsMartianRule(rule) || walk.Drops(Firewall(), rule)) return true;
    if (walk.Stops(Firewall(), rule)) return false;
  }
  return false;
}

// ---- what other programs' rules do with martian packets ----

using netlink::OpaqueRule;
using netlink::PrefixMatch;
using netlink::SurveyChain;
using netlink::SurveyChains;
using netlink::SurveyRule;

enum class Share : uint8_t { kNone, kSome, kAll };

// How many addresses of 127.0.0.0/8, or with `outside` of all others, match.
Share AddressShare(const std::optional<PrefixMatch>& match, bool outside) {
  if (!match) return Share::kAll;
  const netlink::Prefix& prefix = match->prefix;
  const uint8_t shared = netlink::PrefixMask(std::min<uint8_t>(prefix.length, 8))[0];
  const bool overlaps = ((prefix.address[0] ^ 127) & shared) == 0;
  const bool covers = overlaps && prefix.length <= 8;
  const bool covered = overlaps && prefix.length >= 8;
  Share share = covers ? Share::kAll : overlaps ? Share::kSome : Share::kNone;
  if (outside) {
    share = prefix.length == 0 ? Share::kAll : covered ? Share::kNone : Share::kSome;
  }
  if (!match->negated || share == Share::kSome) return share;
  return share == Share::kAll ? Share::kNone : Share::kAll;
}

// Judges the first packet of a connection, without which no other follows.
Share StateShare(const std::optional<netlink::CtStateMatch>& match) {
  constexpr uint16_t kLater = netlink::kCtRelated | netlink::kCtEstablished | netlink::kCtDnat;
  if (!match) return Share::kAll;
  if ((match->states & ~kLater) != 0) return Share::kSome;
  return match->negated ? Share::kAll : Share::kNone;
}

// How many martian packets match; no packet of lo is one.
Share MartianShare(const SurveyRule& rule, bool lo_is_loopback) {
  const netlink::Rule& known = KnownMatches(rule);
  const OpaqueRule* opaque = rule.opaque();
  Share interface = Share::kAll;
  if (opaque != nullptr && opaque->in_interface) {
    const bool of_lo = lo_is_loopback && opaque->in_interface->name == "lo";
    interface = !of_lo ? Share::kSome : opaque->in_interface->negated ? Share::kAll : Share::kNone;
  }
  const bool of_ipv4 = opaque == nullptr || opaque->family.value_or(Family::kIPv4) == Family::kIPv4;
  const bool more = known.mark || known.conn_label || (opaque != nullptr && !opaque->all_known);
  return std::min({of_ipv4 ? Share::kAll : Share::kNone, interface, StateShare(known.ct_state),
                   AddressShare(known.source, /*outside=*/true),
                   AddressShare(known.destination, /*outside=*/false),
                   more ? Share::kSome : Share::kAll});
}

// Neither keeps a packet from the next rule nor changes its path.
bool PassesOn(const SurveyRule& rule) {
  // nft's rules may have more statements than the one that gives them their name.
  if (IsPerhapsTerminal(rule)) return false;
  constexpr absl::string_view kNames[] = {"MARK", "CONNMARK", "CT", "NOTRACK"};
  return rule.rule() != nullptr || !MayDecide(rule) ||
         absl::c_linear_search(kNames, TargetName(rule));
}

// What becomes of the martian packets that come to a chain.
enum class Fate : uint8_t {
  kDropped,
  kLeave,    // some return, and none is accepted
  kMayPass,  // some may be accepted
};

// Judges each chain of a table once, however many paths lead to it.
class Judge {
 public:
  Judge(const SurveyChains& chains, bool lo_is_loopback)
      : chains_(chains), lo_is_loopback_(lo_is_loopback) {}

  Fate FateIn(const SurveyChain& chain, int depth = 0) {
    // A circle, which only a text can have, may lead anywhere.
    const auto [known, is_new] = fates_.try_emplace(&chain, Fate::kMayPass);
    if (is_new && depth <= netlink::kDeepestJump) known->second = FateOfRules(chain, depth);
    return known->second;
  }

 private:
  Fate FateOfRules(const SurveyChain& chain, int depth) {
    bool some_left = false;
    const auto dropped = [&] { return some_left ? Fate::kLeave : Fate::kDropped; };
    for (const SurveyRule& rule : chain.rules) {
      const Share share = MartianShare(rule, lo_is_loopback_);
      if (share == Share::kNone) continue;
      if (const std::string* jump = netlink::JumpTarget(rule)) {
        const auto callee = chains_.find(*jump);
        if (callee == chains_.end()) return Fate::kMayPass;
        const Fate fate = FateIn(callee->second, depth + 1);
        if (fate == Fate::kMayPass) return fate;
        if (fate == Fate::kDropped && share == Share::kAll) return dropped();
        // From a goto they return to the caller.
        some_left |= fate == Fate::kLeave && IsTerminal(rule);
      } else if (DropsMatches(rule)) {
        if (share == Share::kAll) return dropped();
      } else if (Returns(rule)) {
        if (share == Share::kAll) return Fate::kLeave;
        some_left = true;
      } else if (!PassesOn(rule)) {
        return Fate::kMayPass;
      }
    }
    return chain.policy == "DROP" ? Fate::kDropped : Fate::kLeave;
  }

  const SurveyChains& chains_;
  const bool lo_is_loopback_;
  std::map<const SurveyChain*, Fate> fates_;
};

// Table ip filter once `changes` are made. An observed chain without rules is left out, because
// perhaps only its existence was asked for.
SurveyChains FilterAfter(const netlink::Snapshot& observed, absl::Span<const Change> changes) {
  SurveyChains chains;
  for (const auto& [id, chain] : observed.chains) {
    if (!IsIPv4Filter(id)) continue;
    for (const ObservedRule& rule : chain.rules) chains[id.name].rules.push_back({rule});
  }
  for (const Change& change : changes) {
    const auto* add = std::get_if<netlink::AddRule>(&change.operation);
    if (add == nullptr || !IsIPv4Filter(add->chain)) continue;
    std::vector<SurveyRule>& rules = chains[add->chain.name].rules;
    const auto next =
        absl::c_find_if(rules, [&](const SurveyRule& rule) { return add->before == rule.handle; });
    rules.insert(next, {{.content = add->rule}});
  }
  for (const Change& change : changes) {
    const auto* remove = std::get_if<netlink::DeleteRule>(&change.operation);
    if (remove == nullptr || !IsIPv4Filter(remove->chain)) continue;
    std::erase_if(chains[remove->chain.name].rules,
                  [&](const SurveyRule& rule) { return rule.handle == remove->handle; });
  }
  return chains;
}

// Before a program of this node gets them. Chains of type nat see the first packet only.
bool SeesMartians(const netlink::TableId& table, const std::string& name,
                  const SurveyChain& chain) {
  if (table.family != "ip" && table.family != "inet") return false;
  const std::optional<netlink::ChainHook> hook = HookOf(table, name, chain);
  return hook && !hook->nat &&
         (hook->hook == NF_INET_PRE_ROUTING || hook->hook == NF_INET_LOCAL_IN);
}

}  // namespace

std::string WhoDropsMartians(const netlink::Survey& survey, bool lo_is_loopback) {
  for (const auto& [table, chains] : survey.tables) {
    if (survey.dormant.contains(table)) continue;
    Judge judge(chains, lo_is_loopback);
    for (const auto& [name, chain] : chains) {
      if (!SeesMartians(table, name, chain) || judge.FateIn(chain) != Fate::kDropped) continue;
      return absl::StrCat("chain ", name, " of table ", netlink::ToString(table));
    }
  }
  return "";
}

bool IsMartianRule(const ObservedRule& rule) {
  return rule.rule() != nullptr && *rule.rule() == DropMartians(0);
}

MartianProtection FindMartianProtection(const netlink::Snapshot& observed) {
  MartianProtection protection;
  if (observed.native) {
    protection.in_place = !observed.native->altered;
    protection.dropped = protection.dropped_natively = observed.native->counters.packets;
  }
  const ObservedChain* firewall = observed.Find(Firewall());
  const ObservedChain* input = observed.Find(Input());
  netlink::Walk walk(observed);
  protection.dormant = observed.dormant.count({Family::kIPv4, Table::kFilter}) != 0;
  const bool hooked = input != nullptr && input->hooked;
  protection.way = hooked && walk.Leads(Input(), Firewall());
  protection.in_place |= hooked && !protection.dormant && DropsTheRest(*input, walk);
  if (firewall == nullptr) return protection;
  protection.rule = HoldsMartianRule(*firewall, walk);
  protection.in_place |= protection.rule && protection.way && !protection.dormant;
  for (const ObservedRule& rule : firewall->rules) {
    if (IsMartianRule(rule)) protection.dropped += rule.counters.packets;
  }
  return protection;
}

bool DropsEveryMartian(const netlink::Snapshot& observed, absl::Span<const Change> changes) {
  const bool woken = absl::c_any_of(changes, [](const Change& change) {
    const auto* wake = std::get_if<netlink::WakeTable>(&change.operation);
    return wake != nullptr && IsIPv4Filter(wake->chain);
  });
  if (!woken && observed.dormant.contains({Family::kIPv4, Table::kFilter})) return false;
  const SurveyChains chains = FilterAfter(observed, changes);
  const auto input = chains.find(Input().name);
  // An interface "lo" may be another one than loopback.
  return input != chains.end() &&
         Judge(chains, /*lo_is_loopback=*/false).FateIn(input->second) == Fate::kDropped;
}

bool MartianProtectionExists(MartianProtection found, absl::Span<const Change> applied) {
  if (found.in_place) return true;
  // We put rules where packets reach them.
  for (const Change& change : applied) {
    const ChainId& chain = netlink::ChainOf(change.operation);
    if (std::holds_alternative<netlink::PutNativeTable>(change.operation)) return true;
    if (const auto* add = std::get_if<netlink::AddRule>(&change.operation)) {
      const auto* jump = std::get_if<netlink::Jump>(&add->rule.target);
      found.rule |= chain == Firewall() && add->rule == DropMartians(0);
      found.way |= chain == Input() && jump != nullptr && jump->chain == kFirewallChain;
    } else if (std::holds_alternative<netlink::WakeTable>(change.operation)) {
      found.dormant &= chain.family != Family::kIPv4 || chain.table != Table::kFilter;
    }
  }
  return found.rule && found.way && !found.dormant;
}

uint64_t CountedSince(std::optional<uint64_t>& seen, uint64_t now) {
  const std::optional<uint64_t> before = std::exchange(seen, now);
  if (!before) return 0;
  return now >= *before ? now - *before : now;
}

}  // namespace kipt::agent
