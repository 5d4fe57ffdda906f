// SPDX-License-Identifier: Apache-2.0
//
// What an audit is given, of real namespaces: both iptables modes, `ip rule`, and no trace of the
// looking.
#include "agent/audit/node_view.h"

#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fstream>

#include "agent/audit/audit.h"
#include "agent/process/command.h"
#include "agent/process/network_namespaces.h"
#include "tests/kernel/nft_fixture.h"
#include "tests/support/background_program.h"
#include "tests/support/surveyed.h"

namespace kipt::testing::node_view_test {
namespace {

using agent::CniConfigs;
using agent::GatherAllNamespaces;
using agent::GatherNodeView;
using agent::ListNetworkNamespaces;
using agent::NetworkNamespace;
using agent::NetworkNamespaces;
using agent::NodeView;

class NodeViewKernelTest : public PrivateRunTest {
 protected:
  agent::ModeSources Sources() { return agent::SystemModeSources("/", runner_.get()); }

  std::unique_ptr<agent::CommandRunner> runner_ = agent::NewCommandRunner();
};

TEST_F(NodeViewKernelTest, FindsNothingInAFreshNamespaceAndLeavesItSo) {
  const NodeView view = GatherNodeView(Sources(), {});
  EXPECT_EQ(view, NodeView{});
  EXPECT_EQ(FileText("/proc/thread-self/net/ip_tables_names"), "");
  EXPECT_EQ(FileText("/proc/thread-self/net/ip6_tables_names"), "");
  EXPECT_EQ(RunProgram({"nft", "list", "tables"}).out, "");
}

TEST_F(NodeViewKernelTest, HasBothModesRoutingRulesAndRouteLocalnet) {
  MustRun({"iptables-legacy", "-t", "raw", "-A", "PREROUTING", "-i", "lo", "-j", "NOTRACK"});
  MustRun({"iptables-nft", "-A", "INPUT", "-s", "10.0.0.0/8", "-j", "DROP"});
  MustRun({"ip", "rule", "add", "fwmark", "0x4000/0x4000", "table", "100", "pref", "7"});
  std::ofstream("/proc/sys/net/ipv4/conf/all/route_localnet") << "1\n";
  const CniConfigs cni = {.directories = {"/etc/cni/net.d"}};
  const NodeView view = GatherNodeView(Sources(), cni);
  EXPECT_THAT(view.problems, IsEmpty());
  EXPECT_EQ(view.cni, cni);
  EXPECT_THAT(view.route_localnet.interfaces, ElementsAre("all"));
  ASSERT_THAT(view.ip_rules, SizeIs(1));
  EXPECT_EQ(view.ip_rules[0].text, "7: from all fwmark 0x4000/0x4000 lookup 100");
  ASSERT_THAT(view.surveys, SizeIs(2));
  EXPECT_EQ(view.surveys[0].mode, "nft");
  EXPECT_EQ(TextOf(view.surveys[0].tables.at({"ip", "filter"}).at("INPUT").rules.at(0)),
            "-s 10.0.0.0/8 -j DROP");
  EXPECT_EQ(view.surveys[1].mode, "legacy");
  EXPECT_EQ(TextOf(view.surveys[1].tables.at({"ip", "raw"}).at("PREROUTING").rules.at(0)),
            "-i lo -j NOTRACK");
  EXPECT_EQ(FileText("/proc/thread-self/net/ip_tables_names"), "raw\n");
}

TEST_F(NodeViewKernelTest, VisitsEveryNamespaceAndStaysInItsOwn) {
  MustRun({"iptables-legacy", "-N", "HERE"});
  const Netns other = NewNetns();
  std::optional<BackgroundProgram> program;
  {
    const InNetns inside(other);
    program.emplace(std::vector<std::string>{"sleep", "60"});
    MustRun({"iptables-legacy", "-N", "THERE"});
    MustRun({"iptables-nft", "-N", "THERE-TOO"});
    MustRun({"ip", "-6", "rule", "add", "fwmark", "0x1", "table", "9", "pref", "8"});
    std::ofstream("/proc/sys/net/ipv4/conf/all/route_localnet") << "1\n";
  }
  const CniConfigs cni = {.directories = {"/etc/cni/net.d"}};
  const std::vector<NodeView> views = GatherAllNamespaces(Sources(), cni);
  ASSERT_GE(views.size(), 2U);
  EXPECT_EQ(views[0].name, "");
  EXPECT_EQ(views[0].cni, cni);
  ASSERT_THAT(views[0].surveys, SizeIs(1));
  EXPECT_EQ(views[0].surveys[0].tables.at({"ip", "filter"}).count("HERE"), 1U);
  EXPECT_THAT(views[0].route_localnet.interfaces, IsEmpty());
  // Beside those of other tests, which may have any tables. The namespace's process is `sleep`, or
  // what starts it.
  const auto found = std::find_if(views.begin() + 1, views.end(), [](const NodeView& view) {
    if (view.surveys.size() != 2) return false;
    const auto filter = view.surveys[1].tables.find({"ip", "filter"});
    return filter != view.surveys[1].tables.end() && filter->second.count("THERE") == 1;
  });
  ASSERT_NE(found, views.end());
  EXPECT_THAT(found->name, HasSubstr("pid "));
  EXPECT_EQ(found->cni, CniConfigs{});
  EXPECT_THAT(found->problems, IsEmpty());
  EXPECT_EQ(found->surveys[0].tables.at({"ip", "filter"}).count("THERE-TOO"), 1U);
  EXPECT_THAT(found->route_localnet.interfaces, ElementsAre("all"));
  ASSERT_THAT(found->ip_rules, SizeIs(1));
  EXPECT_THAT(found->ip_rules[0].text, StartsWith("8: "));
  // Not moved: HERE is still here.
  EXPECT_EQ(RunProgram({"iptables-legacy", "-S", "HERE"}).exit_code, 0);
}

// ---- Real network namespaces: of processes, and of names ----

uint64_t InodeAt(const std::string& path) {
  struct stat status = {};
  EXPECT_EQ(stat(path.c_str(), &status), 0) << path;
  return status.st_ino;
}

std::vector<NetworkNamespace> Of(const NetworkNamespaces& list, uint64_t inode) {
  std::vector<NetworkNamespace> found;
  for (const NetworkNamespace& each : list.found) {
    if (each.inode == inode) found.push_back(each);
  }
  return found;
}

TEST_F(NodeViewKernelTest, PrefersANameAndFindsWhatNoProcessIsIn) {
  const Netns named = NewNetns();
  ASSERT_EQ(mkdir("/run/netns", 0755), 0);
  std::ofstream("/run/netns/pod1").close();
  ASSERT_EQ(mount(named.Path().c_str(), "/run/netns/pod1", "none", MS_BIND, nullptr), 0);
  std::ofstream("/run/netns/stale").close();
  const NetworkNamespaces list = ListNetworkNamespaces();
  const std::vector<NetworkNamespace> found = Of(list, InodeAt("/run/netns/pod1"));
  ASSERT_EQ(found.size(), 1U);
  EXPECT_EQ(found[0].name, "/run/netns/pod1");
  EXPECT_EQ(found[0].path, "/run/netns/pod1");
  EXPECT_THAT(list.problems, Contains(HasSubstr("/run/netns/stale")));
  EXPECT_EQ(umount("/run/netns/pod1"), 0);
}

}  // namespace
}  // namespace kipt::testing::node_view_test
