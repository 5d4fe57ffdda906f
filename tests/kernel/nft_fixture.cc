// SPDX-License-Identifier: Apache-2.0
#include "tests/kernel/nft_fixture.h"

namespace kipt::testing {

using namespace ::kipt::netlink;  // NOLINT(google-build-using-namespace): the model's vocabulary

ProgramResult Shell(const std::string& command) { return RunProgram({"sh", "-c", command}); }

std::string Iptables(Family family) {
  return family == Family::kIPv4 ? "iptables-nft" : "ip6tables-nft";
}

std::string Save(Family family) {
  const ProgramResult result = RunProgram({Iptables(family) + "-save"});
  EXPECT_EQ(result.exit_code, 0) << result;
  EXPECT_THAT(result.out + result.err, Not(HasSubstr("incompatible")));
  std::string text;
  for (const absl::string_view line : absl::StrSplit(result.out, '\n', absl::SkipEmpty())) {
    if (!absl::StartsWith(line, "#")) absl::StrAppend(&text, line, "\n");
  }
  return text;
}

std::vector<std::string> SavedLines(Family family, const std::string& chain) {
  std::vector<std::string> rules;
  const std::string prefix = absl::StrCat("-A ", chain, " ");
  for (const absl::string_view line : absl::StrSplit(Save(family), '\n')) {
    if (absl::StartsWith(line, prefix)) rules.emplace_back(line.substr(prefix.size()));
  }
  return rules;
}

std::string ThirdPartyRules(Family family) {
  const bool v6 = family == Family::kIPv6;
  return FileText(absl::StrCat(KIPT_RULESETS_DIR, "/third-parties-", v6 ? "v6" : "v4", ".rules"));
}

SavedTables TablesOf(const std::string& text, absl::string_view family, bool policies) {
  SavedTables tables;
  std::string table;
  bool of_family = family.empty();
  for (const absl::string_view line : absl::StrSplit(text, '\n')) {
    const std::vector<std::string> words = absl::StrSplit(line, ' ');
    if (absl::StartsWith(line, "# ") && !family.empty()) of_family = line.substr(2) == family;
    if (!of_family) continue;
    if (absl::StartsWith(line, "*")) table = std::string(line.substr(1));
    if (absl::StartsWith(line, ":")) tables[table][words[0].substr(1)];
    if (absl::StartsWith(line, ":") && policies) {
      tables[table][words[0].substr(1)].push_back(words[1]);
    }
    if (absl::StartsWith(line, "[")) tables[table][words[2]].emplace_back(line);
  }
  return tables;
}

std::vector<std::pair<ChainId, Rule>> AllRules(Family family) {
  const bool ipv4 = family == Family::kIPv4;
  const ChainId filter{family, Table::kFilter, "TEST"};
  const ChainId nat{family, Table::kNat, "TESTNAT"};
  const auto prefix = [&](const char* v4, const char* v6) {
    return *netlink::ParsePrefix(family, ipv4 ? v4 : v6);
  };
  const CtStateMatch states{netlink::kCtRelated | netlink::kCtEstablished | netlink::kCtDnat, true};
  std::vector<std::pair<ChainId, Rule>> rules = {
      {filter, Rule{.source = PrefixMatch{prefix("127.0.0.0/8", "fd00::/8"), true},
                    .destination = PrefixMatch{prefix("127.0.0.0/8", "fd00::/8")},
                    .comment = "block incoming connections",
                    .ct_state = states,
                    .target = Drop{}}},
      {filter,
       Rule{.comment = "marked packets", .mark = MarkMatch{0x8000, 0x8000}, .target = Drop{}}},
      {filter, Rule{.target = Jump{"ELSE"}}},
      {filter, Rule{.comment = "oneword", .target = Return{}}},
      {filter, Rule{.comment = "quotes \" and \\", .target = Return{}}},
      {filter, Rule{.comment = std::string(255, 'c'), .target = Return{}}},
      {filter, Rule{.ct_state = CtStateMatch{0x1cf, false}, .target = Return{}}},
      {filter, Rule{.mark = MarkMatch{.value = 7}, .target = Drop{}}},
      {filter, Rule{.mark = MarkMatch{0, 1, true}, .target = Drop{}}},
      {nat, Rule{.mark = MarkMatch{0x4000, 0x4000, true}, .target = Return{}}},
      {nat, Rule{.target = SetMark{0x4000, 0}}},
      {nat, Rule{.target = SetMark{0x8000, 0x8000}}},
      {nat, Rule{.target = SetMark{.value = 1}}},
      {nat, Rule{.comment = "needs SNAT", .target = Masquerade{true}}},
      {nat, Rule{.target = Masquerade{false}}},
  };
  for (int length = 1; length <= (ipv4 ? 32 : 128); length += ipv4 ? 1 : 5) {
    const std::string text = absl::StrCat(ipv4 ? "172.219.187.221/" : "fedc:ba98::ffff/", length);
    rules.emplace_back(
        filter, Rule{.source = PrefixMatch{*netlink::ParsePrefix(family, text), length % 2 == 0},
                     .target = Return{}});
  }
  return rules;
}

void NftBackendTest::SetUp() {
  NetnsTest::SetUp();
  if (HasFatalFailure()) return;
  auto backend = netlink::NewNftBackend();
  ASSERT_THAT(backend, IsOk());
  backend_ = *std::move(backend);
}

Snapshot NftBackendTest::Read(const std::vector<ChainId>& chains) {
  std::vector<ChainQuery> queries;
  for (const ChainId& chain : chains) queries.push_back(ChainQuery{.chain = chain});
  absl::StatusOr<Snapshot> snapshot = backend_->Read(queries);
  EXPECT_THAT(snapshot, IsOk());
  return snapshot.ok() ? *std::move(snapshot) : Snapshot{};
}

absl::Status NftBackendTest::Apply(std::vector<Operation> operations) {
  return backend_->Apply(
      Transaction{.generation = Read({}).generation, .operations = std::move(operations)});
}

AddRule NftBackendTest::Append(const ChainId& chain, const Rule& rule) {
  return AddRule{.chain = chain, .rule = rule, .before = std::nullopt, .number = 0};
}

std::vector<Operation> NftBackendTest::AllOperations(Family family) {
  std::vector<Operation> operations = {CreateChain{{family, Table::kFilter, "TEST"}},
                                       CreateChain{{family, Table::kFilter, "ELSE"}},
                                       CreateChain{{family, Table::kNat, "TESTNAT"}}};
  for (const auto& [chain, rule] : AllRules(family)) {
    operations.emplace_back(Append(chain, rule));
  }
  return operations;
}

}  // namespace kipt::testing
