// SPDX-License-Identifier: Apache-2.0
#include "netlink/nft_requests.h"

#include <cerrno>
#include <map>
#include <memory>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "netlink/kernel_error.h"
#include "netlink/nf_tables.h"
#include "netlink/rule_codec.h"

namespace kipt::netlink {
namespace {

// As nft(8) names them; a number for one that it does not know either.
std::string WireFamilyName(uint8_t family) {
  static constexpr std::pair<uint8_t, const char*> kNames[] = {
      {NFPROTO_INET, "inet"},     {NFPROTO_IPV4, "ip"},       {NFPROTO_ARP, "arp"},
      {NFPROTO_NETDEV, "netdev"}, {NFPROTO_BRIDGE, "bridge"}, {NFPROTO_IPV6, "ip6"}};
  for (const auto& [number, name] : kNames) {
    if (number == family) return name;
  }
  return absl::StrCat(static_cast<unsigned>(family));
}

// Unavailable if nfnetlink answers `error_number` because the kernel has no nf_tables.
absl::Status NfTablesError(int error_number, absl::string_view action) {
  // nfnetlink answers so for a subsystem that it does not have and cannot load.
  if (error_number == EINVAL || error_number == EOPNOTSUPP) {
    return absl::UnavailableError("this kernel has no nf_tables");
  }
  return KernelError(error_number, action);
}

// Aborted where the dump was interrupted, or what was to be dumped does not exist any more.
absl::Status Dump(Socket& socket, uint16_t type, uint16_t family, Messages::Texts names,
                  absl::string_view action, absl::FunctionRef<absl::Status(WireBytes)> take) {
  const absl::StatusOr<int> error = AskOne(socket, type, family, NLM_F_DUMP, names, take);
  if (!error.ok()) return error.status();
  if (*error == ENOENT) {
    return absl::AbortedError(absl::StrCat(action, ": it has just been deleted"));
  }
  return *error == 0 ? absl::OkStatus() : KernelError(*error, action);
}

absl::Status TakeOnce(Socket& socket, const SurveyFilter& keep, Survey& survey) {
  survey = {.mode = "nft", .generation = 0, .tables = {}};
  std::map<TableId, uint8_t> families;
  const auto table_of = [&](WireBytes message, std::string name) -> auto& {
    TableId id{.family = WireFamilyName(FamilyOf(message)), .name = std::move(name)};
    families[id] = FamilyOf(message);
    return survey.tables[std::move(id)];
  };
  const auto take_table = [&](WireBytes message) {
    const std::optional<Attributes> attributes = Attributes::OfMessage(message);
    const auto name = attributes ? attributes->Text(NFTA_TABLE_NAME) : std::nullopt;
    if (!name) return absl::DataLossError("a table's message is malformed");
    table_of(message, *name);
    return absl::OkStatus();
  };
  const auto take_chain = [&](WireBytes message) {
    const std::optional<Attributes> attributes = Attributes::OfMessage(message);
    const auto table = attributes ? attributes->Text(NFTA_CHAIN_TABLE) : std::nullopt;
    const auto name = attributes ? attributes->Text(NFTA_CHAIN_NAME) : std::nullopt;
    if (!table || !name) return absl::DataLossError("a chain's message is malformed");
    SurveyChain& chain = table_of(message, *table)[*name];
    chain.base = attributes->Bytes(NFTA_CHAIN_HOOK).has_value();
    const std::optional<uint32_t> policy = attributes->U32(NFTA_CHAIN_POLICY);
    if (chain.base && policy == uint32_t{NF_ACCEPT}) chain.policy = "ACCEPT";
    if (chain.base && policy == uint32_t{NF_DROP}) chain.policy = "DROP";
    return absl::OkStatus();
  };
  absl::Status status =
      Dump(socket, NFT_MSG_GETTABLE, NFPROTO_UNSPEC, {}, "listing all tables", take_table);
  if (status.ok()) {
    status = Dump(socket, NFT_MSG_GETCHAIN, NFPROTO_UNSPEC, {}, "listing all chains", take_chain);
  }
  // Chain by chain: the kernel counts from the first rule of a dump to where the datagram before
  // ended, which makes one dump of 200,000 rules take 15 seconds.
  for (auto& [table, chains] : survey.tables) {
    for (auto& [name, chain] : chains) {
      if (!status.ok()) return status;
      const auto take_rule = [&, &table = table, &name = name, &chain = chain](WireBytes message) {
        absl::StatusOr<SurveyRule> rule = DecodeSurveyRule(message);
        if (!rule.ok()) return rule.status();
        if (!keep || keep(table, name, *rule)) chain.rules.push_back(*std::move(rule));
        return absl::OkStatus();
      };
      status = Dump(socket, NFT_MSG_GETRULE, families.at(table),
                    {{NFTA_RULE_TABLE, table.name}, {NFTA_RULE_CHAIN, name}},
                    "reading the rules of a chain", take_rule);
    }
  }
  return status;
}

}  // namespace

absl::Status AskEach(Socket& socket, const Messages& requests, uint16_t type,
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
    const std::optional<Attributes> attributes = Attributes::OfMessage(MessageBytes(reply.message));
    if (!attributes || reply.message->nlmsg_type != NftMessageType(type) ||
        !take(place, *attributes)) {
      status.Update(absl::DataLossError(absl::StrCat(action(place), ": its message is malformed")));
    }
  });
  return asked.ok() ? status : asked;
}

absl::StatusOr<int> AskOne(Socket& socket, uint16_t type, uint16_t family, uint16_t flags,
                           Messages::Texts attributes,
                           absl::FunctionRef<absl::Status(WireBytes)> take) {
  Messages requests(socket.ReserveSequences(1));
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
        const std::optional<Attributes> attributes = Attributes::OfMessage(message);
        if (attributes) generation = attributes->U32(NFTA_GEN_ID);
        return absl::OkStatus();
      });
  if (!error.ok()) return error.status();
  if (*error != 0) return NfTablesError(*error, "reading the generation of the ruleset");
  if (!generation) return absl::DataLossError("nf_tables did not say its generation");
  return *generation;
}

absl::StatusOr<uint32_t> AtOneGeneration(Socket& socket, absl::FunctionRef<absl::Status()> read,
                                         int attempts) {
  for (int attempt = 0; attempt < attempts; ++attempt) {
    const absl::StatusOr<uint32_t> before = ReadGeneration(socket);
    if (!before.ok()) return before.status();
    const absl::Status status = read();
    if (absl::IsAborted(status)) continue;
    if (!status.ok()) return status;
    absl::StatusOr<uint32_t> after = ReadGeneration(socket);
    if (!after.ok() || *after == *before) return after;
  }
  return absl::AbortedError(attempts == 1 ? "the ruleset changed while it was read"
                                          : absl::StrCat("the ruleset changed during each of ",
                                                         attempts, " attempts to read it"));
}

absl::StatusOr<std::vector<ListedChain>> ListNftChains(Family family) {
  const absl::StatusOr<std::unique_ptr<Socket>> socket = Socket::Open();
  if (!socket.ok()) return socket.status();
  std::vector<ListedChain> chains;
  // Other programs' chains may have any attribute, so the rest is not read.
  const auto take = [&](WireBytes message) {
    const std::optional<Attributes> attributes = Attributes::OfMessage(message);
    if (!attributes) return absl::OkStatus();
    const std::optional<Table> table = FindTable(attributes->Text(NFTA_CHAIN_TABLE).value_or(""));
    const std::optional<std::string> name = attributes->Text(NFTA_CHAIN_NAME);
    if (!table || !name) return absl::OkStatus();
    chains.push_back({.id = {.family = family, .table = *table, .name = *name},
                      .base = attributes->Bytes(NFTA_CHAIN_HOOK).has_value(),
                      .use = attributes->U32(NFTA_CHAIN_USE).value_or(0)});
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

absl::StatusOr<Survey> TakeNftSurvey(Socket& socket, const SurveyFilter& keep) {
  Survey survey;
  const absl::StatusOr<uint32_t> generation = AtOneGeneration(
      socket, [&] { return TakeOnce(socket, keep, survey); }, /*attempts=*/1);
  if (!generation.ok()) return generation.status();
  survey.generation = *generation;
  return survey;
}

}  // namespace kipt::netlink
