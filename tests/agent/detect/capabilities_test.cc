// SPDX-License-Identifier: Apache-2.0
#include "agent/detect/capabilities.h"

#include <seccomp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <regex>
#include <set>
#include <string>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "agent/commands.h"
#include "agent/report/report.h"
#include "tests/agent/process/in_child.h"
#include "tests/support/matchers.h"
#include "tests/support/temporary_tree.h"
#include "tests/support/unescaped.h"

namespace kipt::agent::capabilities_test {
namespace {

using ::kipt::testing::FindUnescaped;

const std::vector<netlink::Family> kBoth = {netlink::Family::kIPv4, netlink::Family::kIPv6};

// All of them as Debian's 6.1 has them.
const std::set<std::string>& EveryModule() {
  static const auto* const kModules = new std::set<std::string>(absl::StrSplit(
      "nf_tables nft_compat nft_chain_nat nft_ct nft_nat nft_masq nft_numgen "
      "nft_fib_ipv4 nft_fib_ipv6 nft_reject_ipv4 nft_reject_ipv6 iptable_filter "
      "iptable_nat iptable_mangle ip6table_filter ip6table_nat ip6table_mangle "
      "xt_addrtype xt_comment xt_connlabel xt_conntrack xt_mark xt_multiport xt_nfacct "
      "xt_physdev xt_recent xt_sctp xt_set xt_statistic xt_tcpudp xt_nat xt_MASQUERADE "
      "ipt_REJECT ip6t_REJECT nf_conntrack_netlink nfnetlink_acct dummy ip_vs ip_vs_rr "
      "ip_vs_sh ip_vs_wrr ip_set_bitmap_port ip_set_hash_ip ip_set_hash_ipport "
      "ip_set_hash_ipportip ip_set_hash_ipportnet",
      ' '));
  return *kModules;
}

// modules.dep of all but these; a name that ends in '*' is a prefix.
std::string DepWithout(const std::vector<std::string>& missing) {
  std::string text;
  for (const std::string& module : EveryModule()) {
    const bool left_out = absl::c_any_of(missing, [&](absl::string_view one) {
      return absl::ConsumeSuffix(&one, "*") ? absl::StartsWith(module, one) : module == one;
    });
    if (!left_out) absl::StrAppend(&text, "kernel/net/netfilter/", module, ".ko.xz: \n");
  }
  return text;
}

using Files = std::map<std::string, std::string>;

// A node with loadable modules, none of them loaded.
Files Modular(const std::string& kernel, const std::vector<std::string>& missing) {
  return {{"sys/kernel/osrelease", kernel + "\n"},
          {"version", "Linux"},
          {"modules", "ext4 1 - Live 0x0\n"},
          {"lib/modules.builtin", ""},
          {"lib/modules.dep", DepWithout(missing)}};
}
Files With(Files files, const Files& more) {
  for (const auto& [name, text] : more) files[name] = text;
  return files;
}

KernelPaths Written(const Files& files, const TemporaryTree& tree) {
  for (const auto& [name, text] : files) tree.Write(name, text);
  return {.proc = tree.root(),
          .sys_module = tree.Path("sys_module"),
          .module_directories = {tree.Path("lib")}};
}
CapabilityReport ReadTree(const Files& files, absl::string_view only = "all",
                          const std::vector<netlink::Family>& families = kBoth) {
  const TemporaryTree tree;
  return ReadCapabilities(Written(files, tree), families, only);
}

const SoftwareCapabilities& Of(const CapabilityReport& report, absl::string_view software) {
  static const SoftwareCapabilities kNone = {.software = "none"};
  const auto found =
      absl::c_find_if(report.software, [&](const auto& one) { return one.software == software; });
  return found == report.software.end() ? kNone : *found;
}
const Capability& Of(const CapabilityReport& report, absl::string_view software,
                     absl::string_view feature) {
  static const Capability kNone = {.feature = "none"};
  const std::vector<Capability>& all = Of(report, software).capabilities;
  const auto found = absl::c_find_if(all, [&](const auto& one) { return one.feature == feature; });
  return found == all.end() ? kNone : *found;
}

// "kubelet missing, kube-proxy-iptables missing": the software that is not as `usual`.
std::string Unusual(const CapabilityReport& report, absl::string_view usual) {
  std::vector<std::string> unusual;
  for (const SoftwareCapabilities& one : report.software) {
    const absl::string_view state = CapabilityStateName(one.state);
    if (state != usual) unusual.push_back(absl::StrCat(one.software, " ", state));
  }
  return absl::StrJoin(unusual, ", ");
}

struct Row {
  std::string name;
  Files files;
  std::string usual;
  int exit_code;
  std::string unusual = {};
};

const char kAllXt[] =
    "kubelet missing, kube-proxy-iptables missing, kube-proxy-ipvs missing, "
    "portmap missing, kube-iptables-agent missing";

TEST(CapabilitiesTest, JudgesEachSoftwareByWhatItNeeds) {
  const Row rows[] = {
      {"EverythingCanBeLoaded", Modular("6.1.0-50-cloud-amd64", {}), "loadable", kExitOk},
      {"NoModuleOfTheNodesOwnKernel", With(Modular("6.1.0", {}), {{"lib/modules.dep", ""}}),
       "missing", kExitDifferences},
      {"AsTheRhel10ClassHasIt",
       Modular("6.12.0-55.el10.x86_64",
               {"nft_compat", "xt_*", "ipt_*", "ip6t_*", "iptable_*", "ip6table_*"}),
       "loadable", kExitDifferences,
       absl::StrCat("iptables-nft missing, iptables-legacy missing, ", kAllXt)},
      {"LegacyAloneIsEnough", Modular("6.1.0", {"nft_compat"}), "loadable", kExitDifferences,
       "iptables-nft missing"},
      {"NftAloneIsEnough", Modular("6.17.0", {"iptable_*", "ip6table_*"}), "loadable",
       kExitDifferences, "iptables-legacy missing"},
      {"CountersAreAModuleBefore5_18", Modular("5.17.9", {}), "loadable", kExitDifferences,
       "iptables-nft missing"},
      {"NftablesModeAsksForLinux5_13",
       With(Modular("5.12.19", {}),
            {{"lib/modules.dep", DepWithout({}) + "kernel/nft_counter.ko:\n"}}),
       "loadable", kExitDifferences, "kube-proxy-nftables missing"},
      {"TheMatchNfacctAloneIsMissing", Modular("6.1.0", {"xt_nfacct"}), "loadable",
       kExitDifferences, "kube-proxy-iptables missing"},
      {"NothingOfNfacctIsThere", Modular("6.1.0", {"xt_nfacct", "nfnetlink_acct"}), "loadable",
       kExitOk},
      {"WhatIsOptionalMayBeMissing", Modular("6.1.0", {"xt_sctp", "xt_connlabel"}), "loadable",
       kExitOk},
      {"AContainerThatSeesNothing",
       {{"sys/kernel/osrelease", "6.1.0\n"}, {"version", ""}, {"modules", "ext4 1 - Live\n"}},
       "unknown",
       kExitFailed},
      {"AKernelReleaseThatIsNone", Modular("\x1b[2J\xe2\x80\xae", {}), "loadable", kExitDifferences,
       "iptables-nft missing, kube-proxy-nftables unknown"},
  };
  for (const Row& row : rows) {
    SCOPED_TRACE(row.name);
    const CapabilityReport report = ReadTree(row.files);
    EXPECT_EQ(Unusual(report, row.usual), row.unusual) << CapabilitiesText(report);
    std::ostringstream out;
    EXPECT_EQ(RunCapabilities(report, OutputFormat::kText, out), row.exit_code);
    EXPECT_EQ(FindUnescaped(out.str()), "");
  }
}

TEST(CapabilityTest, NfacctIsAFindingOnlyWhereTheKernelCountsAndTheMatchIsMissing) {
  const CapabilityReport half = ReadTree(Modular("6.1.0", {"xt_nfacct"}));
  EXPECT_THAT(Of(half, "kube-proxy-iptables").findings,
              ElementsAre(AllOf(HasSubstr("from 1.31 on, every sync fails"),
                                HasSubstr("kubernetes #142068"))));
  EXPECT_THAT(CapabilitiesText(half), HasSubstr("\n  ! from 1.31 on, every sync fails"));
  const CapabilityReport none = ReadTree(Modular("6.1.0", {"xt_nfacct", "nfnetlink_acct"}));
  EXPECT_THAT(Of(none, "kube-proxy-iptables").findings, IsEmpty());
  const Capability& match = Of(none, "kube-proxy-iptables", "match nfacct");
  EXPECT_EQ(match.state, ModuleState::kMissing);
  EXPECT_FALSE(match.needed);
  EXPECT_THAT(CapabilitiesText(none), HasSubstr("two metrics, optional  # xt_nfacct is not"));
}

TEST(CapabilityTest, OneFeatureIsAskedForByItsName) {
  const TemporaryTree tree;
  const KernelPaths paths = Written(Modular("6.1.0", {"nft_chain_nat"}), tree);
  // Those that other code asks for.
  EXPECT_EQ(FeatureState(paths, "nft table nat"), ModuleState::kMissing);
  for (const char* name : {"table nat, IPv6", "nfacct counters", "IPVS"}) {
    EXPECT_EQ(FeatureState(paths, name), ModuleState::kLoadable) << name;
  }
  EXPECT_EQ(FeatureState(paths, "no such feature"), ModuleState::kUnknown);
}

TEST(CapabilityTest, OnlyTheSoftwareThatIsAskedForIsJudged) {
  const CapabilityReport report = ReadTree(Modular("6.1.0", {}), "kubelet");
  ASSERT_EQ(report.software.size(), 1U);
  EXPECT_EQ(report.software[0].software, "kubelet");
  std::vector<absl::string_view> all = {"all"};
  for (const auto& one : ReadTree(Modular("6.1.0", {})).software) all.push_back(one.software);
  EXPECT_EQ(absl::StrJoin(all, ", "), kCapabilitySoftware);
}

TEST(CapabilityTest, WhatAFamilyNeedsIsLeftOutWithoutIt) {
  const Files files = Modular("6.1.0", {"ip6t*", "nft_fib_ipv6", "nft_reject_ipv6"});
  EXPECT_EQ(Unusual(ReadTree(files, "all", {netlink::Family::kIPv4}), "loadable"), "");
  EXPECT_NE(Unusual(ReadTree(files), "loadable"), "");
}

TEST(CapabilityTest, XtablesListsShowWhatIsRegisteredAndNothingMore) {
  Files files = {{"sys/kernel/osrelease", "6.1.0\n"},
                 {"version", ""},
                 {"modules", "ext4 1 - Live\n"},
                 {"thread-self/net/ip_tables_matches", "tcp\nmark\ncomment\n"},
                 {"thread-self/net/ip_tables_targets", "REJECT\nERROR"},
                 {"thread-self/net/ip6_tables_targets", "DNAT\n"}};
  const CapabilityReport report = ReadTree(files);
  const auto state = [&](absl::string_view feature) {
    return CapabilityStateName(Of(report, "kube-proxy-iptables", feature).state);
  };
  for (const char* present : {"match comment", "match mark", "target REJECT, IPv4"}) {
    EXPECT_EQ(state(present), "present") << present;
  }
  for (const char* unknown : {"target MARK", "target REJECT, IPv6", "match recent"}) {
    EXPECT_EQ(state(unknown), "unknown") << unknown;
  }
  // A namespace in which iptables-legacy has not been used yet.
  for (auto& [name, text] : files) {
    if (absl::StrContains(name, "_tables_")) text = "";
  }
  EXPECT_EQ(Unusual(ReadTree(files), "unknown"), "");
  const CapabilityReport modular =
      ReadTree(With(Modular("6.1.0", {}), {{"thread-self/net/ip_tables_matches", ""}}));
  EXPECT_EQ(Unusual(modular, "loadable"), "");
}

int MinorOf(absl::string_view release) {
  int minor = 0;
  const std::vector<absl::string_view> parts = absl::StrSplit(release, '.');
  return parts.size() > 1 && absl::SimpleAtoi(parts[1], &minor) ? minor : 0;
}

// "match comment", "target REJECT, IPv6": what the rules of a save need; without jumps to chains.
std::set<std::string> FeaturesOf(const std::string& path, bool ipv6) {
  static const std::regex kWord(R"( (-m|-j) ([^ \n]+))");
  std::ifstream file(path);
  std::set<std::string> features;
  for (std::string line; std::getline(file, line);) {
    // Comments are text of other programs.
    line = std::regex_replace(line, std::regex(R"("[^"]*")"), "text");
    for (std::sregex_iterator it(line.begin(), line.end(), kWord), end; it != end; ++it) {
      const std::string name = (*it)[2] == "udp" ? "tcp" : (*it)[2].str();
      if ((*it)[1] == "-m") {
        features.insert("match " + name);
      } else if (name == "REJECT") {
        features.insert(ipv6 ? "target REJECT, IPv6" : "target REJECT, IPv4");
      } else if (name == "MARK" || name == "MASQUERADE" || name == "DNAT") {
        features.insert("target " + name);
      }
    }
  }
  return features;
}

TEST(CapabilityTest, TheRowsOfIptablesModeAreWhatCapturedRulesNeed) {
  const CapabilityReport report = ReadTree(Modular("6.1.0", {}), "kube-proxy-iptables");
  std::set<std::string> seen;
  int saves = 0;
  for (const char* directory : {"rulesets", "audited"}) {
    for (const auto& entry :
         std::filesystem::directory_iterator(absl::StrCat(KIPT_TESTDATA_DIR, "/", directory))) {
      const std::string name = entry.path().filename();
      if (!absl::StartsWith(name, "kube-proxy-")) continue;
      ++saves;
      const int minor = MinorOf(name.substr(sizeof("kube-proxy-") - 1, 4));
      for (const std::string& feature : FeaturesOf(entry.path(), absl::StrContains(name, "-v6"))) {
        seen.insert(feature);
        const Capability& row = Of(report, "kube-proxy-iptables", feature);
        EXPECT_EQ(row.feature, feature) << "no row, but in " << name;
        EXPECT_TRUE(row.since.empty() || MinorOf(row.since) <= minor) << name << " " << feature;
        EXPECT_TRUE(row.until.empty() || MinorOf(row.until) >= minor) << name << " " << feature;
      }
    }
  }
  EXPECT_GT(saves, 25);
  for (const Capability& row : report.software[0].capabilities) {
    const bool of_rules =
        absl::StartsWith(row.feature, "match ") || absl::StartsWith(row.feature, "target ");
    const bool rare = row.feature == "match sctp" || row.feature == "match nfacct" ||
                      row.feature == "target REJECT, IPv6";
    EXPECT_EQ(seen.contains(std::string(row.feature)), of_rules && !rare) << row.feature;
  }
}

// Only these make a kernel load modules: requests over sockets, programs, and being asked to.
std::string Forbid() {
  const scmp_filter_ctx filter = seccomp_init(SCMP_ACT_ALLOW);
  for (const int call : {SCMP_SYS(socket), SCMP_SYS(socketpair), SCMP_SYS(execve),
                         SCMP_SYS(execveat), SCMP_SYS(init_module), SCMP_SYS(finit_module),
                         SCMP_SYS(mount), SCMP_SYS(ioctl), SCMP_SYS(bpf)}) {
    if (seccomp_rule_add(filter, SCMP_ACT_KILL_PROCESS, call, 0) != 0) return "rule";
  }
  return seccomp_load(filter) == 0 ? "" : "load";
}

TEST(CapabilityTest, ReadsFilesAndNothingElse) {
  EXPECT_EQ(testing::InChild([]() -> std::string {
              if (std::string wrong = Forbid(); !wrong.empty()) return wrong;
              const CapabilityReport report = ReadCapabilities(SystemKernelPaths("/"), kBoth);
              return report.software.empty() ? "nothing read" : "";
            }),
            "");
  EXPECT_NE(testing::InChild([]() -> std::string {
              if (std::string wrong = Forbid(); !wrong.empty()) return wrong;
              return socket(AF_NETLINK, SOCK_RAW, 12) < 0 ? "refused" : "";
            }),
            "")
      << "the judge sees nothing";
}

}  // namespace
}  // namespace kipt::agent::capabilities_test
