// SPDX-License-Identifier: Apache-2.0
#include "agent/process/origin.h"

#include <sys/stat.h>

#include <string>

#include "absl/strings/str_cat.h"
#include "tests/support/matchers.h"
#include "tests/support/status_matchers.h"
#include "tests/support/temporary_tree.h"

namespace kipt::agent {
namespace {

TEST(OriginTest, IsTheBootAndTheNetworkNamespaceOfThisThread) {
  struct stat about = {};
  ASSERT_EQ(stat("/proc/thread-self/ns/net", &about), 0);
  const absl::StatusOr<Origin> origin = ReadOrigin();
  ASSERT_THAT(origin, IsOk());
  EXPECT_EQ(origin->boot_id.size(), 36) << origin->boot_id;
  EXPECT_EQ(origin->network_namespace.device, about.st_dev);
  EXPECT_EQ(origin->network_namespace.inode, about.st_ino);
  EXPECT_EQ(*ReadOrigin(), *origin);
}

TEST(OriginTest, IsUnknownWhereAPartCannotBeRead) {
  const TemporaryTree tree;
  const std::string none = tree.Path("none");
  EXPECT_THAT(ReadOrigin({.boot_id = none}),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr(none)));
  EXPECT_THAT(ReadOrigin({.netns = none}), StatusIs(absl::StatusCode::kNotFound, HasSubstr(none)));
  tree.Write("empty", "\n");
  const std::string empty = tree.Path("empty");
  EXPECT_THAT(ReadOrigin({.boot_id = empty}),
              StatusIs(absl::StatusCode::kNotFound, absl::StrCat(empty, " is empty")));
}

}  // namespace
}  // namespace kipt::agent
