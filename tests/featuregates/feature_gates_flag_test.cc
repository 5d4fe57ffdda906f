// SPDX-License-Identifier: Apache-2.0
//
// The syntax of --feature-gates.
#include <gtest/gtest.h>

#include "featuregates/feature_gates.h"
#include "tests/support/status_matchers.h"

namespace kipt::featuregates {
namespace {

using ::kipt::testing::IsOkAndHolds;
using ::kipt::testing::StatusIs;

TEST(ParseFeatureGatesFlagTest, AcceptsWhatComponentBaseAccepts) {
  struct Row {
    const char* name;
    const char* text;
    GateValues values;
  };
  const Row rows[] = {
      {"nothing", "", {}},
      {"one", "A=true", {{"A", true}}},
      {"two", "A=true,B=false", {{"A", true}, {"B", false}}},
      {"empty entries", ",A=true,,B=f,", {{"A", true}, {"B", false}}},
      {"white space", " A = true ,\tB=\n0", {{"A", true}, {"B", false}}},
      {"no-break space", "A=true\xC2\xA0", {{"A", true}}},
      {"the later value holds", "A=true,B=true,A=false", {{"A", false}, {"B", true}}},
      {"empty name", "=true", {{"", true}}},
  };
  for (const Row& row : rows) {
    EXPECT_THAT(ParseFeatureGatesFlag(row.text), IsOkAndHolds(row.values)) << row.name;
  }
}

TEST(ParseFeatureGatesFlagTest, RefusesInTheWordsOfKubeletsFlag) {
  struct Row {
    const char* name;
    const char* text;
    const char* error;
  };
  const Row rows[] = {
      {"no value", "A", "malformed pair, expect string=bool"},
      {"no value, in the second entry", "B=true, A ", "malformed pair, expect string=bool"},
      {"an entry of spaces is not empty", "A=true, ", "malformed pair, expect string=bool"},
      {"not a bool", "A=banana",
       "invalid value of A: banana, err: strconv.ParseBool: parsing \"banana\": invalid syntax"},
      {"empty value",
       "A=", "invalid value of A: , err: strconv.ParseBool: parsing \"\": invalid syntax"},
      {"the first = divides", "A=true=false",
       "invalid value of A: true=false, err: strconv.ParseBool: parsing \"true=false\": invalid "
       "syntax"},
      {"only the first mistake", "A=x,B",
       "invalid value of A: x, err: strconv.ParseBool: parsing "
       "\"x\": invalid syntax"},
  };
  for (const Row& row : rows) {
    EXPECT_THAT(ParseFeatureGatesFlag(row.text),
                StatusIs(absl::StatusCode::kInvalidArgument, row.error))
        << row.name;
  }
}

}  // namespace
}  // namespace kipt::featuregates
