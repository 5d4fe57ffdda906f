// SPDX-License-Identifier: Apache-2.0
//
// One HTTP request to 127.0.0.1, in the calling thread's network namespace.
#ifndef KIPT_TESTS_SUPPORT_HTTP_GET_H_
#define KIPT_TESTS_SUPPORT_HTTP_GET_H_

#include <string>

#include "absl/time/time.h"

namespace kipt::testing {

struct HttpAnswer {
  // 0 where there was none.
  int status = 0;
  std::string body;
};

// Each step of it (connecting, sending, the answer) may take `patience`.
HttpAnswer HttpGet(int port, const std::string& path, absl::Duration patience = absl::Seconds(10));

}  // namespace kipt::testing

#endif  // KIPT_TESTS_SUPPORT_HTTP_GET_H_
