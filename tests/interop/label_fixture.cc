// SPDX-License-Identifier: Apache-2.0
#include "tests/interop/label_fixture.h"

#include <algorithm>
#include <cstdlib>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace kipt::testing {
namespace {

const char* Text(bool on) { return on ? "true" : "false"; }

Iptables Of(IptablesMode mode, IpFamily family) { return {.family = family, .mode = mode}; }

}  // namespace

std::string Gates::Text() const {
  return absl::StrCat("IPTablesOwnershipCleanup=", kipt::testing::Text(cleanup),
                      ",ConnLabelMarking=", kipt::testing::Text(labels));
}

std::string Gates::Yaml() const {
  return absl::StrCat("{IPTablesOwnershipCleanup: ", kipt::testing::Text(cleanup),
                      ", ConnLabelMarking: ", kipt::testing::Text(labels), "}");
}

void LabelTest::SyncWith(Gates gates) {
  const ProgramResult result = Agent({"sync", "--feature-gates=" + gates.Text(),
                                      absl::StrCat("--iptables-mode=", NameOf(GetParam()))});
  ASSERT_EQ(result.exit_code, kExitOk) << result;
}

void LabelTest::Load(const std::string& text) {
  for (const IpFamily family : kBothFamilies) {
    const ProgramResult result = Of(GetParam(), family).Restore(text);
    ASSERT_EQ(result.exit_code, 0) << text << result;
  }
}

void LabelTest::Change(const std::vector<std::string>& arguments) {
  for (const IpFamily family : kBothFamilies) {
    const ProgramResult result = Of(GetParam(), family).Run(arguments);
    ASSERT_EQ(result.exit_code, 0) << result;
  }
}

std::string LabelTest::Component(absl::string_view masquerade, absl::string_view drop) {
  std::string text =
      "*nat\n:COMPONENT - [0:0]\n-A PREROUTING -j COMPONENT\n-A OUTPUT -j COMPONENT\n";
  for (const char* const protocol : {"udp", "tcp"}) {
    const std::string rule = absl::StrCat("-A COMPONENT -p ", protocol, " --dport ");
    absl::StrAppend(&text, rule, kMasqueradedPort, " -j ", masquerade, "\n");
    absl::StrAppend(&text, rule, kDroppedPort, " -j ", drop, "\n");
  }
  return text + "COMMIT\n";
}

uint64_t LabelTest::Packets(const std::string& table, const std::vector<std::string>& parts) {
  uint64_t packets = 0;
  bool found = false;
  for (const char* const program : {"iptables", "ip6tables"}) {
    const ProgramResult saved =
        RunProgram({absl::StrCat(program, "-", NameOf(GetParam()), "-save"), "-c", "-t", table});
    EXPECT_EQ(saved.exit_code, 0) << saved;
    // "[PACKETS:BYTES] -A ..."
    for (const std::string& line : std::vector<std::string>(absl::StrSplit(saved.out, '\n'))) {
      if (!absl::StartsWith(line, "[")) continue;
      if (!std::all_of(parts.begin(), parts.end(),
                       [&](const std::string& part) { return absl::StrContains(line, part); })) {
        continue;
      }
      found = true;
      packets += std::strtoull(line.c_str() + 1, nullptr, /*base=*/10);
    }
  }
  EXPECT_TRUE(found) << "no such rule in " << table;
  return packets;
}

}  // namespace kipt::testing
