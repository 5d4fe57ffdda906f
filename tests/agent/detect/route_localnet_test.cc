// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <string>
#include <vector>

#include "agent/detect/routing.h"
#include "tests/support/temporary_tree.h"

namespace kipt::testing {
namespace {

using agent::ReadRouteLocalnet;
using agent::RouteLocalnet;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class Sysctls {
 public:
  Sysctls& Set(const std::string& interface, const std::string& value) {
    tree_.Write("ipv4/conf/" + interface + "/route_localnet", value);
    return *this;
  }
  RouteLocalnet Read() const { return ReadRouteLocalnet(tree_.root()); }
  const TemporaryTree& tree() const { return tree_; }

 private:
  TemporaryTree tree_;
};

TEST(RouteLocalnetTest, NamesTheInterfacesThatAreOpen) {
  struct Row {
    std::string name;
    std::map<std::string, std::string> settings;
    std::vector<std::string> wanted;
  };
  const std::vector<Row> rows = {
      {"none", {{"all", "0\n"}, {"default", "0\n"}, {"lo", "0\n"}, {"eth0", "0\n"}}, {}},
      {"some, sorted",
       {{"all", "0\n"}, {"eth1", "1\n"}, {"eth0", "1\n"}, {"eth2", "0\n"}},
       {"eth0", "eth1"}},
      {"all", {{"all", "1\n"}, {"eth0", "0\n"}, {"eth1", "1\n"}}, {"all"}},
      {"interfaces to come inherit", {{"all", "0\n"}, {"default", "1\n"}}, {"default"}},
      {"lo is no way in", {{"all", "0\n"}, {"default", "0\n"}, {"lo", "1\n"}}, {}},
      {"any number but 0", {{"all", "0\n"}, {"eth0", "2\n"}}, {"eth0"}},
  };
  for (const Row& row : rows) {
    SCOPED_TRACE(row.name);
    Sysctls sysctls;
    for (const auto& [interface, value] : row.settings) sysctls.Set(interface, value);
    EXPECT_EQ(sysctls.Read(), RouteLocalnet{.interfaces = row.wanted});
  }
}

TEST(RouteLocalnetTest, TakesAnInterfaceThatWentForClosed) {
  Sysctls sysctls;
  sysctls.Set("all", "0\n").tree().Link("ipv4/conf/eth0", "gone");
  EXPECT_EQ(sysctls.Read(), RouteLocalnet());
}

TEST(RouteLocalnetTest, TakesAnInterfaceWhoseSettingsAreHiddenForOpen) {
  Sysctls sysctls;
  sysctls.Set("all", "0\n").tree().Directory("ipv4/conf/eth0");
  EXPECT_THAT(sysctls.Read().unread, HasSubstr("eth0/route_localnet: "));
}

TEST(RouteLocalnetTest, WhatCannotBeReadMayBeOpenAndHidesNoOther) {
  Sysctls sysctls;
  sysctls.Set("eth0", "yes\n").Set("eth1", "1\n").Set("eth2", "?\n");
  RouteLocalnet read = sysctls.Read();
  EXPECT_THAT(read.interfaces, ElementsAre("eth1"));
  EXPECT_THAT(read.unread, HasSubstr("all/route_localnet: ")) << "no setting of all";
  read = sysctls.Set("all", "0\n").Read();
  EXPECT_THAT(read.interfaces, ElementsAre("eth1"));
  EXPECT_THAT(read.unread, HasSubstr("eth0/route_localnet: "));
  EXPECT_EQ(ToString(read), "route_localnet is 1 for eth1, and may be for others: " + read.unread);
  EXPECT_EQ(sysctls.Set("all", "1\n").Read(), RouteLocalnet{.interfaces = {"all"}});
}

// /proc that shows processes only; an empty file system on /proc/sys or a directory below it.
TEST(RouteLocalnetTest, ADirectoryThatIsNotThereMayBeOpen) {
  const TemporaryTree tree;
  const RouteLocalnet read = ReadRouteLocalnet(tree.Path("none"));
  EXPECT_FALSE(read.empty());
  EXPECT_THAT(read.interfaces, IsEmpty());
  EXPECT_THAT(ToString(read), HasSubstr("route_localnet may be 1: "));
  EXPECT_FALSE(ReadRouteLocalnet(tree.root()).empty());
  tree.Write("core/somaxconn", "4096\n");
  EXPECT_FALSE(ReadRouteLocalnet(tree.root()).empty());
}

}  // namespace
}  // namespace kipt::testing
