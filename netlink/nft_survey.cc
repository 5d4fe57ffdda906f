// SPDX-License-Identifier: Apache-2.0

#include <cerrno>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "absl/functional/function_ref.h"
#include "absl/strings/str_cat.h"
#include "netlink/attributes.h"
#include "netlink/kernel_error.h"
#include "netlink/nf_tables.h"
#include "netlink/nft_requests.h"
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

class Surveyor {
 public:
  Surveyor(Socket& socket, const SurveyFilter& keep) : socket_(socket), keep_(keep) {}

  absl::StatusOr<Survey> Take() {
    const absl::StatusOr<uint32_t> generation = AtOneGeneration(
        socket_, [&] { return TakeOnce(); }, /*attempts=*/1);
    if (!generation.ok()) return generation.status();
    survey_.generation = *generation;
    return std::move(survey_);
  }

 private:
  absl::Status TakeOnce() {
    survey_ = {};
    survey_.mode = "nft";
    families_.clear();
    absl::Status status = ReadTables();
    if (status.ok()) status = ReadChains();
    // Chain by chain: the kernel counts from the first rule of a dump to where the datagram before
    // ended, which makes one dump of 200,000 rules take 15 seconds.
    for (auto& [table, chains] : survey_.tables) {
      for (auto& [name, chain] : chains) {
        if (status.ok()) status = ReadRules(table, name, chain);
      }
    }
    return status;
  }

  absl::Status ReadTables() {
    return Dump(NFT_MSG_GETTABLE, NFPROTO_UNSPEC, {}, "listing all tables", [&](WireBytes message) {
      const std::optional<Attributes> attributes = Attributes::OfMessage(message);
      const auto name = attributes ? attributes->Text(NFTA_TABLE_NAME) : std::nullopt;
      if (!name) return absl::DataLossError("a table's message is malformed");
      TableOf(FamilyOf(message), *name);
      return absl::OkStatus();
    });
  }

  absl::Status ReadChains() {
    return Dump(NFT_MSG_GETCHAIN, NFPROTO_UNSPEC, {}, "listing all chains", [&](WireBytes message) {
      const std::optional<Attributes> attributes = Attributes::OfMessage(message);
      const auto table = attributes ? attributes->Text(NFTA_CHAIN_TABLE) : std::nullopt;
      const auto name = attributes ? attributes->Text(NFTA_CHAIN_NAME) : std::nullopt;
      if (!table || !name) return absl::DataLossError("a chain's message is malformed");
      SurveyChain& chain = TableOf(FamilyOf(message), *table)[*name];
      chain.base = attributes->Bytes(NFTA_CHAIN_HOOK).has_value();
      if (!chain.base) return absl::OkStatus();
      const std::optional<uint32_t> policy = attributes->U32(NFTA_CHAIN_POLICY);
      if (policy == uint32_t{NF_ACCEPT}) chain.policy = "ACCEPT";
      if (policy == uint32_t{NF_DROP}) chain.policy = "DROP";
      return absl::OkStatus();
    });
  }

  absl::Status ReadRules(const TableId& table, const std::string& name, SurveyChain& chain) {
    const auto take = [&](WireBytes message) {
      absl::StatusOr<SurveyRule> rule = DecodeSurveyRule(message);
      if (!rule.ok()) return rule.status();
      if (!keep_ || keep_(table, name, *rule)) chain.rules.push_back(*std::move(rule));
      return absl::OkStatus();
    };
    return Dump(NFT_MSG_GETRULE, families_.at(table),
                {{NFTA_RULE_TABLE, table.name}, {NFTA_RULE_CHAIN, name}},
                "reading the rules of a chain", take);
  }

  std::map<std::string, SurveyChain>& TableOf(uint8_t family, std::string name) {
    TableId id{.family = WireFamilyName(family), .name = std::move(name)};
    families_[id] = family;
    return survey_.tables[std::move(id)];
  }

  // Aborted where the dump was interrupted, or what was to be dumped has gone.
  absl::Status Dump(uint16_t type, uint16_t family, Messages::Texts names, absl::string_view action,
                    absl::FunctionRef<absl::Status(WireBytes)> take) {
    const absl::StatusOr<int> error = AskOne(socket_, type, family, NLM_F_DUMP, names, take);
    if (!error.ok()) return error.status();
    if (*error == ENOENT) {
      return absl::AbortedError(absl::StrCat(action, ": it has just been deleted"));
    }
    return *error == 0 ? absl::OkStatus() : KernelError(*error, action);
  }

  Socket& socket_;
  const SurveyFilter& keep_;
  Survey survey_;
  std::map<TableId, uint8_t> families_;
};

}  // namespace

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
  return Surveyor(socket, keep).Take();
}

}  // namespace kipt::netlink
