// SPDX-License-Identifier: Apache-2.0
#include "tests/skew/matrix/cell.h"

#include <gtest/gtest.h>

#include <set>
#include <string>
#include <utility>
#include <vector>

namespace kipt::skew {
namespace {

TEST(CellsTest, HaveNamesOfTheirOwn) {
  for (const std::vector<Cell>& cells : {DefaultCells({std::begin(kAllPaths), std::end(kAllPaths)}),
                                         AllCells({std::begin(kAllPaths), std::end(kAllPaths)})}) {
    std::set<std::string> ids;
    for (const Cell& cell : cells) {
      EXPECT_TRUE(ids.insert(CellId(cell)).second) << CellId(cell);
      EXPECT_EQ(CellId(cell).find(' '), std::string::npos) << CellId(cell);
    }
  }
}

TEST(CellsTest, AreTriedWithKubeletAndWithTheAgent) {
  std::set<std::string> ids;
  for (const Cell& cell : DefaultCells(MainPaths())) ids.insert(CellId(cell));
  for (std::string id : ids) {
    if (id.rfind("label-flip/", 0) == 0) continue;
    const size_t actor = id.rfind('/') + 1;
    EXPECT_EQ(ids.count(id.replace(actor, std::string::npos, "kubelet")), 1) << id;
    EXPECT_EQ(ids.count(id.replace(actor, std::string::npos, "agent")), 1) << id;
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
  const std::vector<Cell> cells = AllCells({std::begin(kAllPaths), std::end(kAllPaths)});
  for (const Path path : kAllPaths) {
    if (HasOwnCells(path)) continue;
    std::set<std::pair<int, int>> pairs;
    for (const Cell& cell : cells) {
      if (cell.path != path) continue;
      pairs.emplace(cell.pair.kubelet.version.minor, cell.pair.proxy.version.minor);
    }
    // Of 21 versions each; 1.17 beside 1.17 has nothing older to come from.
    EXPECT_EQ(pairs.size(), MovesBetweenVersions(path) ? 21U * 21U - 1U : 21U * 21U) << IdOf(path);
  }
}

TEST(CellsTest, OfConnLabelMarkingAreTheAgentsAloneAndFew) {
  std::set<testing::IptablesMode> modes;
  std::set<bool> cleans_up;
  std::set<Company> companies;
  const std::vector<Cell> cells = DefaultCells({Path::kLabelFlip});
  for (const Cell& cell : cells) {
    EXPECT_EQ(cell.path, Path::kLabelFlip) << CellId(cell);
    EXPECT_EQ(cell.actor, Actor::kAgent) << CellId(cell);
    EXPECT_FALSE(cell.about.empty()) << CellId(cell);
    modes.insert(cell.mode);
    cleans_up.insert(CleansUp(cell.pair.kubelet));
    companies.insert(cell.company);
  }
  EXPECT_EQ(modes.size(), 2U);
  EXPECT_EQ(cleans_up.size(), 2U);
  EXPECT_EQ(companies.count(Company::kLabelUserStays), 1U);
  EXPECT_LE(cells.size(), 12U);
  for (const Cell& cell : AllCells({Path::kLabelFlip})) EXPECT_EQ(cell.actor, Actor::kAgent);
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

TEST(PathTest, HasAnIdAndAName) {
  std::set<std::string> ids;
  for (const Path path : kAllPaths) {
    EXPECT_TRUE(ids.insert(IdOf(path)).second) << IdOf(path);
    EXPECT_STRNE(NameOf(path), "");
  }
}

}  // namespace
}  // namespace kipt::skew
