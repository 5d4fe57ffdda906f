// SPDX-License-Identifier: Apache-2.0
#include "tests/skew/matrix/cell.h"

#include <gtest/gtest.h>

#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/string_view.h"
#include "tests/skew/matrix/run_cell.h"
#include "tests/support/matchers.h"

namespace kipt::skew {
namespace {

TEST(CellsTest, HaveNamesOfTheirOwn) {
  for (const std::vector<Cell>& cells : {DefaultCells(AllPaths()), AllCells(AllPaths())}) {
    std::set<std::string> ids;
    for (const Cell& cell : cells) {
      EXPECT_TRUE(ids.insert(CellId(cell)).second) << CellId(cell);
      EXPECT_EQ(CellId(cell).find(' '), std::string::npos) << CellId(cell);
    }
  }
}

TEST(CellsTest, CoverEveryPairOfGenerationsThatThePolicyAllowsFrom123On) {
  std::set<std::pair<std::string, std::string>> have;
  for (const Cell& cell : DefaultCells(MainPaths())) {
    have.emplace(ToString(GenerationOf(cell.pair.kubelet)),
                 ToString(GenerationOf(cell.pair.proxy)));
  }
  for (const Version kubelet : AllVersions()) {
    for (const Version proxy : AllVersions()) {
      const bool old = kubelet < Version{1, 23} || proxy < Version{1, 23};
      if (old || !IsAllowed(kubelet, proxy)) continue;
      const std::pair<std::string, std::string> generations = {
          ToString(GenerationOf(KubeletVersion{kubelet, {}})),
          ToString(GenerationOf(ProxyVersion{proxy}))};
      EXPECT_EQ(have.count(generations), 1)
          << "kubelet " << generations.first << ", kube-proxy " << generations.second;
    }
  }
}

TEST(CellsTest, OfAllVersionsAreEveryPairOnEveryPath) {
  const std::vector<Cell> cells = AllCells(AllPaths());
  for (const Path path : AllPaths()) {
    if (HasOwnCells(path)) continue;
    std::set<std::pair<int, int>> pairs;
    for (const Cell& cell : cells) {
      if (cell.path != path) continue;
      pairs.emplace(cell.pair.kubelet.version.minor, cell.pair.proxy.version.minor);
    }
    // Of 21 versions each; 1.17 with 1.17 has no older pair to come from.
    EXPECT_EQ(pairs.size(), MovesBetweenVersions(path) ? 21U * 21U - 1U : 21U * 21U) << IdOf(path);
  }
}

TEST(CellsTest, OfKubeProxysOwnPathsHaveAllItsGenerationsAndAKubeletWithTheGateOff) {
  for (const Path path : {Path::kToNftables, Path::kFromNftables, Path::kProxyCleanup}) {
    const std::vector<Cell> cells = DefaultCells({path});
    std::set<int> proxies;
    std::set<bool> cleans_up;
    for (const Cell& cell : cells) {
      EXPECT_EQ(cell.path, path) << CellId(cell);
      EXPECT_EQ(UsesNftables(cell), path != Path::kProxyCleanup) << CellId(cell);
      EXPECT_EQ(cell.pair.proxy.mode == ProxyMode::kNftables, path == Path::kToNftables);
      proxies.insert(cell.pair.proxy.version.minor);
      cleans_up.insert(CleansUp(cell.pair.kubelet));
    }
    std::set<int> expected = {31, 33, 34, 36};
    const bool cleanup = path == Path::kProxyCleanup;
    for (int minor = 17; cleanup && minor <= 36; ++minor) expected.insert(minor);
    EXPECT_EQ(proxies, expected) << IdOf(path);
    EXPECT_EQ(cleans_up.size(), 2U) << IdOf(path);
    EXPECT_LE(cells.size(), cleanup ? 112U : 40U) << IdOf(path);
    EXPECT_EQ(AllCells({path}).size(), cells.size()) << IdOf(path);
  }
}

struct ProgramRow {
  const char* name;
  // The missing programs: all whose paths have this in them.
  const char* missing;
  Cell cell;
  // Part of the message; "": it can run.
  const char* message;
};

ProgramRow Missing(const char* name, const char* missing, const Cell& cell,
                   const char* message = "") {
  return {name, missing, cell, message};
}
Cell WithProxy(ProxyMode mode) { return {.pair = {.proxy = {.mode = mode}}}; }
Cell With(Actor actor) { return {.actor = actor, .program = "/opt/agent"}; }

const ProgramRow kPrograms[] = {
    Missing("all is there", "nothing", {}),
    Missing("ip", "ip", {}, "ip (Debian package iproute2)"),
    Missing("iptables of nf_tables", "ip6tables-nft-save", {},
            "/usr/sbin/ip6tables-nft-save (Debian package iptables)"),
    Missing("legacy iptables", "-legacy", {.mode = testing::IptablesMode::kLegacy},
            "/usr/sbin/iptables-legacy, "),
    Missing("all of it", "-legacy", {.mode = testing::IptablesMode::kLegacy},
            "ip6tables-legacy-restore"),
    Missing("legacy iptables for nft alone", "-legacy", {}),
    Missing("legacy iptables for a move to nft", "-legacy", {.path = Path::kToNft},
            "Debian package iptables"),
    Missing("ipset", "ipset", WithProxy(ProxyMode::kIpvs),
            "/usr/sbin/ipset (Debian package ipset)"),
    Missing("nft", "sbin/nft", WithProxy(ProxyMode::kNftables),
            "/usr/sbin/nft (Debian package nftables)"),
    Missing("ipset where no rule names sets", "ipset", {}),
    Missing("the agent", "/opt/agent", With(Actor::kAgent),
            "/opt/agent (name it with --agent, --a or --b)"),
    Missing("the agent where kubelet runs", "/opt/agent", With(Actor::kKubelet)),
};

TEST(HasProgramsTest, NamesWhatIsMissingAndItsPackage) {
  for (const ProgramRow& row : kPrograms) {
    const absl::Status status = HasPrograms({row.cell}, [&row](const std::string& path) {
      return row.missing == absl::string_view("ip") ? path != "ip"
                                                    : !absl::StrContains(path, row.missing);
    });
    EXPECT_EQ(absl::IsNotFound(status), *row.message != '\0') << row.name << ": " << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr(row.message)) << row.name;
  }
}

}  // namespace
}  // namespace kipt::skew
