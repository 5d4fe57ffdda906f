// SPDX-License-Identifier: Apache-2.0
//
// All tables of one iptables mode, of any family and program. Backend::Read asks for chains by
// name; a Survey has everything.
#ifndef KIPT_NETLINK_SURVEY_H_
#define KIPT_NETLINK_SURVEY_H_

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "netlink/ruleset.h"

namespace kipt::netlink {

// {"ip", "nat"}, {"inet", "firewalld"}.
struct TableId {
  // "ip", "ip6", "inet", "arp", "bridge" or "netdev", as nft(8) names them.
  std::string family;
  std::string name;

  auto operator<=>(const TableId&) const = default;
};

// "ip nat".
std::string ToString(const TableId& table);

// A rule, and how the kernel or the save that it was read from spells it.
struct SurveyRule : ObservedRule {
  // Set where a Rule has its options in another order than ToString gives them.
  std::string spelling = {};
};

// What iptables-save prints after "-A CHAIN ". For people: nothing is decided by it.
std::string ToString(const TableId& table, const SurveyRule& rule);

// Where the kernel runs a base chain.
struct ChainHook {
  uint32_t hook = 0;     // enum nf_inet_hooks; of families other than ip, ip6 and inet their own
  int32_t priority = 0;  // smaller ones run first
  bool nat = false;      // type nat: sees the first packet of a connection only

  bool operator==(const ChainHook&) const = default;
};
// The family is ip or ip6, and the name is that of one of iptables' five tables.
bool IsIptablesTable(const TableId& table);
// That of a base chain of iptables' tables, by its name, in any of the five tables.
std::optional<ChainHook> HookOfIptables(absl::string_view table, absl::string_view chain);

struct SurveyChain;
using SurveyChains = std::map<std::string, SurveyChain>;

struct SurveyChain {
  // It has a hook: packets reach it without a jump.
  bool base = false;
  // A base chain's: "ACCEPT" or "DROP". Empty where that is not known.
  std::string policy = {};
  std::vector<SurveyRule> rules = {};
  // A base chain's; none where it is not known, as in a text, whose tables are those of iptables.
  std::optional<ChainHook> hook = {};

  // Without the hook, which no save of iptables shows.
  friend bool operator==(const SurveyChain& a, const SurveyChain& b) {
    return a.base == b.base && a.policy == b.policy && a.rules == b.rules;
  }
};

// That of a base chain, or of iptables where the chain's own is not known; none of other chains.
std::optional<ChainHook> HookOf(const TableId& table, const std::string& name,
                                const SurveyChain& chain);

struct Survey {
  // "nft" or "legacy"; empty for a text of unknown origin.
  std::string mode;
  // As Snapshot::generation.
  uint32_t generation = 0;
  // Tables without chains are there, empty.
  std::map<TableId, SurveyChains> tables;
  // nft: their base chains get no packet.
  std::set<TableId> dormant = {};
  // nft: maps there have elements that jump to chains, which no rule shows.
  std::set<TableId> jumping_maps = {};
  // Names of tables that a text mentions and does not print (iptables-save: "is incompatible").
  std::set<std::string> not_printed = {};

  // Null where it does not exist.
  const SurveyChain* Find(const TableId& table, const std::string& chain) const;

  bool operator==(const Survey&) const = default;
};

// Which rules a survey keeps; the others, perhaps tens of thousands, take no memory. Empty: all.
using SurveyFilter =
    std::function<bool(const TableId& table, const std::string& chain, const SurveyRule& rule)>;

// Sees every chain and rule of a survey as they are read, and chooses what is kept: for readers
// that need a few of very many, in little memory.
class SurveySieve {
 public:
  virtual ~SurveySieve() = default;

  // The next chain; its rules follow. An error ends the survey with it. May wait, but the longer a
  // survey takes, the likelier another program's commit interrupts it.
  virtual absl::Status Begin(const TableId& table, const std::string& chain, bool base) = 0;
  virtual bool Keep(const SurveyRule& rule) = 0;
  // Whether to keep that chain, of which no rule was kept.
  virtual bool KeepBare() = 0;
};

// What `sieve` keeps of a survey that was read already.
absl::StatusOr<Survey> Sifted(Survey survey, SurveySieve& sieve);

// In the form of iptables-save -c, one *table block per family and table; "# ip" heads each.
std::string ToString(const Survey& survey);

// Shows whether iptables-nft is in use at all.
struct ListedChain {
  ChainId id;
  bool base = false;  // it has a hook
  // NFTA_CHAIN_USE: its rules and, for a chain without a hook, the rules that jump to it.
  uint32_t use = 0;

  bool operator==(const ListedChain&) const = default;
};

// The chains of the tables mangle, nat and filter of `family` in the calling thread's network
// namespace, in the kernel's order, without rules; up to the first that `is_last`, because the
// kernel takes seconds for tens of thousands of chains. Creates nothing, but the kernel loads
// nf_tables.
//
// Unavailable: this kernel has no nf_tables. Aborted: other programs kept changing the ruleset.
// PermissionDenied: CAP_NET_ADMIN is missing. Other codes as kernel_error.h maps them.
absl::StatusOr<std::vector<ListedChain>> ListNftChains(
    Family family, const std::function<bool(const ListedChain&)>& is_last = {});

}  // namespace kipt::netlink

#endif  // KIPT_NETLINK_SURVEY_H_
