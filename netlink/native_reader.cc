// SPDX-License-Identifier: Apache-2.0
#include "netlink/native_reader.h"

#include <algorithm>
#include <cerrno>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "netlink/kernel_error.h"
#include "netlink/nf_tables.h"
#include "netlink/nft_requests.h"
#include "netlink/rule_codec.h"
#include "netlink/statement.h"

namespace kipt::netlink {
namespace {

bool HasContent(const Attributes& attributes, uint16_t type) {
  const std::optional<WireBytes> bytes = attributes.Bytes(type);
  return bytes && !bytes->empty();
}

// Whether the kernel makes `held` of the expression `written`.
bool IsSame(const Expression& written, const Expression& held) {
  if (held.name != written.name || !held.data) return false;
  if (written.name == "counter") return true;
  if (written.name == "immediate") return ParseVerdict(*held.data) == ParseVerdict(*written.data);
  const auto is_held = [&](const Attribute& attribute) {
    return held.data->Bytes(attribute.type) == attribute.payload;
  };
  const auto is_written = [&](const Attribute& attribute) {
    // Kernels since 5.6 dump the operation, 0.
    if (written.name == "bitwise" && attribute.type == NFTA_BITWISE_OP) {
      return held.data->U32(NFTA_BITWISE_OP) == 0U;
    }
    return written.data->Bytes(attribute.type) == attribute.payload;
  };
  const std::vector<Attribute> ours = written.data->all();
  const std::vector<Attribute> theirs = held.data->all();
  return std::all_of(ours.begin(), ours.end(), is_held) &&
         std::all_of(theirs.begin(), theirs.end(), is_written);
}

// What the rule of the expressions `held` has counted. Nothing where the kernel would hold another
// rule for `written`.
std::optional<RuleCounters> CountersOfSame(WireBytes written, WireBytes held) {
  const std::vector<Expression> ours = ParseExpressions(written);
  const std::vector<Expression> theirs = ParseExpressions(held);
  if (!std::equal(ours.begin(), ours.end(), theirs.begin(), theirs.end(), IsSame)) {
    return std::nullopt;
  }
  RuleCounters counters;
  for (const Expression& expression : theirs) {
    if (expression.name != "counter") continue;
    counters = {.packets = expression.data->U64(NFTA_COUNTER_PACKETS).value_or(0),
                .bytes = expression.data->U64(NFTA_COUNTER_BYTES).value_or(0)};
  }
  return counters;
}

std::optional<RuleCounters> CountersOfSame(Family family, const NativeDrop& drop,
                                           const Attributes& held) {
  Messages written(0);
  written.Begin(NftMessageType(NFT_MSG_NEWRULE), WireFamily(family), 0);
  EncodeDrop(family, drop, written);
  const Attributes ours = *Attributes::OfMessage(written.bytes());
  // NFTA_RULE_COMPAT is a condition outside the expressions.
  if (held.Bytes(NFTA_RULE_USERDATA).value_or(WireBytes()) !=
          ours.Bytes(NFTA_RULE_USERDATA).value_or(WireBytes()) ||
      held.Bytes(NFTA_RULE_COMPAT)) {
    return std::nullopt;
  }
  return CountersOfSame(ours.Bytes(NFTA_RULE_EXPRESSIONS).value_or(WireBytes()),
                        held.Bytes(NFTA_RULE_EXPRESSIONS).value_or(WireBytes()));
}

// Nothing: there is no such table. Aborted: it changed meanwhile.
absl::StatusOr<std::optional<ObservedNativeTable>> ReadOnce(Socket& socket,
                                                            const NativeTable& table) {
  const std::string action =
      absl::StrCat("reading the table ", FamilyName(table.family), " ", table.name);
  NativeComparison comparison(table);
  const auto ask = [&](uint16_t type, uint16_t flags, Messages::Texts names,
                       void (NativeComparison::*add)(WireBytes)) {
    return AskOne(socket, type, WireFamily(table.family), flags, names, [&](WireBytes message) {
      (comparison.*add)(message);
      return absl::OkStatus();
    });
  };
  absl::StatusOr<int> error =
      ask(NFT_MSG_GETTABLE, 0, {{NFTA_TABLE_NAME, table.name}}, &NativeComparison::AddTable);
  if (error.ok() && *error == ENOENT) return std::optional<ObservedNativeTable>();
  if (error.ok() && *error == 0) {
    error = ask(NFT_MSG_GETRULE, NLM_F_DUMP, {{NFTA_RULE_TABLE, table.name}},
                &NativeComparison::AddRule);
    if (error.ok() && *error == ENOENT) {
      return absl::AbortedError(absl::StrCat(action, ": it changed meanwhile"));
    }
  }
  for (const NativeChain& chain : table.chains) {
    if (!error.ok() || *error != 0) break;
    error =
        ask(NFT_MSG_GETCHAIN, 0, {{NFTA_CHAIN_TABLE, table.name}, {NFTA_CHAIN_NAME, chain.name}},
            &NativeComparison::AddChain);
    // A chain that is missing is one that was not added.
    if (error.ok() && *error == ENOENT) error = 0;
  }
  if (!error.ok()) return error.status();
  if (*error != 0) return KernelError(*error, action);
  return std::make_optional(comparison.Finish());
}

}  // namespace

const NativeChain* NativeComparison::FindChain(const std::optional<std::string>& name) const {
  const auto chain =
      std::find_if(table_.chains.begin(), table_.chains.end(),
                   [&](const NativeChain& candidate) { return candidate.name == name; });
  return chain == table_.chains.end() ? nullptr : &*chain;
}

void NativeComparison::AddTable(WireBytes message) {
  const std::optional<Attributes> attributes = Attributes::OfMessage(message);
  // The use is how many chains, sets, objects and flow tables there are. It also counts what a
  // transaction of another process has begun and may yet abort. Flags: dormant, owned by a process,
  // kept beyond its death. User data: a comment.
  if (!attributes || attributes->U32(NFTA_TABLE_USE) != table_.chains.size() ||
      attributes->U32(NFTA_TABLE_FLAGS) != 0U || HasContent(*attributes, NFTA_TABLE_OWNER) ||
      HasContent(*attributes, NFTA_TABLE_USERDATA)) {
    observed_.altered = true;
  }
}

void NativeComparison::AddChain(WireBytes message) {
  const std::optional<Attributes> attributes = Attributes::OfMessage(message);
  const NativeChain* chain =
      FindChain(attributes ? attributes->Text(NFTA_CHAIN_NAME) : std::nullopt);
  const auto hook = attributes ? attributes->Nest(NFTA_CHAIN_HOOK) : std::nullopt;
  // Kernels before 5.7 do not tell the flags.
  if (chain == nullptr || !hook || !hook->HasOnly({NFTA_HOOK_HOOKNUM, NFTA_HOOK_PRIORITY}) ||
      hook->U32(NFTA_HOOK_HOOKNUM) != chain->hook ||
      hook->U32(NFTA_HOOK_PRIORITY) != static_cast<uint32_t>(chain->priority) ||
      attributes->Text(NFTA_CHAIN_TYPE) != kNativeChainType ||
      attributes->U32(NFTA_CHAIN_POLICY) != uint32_t{NF_ACCEPT} ||
      (attributes->U32(NFTA_CHAIN_FLAGS).value_or(0) & ~uint32_t{NFT_CHAIN_BASE}) != 0 ||
      HasContent(*attributes, NFTA_CHAIN_COUNTERS) ||
      HasContent(*attributes, NFTA_CHAIN_USERDATA)) {
    observed_.altered = true;
    return;
  }
  chains_.insert(chain->name);
}

void NativeComparison::AddRule(WireBytes message) {
  const std::optional<Attributes> attributes = Attributes::OfMessage(message);
  const NativeChain* chain =
      FindChain(attributes ? attributes->Text(NFTA_RULE_CHAIN) : std::nullopt);
  const size_t place = chain != nullptr ? rules_of_chain_[chain->name]++ : 0;
  const std::optional<RuleCounters> counters =
      chain != nullptr && place < chain->rules.size()
          ? CountersOfSame(table_.family, chain->rules[place], *attributes)
          : std::nullopt;
  if (!counters) {
    observed_.altered = true;
    return;
  }
  observed_.counters.packets += counters->packets;
  observed_.counters.bytes += counters->bytes;
}

ObservedNativeTable NativeComparison::Finish() const {
  ObservedNativeTable observed = observed_;
  for (const NativeChain& chain : table_.chains) {
    const auto rules = rules_of_chain_.find(chain.name);
    const size_t count = rules == rules_of_chain_.end() ? 0 : rules->second;
    observed.altered |= chains_.count(chain.name) == 0 || count != chain.rules.size();
  }
  return observed;
}

absl::StatusOr<NativeReading> ReadNativeTable(Socket& socket, const NativeTable& table) {
  NativeReading reading;
  const absl::StatusOr<uint32_t> generation = AtOneGeneration(socket, [&]() -> absl::Status {
    absl::StatusOr<std::optional<ObservedNativeTable>> observed = ReadOnce(socket, table);
    if (!observed.ok()) return observed.status();
    reading.table = *std::move(observed);
    return absl::OkStatus();
  });
  if (!generation.ok()) return generation.status();
  reading.generation = *generation;
  return reading;
}

}  // namespace kipt::netlink
