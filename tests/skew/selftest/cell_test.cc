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
  const std::vector<Cell> cells = AllCells(AllPaths());
  for (const Path path : AllPaths()) {
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

// ---- what they run ----

const HarnessOptions kOptions = {.chroot_dir = "/chroots"};

struct ProgramRow {
  const char* name;
  // What is not there: all whose paths have this in them.
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
Cell With(Company company) { return {.company = company}; }

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
    Missing("ipset where nobody names sets", "ipset", {}),
    Missing("portmap", "portmap", With(Company::kThirdParties),
            "/usr/lib/cni/portmap or /opt/cni/bin/portmap (Debian package "
            "containernetworking-plugins)"),
    Missing("portmap in its first place", "/opt/cni", With(Company::kThirdParties)),
    Missing("portmap in its second", "/usr/lib/cni", With(Company::kThirdParties)),
    Missing("another Debian release", "/chroots/bullseye", With(Company::kProxy1_8_7),
            "/chroots/bullseye/usr/sbin/iptables-nft, "),
    Missing("which is named", "/chroots/bullseye", With(Company::kProxy1_8_7),
            "Debian's release bullseye there"),
    Missing("the other one", "/chroots/trixie", With(Company::kProxy1_8_7)),
};

TEST(HasProgramsTest, NamesWhatIsMissingAndItsPackage) {
  for (const ProgramRow& row : kPrograms) {
    const absl::Status status = HasPrograms({row.cell}, kOptions, [&row](const std::string& path) {
      return row.missing == absl::string_view("ip") ? path != "ip"
                                                    : !absl::StrContains(path, row.missing);
    });
    EXPECT_EQ(absl::IsNotFound(status), *row.message != '\0') << row.name << ": " << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr(row.message)) << row.name;
  }
}

TEST(HasProgramsTest, NamesEachOnceWhateverTheNumberOfCells) {
  const std::vector<Cell> cells = DefaultCells(MainPaths());
  const absl::Status status = HasPrograms(
      cells, kOptions, [](const std::string& path) { return path != "/usr/sbin/ipset"; });
  EXPECT_EQ(status.message(),
            "the chosen cells run programs that are missing: /usr/sbin/ipset (Debian package "
            "ipset). Install them, or choose other cells with --cells");
}

TEST(HasProgramsTest, AsksForTheAgentOnlyWhereACellRunsIt) {
  const auto no_agent = [](const std::string& path) {
    return !path.empty() && path != "/opt/agent";
  };
  Cell cell;
  cell.actor = Actor::kKubelet;
  EXPECT_TRUE(HasPrograms({cell}, kOptions, no_agent).ok());
  Cell of_the_agent = cell;
  of_the_agent.actor = Actor::kAgent;
  of_the_agent.program = "/opt/agent";
  EXPECT_THAT(std::string(HasPrograms({cell, of_the_agent}, kOptions, no_agent).message()),
              HasSubstr("/opt/agent (name it with --agent, --a or --b)"));
}

TEST(HasProgramsTest, AsksForAProxyProgramAndWhatItRunsOnlyWhereACellRunsIt) {
  const auto nothing_of_it = [](const std::string& path) {
    return path != "/opt/kube-proxy" && path != "conntrack";
  };
  HarnessOptions options = kOptions;
  options.proxy_program = "/opt/kube-proxy";
  options.proxy_version = {1, 20};
  Cell cell;
  cell.pair.proxy = {{1, 36}};
  EXPECT_TRUE(HasPrograms({cell}, options, nothing_of_it).ok());
  cell.pair.proxy = {{1, 20}};
  EXPECT_THAT(std::string(HasPrograms({cell}, options, nothing_of_it).message()),
              AllOf(HasSubstr("/opt/kube-proxy (name it with --proxy-program)"),
                    HasSubstr("conntrack (Debian package conntrack)")));
}

TEST(HasProgramsTest, AsksForAKubeletProgramOnlyWhereACellRunsIt) {
  const auto nothing_of_it = [](const std::string& path) { return path != "/opt/kubelet"; };
  HarnessOptions options = kOptions;
  options.kubelet_program = "/opt/kubelet";
  options.kubelet_version = {{1, 24}, {}};
  Cell cell;
  cell.actor = Actor::kKubelet;
  cell.pair.kubelet = {{1, 27}, {}};
  EXPECT_TRUE(HasPrograms({cell}, options, nothing_of_it).ok());
  cell.pair.kubelet = {{1, 24}, {}};
  EXPECT_THAT(std::string(HasPrograms({cell}, options, nothing_of_it).message()),
              HasSubstr("/opt/kubelet (name it with --kubelet-program)"));
  Cell with_agent = cell;
  with_agent.actor = Actor::kAgent;
  with_agent.program = "/bin/true";
  EXPECT_TRUE(HasPrograms({with_agent}, options, nothing_of_it).ok());
}

TEST(CanRunHereTest, LooksInPathWhereThereIsNoSlash) {
  EXPECT_TRUE(CanRunHere("sh"));
  EXPECT_TRUE(CanRunHere("/bin/sh"));
  EXPECT_FALSE(CanRunHere("/etc/passwd"));
  EXPECT_FALSE(CanRunHere("no-such-program-anywhere"));
}

}  // namespace
}  // namespace kipt::skew
