// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <string>
#include <vector>

#include "agent/detect/routing.h"
#include "tests/support/status_matchers.h"
#include "tests/support/temporary_tree.h"

namespace kipt::testing {
namespace {

using agent::ReadRouteLocalnet;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

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
    const TemporaryTree tree;
    for (const auto& [interface, value] : row.settings) {
      tree.Write(interface + "/route_localnet", value);
    }
    EXPECT_THAT(ReadRouteLocalnet(tree.root()), IsOkAndHolds(row.wanted));
  }
}

TEST(RouteLocalnetTest, TakesAnInterfaceThatWentForClosed) {
  const TemporaryTree tree;
  tree.Write("all/route_localnet", "0\n");
  tree.Directory("eth0");
  EXPECT_THAT(ReadRouteLocalnet(tree.root()), IsOkAndHolds(std::vector<std::string>{}));
}

TEST(RouteLocalnetTest, FailsWhereItCannotTell) {
  const TemporaryTree tree;
  EXPECT_THAT(ReadRouteLocalnet(tree.Path("none")),
              StatusIs(absl::StatusCode::kNotFound,
                       AllOf(HasSubstr("none: "), Not(HasSubstr("route_localnet")))));
  EXPECT_FALSE(ReadRouteLocalnet(tree.root()).ok()) << "no setting of all";
  tree.Write("all/route_localnet", "0\n");
  tree.Write("eth0/route_localnet", "yes\n");
  EXPECT_THAT(ReadRouteLocalnet(tree.root()),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("eth0/route_localnet")));
}

}  // namespace
}  // namespace kipt::testing
