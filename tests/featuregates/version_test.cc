// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "featuregates/known_features.h"
#include "tests/support/status_matchers.h"

namespace kipt::featuregates {
namespace {

using ::kipt::testing::IsOkAndHolds;
using ::kipt::testing::StatusIs;
using ::testing::AllOf;
using ::testing::HasSubstr;

TEST(VersionTest, ParsesMajorAndMinorWithOrWithoutTheLetter) {
  EXPECT_THAT(ParseVersion("1.27"), IsOkAndHolds(Version{1, 27}));
  EXPECT_THAT(ParseVersion("v1.27"), IsOkAndHolds(Version{1, 27}));
  EXPECT_THAT(ParseVersion("0.0"), IsOkAndHolds(Version{0, 0}));
  EXPECT_THAT(ParseVersion("2147483647.10"), IsOkAndHolds(Version{2147483647, 10}));
}

TEST(VersionTest, RefusesEverythingElseAndSaysWhatToWrite) {
  struct Row {
    const char* name;
    const char* text;
    const char* quoted;
  };
  const Row rows[] = {
      {"empty", "", "\"\""},
      {"patch level", "1.27.3", "\"1.27.3\""},
      {"pre-release", "1.27-rc.1", "\"1.27-rc.1\""},
      {"major alone", "1", "\"1\""},
      {"no minor", "1.", "\"1.\""},
      {"no major", ".27", "\".27\""},
      {"letter alone", "v", "\"v\""},
      {"capital letter", "V1.27", "\"V1.27\""},
      {"two letters", "vv1.27", "\"vv1.27\""},
      {"negative major", "-1.27", "\"-1.27\""},
      {"negative minor", "1.-27", "\"1.-27\""},
      {"explicit plus", "1.+27", "\"1.+27\""},
      {"minor overflows int", "1.2147483648", "\"1.2147483648\""},
      {"major overflows 64 bits", "99999999999999999999.1", "\"99999999999999999999.1\""},
      {"leading zero", "1.027", "\"1.027\""},
      {"leading zero of two digits", "1.07", "\"1.07\""},
      {"space before", " 1.27", "\" 1.27\""},
      {"newline behind", "1.27\n", "\"1.27\\n\""},
      {"a word", "latest", "\"latest\""},
  };
  for (const Row& row : rows) {
    SCOPED_TRACE(row.name);
    EXPECT_THAT(ParseVersion(row.text),
                StatusIs(absl::StatusCode::kInvalidArgument,
                         AllOf(HasSubstr(std::string("invalid version ") + row.quoted),
                               HasSubstr("write MAJOR.MINOR without a patch level"),
                               HasSubstr("such as 1.27"))));
  }
}

TEST(VersionTest, OrdersMinorsAsNumbersAndMajorsFirst) {
  EXPECT_LT((Version{1, 9}), (Version{1, 10}));
  EXPECT_LT((Version{1, 99}), (Version{2, 0}));
  EXPECT_EQ((Version{1, 27}), (Version{1, 27}));
}

TEST(VersionTest, PrintsWhatItParses) {
  EXPECT_EQ(ToString(Version{1, 27}), "1.27");
  EXPECT_THAT(ParseVersion(ToString(Version{3, 0})), IsOkAndHolds(Version{3, 0}));
}

}  // namespace
}  // namespace kipt::featuregates
