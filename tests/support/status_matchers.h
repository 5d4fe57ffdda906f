// SPDX-License-Identifier: Apache-2.0
//
// Matchers for absl::Status and absl::StatusOr<T>. Abseil has its own since 20230125; Debian 12 has
// an older one.
#ifndef KIPT_TESTS_SUPPORT_STATUS_MATCHERS_H_
#define KIPT_TESTS_SUPPORT_STATUS_MATCHERS_H_

#include <gmock/gmock.h>

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace kipt::testing {

inline const absl::Status& StatusOf(const absl::Status& status) { return status; }
template <typename T>
const absl::Status& StatusOf(const absl::StatusOr<T>& result) {
  return result.status();
}

MATCHER(IsOk, negation ? "is an error" : "is OK") {
  if (!StatusOf(arg).ok()) *result_listener << StatusOf(arg).ToString();
  return StatusOf(arg).ok();
}

// StatusIs(code) or StatusIs(code, message): `message` is a string or a matcher of one.
MATCHER_P2(StatusIs, code, message, "") {
  const absl::Status& status = StatusOf(arg);
  *result_listener << status.ToString();
  return status.code() == code && ::testing::Matches(::testing::Matcher<std::string>(message))(
                                      std::string(status.message()));
}
inline auto StatusIs(absl::StatusCode code) { return StatusIs(code, ::testing::_); }

// `matcher` is a value or a matcher of one.
MATCHER_P(IsOkAndHolds, matcher, "") {
  if (!arg.ok()) {
    *result_listener << arg.status().ToString();
    return false;
  }
  return ::testing::ExplainMatchResult(matcher, *arg, result_listener);
}

}  // namespace kipt::testing

// Tests name these without a namespace.
namespace kipt {
using testing::IsOk;
using testing::IsOkAndHolds;
using testing::StatusIs;
}  // namespace kipt

#endif  // KIPT_TESTS_SUPPORT_STATUS_MATCHERS_H_
