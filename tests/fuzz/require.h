// SPDX-License-Identifier: Apache-2.0
#ifndef KIPT_TESTS_FUZZ_REQUIRE_H_
#define KIPT_TESTS_FUZZ_REQUIRE_H_

#include <cstddef>
#include <cstdio>
#include <cstdlib>

#include "absl/strings/string_view.h"
#include "tests/fuzz/targets.h"

namespace kipt::testing {

[[noreturn]] inline void EndHere(const char* file, int line, const char* what) {
  std::fprintf(stderr, "%s:%d: does not hold: %s\n", file, line, what);
  std::abort();
}

// What the code promises. A macro, for the message; never in the product.
#define KIPT_REQUIRE(holds) \
  ((holds) ? void() : ::kipt::testing::EndHere(__FILE__, __LINE__, #holds))

// A refusal with a reason.
#define KIPT_REQUIRE_REASON(status) KIPT_REQUIRE(!(status).ok() && !(status).message().empty())

inline absl::string_view AsText(FuzzBytes bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

// The first byte selects which of `count` things the rest is for: '0' the first, so that seeds can
// be written by hand. 0 for no bytes.
inline size_t TakeSelector(FuzzBytes& input, size_t count) {
  if (input.empty()) return 0;
  const size_t selector = static_cast<uint8_t>(input[0] - '0') % count;
  input.remove_prefix(1);
  return selector;
}

// The bytes up to the next `separator`, which is taken off, too; all where there is none.
inline absl::string_view TakePart(absl::string_view& text, char separator) {
  const size_t end = text.find(separator);
  const absl::string_view part = text.substr(0, end);
  text.remove_prefix(end == absl::string_view::npos ? text.size() : end + 1);
  return part;
}

}  // namespace kipt::testing

#endif  // KIPT_TESTS_FUZZ_REQUIRE_H_
