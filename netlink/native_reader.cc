// SPDX-License-Identifier: Apache-2.0
#include "netlink/native_reader.h"

#include <cerrno>
#include <optional>
#include <vector>

#include "absl/algorithm/container.h"
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
  // Kernels since 5.6 dump the operation, 0.
  const bool has_operation =
      written.name == "bitwise" && held.data->U32(NFTA_BITWISE_OP) == uint32_t{0};
  const auto among = [&](const Attributes& others) {
    return [&, has_operation](const Attribute& attribute) {
      return others.Bytes(attribute.type) == attribute.payload ||
             (has_operation && attribute.type == NFTA_BITWISE_OP);
    };
  };
  return absl::c_all_of(written.data->all(), among(*held.data)) &&
         absl::c_all_of(held.data->all(), among(*written.data));
}

// What a rule has counted. Nothing where the kernel would hold another rule for `drop`.
std::optional<RuleCounters> CountersOf(Family family, const NativeDrop& drop,
                                       const Attributes& held) {
  Messages written(0);
  written.Begin(NftMessageType(NFT_MSG_NEWRULE), WireFamily(family), 0);
  EncodeDrop(family, drop, written);
  const Attributes ours = *Attributes::OfMessage(written.bytes());
  const auto part = [](const Attributes& rule, uint16_t type) {
    return rule.Bytes(type).value_or(WireBytes());
  };
  const std::vector<Expression> theirs = ParseExpressions(part(held, NFTA_RULE_EXPRESSIONS));
  // NFTA_RULE_COMPAT is a condition outside the expressions.
  if (part(held, NFTA_RULE_USERDATA) != part(ours, NFTA_RULE_USERDATA) ||
      held.Bytes(NFTA_RULE_COMPAT) ||
      !absl::c_equal(ParseExpressions(part(ours, NFTA_RULE_EXPRESSIONS)), theirs, IsSame)) {
    return std::nullopt;
  }
  // Each of our rules has one.
  const auto counter =
      absl::c_find_if(theirs, [](const Expression& each) { return each.name == "counter"; });
  return ParseCounter(*counter->data);
}

// `observed` is nothing where there is no such table. Aborted: it changed meanwhile.
absl::Status ReadOnce(Socket& socket, const NativeTable& table,
                      std::optional<ObservedNativeTable>& observed) {
  observed.reset();
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
  if (error.ok() && *error == ENOENT) return absl::OkStatus();
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
  observed = comparison.Finish();
  return absl::OkStatus();
}

}  // namespace

void NativeComparison::AddTable(WireBytes message) {
  const Attributes table = Attributes::OfMessage(message).value_or(Attributes());
  // The use is how many chains, sets, objects and flow tables there are. It also counts what a
  // transaction of another process has begun and may yet abort. Flags: dormant, owned by a process,
  // kept beyond its death. User data: a comment.
  if (table.U32(NFTA_TABLE_USE) != table_.chains.size() || table.U32(NFTA_TABLE_FLAGS) != 0U ||
      HasContent(table, NFTA_TABLE_OWNER) || HasContent(table, NFTA_TABLE_USERDATA)) {
    observed_.altered = true;
  }
}

void NativeComparison::AddChain(WireBytes message) {
  const Attributes held = Attributes::OfMessage(message).value_or(Attributes());
  const Attributes hook = held.Nest(NFTA_CHAIN_HOOK).value_or(Attributes());
  const NativeChain* chain = FindChain(held.Text(NFTA_CHAIN_NAME));
  // Kernels before 5.7 do not report the flags.
  if (chain == nullptr || !hook.HasOnly({NFTA_HOOK_HOOKNUM, NFTA_HOOK_PRIORITY}) ||
      hook.U32(NFTA_HOOK_HOOKNUM) != chain->hook ||
      hook.U32(NFTA_HOOK_PRIORITY) != static_cast<uint32_t>(chain->priority) ||
      held.Text(NFTA_CHAIN_TYPE) != kNativeChainType ||
      held.U32(NFTA_CHAIN_POLICY) != uint32_t{NF_ACCEPT} ||
      (held.U32(NFTA_CHAIN_FLAGS).value_or(0) & ~uint32_t{NFT_CHAIN_BASE}) != 0 ||
      HasContent(held, NFTA_CHAIN_COUNTERS) || HasContent(held, NFTA_CHAIN_USERDATA)) {
    observed_.altered = true;
    return;
  }
  added_[chain->name].chain = true;
}

void NativeComparison::AddRule(WireBytes message) {
  const Attributes held = Attributes::OfMessage(message).value_or(Attributes());
  const NativeChain* chain = FindChain(held.Text(NFTA_RULE_CHAIN));
  const size_t place = chain != nullptr ? added_[chain->name].rules++ : 0;
  std::optional<RuleCounters> counters;
  if (chain != nullptr && place < chain->rules.size()) {
    counters = CountersOf(table_.family, chain->rules[place], held);
  }
  observed_.altered |= !counters;
  observed_.counters.packets += counters.value_or(RuleCounters()).packets;
  observed_.counters.bytes += counters.value_or(RuleCounters()).bytes;
}

ObservedNativeTable NativeComparison::Finish() const {
  ObservedNativeTable observed = observed_;
  for (const NativeChain& chain : table_.chains) {
    const auto added = added_.find(chain.name);
    observed.altered |=
        added == added_.end() || !added->second.chain || added->second.rules != chain.rules.size();
  }
  return observed;
}

const NativeChain* NativeComparison::FindChain(const std::optional<std::string>& name) const {
  const auto chain = absl::c_find_if(
      table_.chains, [&](const NativeChain& candidate) { return candidate.name == name; });
  return chain == table_.chains.end() ? nullptr : &*chain;
}

absl::StatusOr<NativeReading> ReadNativeTable(Socket& socket, const NativeTable& table) {
  NativeReading reading;
  const absl::StatusOr<uint32_t> generation =
      AtOneGeneration(socket, [&] { return ReadOnce(socket, table, reading.table); });
  if (!generation.ok()) return generation.status();
  reading.generation = *generation;
  return reading;
}

}  // namespace kipt::netlink
