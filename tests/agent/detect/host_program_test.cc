// SPDX-License-Identifier: Apache-2.0
#include <sys/stat.h>

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "agent/detect/host_files.h"
#include "tests/support/matchers.h"
#include "tests/support/rows.h"
#include "tests/support/temporary_tree.h"

namespace kipt::agent {
namespace {

constexpr auto kV4 = netlink::Family::kIPv4;

using Links = std::vector<std::pair<std::string, std::string>>;

struct Row {
  std::string name;
  std::vector<std::string> files;
  Links links;
  std::string text;  // a part
  std::optional<IptablesMode> mode = IptablesMode::kNft;
};

TEST(HostProgramTest, IsRecognisedByItsLinks) {
  const Row rows[] = {
      {"NoIptables", List("usr/sbin/nft"), Links(), "no iptables", std::nullopt},
      {"DebianWithNft", List("usr/sbin/xtables-nft-multi"),
       Links{{"sbin", "usr/sbin"},
             {"usr/sbin/iptables", "/etc/alternatives/iptables"},
             {"etc/alternatives/iptables", "/usr/sbin/iptables-nft"},
             {"usr/sbin/iptables-nft", "xtables-nft-multi"}},
       "/usr/sbin/iptables -> /etc/alternatives/iptables -> /usr/sbin/iptables-nft -> "},
      {"DebianWithLegacy", List("usr/sbin/xtables-legacy-multi", "usr/sbin/xtables-nft-multi"),
       Links{{"usr/sbin/iptables", "/etc/alternatives/iptables"},
             {"etc/alternatives/iptables", "/usr/sbin/iptables-legacy"},
             {"usr/sbin/iptables-legacy", "xtables-legacy-multi"}},
       "iptables-legacy", IptablesMode::kLegacy},
      {"BeforeVersion18", List("sbin/xtables-multi"), Links{{"sbin/iptables", "xtables-multi"}},
       "/sbin/xtables-multi", IptablesMode::kLegacy},
      {"UsrBin", List("usr/bin/xtables-nft-multi"),
       Links{{"usr/bin/iptables", "xtables-nft-multi"}}, "/usr/bin/iptables"},
      {"UsrLocalBin", List("usr/local/bin/xtables-nft-multi"),
       Links{{"usr/local/bin/iptables", "xtables-nft-multi"}}, "/usr/local/bin/iptables"},
      {"Bin", List("bin/xtables-nft-multi"), Links{{"bin/iptables", "xtables-nft-multi"}},
       "/bin/iptables"},
      {"UsrLocalComesFirstAsInPath",
       List("usr/local/sbin/xtables-legacy-multi", "usr/sbin/xtables-nft-multi"),
       Links{{"usr/local/sbin/iptables", "xtables-legacy-multi"},
             {"usr/sbin/iptables", "xtables-nft-multi"}},
       "/usr/local/sbin/iptables", IptablesMode::kLegacy},
      {"APlainFileOfThatName", List("usr/sbin/iptables"), Links(),
       "neither iptables-nft nor iptables-legacy", IptablesMode::kUnknown},
      {"ALinkToAWrapper", List("usr/sbin/iptables-wrapper"),
       Links{{"usr/sbin/iptables", "iptables-wrapper"}}, "iptables-wrapper",
       IptablesMode::kUnknown},
      {"ALinkThatLeadsNowhere", List(), Links{{"usr/sbin/iptables", "/usr/sbin/iptables-nft"}},
       "No such file", IptablesMode::kUnknown},
      {"LinksInACircle", List(),
       Links{{"usr/sbin/iptables", "/sbin/iptables"}, {"sbin/iptables", "/usr/sbin/iptables"}},
       "symbolic links", IptablesMode::kUnknown},
      {"ALinkDoesNotLeaveTheRoot", List("usr/sbin/xtables-nft-multi"),
       Links{{"usr/sbin/iptables", "../../../../../../../usr/sbin/xtables-nft-multi"}},
       "/usr/sbin/xtables-nft-multi"},
      {"WhatTheLastLinkLeadsToDecides", List("usr/sbin/xtables-legacy-multi"),
       Links{{"usr/sbin/iptables", "iptables-nft"},
             {"usr/sbin/iptables-nft", "xtables-legacy-multi"}},
       "xtables-legacy-multi", IptablesMode::kLegacy},
  };
  for (const Row& row : rows) {
    SCOPED_TRACE(row.name);
    const TemporaryTree host;
    for (const std::string& file : row.files) host.Write(file, "not to be run");
    for (const auto& [name, target] : row.links) host.Link(name, target);
    const HostProgram program = FindHostProgram(host.Path(""), kV4);
    EXPECT_EQ(program.mode, row.mode) << program.text;
    EXPECT_THAT(program.text, HasSubstr(row.text));
  }
}

TEST(HostProgramNameTest, EachNameTellsTheMode) {
  const std::pair<std::string, IptablesMode> rows[] = {
      {"iptables-nft", IptablesMode::kNft},
      {"ip6tables-nft", IptablesMode::kNft},
      {"xtables-nft-multi", IptablesMode::kNft},
      {"xtables-compat-multi", IptablesMode::kNft},
      {"iptables-legacy", IptablesMode::kLegacy},
      {"ip6tables-legacy", IptablesMode::kLegacy},
      {"xtables-legacy-multi", IptablesMode::kLegacy},
      {"xtables-multi", IptablesMode::kLegacy}};
  for (const auto& [name, mode] : rows) {
    SCOPED_TRACE(name);
    const TemporaryTree host;
    host.Write("sbin/" + name, "");
    host.Link("sbin/iptables", name);
    const HostProgram program = FindHostProgram(host.Path(""), kV4);
    EXPECT_EQ(program.mode, mode);
    EXPECT_EQ(program.text, "/sbin/iptables -> /sbin/" + name);
  }
}

TEST(HostProgramFamilyTest, IPv6HasItsOwn) {
  const TemporaryTree host;
  host.Write("sbin/xtables-nft-multi", "");
  host.Link("sbin/ip6tables", "xtables-nft-multi");
  EXPECT_EQ(FindHostProgram(host.Path(""), netlink::Family::kIPv6).mode, IptablesMode::kNft);
  EXPECT_EQ(FindHostProgram(host.Path(""), kV4).mode, std::nullopt);
}

// ---- is this process on the host? ----

class OwnHostRootTest : public ::testing::Test {
 protected:
  OwnHostRootTest() {
    for (const char* file : {"proc/thread-self/ns/pid", "proc/thread-self/ns/mnt", "mnt1"}) {
      tree_.Write(file, "");
    }
    tree_.Link("proc/1/ns/mnt", tree_.Path("proc/thread-self/ns/mnt"));
    tree_.Link("proc/1/root", tree_.Path("root"));
    tree_.Directory("root");
    struct stat pid = {};
    EXPECT_EQ(stat(tree_.Path("proc/thread-self/ns/pid").c_str(), &pid), 0);
    pid_namespace_ = pid.st_ino;
  }
  HostRoot Find(const std::string& root = "root") const {
    return OwnHostRoot(tree_.Path("proc"), tree_.Path(root), pid_namespace_);
  }
  TemporaryTree tree_;
  uint64_t pid_namespace_ = 0;
};

TEST_F(OwnHostRootTest, IsTheRootWhereAllNamespacesAreTheHosts) {
  EXPECT_EQ(Find().directory, "/");
  EXPECT_EQ(Find().problem, "");
}

TEST_F(OwnHostRootTest, IsNotSeenInAnotherPidNamespace) {
  ++pid_namespace_;
  EXPECT_THAT(Find().problem, HasSubstr("container"));
  EXPECT_EQ(Find().directory, "");
}

TEST_F(OwnHostRootTest, IsNotGuessedWhereItsOwnNamespaceCannotBeRead) {
  tree_.Remove("proc/thread-self/ns/pid");
  EXPECT_THAT(Find().problem, HasSubstr("ns/pid: No such file"));
  EXPECT_EQ(Find().directory, "");
}

TEST(InitialPidNamespaceTest, HasTheNumberThatTheKernelGivesIt) {
  EXPECT_EQ(kInitialPidNamespace, 4026531836U);
}

TEST_F(OwnHostRootTest, IsNotSeenInAnotherMountNamespace) {
  tree_.Remove("proc/1/ns/mnt");
  tree_.Link("proc/1/ns/mnt", tree_.Path("mnt1"));
  EXPECT_THAT(Find().problem, HasSubstr("other files"));
}

TEST_F(OwnHostRootTest, IsNotSeenInAChroot) {
  EXPECT_THAT(Find("").problem, HasSubstr("other files"));
}

TEST_F(OwnHostRootTest, IsNotGuessedWhereProcessOneCannotBeLookedAt) {
  tree_.Remove("proc/1/ns/mnt");
  EXPECT_THAT(Find().problem, HasSubstr("not known"));
  EXPECT_EQ(Find().directory, "");
}

}  // namespace
}  // namespace kipt::agent
