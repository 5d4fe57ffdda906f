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

// "[PACKETS:BYTES] -A ..." lines of both families that contain each of `parts`.
std::vector<std::string> CountedLines(IptablesMode mode, const std::string& table,
                                      const std::vector<std::string>& parts) {
  std::vector<std::string> lines;
  for (const char* const program : {"iptables", "ip6tables"}) {
    const ProgramResult saved =
        RunProgram({absl::StrCat(program, "-", NameOf(mode), "-save"), "-c", "-t", table});
    EXPECT_EQ(saved.exit_code, 0) << saved;
    for (absl::string_view line : absl::StrSplit(saved.out, '\n')) {
      if (!absl::StartsWith(line, "[")) continue;
      if (std::all_of(parts.begin(), parts.end(),
                      [&](const std::string& part) { return absl::StrContains(line, part); })) {
        lines.emplace_back(line);
      }
    }
  }
  return lines;
}

}  // namespace

std::string Gates::Text() const {
  return absl::StrCat("IPTablesOwnershipCleanup=", kipt::testing::Text(cleanup),
                      ",ConnLabelMarking=", kipt::testing::Text(labels));
}

std::string Gates::Yaml() const {
  return absl::StrCat("{IPTablesOwnershipCleanup: ", kipt::testing::Text(cleanup),
                      ", ConnLabelMarking: ", kipt::testing::Text(labels), "}");
}

ProgramResult LabelTest::AgentWith(const std::string& command, Gates gates,
                                   const std::vector<std::string>& more) {
  std::vector<std::string> arguments = {command, "--feature-gates=" + gates.Text(),
                                        absl::StrCat("--iptables-mode=", NameOf(GetParam()))};
  arguments.insert(arguments.end(), more.begin(), more.end());
  return Agent(std::move(arguments));
}

void LabelTest::SyncWith(Gates gates) {
  const ProgramResult result = AgentWith("sync", gates);
  ASSERT_EQ(result.exit_code, kExitOk) << result;
}

void LabelTest::ExpectNothingPlannedWith(Gates gates) {
  const ProgramResult result = AgentWith("plan", gates);
  EXPECT_EQ(result.exit_code, kExitOk) << result;
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

std::string LabelTest::Component(absl::string_view name, absl::string_view masquerade,
                                 absl::string_view drop, uint16_t masqueraded_port,
                                 uint16_t dropped_port) {
  std::string text = absl::StrCat("*nat\n:", name, " - [0:0]\n-A PREROUTING -j ", name,
                                  "\n-A OUTPUT -j ", name, "\n");
  for (const char* const protocol : {"udp", "tcp"}) {
    const std::string rule = absl::StrCat("-A ", name, " -p ", protocol, " --dport ");
    absl::StrAppend(&text, rule, masqueraded_port, " -j ", masquerade, "\n");
    absl::StrAppend(&text, rule, dropped_port, " -j ", drop, "\n");
  }
  return text + "COMMIT\n";
}

uint64_t LabelTest::Packets(const std::string& table, const std::vector<std::string>& parts) {
  const std::vector<std::string> lines = CountedLines(GetParam(), table, parts);
  EXPECT_FALSE(lines.empty()) << "no such rule in " << table;
  uint64_t packets = 0;
  for (const std::string& line : lines) {
    packets += std::strtoull(line.c_str() + 1, nullptr, /*base=*/10);
  }
  return packets;
}

std::vector<std::string> LabelTest::Rules(const std::string& table,
                                          const std::vector<std::string>& parts) {
  std::vector<std::string> rules = CountedLines(GetParam(), table, parts);
  for (std::string& rule : rules) rule.erase(0, rule.find("-A "));
  return rules;
}

}  // namespace kipt::testing
