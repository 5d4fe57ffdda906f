// SPDX-License-Identifier: Apache-2.0
#include "netlink/kernel_error.h"

#include <cerrno>
#include <string>
#include <vector>

#include "tests/support/matchers.h"
#include "tests/support/status_matchers.h"

namespace kipt::netlink {
namespace {

TEST(KernelErrorTest, MapsEachErrnoToTheCodeOfItsHeaderWithItsAdvice) {
  struct Row {
    int error;
    absl::StatusCode code;
    std::string advice;
  };
  const std::vector<Row> rows = {
      {EPERM, absl::StatusCode::kPermissionDenied, "CAP_NET_ADMIN"},
      {EACCES, absl::StatusCode::kPermissionDenied, "CAP_NET_ADMIN"},
      {ENOENT, absl::StatusCode::kNotFound, "does not exist"},
      {EINVAL, absl::StatusCode::kInvalidArgument, "does not allow this here"},
      {ERANGE, absl::StatusCode::kInvalidArgument, "a number is out of range"},
      {EOVERFLOW, absl::StatusCode::kInvalidArgument, "a number is out of range"},
      {ENAMETOOLONG, absl::StatusCode::kInvalidArgument, "a name is too long"},
      {EMSGSIZE, absl::StatusCode::kInvalidArgument, "too large for the socket"},
      {ELOOP, absl::StatusCode::kFailedPrecondition, "in a circle"},
      {EMLINK, absl::StatusCode::kFailedPrecondition, "in a circle, or too deep"},
      {EBUSY, absl::StatusCode::kFailedPrecondition, "it is in use"},
      {EEXIST, absl::StatusCode::kFailedPrecondition, "something else of that name"},
      {EOPNOTSUPP, absl::StatusCode::kFailedPrecondition, "the kernel cannot do this"},
      {ERESTART, absl::StatusCode::kAborted, "has changed since it was read"},
      {EINTR, absl::StatusCode::kAborted, "interrupted"},
      {ENOMEM, absl::StatusCode::kResourceExhausted, "out of memory"},
      {ENOBUFS, absl::StatusCode::kResourceExhausted, "receive buffer is full"},
      {ENFILE, absl::StatusCode::kResourceExhausted, "too many are open"},
      {EMFILE, absl::StatusCode::kResourceExhausted, "too many are open"},
      {ENOSPC, absl::StatusCode::kResourceExhausted, ""},
      {EPROTONOSUPPORT, absl::StatusCode::kUnavailable, "no netfilter netlink"},
      {EAFNOSUPPORT, absl::StatusCode::kUnavailable, "no netlink for this family"},
      {ETIMEDOUT, absl::StatusCode::kDeadlineExceeded, "did not answer"},
      {EXDEV, absl::StatusCode::kUnknown, ""},
  };
  for (const Row& row : rows) {
    EXPECT_THAT(KernelError(row.error, "x"), StatusIs(row.code, HasSubstr(row.advice)));
  }
}

TEST(KernelErrorTest, SaysWhatWasDoneWhatTheKernelSaidAndWhatToDo) {
  EXPECT_THAT(std::string(KernelError(EPERM, "creating chain ip filter X").message()),
              AllOf(StartsWith("creating chain ip filter X: Operation not permitted"),
                    HasSubstr("CAP_NET_ADMIN in the user namespace that owns")));
  EXPECT_EQ(KernelError(ENOENT, "doing", "do that instead").message(),
            "doing: No such file or directory (do that instead)");
  EXPECT_EQ(KernelError(EXDEV, "doing").message(), "doing: Invalid cross-device link");
  EXPECT_EQ(KernelError(ENOSPC, "doing").message(), "doing: No space left on device");
  EXPECT_EQ(KernelError(ERESTART, "doing", "again").message(), "doing: ERESTART (again)");
}

}  // namespace
}  // namespace kipt::netlink
