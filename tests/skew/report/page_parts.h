// SPDX-License-Identifier: Apache-2.0
//
// The files page.* of this folder, whole, as the build puts them into the program (page.cmake).
#ifndef KIPT_TESTS_SKEW_REPORT_PAGE_PARTS_H_
#define KIPT_TESTS_SKEW_REPORT_PAGE_PARTS_H_

namespace kipt::skew {

// With @STYLE@, @DATA@ and @SCRIPT@ where the others go.
extern const char kPageHtml[];
extern const char kPageStyle[];
extern const char kPageScript[];

}  // namespace kipt::skew

#endif  // KIPT_TESTS_SKEW_REPORT_PAGE_PARTS_H_
