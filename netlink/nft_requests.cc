// SPDX-License-Identifier: Apache-2.0
#include "netlink/nft_requests.h"

#include <cerrno>
#include <chrono>
#include <memory>
#include <thread>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "netlink/batch.h"
#include "netlink/kernel_error.h"
#include "netlink/nf_tables.h"
#include "netlink/rule_codec.h"
#include "netlink/statement.h"

namespace kipt::netlink {
namespace {

absl::Status NfTablesError(int error_number, absl::string_view action) {
  // nfnetlink's answers for a subsystem that it cannot load.
  if (error_number == EINVAL || error_number == EOPNOTSUPP) {
    return absl::UnavailableError("this kernel has no nf_tables");
  }
  return KernelError(error_number, action);
}

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

// What a rule has counted. Nothing where the kernel would hold another rule for the drop.
// ResourceExhausted: no memory for what we would write.
absl::StatusOr<std::optional<RuleCounters>> CountersOf(const NativeTable& table,
                                                       const NativeChain& chain, size_t place,
                                                       const Attributes& held) {
  Requests written(0);
  nlmsghdr* message = written.Begin(NftMessageType(NFT_MSG_NEWRULE), WireFamily(table.family), 0);
  absl::Status encoded = EncodeDrop(table, chain.name, chain.rules[place], message);
  if (!encoded.ok()) return encoded;
  const Attributes ours = Attributes::OfMessage(written.bytes());
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

}  // namespace

absl::Status AskEach(Socket& socket, const Requests& requests, uint16_t type,
                     absl::FunctionRef<std::string(size_t)> action,
                     absl::FunctionRef<bool(size_t, const Attributes&)> take) {
  absl::Status status;
  absl::Status asked = socket.Ask(requests, [&](const Reply& reply) {
    const size_t place = reply.sequence - requests.first();
    if (reply.message == nullptr) {
      if (reply.error_number != ENOENT) {
        status.Update(KernelError(reply.error_number, action(place)));
      }
      return;
    }
    if (reply.message->nlmsg_type != NftMessageType(type) ||
        !take(place, Attributes::OfMessage(MessageBytes(reply.message)))) {
      status.Update(absl::DataLossError(absl::StrCat(action(place), ": its message is malformed")));
    }
  });
  return asked.ok() ? status : asked;
}

absl::StatusOr<int> AskOne(Socket& socket, uint16_t type, uint16_t family, uint16_t flags,
                           Requests::Texts attributes,
                           absl::FunctionRef<absl::Status(WireBytes)> take) {
  Requests requests(socket.ReserveSequences(1));
  requests.Begin(NftMessageType(type), family, flags, attributes);
  absl::Status taken;
  int error = 0;
  absl::Status asked = socket.Ask(requests, [&](const Reply& reply) {
    if (reply.message == nullptr) {
      error = reply.error_number;
    } else if (taken.ok()) {
      taken = take(MessageBytes(reply.message));
    }
  });
  asked.Update(taken);
  if (!asked.ok()) return asked;
  return error;
}

absl::StatusOr<uint32_t> ReadGeneration(Socket& socket) {
  std::optional<uint32_t> generation;
  const absl::StatusOr<int> error =
      AskOne(socket, NFT_MSG_GETGEN, NFPROTO_UNSPEC, 0, {}, [&](WireBytes message) {
        generation = Attributes::OfMessage(message).U32(NFTA_GEN_ID);
        return absl::OkStatus();
      });
  if (!error.ok()) return error.status();
  if (*error != 0) return NfTablesError(*error, "reading the generation of the ruleset");
  if (!generation) return absl::DataLossError("nf_tables did not report its generation");
  return *generation;
}

void AwaitTransactions(Socket& socket) {
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  const absl::StatusOr<Batch> batch = Batch::Build({}, socket.ReserveSequences(2));
  if (batch.ok()) socket.SendBatch(batch->messages()).IgnoreError();
}

absl::StatusOr<uint32_t> AtOneGeneration(Socket& socket,
                                         absl::FunctionRef<absl::Status(uint32_t)> read,
                                         int attempts) {
  const auto begin = std::chrono::steady_clock::now();
  int attempt = 0;
  absl::Status status;
  do {
    const absl::StatusOr<uint32_t> before = ReadGeneration(socket);
    if (!before.ok()) return before.status();
    status = read(*before);
    if (absl::IsAborted(status)) continue;
    if (!status.ok()) return status;
    absl::StatusOr<uint32_t> after = ReadGeneration(socket);
    if (!after.ok() || *after == *before) return after;
  } while (++attempt < attempts && std::chrono::steady_clock::now() - begin < kReadPatience);
  if (!status.ok()) return status;
  return absl::AbortedError(attempt == 1 ? "the ruleset changed while it was read"
                                         : absl::StrCat("the ruleset changed during each of ",
                                                        attempt, " attempts to read it"));
}

absl::StatusOr<std::vector<ListedChain>> ListNftChains(
    Family family, const std::function<bool(const ListedChain&)>& is_last) {
  const absl::StatusOr<std::unique_ptr<Socket>> socket = Socket::Open();
  if (!socket.ok()) return socket.status();
  std::vector<ListedChain> chains;
  // Other programs' chains may have any attribute, so the rest is not read.
  const auto take = [&](WireBytes message) {
    const Attributes attributes = Attributes::OfMessage(message);
    const std::optional<Table> table = FindTable(attributes.Text(NFTA_CHAIN_TABLE).value_or(""));
    const std::optional<std::string> name = attributes.Text(NFTA_CHAIN_NAME);
    if (!table || !name) return absl::OkStatus();
    chains.push_back({.id = {.family = family, .table = *table, .name = *name},
                      .base = attributes.Bytes(NFTA_CHAIN_HOOK).has_value(),
                      .use = attributes.U32(NFTA_CHAIN_USE).value_or(0)});
    if (is_last && is_last(chains.back())) (*socket)->Abandon();
    return absl::OkStatus();
  };
  absl::StatusOr<int> error = absl::AbortedError("");
  for (int attempt = 0; attempt < kReadAttempts && absl::IsAborted(error.status()); ++attempt) {
    chains.clear();
    error = AskOne(**socket, NFT_MSG_GETCHAIN, WireFamily(family), NLM_F_DUMP, {}, take);
  }
  if (!error.ok()) return error.status();
  if (*error == 0) return chains;
  return NfTablesError(*error, absl::StrCat("listing the chains of family ", FamilyName(family)));
}

absl::Status ReadNativeOnce(Socket& socket, const NativeTable& table,
                            std::optional<ObservedNativeTable>& observed) {
  const std::string action =
      absl::StrCat("reading the table ", FamilyName(table.family), " ", table.name);
  NativeComparison comparison(table);
  const auto ask = [&](uint16_t type, uint16_t flags, Requests::Texts names,
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
  const absl::StatusOr<ObservedNativeTable> compared = comparison.Finish();
  if (compared.ok()) observed = *compared;
  return compared.status();
}

void NativeComparison::AddTable(WireBytes message) {
  const Attributes table = Attributes::OfMessage(message);
  // The use is the number of chains, sets, objects and flow tables, those in another process's open
  // transaction included. Flags: dormant, owned, persistent. User data: a comment.
  if (table.U32(NFTA_TABLE_USE) != table_.chains.size() || table.U32(NFTA_TABLE_FLAGS) != 0U ||
      HasContent(table, NFTA_TABLE_OWNER) || HasContent(table, NFTA_TABLE_USERDATA)) {
    observed_.altered = true;
  }
}

void NativeComparison::AddChain(WireBytes message) {
  const Attributes held = Attributes::OfMessage(message);
  const Attributes hook = held.Nest(NFTA_CHAIN_HOOK);
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
  const Attributes held = Attributes::OfMessage(message);
  const NativeChain* chain = FindChain(held.Text(NFTA_RULE_CHAIN));
  const size_t place = chain != nullptr ? added_[chain->name].rules++ : 0;
  std::optional<RuleCounters> counters;
  if (chain != nullptr && place < chain->rules.size()) {
    const auto counted = CountersOf(table_, *chain, place, held);
    status_.Update(counted.status());
    counters = counted.value_or(std::nullopt);
  }
  observed_.altered |= !counters;
  observed_.counters.packets += counters.value_or(RuleCounters()).packets;
  observed_.counters.bytes += counters.value_or(RuleCounters()).bytes;
}

absl::StatusOr<ObservedNativeTable> NativeComparison::Finish() const {
  if (!status_.ok()) return status_;
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

}  // namespace kipt::netlink
