// SPDX-License-Identifier: Apache-2.0
#include <sys/resource.h>
#include <sys/stat.h>

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "agent/detect/host_files.h"
#include "tests/support/matchers.h"
#include "tests/support/temporary_tree.h"

namespace kipt::agent {
namespace {

constexpr auto kV4 = netlink::Family::kIPv4;

// "usr/sbin/nft, sbin -> usr/sbin": files, and links.
void MakeFiles(absl::string_view tree, const TemporaryTree& host) {
  for (const absl::string_view one : absl::StrSplit(tree, ", ", absl::SkipEmpty())) {
    const std::vector<std::string> parts = absl::StrSplit(one, " -> ");
    if (parts.size() == 2) {
      host.Link(parts[0], parts[1]);
    } else {
      host.Write(parts[0], "not to be run");
    }
  }
}

struct Row {
  std::string name;
  std::string tree;
  std::string text;  // a part
  std::optional<IptablesMode> mode = IptablesMode::kNft;
};

TEST(HostProgramTest, IsRecognisedByItsLinks) {
  constexpr auto kOfLegacy = IptablesMode::kLegacy;
  constexpr auto kOfNeither = IptablesMode::kUnknown;
  const Row rows[] = {
      {"no iptables", "usr/sbin/nft", "no iptables", std::nullopt},
      {"Debian with nft",
       "usr/sbin/xtables-nft-multi, sbin -> usr/sbin, usr/sbin/iptables -> "
       "/etc/alternatives/iptables, etc/alternatives/iptables -> /usr/sbin/iptables-nft, "
       "usr/sbin/iptables-nft -> xtables-nft-multi",
       "/usr/sbin/iptables -> /etc/alternatives/iptables -> /usr/sbin/iptables-nft -> "},
      {"Debian with legacy",
       "usr/sbin/xtables-legacy-multi, usr/sbin/xtables-nft-multi, usr/sbin/iptables -> "
       "/etc/alternatives/iptables, etc/alternatives/iptables -> /usr/sbin/iptables-legacy, "
       "usr/sbin/iptables-legacy -> xtables-legacy-multi",
       "iptables-legacy", kOfLegacy},
      {"before version 1.8", "sbin/xtables-multi, sbin/iptables -> xtables-multi",
       "/sbin/xtables-multi", kOfLegacy},
      {"/usr/bin", "usr/bin/xtables-nft-multi, usr/bin/iptables -> xtables-nft-multi",
       "/usr/bin/iptables"},
      {"/usr/local comes first, as in PATH",
       "usr/local/sbin/xtables-legacy-multi, usr/sbin/xtables-nft-multi, usr/local/sbin/iptables "
       "-> xtables-legacy-multi, usr/sbin/iptables -> xtables-nft-multi",
       "/usr/local/sbin/iptables", kOfLegacy},
      {"a plain file of that name", "usr/sbin/iptables", "neither iptables-nft nor iptables-legacy",
       kOfNeither},
      {"a link to a wrapper", "usr/sbin/iptables-wrapper, usr/sbin/iptables -> iptables-wrapper",
       "iptables-wrapper", kOfNeither},
      {"a link that leads nowhere", "usr/sbin/iptables -> /usr/sbin/iptables-nft", "No such file",
       kOfNeither},
      {"links in a circle",
       "usr/sbin/iptables -> /sbin/iptables, sbin/iptables -> /usr/sbin/iptables", "symbolic links",
       kOfNeither},
      {"a link does not leave the root",
       "usr/sbin/xtables-nft-multi, usr/sbin/iptables -> "
       "../../../../../../../usr/sbin/xtables-nft-multi",
       "/usr/sbin/xtables-nft-multi"},
      {"what the last link leads to decides",
       "usr/sbin/xtables-legacy-multi, usr/sbin/iptables -> iptables-nft, usr/sbin/iptables-nft -> "
       "xtables-legacy-multi",
       "xtables-legacy-multi", kOfLegacy},
  };
  for (const Row& row : rows) {
    SCOPED_TRACE(row.name);
    const TemporaryTree host;
    MakeFiles(row.tree, host);
    const HostProgram program = FindHostProgram(host.Path(""), kV4);
    EXPECT_EQ(program.mode, row.mode) << program.text;
    EXPECT_THAT(program.text, HasSubstr(row.text));
  }
}

TEST(HostProgramTest, EachNameShowsTheMode) {
  const std::pair<IptablesMode, const char*> rows[] = {
      {IptablesMode::kNft, "iptables-nft ip6tables-nft xtables-nft-multi xtables-compat-multi"},
      {IptablesMode::kLegacy,
       "iptables-legacy ip6tables-legacy xtables-legacy-multi xtables-multi"}};
  for (const auto& [mode, names] : rows) {
    for (const absl::string_view name : absl::StrSplit(names, ' ')) {
      const TemporaryTree host;
      MakeFiles(absl::StrCat("sbin/", name, ", sbin/iptables -> ", name), host);
      const HostProgram program = FindHostProgram(host.Path(""), kV4);
      EXPECT_EQ(program.mode, mode) << name;
      EXPECT_EQ(program.text, absl::StrCat("/sbin/iptables -> /sbin/", name));
    }
  }
}

TEST(HostProgramTest, AShortageOfDescriptorsShowsNothing) {
  const TemporaryTree host;
  MakeFiles("opt/xtables-legacy-multi, usr/sbin/iptables -> /opt/xtables-legacy-multi", host);
  rlimit before = {};
  getrlimit(RLIMIT_NOFILE, &before);
  const rlimit none = {.rlim_cur = 0, .rlim_max = before.rlim_max};
  setrlimit(RLIMIT_NOFILE, &none);
  const HostProgram program = FindHostProgram(host.Path(""), kV4);
  setrlimit(RLIMIT_NOFILE, &before);
  EXPECT_TRUE(program.unreadable) << program.text;
}

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

TEST(InitialPidNamespaceTest, HasTheNumberThatTheKernelGivesIt) {
  EXPECT_EQ(kInitialPidNamespace, 4026531836U);
}

TEST_F(OwnHostRootTest, IsNotGuessedElsewhere) {
  EXPECT_THAT(Find("").problem, HasSubstr("other files")) << "a chroot";
  ++pid_namespace_;
  EXPECT_THAT(Find().problem, HasSubstr("container"));
  EXPECT_EQ(Find().directory, "");
  --pid_namespace_;
  tree_.Remove("proc/1/ns/mnt");
  EXPECT_THAT(Find().problem, HasSubstr("not known"));
  EXPECT_EQ(Find().directory, "");
  tree_.Link("proc/1/ns/mnt", tree_.Path("mnt1"));
  EXPECT_THAT(Find().problem, HasSubstr("other files"));
  tree_.Remove("proc/thread-self/ns/pid");
  EXPECT_THAT(Find().problem, HasSubstr("ns/pid: No such file"));
  EXPECT_EQ(Find().directory, "");
}

}  // namespace
}  // namespace kipt::agent
