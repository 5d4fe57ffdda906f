// SPDX-License-Identifier: Apache-2.0
#include "netlink/nft_survey.h"

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/functional/function_ref.h"
#include "absl/strings/str_cat.h"
#include "netlink/attributes.h"
#include "netlink/kernel_error.h"
#include "netlink/nf_tables.h"
#include "netlink/nft_requests.h"
#include "netlink/requests.h"
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

// Aborted where the dump was interrupted, or what was to be dumped does not exist any more.
absl::Status Dump(Socket& socket, uint16_t type, uint16_t family, Requests::Texts names,
                  absl::string_view action, absl::FunctionRef<absl::Status(WireBytes)> take) {
  const absl::StatusOr<int> error = AskOne(socket, type, family, NLM_F_DUMP, names, take);
  if (!error.ok()) return error.status();
  if (*error == ENOENT) {
    return absl::AbortedError(absl::StrCat(action, ": it has just been deleted"));
  }
  return *error == 0 ? absl::OkStatus() : KernelError(*error, action);
}

// Keeps every chain, and the rules that a filter chooses.
class Unsifted : public SurveySieve {
 public:
  explicit Unsifted(const SurveyFilter& keep) : keep_(keep) {}

  absl::Status Begin(const TableId& table, const std::string& chain, bool /*base*/) override {
    table_ = &table;
    chain_ = &chain;
    return absl::OkStatus();
  }
  bool Keep(const SurveyRule& rule) override { return !keep_ || keep_(*table_, *chain_, rule); }
  bool KeepBare() override { return true; }

 private:
  const SurveyFilter& keep_;
  const TableId* table_ = nullptr;
  const std::string* chain_ = nullptr;
};

// The chains of a table. Tens of thousands have no rule that is kept, so until their turn comes
// each takes the bytes of its name only.
struct ListedTable {
  uint8_t family = 0;
  bool dormant = false;
  std::string names = {};  // each ends with NUL, which no name contains
  // By their names.
  std::map<std::string, SurveyChain> base_chains = {};
  uint64_t uses = 0;  // of all chains

  std::vector<const char*> Sorted() const {
    std::vector<const char*> sorted;
    sorted.reserve(static_cast<size_t>(absl::c_count(names, '\0')));
    for (size_t at = 0; at < names.size(); at = names.find('\0', at) + 1) {
      sorted.push_back(names.data() + at);
    }
    absl::c_sort(sorted, [](const char* a, const char* b) { return std::strcmp(a, b) < 0; });
    const auto same = [](const char* a, const char* b) { return std::strcmp(a, b) == 0; };
    sorted.erase(std::unique(sorted.begin(), sorted.end(), same), sorted.end());
    return sorted;
  }
};
using ListedTables = std::map<TableId, ListedTable>;

// What uses a chain: its rules, and those that jump to it. (Elements of maps, too.)
uint64_t UsesOf(const Attributes& chain) {
  const uint64_t uses = chain.U32(NFTA_CHAIN_USE).value_or(0);
  // The rule that makes such a chain counts twice.
  const bool bound = (chain.U32(NFTA_CHAIN_FLAGS).value_or(0) & NFT_CHAIN_BINDING) != 0;
  return bound && uses > 0 ? uses - 1 : uses;
}

absl::Status ListTables(Socket& socket, ListedTables& tables) {
  const auto table_of = [&](WireBytes message, std::string name) -> ListedTable& {
    const uint8_t family = FamilyOf(message);
    ListedTable& table = tables[{.family = WireFamilyName(family), .name = std::move(name)}];
    table.family = family;
    return table;
  };
  const auto take_table = [&](WireBytes message) {
    const Attributes attributes = Attributes::OfMessage(message);
    const auto name = attributes.Text(NFTA_TABLE_NAME);
    if (!name) return absl::DataLossError("a table's message is malformed");
    table_of(message, *name).dormant =
        (attributes.U32(NFTA_TABLE_FLAGS).value_or(0) & kTableDormant) != 0;
    return absl::OkStatus();
  };
  const auto take_chain = [&](WireBytes message) {
    const Attributes attributes = Attributes::OfMessage(message);
    const auto table = attributes.Text(NFTA_CHAIN_TABLE);
    const auto name = attributes.Text(NFTA_CHAIN_NAME);
    if (!table || !name) return absl::DataLossError("a chain's message is malformed");
    ListedTable& listed = table_of(message, *table);
    listed.names.append(name->c_str(), name->size() + 1);
    listed.uses += UsesOf(attributes);
    if (!attributes.Bytes(NFTA_CHAIN_HOOK)) return absl::OkStatus();
    const std::optional<uint32_t> policy = attributes.U32(NFTA_CHAIN_POLICY);
    SurveyChain& base = listed.base_chains[*name];
    base.base = true;
    if (policy == uint32_t{NF_ACCEPT}) base.policy = "ACCEPT";
    if (policy == uint32_t{NF_DROP}) base.policy = "DROP";
    const Attributes hook = attributes.Nest(NFTA_CHAIN_HOOK);
    const std::optional<uint32_t> number = hook.U32(NFTA_HOOK_HOOKNUM);
    const std::optional<uint32_t> priority = hook.U32(NFTA_HOOK_PRIORITY);
    if (number && priority) {
      base.hook = {.hook = *number,
                   .priority = static_cast<int32_t>(*priority),
                   .nat = attributes.Text(NFTA_CHAIN_TYPE) == "nat"};
    }
    return absl::OkStatus();
  };
  absl::Status status =
      Dump(socket, NFT_MSG_GETTABLE, NFPROTO_UNSPEC, {}, "listing all tables", take_table);
  if (!status.ok()) return status;
  return Dump(socket, NFT_MSG_GETCHAIN, NFPROTO_UNSPEC, {}, "listing all chains", take_chain);
}

// The kernel searches a list for each map whose elements it lists: 10,000 take four seconds.
constexpr size_t kMostMaps = 1000;

// How many elements of the verdict maps of a table jump or go to a chain. The largest number, where
// elements expire: one that has is not listed, and still counts as a use of its chain. The same
// where another program's table has too many maps, as a service proxy's may have.
absl::StatusOr<uint64_t> CountMappedJumps(Socket& socket, const TableId& table, uint8_t family) {
  std::vector<std::string> maps;
  bool expires = false;
  const auto take_set = [&](WireBytes message) {
    const Attributes set = Attributes::OfMessage(message);
    if (set.U32(NFTA_SET_DATA_TYPE) != uint32_t{NFT_DATA_VERDICT}) return absl::OkStatus();
    maps.push_back(set.Text(NFTA_SET_NAME).value_or(""));
    expires |= (set.U32(NFTA_SET_FLAGS).value_or(0) & NFT_SET_TIMEOUT) != 0;
    return absl::OkStatus();
  };
  absl::Status status = Dump(socket, NFT_MSG_GETSET, family, {{NFTA_SET_TABLE, table.name}},
                             "listing the sets of a table", take_set);
  const bool too_many = maps.size() > kMostMaps && !IsIptablesTable(table);
  if (status.ok() && (expires || too_many)) return std::numeric_limits<uint64_t>::max();
  uint64_t jumps = 0;
  const auto take_elements = [&](WireBytes message) {
    const Attributes list = Attributes::OfMessage(message);
    for (const Attribute& element : list.Nest(NFTA_SET_ELEM_LIST_ELEMENTS).all()) {
      const Attributes data = Attributes::Parse(element.payload).value_or(Attributes());
      const Attributes verdict = data.Nest(NFTA_SET_ELEM_DATA).Nest(NFTA_DATA_VERDICT);
      jumps += verdict.Bytes(NFTA_VERDICT_CHAIN) ? 1 : 0;
    }
    return absl::OkStatus();
  };
  for (const std::string& map : maps) {
    if (!status.ok()) break;
    status = Dump(socket, NFT_MSG_GETSETELEM, family,
                  {{NFTA_SET_ELEM_LIST_TABLE, table.name}, {NFTA_SET_ELEM_LIST_SET, map}},
                  "listing the elements of a map", take_elements);
  }
  if (!status.ok()) return status;
  return jumps;
}

struct ChainUses {
  uint64_t all = 0;
  uint64_t of_maps = 0;  // by their elements
};

absl::StatusOr<ChainUses> CountUses(Socket& socket, const TableId& table, uint8_t family) {
  ChainUses uses;
  const auto take_chain = [&](WireBytes message) {
    const Attributes chain = Attributes::OfMessage(message);
    if (chain.Text(NFTA_CHAIN_TABLE) == table.name) uses.all += UsesOf(chain);
    return absl::OkStatus();
  };
  absl::Status status =
      Dump(socket, NFT_MSG_GETCHAIN, family, {}, "listing the chains of a family", take_chain);
  if (!status.ok()) return status;
  const absl::StatusOr<uint64_t> jumps = CountMappedJumps(socket, table, family);
  if (!jumps.ok()) return jumps.status();
  uses.of_maps = std::min(uses.all, *jumps);
  return uses;
}

// For a table of which `survey` listed fewer uses of chains than they count.
// FailedPrecondition: what follows a rule that does not fit a message of 32 KiB is missing, without
// an error. Aborted: the rules have changed.
absl::Status CheckComplete(Socket& socket, const TableId& table, uint8_t family, uint64_t listed,
                           Survey& survey) {
  for (int attempt = 0; attempt < kCompletenessAttempts; ++attempt) {
    if (attempt > 0) AwaitTransactions(socket);
    const absl::StatusOr<ChainUses> uses = CountUses(socket, table, family);
    if (!uses.ok()) return uses.status();
    const absl::StatusOr<uint32_t> now = ReadGeneration(socket);
    if (!now.ok()) return now.status();
    if (*now != survey.generation)
      return absl::AbortedError("the ruleset changed while it was read");
    if (uses->all - uses->of_maps > listed) continue;
    if (uses->of_maps > 0) survey.jumping_maps.insert(table);
    return absl::OkStatus();
  }
  return absl::FailedPreconditionError(
      absl::StrCat("the kernel listed fewer rules of table ", ToString(table),
                   " than it has; one is too large to be listed and hides others: delete it"));
}

absl::Status TakeOnce(Socket& socket, SurveySieve& sieve, uint32_t generation, Survey& survey) {
  survey = {.mode = "nft", .generation = generation, .tables = {}};
  ListedTables tables;
  absl::Status status = ListTables(socket, tables);
  // Chain by chain: for each datagram the kernel counts the rules from the start of the dump again,
  // so one dump of 200,000 rules takes 15 seconds.
  for (auto& [table, listed] : tables) {
    auto& chains = survey.tables[table];
    if (listed.dormant) survey.dormant.insert(table);
    uint64_t uses = 0;
    for (const char* const listed_name : listed.Sorted()) {
      const std::string name = listed_name;
      auto base = listed.base_chains.extract(name);
      SurveyChain chain = base ? std::move(base.mapped()) : SurveyChain();
      const auto take_rule = [&](WireBytes message) {
        absl::StatusOr<SurveyRule> rule = DecodeRule(message, DecodeFor::kSurvey);
        if (!rule.ok()) return rule.status();
        uses += JumpTarget(*rule) != nullptr ? 2 : 1;
        if (sieve.Keep(*rule)) chain.rules.push_back(*std::move(rule));
        return absl::OkStatus();
      };
      if (status.ok()) status = sieve.Begin(table, name, chain.base);
      if (!status.ok()) return status;
      status = Dump(socket, NFT_MSG_GETRULE, listed.family,
                    {{NFTA_RULE_TABLE, table.name}, {NFTA_RULE_CHAIN, name}},
                    "reading the rules of a chain", take_rule);
      if (!chain.rules.empty() || sieve.KeepBare()) chains[name] = std::move(chain);
    }
    if (status.ok() && uses < listed.uses) {
      status = CheckComplete(socket, table, listed.family, uses, survey);
    }
  }
  return status;
}

}  // namespace

absl::StatusOr<Survey> TakeNftSurvey(Socket& socket, const SurveyFilter& keep) {
  Unsifted all(keep);
  return SiftNftSurvey(socket, all);
}

absl::StatusOr<Survey> SiftNftSurvey(Socket& socket, SurveySieve& sieve) {
  Survey survey;
  const auto take = [&](uint32_t generation) {
    return TakeOnce(socket, sieve, generation, survey);
  };
  const absl::StatusOr<uint32_t> generation = AtOneGeneration(socket, take, /*attempts=*/1);
  if (!generation.ok()) return generation.status();
  return survey;
}

}  // namespace kipt::netlink
