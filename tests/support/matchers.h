// SPDX-License-Identifier: Apache-2.0
//
// gTest and gMock, with the matchers under their short names in every namespace of this project.
#ifndef KIPT_TESTS_SUPPORT_MATCHERS_H_
#define KIPT_TESTS_SUPPORT_MATCHERS_H_

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace kipt {

using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::Contains;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::ElementsAreArray;
using ::testing::EndsWith;
using ::testing::Field;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Key;
using ::testing::Not;
using ::testing::Pair;
using ::testing::SizeIs;
using ::testing::StartsWith;
using ::testing::UnorderedElementsAre;
using ::testing::UnorderedElementsAreArray;

}  // namespace kipt

#endif  // KIPT_TESTS_SUPPORT_MATCHERS_H_
