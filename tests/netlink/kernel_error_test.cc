// SPDX-License-Identifier: Apache-2.0
#include "netlink/kernel_error.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cerrno>
#include <string>
#include <vector>

#include "tests/support/status_matchers.h"

namespace kipt::netlink {
namespace {

using ::kipt::testing::StatusIs;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;

TEST(KernelErrorTest, MapsEachErrnoToTheCodeOfItsHeader) {
  struct Row {
    int error;
    absl::StatusCode code;
  };
  const std::vector<Row> rows = {
      {EPERM, absl::StatusCode::kPermissionDenied},
      {EACCES, absl::StatusCode::kPermissionDenied},
      {ENOENT, absl::StatusCode::kNotFound},
      {EINVAL, absl::StatusCode::kInvalidArgument},
      {EBUSY, absl::StatusCode::kFailedPrecondition},
      {EEXIST, absl::StatusCode::kFailedPrecondition},
      {EOPNOTSUPP, absl::StatusCode::kFailedPrecondition},
      {ELOOP, absl::StatusCode::kFailedPrecondition},
      {EMLINK, absl::StatusCode::kFailedPrecondition},
      {ERESTART, absl::StatusCode::kAborted},
      {EINTR, absl::StatusCode::kAborted},
      {ENOMEM, absl::StatusCode::kResourceExhausted},
      {ENOBUFS, absl::StatusCode::kResourceExhausted},
      {EPROTONOSUPPORT, absl::StatusCode::kUnavailable},
      {ETIMEDOUT, absl::StatusCode::kDeadlineExceeded},
      {EXDEV, absl::StatusCode::kUnknown},
  };
  for (const Row& row : rows) EXPECT_THAT(KernelError(row.error, "x"), StatusIs(row.code));
}

TEST(KernelErrorTest, SaysWhatWasDoneWhatTheKernelSaidAndWhatToDo) {
  EXPECT_THAT(std::string(KernelError(EPERM, "creating chain ip filter X").message()),
              AllOf(StartsWith("creating chain ip filter X: Operation not permitted"),
                    HasSubstr("CAP_NET_ADMIN in the user namespace that owns")));
  EXPECT_EQ(KernelError(ENOENT, "doing", "do that instead").message(),
            "doing: No such file or directory (do that instead)");
  EXPECT_EQ(KernelError(EXDEV, "doing").message(), "doing: Invalid cross-device link");
}

TEST(KernelErrorTest, KeepsTheNameOfAMissingExtension) {
  absl::Status status = KernelError(ENOENT, "x");
  EXPECT_EQ(MissingExtension(status), std::nullopt);
  SetMissingExtension(status, "conntrack");
  EXPECT_EQ(MissingExtension(status), "conntrack");
  EXPECT_EQ(MissingExtension(absl::OkStatus()), std::nullopt);
}

}  // namespace
}  // namespace kipt::netlink
