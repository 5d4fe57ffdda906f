// SPDX-License-Identifier: Apache-2.0
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/string_view.h"
#include "tests/skew/matrix/run_cell.h"
#include "tests/support/matchers.h"

namespace kipt::skew {
namespace {

using testing::IptablesMode;

const HarnessOptions kOptions = {.chroot_dir = "/chroots"};

struct ProgramRow {
  const char* name;
  // What is not there: all whose paths have this in them.
  const char* missing;
  // Parts of the message; no parts: it can run.
  std::vector<const char*> message;
  Cell cell;
};

Cell WithProxy(ProxyMode mode) { return {.pair = {.proxy = {.mode = mode}}}; }

const ProgramRow kPrograms[] = {
    {"all is there", "nothing", {}, {}},
    {"ip", "ip", {"ip (Debian package iproute2)"}, {}},
    {"iptables of nf_tables",
     "ip6tables-nft-save",
     {"/usr/sbin/ip6tables-nft-save (Debian package iptables)"},
     {}},
    {"legacy iptables",
     "-legacy",
     {"/usr/sbin/iptables-legacy, ", "ip6tables-legacy-restore"},
     {.mode = IptablesMode::kLegacy}},
    {"legacy iptables for nft alone", "-legacy", {}, {}},
    {"legacy iptables for a move to nft",
     "-legacy",
     {"Debian package iptables"},
     {.path = Path::kToNft}},
    {"ipset", "ipset", {"/usr/sbin/ipset (Debian package ipset)"}, WithProxy(ProxyMode::kIpvs)},
    {"nft",
     "sbin/nft",
     {"/usr/sbin/nft (Debian package nftables)"},
     WithProxy(ProxyMode::kNftables)},
    {"ipset where nobody names sets", "ipset", {}, {}},
    {"portmap",
     "portmap",
     {"/usr/lib/cni/portmap or /opt/cni/bin/portmap (Debian package containernetworking-plugins)"},
     {.company = Company::kThirdParties}},
    {"portmap in its first place", "/opt/cni", {}, {.company = Company::kThirdParties}},
    {"portmap in its second", "/usr/lib/cni", {}, {.company = Company::kThirdParties}},
    {"another Debian release",
     "/chroots/bullseye",
     {"/chroots/bullseye/usr/sbin/iptables-nft, ", "Debian's release bullseye there"},
     {.company = Company::kProxy1_8_7}},
    {"the other one", "/chroots/trixie", {}, {.company = Company::kProxy1_8_7}},
};

TEST(HasProgramsTest, NamesWhatIsMissingAndItsPackage) {
  for (const ProgramRow& row : kPrograms) {
    const absl::Status status = HasPrograms({row.cell}, kOptions, [&row](const std::string& path) {
      return row.missing == absl::string_view("ip") ? path != "ip"
                                                    : !absl::StrContains(path, row.missing);
    });
    if (row.message.empty()) {
      EXPECT_TRUE(status.ok()) << row.name << ": " << status;
      continue;
    }
    EXPECT_EQ(status.code(), absl::StatusCode::kNotFound) << row.name;
    for (const char* part : row.message) {
      EXPECT_THAT(std::string(status.message()), HasSubstr(part)) << row.name;
    }
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
