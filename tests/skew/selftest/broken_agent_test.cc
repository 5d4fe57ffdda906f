// SPDX-License-Identifier: Apache-2.0
//
// The harness notices agents that are broken on purpose, and reports which of two is worse.

#include <algorithm>
#include <filesystem>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "tests/skew/selftest/matrix_run.h"
#include "tests/support/matchers.h"
#include "tests/support/temporary_tree.h"

namespace kipt::skew {
namespace {

std::string Mutant(const std::string& name) {
  return absl::StrCat(KIPT_MUTANTS_DIR, "/kube-iptables-agent-", name);
}

struct MutantRow {
  const char* mutant;
  const char* paths;
  const char* cells;
  // Where it shows, and in what.
  std::vector<std::pair<std::string, std::string>> red;
  // Where the defect makes no difference to a packet.
  std::vector<std::string> green;
  // In what the agent is then found worse than kubelet: parts of a problem of the matrix.
  std::vector<std::string> worse = {};
  // Of a defect that only takes time: on a busy machine that much may be the machine's.
  int attempts = 1;
};
const MutantRow kMutants[] = {
    {"no-return",
     "boot,flush",
     "^(boot/kubelet-1.27/proxy-1.27/nft/agent|flush/kubelet-1.2(4/proxy-1.24/nft/|7/proxy-1.27/"
     "nft/"
     "agent))",
     {{"flush/kubelet-1.24/proxy-1.24/nft/agent", "pod-directly/tcp/ipv4"},
      {"flush/kubelet-1.24/proxy-1.24/nft/agent", "pod-directly/udp/ipv6"}},
     {"boot/kubelet-1.27/proxy-1.27/nft/agent", "flush/kubelet-1.27/proxy-1.27/nft/agent",
      "flush/kubelet-1.24/proxy-1.24/nft/kubelet"}},
    {"inverted-martian",
     "boot",
     "^boot/kubelet-1.26/proxy-1.26/(nft|legacy)/",
     {{"boot/kubelet-1.26/proxy-1.26/nft/agent", "martian/tcp/ipv4"},
      {"boot/kubelet-1.26/proxy-1.26/nft/agent", "martian/udp/ipv4"},
      {"boot/kubelet-1.26/proxy-1.26/legacy/agent", "martian/udp/ipv4"}},
     {"boot/kubelet-1.26/proxy-1.26/nft/kubelet", "boot/kubelet-1.26/proxy-1.26/legacy/kubelet"}},
    {"no-claims",
     "boot,upgrade-kubelet-first",
     "^(boot|upgrade-kubelet-first)/kubelet-1.2[67]/proxy-1.2[46]/nft/agent",
     {{"upgrade-kubelet-first/kubelet-1.27/proxy-1.24/nft/agent", "load-balancer-refused/tcp/ipv4"},
      {"upgrade-kubelet-first/kubelet-1.27/proxy-1.24/nft/agent",
       "node-port-local-elsewhere/udp/ipv6"},
      {"upgrade-kubelet-first/kubelet-1.27/proxy-1.24/nft/agent", "hairpin/tcp/ipv4"},
      {"boot/kubelet-1.27/proxy-1.24/nft/agent", "stream-service/ipv4"}},
     {"boot/kubelet-1.26/proxy-1.26/nft/agent",
      "upgrade-kubelet-first/kubelet-1.26/proxy-1.26/nft/agent"}},
    {"window",
     "boot,upgrade-kubelet-first",
     "^(boot/kubelet-1.27/proxy-1.27/nft/agent|upgrade-kubelet-first/kubelet-1.2(4/proxy-1.24/(nft|"
     "legacy)/agent|7/proxy-1.27/(nft/|legacy/agent)))",
     {{"upgrade-kubelet-first/kubelet-1.27/proxy-1.27/nft/agent", "stream-martian/ipv4"},
      {"upgrade-kubelet-first/kubelet-1.24/proxy-1.24/nft/agent", "stream-refused/ipv6"},
      {"upgrade-kubelet-first/kubelet-1.24/proxy-1.24/legacy/agent", "stream-martian/ipv4"}},
     {"boot/kubelet-1.27/proxy-1.27/nft/agent"},
     {"upgrade-kubelet-first/kubelet-1.27/proxy-1.27/nft/agent", "stream-martian/ipv4",
      "reached the host, with kubelet 0 of"},
     3},
    {"late",
     "flush",
     "^flush/kubelet-1.27/proxy-1.27/nft/agent",
     {{"flush/kubelet-1.27/proxy-1.27/nft/agent", "stream-martian/ipv4"}},
     {}},
};

std::vector<std::string> Flags(const MutantRow& row) {
  return {absl::StrCat("--cells=", row.cells), absl::StrCat("--paths=", row.paths)};
}

class BrokenAgentTest : public ::testing::TestWithParam<MutantRow> {};

TEST_P(BrokenAgentTest, IsSeenInTheRightCells) {
  const MutantRow& row = GetParam();
  const auto shows = [&row](const Matrix& matrix) {
    return std::all_of(row.red.begin(), row.red.end(), [&matrix](const auto& red) {
      return matrix.Unexpected(red.first).contains(red.second);
    });
  };
  Matrix broken(Flags(row), Mutant(row.mutant));
  for (int attempt = 1; attempt < row.attempts && !shows(broken); ++attempt) {
    broken = Matrix(Flags(row), Mutant(row.mutant));
  }
  EXPECT_EQ(broken.exit_code(), 2) << broken.output();
  std::map<std::string, std::string> verdicts = broken.Verdicts();
  for (const auto& [cell, probe] : row.red) {
    EXPECT_EQ(verdicts[cell], "unexpected") << cell << "\n" << broken.output();
    EXPECT_THAT(broken.Unexpected(cell), Contains(probe)) << cell << "\n" << broken.output();
  }
  if (!row.worse.empty()) {
    const std::vector<std::string> problems = broken.Problems();
    EXPECT_TRUE(std::any_of(problems.begin(), problems.end(), [&row](const std::string& problem) {
      return std::all_of(row.worse.begin(), row.worse.end(), [&problem](const std::string& part) {
        return absl::StrContains(problem, part);
      });
    })) << broken.output();
  }
  for (const std::string& cell : row.green) {
    EXPECT_THAT(verdicts[cell], AnyOf("sound", "known failure")) << cell << "\n" << broken.output();
    EXPECT_THAT(broken.Unexpected(cell), IsEmpty()) << cell;
  }
}

INSTANTIATE_TEST_SUITE_P(Mutants, BrokenAgentTest, ::testing::ValuesIn(kMutants),
                         [](const auto& row) {
                           std::string name = row.param.mutant;
                           std::erase(name, '-');
                           return name;
                         });

// The report on an agent whose audit finds something else, once its rules are those of `report`.
std::string ErrorsWithAudit(const std::string& report) {
  const testing::TemporaryTree tree;
  tree.Write("agent", absl::StrCat("#!/bin/sh\n[ \"$1\" = audit ] && echo '", report,
                                   "' && exit 0\nexec ", KIPT_AGENT_PROGRAM, " \"$@\"\n"));
  std::filesystem::permissions(tree.Path("agent"), std::filesystem::perms::owner_all);
  const Matrix matrix(
      {"--cells=^to-nftables/kubelet-1.36/proxy-1.36-nftables/third-parties/nft/kubelet$",
       "--paths=to-nftables"},
      tree.Path("agent"));
  EXPECT_EQ(matrix.exit_code(), 2) << matrix.output();
  return absl::StrJoin(matrix.Errors(), "\n");
}

TEST(BrokenAuditTest, OneThatFindsNothingIsSeenAndSoAreItsConsequences) {
  EXPECT_THAT(ErrorsWithAudit(R"({"findings": []})"),
              AllOf(HasSubstr("error ChainUser ip nat/KUBE-MARK-MASQ"),
                    HasSubstr("audit did not report that KUBE-MARK-MASQ's users would fail")));
}

TEST(BrokenAuditTest, OneThatFindsMoreIsSeen) {
  EXPECT_THAT(ErrorsWithAudit(R"({"findings": [{"id": "IpsetUser", "severity": "warning",
                                                "family": "ip", "chain": ""}]})"),
              HasSubstr(", but warning IpsetUser ip"));
}

}  // namespace
}  // namespace kipt::skew
