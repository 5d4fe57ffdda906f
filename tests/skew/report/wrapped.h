// SPDX-License-Identifier: Apache-2.0
#ifndef KIPT_TESTS_SKEW_REPORT_WRAPPED_H_
#define KIPT_TESTS_SKEW_REPORT_WRAPPED_H_

#include <cstddef>
#include <string>

namespace kipt::skew {

// `text` in lines of at most `columns` bytes, each ended by a newline: the first begins with
// `first`, the others with `indent`. Broken between words, which spaces and newlines part, and
// within a word that is longer than a line.
std::string Wrapped(const std::string& first, const std::string& indent, const std::string& text,
                    size_t columns = 100);

}  // namespace kipt::skew

#endif  // KIPT_TESTS_SKEW_REPORT_WRAPPED_H_
