// SPDX-License-Identifier: Apache-2.0
//
// File: tests/support/http_get.h
//
// One HTTP request to 127.0.0.1, in the calling thread's network namespace.
#ifndef KIPT_TESTS_SUPPORT_HTTP_GET_H_
#define KIPT_TESTS_SUPPORT_HTTP_GET_H_

#include <string>

namespace kipt::testing {

struct HttpAnswer {
  // 0 where there was none.
  int status = 0;
  // Header lines, CRLF and all.
  std::string headers;
  std::string body;
};

HttpAnswer HttpGet(int port, const std::string& path, const std::string& method = "GET");

}  // namespace kipt::testing

#endif  // KIPT_TESTS_SUPPORT_HTTP_GET_H_
