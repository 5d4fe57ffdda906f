// SPDX-License-Identifier: Apache-2.0
//
// gTest and gMock, under their short names in every namespace of this project.
#ifndef KIPT_TESTS_SUPPORT_MATCHERS_H_
#define KIPT_TESTS_SUPPORT_MATCHERS_H_

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace kipt {
using namespace ::testing;  // NOLINT(google-build-using-namespace): the language of tests
}  // namespace kipt

#endif  // KIPT_TESTS_SUPPORT_MATCHERS_H_
