// SPDX-License-Identifier: Apache-2.0
//
// The current or desired state of the kernel as values: families, tables, chains, rules, and the
// Snapshot of what was observed. Their text is iptables-save(8)'s.
//
//   Rule rule;
//   rule.mark = MarkMatch{.value = 0x8000, .mask = 0x8000};
//   rule.target = Drop{};
//   ToString(rule);  // "-m mark --mark 0x8000/0x8000 -j DROP"
//
// The vocabulary is closed on purpose. Any other rule is an OpaqueRule, which never equals a Rule,
// so that it cannot be taken for one of ours.
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

// `raw` and `security` hold nothing of ours.
enum class Table : uint8_t { kMangle, kNat, kFilter };
inline constexpr std::array<Table, 3> kTables = {Table::kMangle, Table::kNat, Table::kFilter};

absl::string_view TableName(Table table);

// A chain that iptables calls built-in and nf_tables a base chain, as iptables-nft makes it.
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

struct ChainId {
  Family family = Family::kIPv4;
  Table table = Table::kFilter;
  std::string name;

  auto operator<=>(const ChainId&) const = default;
};
// iptables makes it on a hook.
inline bool IsBaseChain(const ChainId& chain) {
  return FindBaseChain(chain.table, chain.name) != nullptr;
}

// "ip filter INPUT".
std::string ToString(const ChainId& chain);

// In network order; an address of IPv4 uses the first four bytes. Host bits are zero, so that equal
// prefixes compare equal.
struct Prefix {
  std::array<uint8_t, 16> address{};
  uint8_t length = 0;

  bool operator==(const Prefix&) const = default;
};

// Parses "127.0.0.0/8" or "fd00::/64"; a bare address has the full length.
// InvalidArgument when `text` is not a prefix of `family`.
absl::StatusOr<Prefix> ParsePrefix(Family family, absl::string_view text);
std::string ToString(Family family, const Prefix& prefix);
// Ones for the first `length` bits, 128 at most.
std::array<uint8_t, 16> PrefixMask(uint8_t length);

struct PrefixMatch {
  Prefix prefix;
  bool negated = false;

  bool operator==(const PrefixMatch&) const = default;
};

// XT_CONNTRACK_STATE_* of linux/netfilter/xt_conntrack.h.
inline constexpr uint16_t kCtInvalid = 0x0001;
inline constexpr uint16_t kCtEstablished = 0x0002;
inline constexpr uint16_t kCtRelated = 0x0004;
inline constexpr uint16_t kCtNew = 0x0008;
inline constexpr uint16_t kCtSnat = 0x0040;
inline constexpr uint16_t kCtDnat = 0x0080;
inline constexpr uint16_t kCtUntracked = 0x0100;

// `-m conntrack --ctstate`: the connection is in one of `states`, or negated in none of them.
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

// Labels of a connection: bits 0 to 127 of struct nf_conn_labels (XT_CONNLABEL_MAXBIT).
inline constexpr int kMostConnLabel = 127;
using ConnLabelSet = std::bitset<kMostConnLabel + 1>;
inline ConnLabelSet AllConnLabels() { return ConnLabelSet().set(); }

// `-m connlabel --label N`: the connection has the label. With `set` it gets the label first,
// unless the packet has no connection, or one older than the first rule about labels in its network
// namespace (the kernel makes room for labels from then on).
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
  // At most 255 bytes. Empty is no comment.
  std::string comment{};
  std::optional<MarkMatch> mark{};
  std::optional<CtStateMatch> ct_state{};
  std::optional<ConnLabelMatch> conn_label{};
  Target target{};

  bool operator==(const Rule&) const = default;
};

// Whether every packet that reaches the rule matches it.
bool IsUnconditional(const Rule& rule);
// No packet that matches continues with the next rule of the same chain. (From a jump it may.)
bool IsTerminal(const Target& target);
// InvalidArgument: a label above kMostConnLabel, or no target where no label is set either.
absl::Status CheckConnLabel(const Rule& rule);

// The rule as iptables-save prints it after "-A CHAIN ".
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
  // Bits that it tests, and bits that it may turn on; all where we cannot know which.
  uint32_t tested = 0;
  uint32_t set = 0;
  // Bits that it turns off where they are on; none where we cannot know.
  uint32_t cleared = 0;
  // Labels that it may give, on any condition; all where we cannot know which. No rule takes one
  // away.
  ConnLabelSet labels_set = {};

  Marks& operator|=(const Marks& other);
  bool operator==(const Marks&) const = default;
};

// A rule outside the vocabulary above.
struct OpaqueRule {
  // For people: iptables-save's spelling where we know it, "[xt NAME rev N]" or "[nft NAME]" where
  // we do not.
  std::string text;
  // The user chain of a jump or goto.
  std::optional<std::string> jump;
  // Every packet that gets here matches.
  bool unconditional = false;
  // A packet that matches might not reach the next rule: a verdict, a jump, a goto, or an unknown
  // target. False only for what passes the packet on unchanged (a counter, LOG).
  bool decides = true;
  // A packet that matches never reaches the next rule: ACCEPT, DROP, RETURN, REJECT, goto. Unlike
  // `decides`, false where we cannot know.
  bool terminal = false;
  // Where the two facts above cannot be established, whether they may hold: nothing in the rule is
  // known to choose packets, and something in it may keep the packets that match.
  bool perhaps_unconditional = false;
  bool perhaps_terminal = false;
  bool returns = false;  // RETURN
  bool drops = false;    // DROP or REJECT
  // NFQUEUE without --queue-bypass: dropped where no program listens.
  bool queues = false;
  Marks marks = {};
  // The matches that a Rule has a place for, the first of each kind. The target is NoTarget, unless
  // the rule is `translated`.
  Rule known = {.target = NoTarget{}};
  // A rule of inet that matches packets of this family only.
  std::optional<Family> family = {};
  // `known`, `family` and `in_interface` are all that a packet has to match.
  bool all_known = false;
  // nft: native expressions that do what `known` does and no more, as nft(8) loads its own listing
  // of a rule that iptables wrote.
  bool translated = false;
  // The verdict or target, "ACCEPT" or "SNAT". Empty for a chain (`jump`) and where it is unknown.
  std::string target = {};
  // The first.
  std::optional<InterfaceMatch> in_interface = {};
  // The name in `-m set --match-set`. nf_tables holds a number instead, so it is empty there.
  std::string set = {};
  // What of a packet is looked up there: "dst,dst,src". Empty for a negated match.
  std::string set_directions = {};
  // Counts by name, `-m nfacct`.
  bool nfacct = false;

  bool operator==(const OpaqueRule&) const = default;
};

// Names one rule within one generation of the ruleset. nft: the kernel's handle, unique in the
// table and never reused for other content before `flush ruleset`.
using RuleHandle = uint64_t;

// Counts the packets that matched a rule since it was made.
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
  // nft: it has a match or target of xtables, so the kernel has nft_compat.
  bool xt = false;
  // nft: an iptables-nft of 1.8.8 to 1.8.11 refuses to list the rule's chain and table, because it
  // has no option for one of the expressions. It can list some rules without xtables' matches.
  bool unlistable = false;

  // Null where the rule is opaque.
  const Rule* rule() const { return std::get_if<Rule>(&content); }
  const OpaqueRule* opaque() const { return std::get_if<OpaqueRule>(&content); }

  // Without the counters, which move with every packet, and how the rule is written.
  friend bool operator==(const ObservedRule& a, const ObservedRule& b) {
    return a.handle == b.handle && a.content == b.content;
  }
};

std::string ToString(Family family, const ObservedRule& rule);

// The same of either content; those of an OpaqueRule are its fields.
bool IsUnconditional(const ObservedRule& rule);
bool IsTerminal(const ObservedRule& rule);
bool Returns(const ObservedRule& rule);
bool DropsMatches(const ObservedRule& rule);
bool MayDecide(const ObservedRule& rule);
// No packet that reaches `rule` reaches the next one of the same chain, whatever is in other chains
// (reach.h follows jumps, too).
bool IsUnconditionalTerminal(const ObservedRule& rule);
// As those without "Perhaps", or unknown. For questions whose safe answer is that packets are kept.
bool IsPerhapsUnconditional(const ObservedRule& rule);
bool IsPerhapsTerminal(const ObservedRule& rule);
bool IsPerhapsUnconditionalTerminal(const ObservedRule& rule);
// The rule, or OpaqueRule::known. Its target means nothing.
const Rule& KnownMatches(const ObservedRule& rule);
std::string TargetName(const ObservedRule& rule);
// Null where `rule` has no jump or goto to a user chain.
const std::string* JumpTarget(const ObservedRule& rule);
Marks MarksOf(const Rule& rule);
Marks MarksOf(const ObservedRule& rule);
inline uint32_t MarksTested(const ObservedRule& rule) { return MarksOf(rule).tested; }
inline uint32_t MarksSet(const ObservedRule& rule) { return MarksOf(rule).set; }
inline uint32_t MarksCleared(const ObservedRule& rule) { return MarksOf(rule).cleared; }
inline ConnLabelSet LabelsSet(const ObservedRule& rule) { return MarksOf(rule).labels_set; }

// The limit of a walk along jumps: nf_tables takes no circle and at most 16, but a text may hold
// anything.
inline constexpr int kDeepestJump = 64;

struct ObservedChain {
  // For a chain of a base chain's name (INPUT, ...): it has the hook and the type that iptables
  // gives it. For any other chain: it has a hook, so it is another program's and no rule can jump
  // to it.
  bool hooked = false;
  // Empty when only the chain's existence was asked for.
  std::vector<ObservedRule> rules;

  bool operator==(const ObservedChain&) const = default;
};

// NFT_TABLE_F_* of linux/netfilter/nf_tables.h. The kernel refuses what other processes than its
// owner write to an owned table.
inline constexpr uint32_t kTableDormant = 0x1;
inline constexpr uint32_t kTableOwned = 0x2;

// A NativeTable (transaction.h) that exists.
struct ObservedNativeTable {
  // It differs from what we write, has more in it, or has flags (dormant, owner).
  bool altered = false;
  // The sum over all rules that are ours.
  RuleCounters counters = {};

  friend bool operator==(const ObservedNativeTable& a, const ObservedNativeTable& b) {
    return a.altered == b.altered;
  }
};

// The state of the kernel at one generation, as far as it was asked for. A chain or native table
// that is not here did not exist.
struct Snapshot {
  // nft: NFTA_GEN_ID of the namespace, which changes with every commit to any family or table.
  uint32_t generation = 0;
  std::map<ChainId, ObservedChain> chains;
  // nft: the flags of tables that are dormant, so that no packet reaches their chains. Only of
  // those that ChainQuery::follow asks for.
  std::map<std::pair<Family, Table>, uint32_t> dormant = {};
  std::optional<ObservedNativeTable> native = {};

  // Null where it does not exist, or was not asked for.
  const ObservedChain* Find(const ChainId& chain) const;

  bool operator==(const Snapshot&) const = default;
};

// As iptables-save quotes the argument of an option: unchanged where it needs no quotes, else in
// double quotes with `"`, `\` and `'` escaped.
std::string QuoteForSave(absl::string_view text);

}  // namespace kipt::netlink

#endif  // KIPT_NETLINK_RULESET_H_
