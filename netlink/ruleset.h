// SPDX-License-Identifier: Apache-2.0
//
// File: netlink/ruleset.h
//
// Values that say what stands, or should stand, in the kernel: families, tables, chains, rules, and
// the Snapshot of what was observed. Their text is iptables-save(8)'s, because that is what
// operators and other programs that write rules speak.
//
//   Rule rule;
//   rule.mark = MarkMatch{.value = 0x8000, .mask = 0x8000};
//   rule.target = Drop{};
//   ToString(rule);  // "-m mark --mark 0x8000/0x8000 -j DROP"
//
// The vocabulary is closed on purpose. Whatever the kernel holds beyond it is an OpaqueRule: it has
// a text and a place, but it never equals a Rule, so nothing can mistake it for one of ours.
//
// Everything here is a plain value: comparable, printable, safe to copy between threads.
#ifndef KIPT_NETLINK_RULESET_H_
#define KIPT_NETLINK_RULESET_H_

#include <array>
#include <bitset>
#include <compare>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace kipt::netlink {

enum class Family : uint8_t { kIPv4, kIPv6 };
inline constexpr std::array<Family, 2> kFamilies = {Family::kIPv4, Family::kIPv6};

// "ip" or "ip6", as nft(8) names them.
absl::string_view FamilyName(Family family);

// The tables iptables-nft and iptables-legacy share. `raw` and `security` hold nothing of ours.
enum class Table : uint8_t { kMangle, kNat, kFilter };
inline constexpr std::array<Table, 3> kTables = {Table::kMangle, Table::kNat, Table::kFilter};

absl::string_view TableName(Table table);

// A chain that iptables calls built-in and nf_tables calls a base chain, as iptables-nft makes it.
// A chain of such a name with another hook or type is somebody else's invention: iptables-nft then
// calls the whole table incompatible.
struct BaseChain {
  Table table;
  const char* name;
  uint32_t hook;     // enum nf_inet_hooks, linux/netfilter.h
  int32_t priority;  // enum nf_ip_hook_priorities, linux/netfilter_ipv4.h; the same in IPv6
  const char* type;  // NFTA_CHAIN_TYPE: "filter", "nat" or "route"
};

// Nothing for a name that none of them has.
std::optional<Table> FindTable(absl::string_view name);

// Null when `name` is a user chain in `table`. The same for both families.
const BaseChain* FindBaseChain(Table table, absl::string_view name);

// One chain of one namespace. Chains are always named with their table: programs use one name in
// several tables, and those chains have nothing to do with each other.
struct ChainId {
  Family family = Family::kIPv4;
  Table table = Table::kFilter;
  std::string name;

  auto operator<=>(const ChainId&) const = default;
};

// "ip filter INPUT".
std::string ToString(const ChainId& chain);

// An address prefix in network order. Addresses of IPv4 use the first four bytes. Host bits are
// zero (ParsePrefix and the codec mask them), so that equal prefixes compare equal.
struct Prefix {
  std::array<uint8_t, 16> address{};
  uint8_t length = 0;

  bool operator==(const Prefix&) const = default;
};

// Parses "127.0.0.0/8" or "fd00::/64"; a bare address has the full length.
// InvalidArgument when `text` is not a prefix of `family`.
absl::StatusOr<Prefix> ParsePrefix(Family family, absl::string_view text);
std::string ToString(Family family, const Prefix& prefix);

struct PrefixMatch {
  Prefix prefix;
  bool negated = false;

  bool operator==(const PrefixMatch&) const = default;
};

// Bits of CtStateMatch::states, numbered as XT_CONNTRACK_STATE_* in
// linux/netfilter/xt_conntrack.h.
inline constexpr uint16_t kCtInvalid = 0x0001;
inline constexpr uint16_t kCtEstablished = 0x0002;
inline constexpr uint16_t kCtRelated = 0x0004;
inline constexpr uint16_t kCtNew = 0x0008;
inline constexpr uint16_t kCtSnat = 0x0040;
inline constexpr uint16_t kCtDnat = 0x0080;
inline constexpr uint16_t kCtUntracked = 0x0100;

// `-m conntrack --ctstate`: the connection is in one of `states`, or in none of them when negated.
struct CtStateMatch {
  uint16_t states = 0;
  bool negated = false;

  bool operator==(const CtStateMatch&) const = default;
};

// `-m mark`: (packet mark & mask) == value.
struct MarkMatch {
  uint32_t value = 0;
  uint32_t mask = 0xffffffff;
  bool negated = false;

  bool operator==(const MarkMatch&) const = default;
};

// Labels of a connection: bits 0 to 127 of struct nf_conn_labels (XT_CONNLABEL_MAXBIT,
// linux/netfilter/xt_connlabel.h).
inline constexpr int kMostConnLabel = 127;
// Bit N: label N.
using ConnLabelSet = std::bitset<kMostConnLabel + 1>;
inline ConnLabelSet AllConnLabels() { return ConnLabelSet().set(); }

// `-m connlabel --label N`: the connection has the label. With `set` it is given the label first,
// so that the rule matches wherever that could be done: not where the packet has no connection, or
// one that is older than the first rule about labels in its network namespace (the kernel makes
// room for labels from then on).
struct ConnLabelMatch {
  uint8_t label = 0;
  bool set = false;
  bool negated = false;

  bool operator==(const ConnLabelMatch&) const = default;
};

struct Drop {
  bool operator==(const Drop&) const = default;
};
struct Return {
  bool operator==(const Return&) const = default;
};
// `-j CHAIN`: to a user chain of the same family and table.
struct Jump {
  std::string chain;
  bool operator==(const Jump&) const = default;
};
// `-j MARK --set-xmark value/mask`: mark = (mark & ~mask) ^ value. "Or bit" is {bit, bit}, "xor
// bit" is {bit, 0}: iptables prints both as --set-xmark.
struct SetMark {
  uint32_t value = 0;
  uint32_t mask = 0xffffffff;
  bool operator==(const SetMark&) const = default;
};
// `-j MASQUERADE [--random-fully]`. Only in table nat.
struct Masquerade {
  bool random_fully = false;
  bool operator==(const Masquerade&) const = default;
};
// No `-j`: the packet goes on to the next rule. Only of a rule that sets a label.
struct NoTarget {
  bool operator==(const NoTarget&) const = default;
};
using Target = std::variant<Drop, Return, Jump, SetMark, Masquerade, NoTarget>;

struct Rule {
  std::optional<PrefixMatch> source{};
  std::optional<PrefixMatch> destination{};
  // At most 255 bytes (XT_MAX_COMMENT_LEN less its NUL). Empty is no comment.
  std::string comment{};
  std::optional<MarkMatch> mark{};
  std::optional<CtStateMatch> ct_state{};
  std::optional<ConnLabelMatch> conn_label{};
  Target target{};

  bool operator==(const Rule&) const = default;
};

// Whether every packet that reaches the rule matches it. A comment matches every packet.
bool IsUnconditional(const Rule& rule);
// A packet that it is done to never comes to the next rule of the same chain. (From a jump it may
// come back.)
bool IsTerminal(const Target& target);
// InvalidArgument: a label above kMostConnLabel, or no target where no label is set either.
absl::Status CheckConnLabel(const Rule& rule);

// The rule as iptables-save prints it behind "-A CHAIN ". `family` decides how addresses read.
std::string ToString(Family family, const Rule& rule);

// `-i`: "eth0", or "veth+" for all names that begin so.
struct InterfaceMatch {
  std::string name;
  bool negated = false;

  bool operator==(const InterfaceMatch&) const = default;
};

inline constexpr uint32_t kAllMarks = 0xffffffff;

// What a rule does with the bits of the packet mark and with the connection's labels.
struct Marks {
  // Bits that it looks at, and bits that it may turn on (those of the value, for mark = (mark &
  // ~mask) ^ value); all where we cannot know which.
  uint32_t tested = 0;
  uint32_t set = 0;
  // Bits that it turns off where they are on (those of the mask that the value does not have, and
  // those that it flips); none where we cannot know.
  uint32_t cleared = 0;
  // Labels that it may give, on whatever condition; all where we cannot know which. Rules are no
  // place to take one away.
  ConnLabelSet labels_set = {};

  Marks& operator|=(const Marks& other);
  bool operator==(const Marks&) const = default;
};

// A rule of somebody else's, outside the vocabulary above.
struct OpaqueRule {
  // For people: iptables-save's spelling where we know it, "[xt NAME rev N]" or "[nft NAME]" where
  // we do not.
  std::string text;
  // The user chain it jumps or goes to, where it does.
  std::optional<std::string> jump;
  // Every packet that gets here matches.
  bool unconditional = false;
  // A packet that matches may not come to the next rule: a verdict, a jump, a goto, or a target
  // that we do not know. False only for what is known to pass the packet on unchanged (a counter,
  // LOG).
  bool decides = true;
  // A packet that matches never comes to the next rule: ACCEPT, DROP, RETURN, REJECT, goto. Unlike
  // `decides`, false where we cannot know.
  bool terminal = false;
  // A packet that matches goes back to the chain that jumped here: RETURN.
  bool returns = false;
  Marks marks = {};
  // The matches that a Rule has a place for, the first of each kind. The target is NoTarget.
  Rule known = {.target = NoTarget{}};
  // The verdict or target, "ACCEPT" or "SNAT". Empty for a chain (`jump`) and where we cannot tell.
  std::string target = {};
  std::optional<InterfaceMatch> in_interface = {};
  // The name in `-m set --match-set`. nf_tables holds a number instead, so it is empty there.
  std::string set = {};
  // Counts by name, `-m nfacct`.
  bool nfacct = false;

  bool operator==(const OpaqueRule&) const = default;
};

// Names one rule as long as the ruleset's generation stands. nft: the kernel's handle, unique in
// the table and never reused for other content before `flush ruleset`.
using RuleHandle = uint64_t;

// How many packets, and bytes of them, matched a rule since it was made.
struct RuleCounters {
  uint64_t packets = 0;
  uint64_t bytes = 0;

  bool operator==(const RuleCounters&) const = default;
};

struct ObservedRule {
  RuleHandle handle = 0;
  std::variant<Rule, OpaqueRule> content;
  // Zero where the rule has no counter, or the backend was not asked to read it.
  RuleCounters counters = {};
  // nft: it has a match or target of xtables, which the kernel runs by nft_compat. So it has that.
  bool xt = false;

  // Null where the rule is opaque.
  const Rule* rule() const { return std::get_if<Rule>(&content); }
  const OpaqueRule* opaque() const { return std::get_if<OpaqueRule>(&content); }

  // Counters aside: they move with every packet, and the rule stays the same. `xt` aside: two ways
  // to say the same.
  friend bool operator==(const ObservedRule& a, const ObservedRule& b) {
    return a.handle == b.handle && a.content == b.content;
  }
};

std::string ToString(Family family, const ObservedRule& rule);

// Whether every packet that reaches the rule matches it.
bool IsUnconditional(const ObservedRule& rule);
// No packet that comes to `rule` comes to the next one of the same chain, whatever stands in other
// chains (reach.h looks there, too).
bool IsUnconditionalTerminal(const ObservedRule& rule);
// A packet that matches `rule` may not come to the next one, or comes there changed.
bool MayDecide(const ObservedRule& rule);
// The matches of `rule` that a Rule has a place for: all of them, or OpaqueRule::known. Its target
// tells nothing.
const Rule& KnownMatches(const ObservedRule& rule);
// "DROP", "MASQUERADE", "SNAT"; as OpaqueRule::target.
std::string TargetName(const ObservedRule& rule);
// The user chain that `rule` jumps or goes to; null where it does not.
const std::string* JumpTarget(const ObservedRule& rule);
Marks MarksOf(const Rule& rule);
Marks MarksOf(const ObservedRule& rule);
inline uint32_t MarksTested(const ObservedRule& rule) { return MarksOf(rule).tested; }
inline uint32_t MarksSet(const ObservedRule& rule) { return MarksOf(rule).set; }
inline uint32_t MarksCleared(const ObservedRule& rule) { return MarksOf(rule).cleared; }
inline ConnLabelSet LabelsSet(const ObservedRule& rule) { return MarksOf(rule).labels_set; }

struct ObservedChain {
  // For a chain of a base chain's name (INPUT, POSTROUTING, ...): it hangs on the hook and has the
  // type that iptables gives it. False: some other program made a plain chain of that name, and no
  // packet comes to it. Meaningless for user chains.
  bool hooked = false;
  // Empty when only the chain's existence was asked for.
  std::vector<ObservedRule> rules;

  bool operator==(const ObservedChain&) const = default;
};

// Bits of a table's flags, as NFT_TABLE_F_* in linux/netfilter/nf_tables.h. One process owns an
// owned table; the kernel refuses what others write to it.
inline constexpr uint32_t kTableDormant = 0x1;
inline constexpr uint32_t kTableOwned = 0x2;

// What stood in the kernel at one generation, as far as it was asked for. A chain that is not here
// did not exist.
struct Snapshot {
  // nft: NFTA_GEN_ID of the namespace, which changes with every commit to any family or table.
  uint32_t generation = 0;
  std::map<ChainId, ObservedChain> chains;
  // nft: tables that are dormant, so that no packet comes to their chains, with all their flags
  // (NFTA_TABLE_FLAGS). Of those that ChainQuery::follow asks for.
  std::map<std::pair<Family, Table>, uint32_t> dormant = {};

  // Null where the chain does not exist (or was not asked for).
  const ObservedChain* Find(const ChainId& chain) const;

  bool operator==(const Snapshot&) const = default;
};

// `text` as iptables-save quotes the argument of an option: as it is where it needs no quotes, else
// in double quotes with `"`, `\` and `'` escaped.
std::string QuoteForSave(absl::string_view text);

}  // namespace kipt::netlink

#endif  // KIPT_NETLINK_RULESET_H_
