// SPDX-License-Identifier: Apache-2.0
#include <cstdint>
#include <limits>
#include <ostream>
#include <string>

#include "absl/status/status.h"
#include "agent/config/value_texts.h"
#include "gtest/gtest.h"

namespace kipt::agent {
namespace {

constexpr auto RowName = [](const auto& row) { return row.param.name; };

// What Go 1.22 makes of the text, and prints of the result.
struct GoodCase {
  std::string name;
  std::string text;
  absl::Duration duration;
  std::string printed;
};
void PrintTo(const GoodCase& row, std::ostream* out) { *out << row.name; }

class GoDurationTest : public ::testing::TestWithParam<GoodCase> {};

TEST_P(GoDurationTest, IsReadAndPrintedAsInGo) {
  const auto duration = ParseGoDuration(GetParam().text);
  ASSERT_TRUE(duration.ok()) << duration.status();
  EXPECT_EQ(*duration, GetParam().duration);
  EXPECT_EQ(FormatGoDuration(*duration), GetParam().printed);
  EXPECT_EQ(*ParseGoDuration(GetParam().printed), *duration);
}

INSTANTIATE_TEST_SUITE_P(
    Texts, GoDurationTest,
    ::testing::Values(GoodCase{"AMinute", "1m0s", absl::Minutes(1), "1m0s"},
                      GoodCase{"NinetySeconds", "90s", absl::Seconds(90), "1m30s"},
                      GoodCase{"AnHourAndAHalf", "1h30m", absl::Minutes(90), "1h30m0s"},
                      GoodCase{"HalfASecond", "500ms", absl::Milliseconds(500), "500ms"},
                      GoodCase{"AFraction", "1.5h", absl::Minutes(90), "1h30m0s"},
                      GoodCase{"NothingBeforeThePoint", ".5s", absl::Milliseconds(500), "500ms"},
                      GoodCase{"NothingBehindThePoint", "5.s", absl::Seconds(5), "5s"},
                      GoodCase{"TheSameUnitTwice", "1s1s", absl::Seconds(2), "2s"},
                      GoodCase{"UnitsInAnyOrder", "1s1h", absl::Seconds(3601), "1h0m1s"},
                      GoodCase{"NothingAtAll", "0", absl::ZeroDuration(), "0s"},
                      GoodCase{"ASignedNothing", "-0", absl::ZeroDuration(), "0s"},
                      GoodCase{"ANegativeOne", "-1m30.5s", -absl::Milliseconds(90'500), "-1m30.5s"},
                      GoodCase{"APlusSign", "+1s", absl::Seconds(1), "1s"},
                      GoodCase{"Nanoseconds", "999ns", absl::Nanoseconds(999), "999ns"},
                      GoodCase{"Microseconds", "1500ns", absl::Nanoseconds(1500), "1.5\u00b5s"},
                      GoodCase{"TheMicroSign", "2\u00b5s", absl::Microseconds(2), "2\u00b5s"},
                      GoodCase{"TheLetterMu", "2\u03bcs", absl::Microseconds(2), "2\u00b5s"},
                      GoodCase{"LessThanANanosecond", "0.9999ns", absl::ZeroDuration(), "0s"},
                      GoodCase{"ManyDigits", "0.3333333333333333333h",
                               absl::Nanoseconds(1'199'999'999'999), "19m59.999999999s"},
                      GoodCase{"ManyZeros", "00000000000000000000001s", absl::Seconds(1), "1s"},
                      GoodCase{"TheLongest", "9223372036854775807ns",
                               absl::Nanoseconds(std::numeric_limits<int64_t>::max()),
                               "2562047h47m16.854775807s"},
                      GoodCase{"TheMostNegative", "-9223372036854775808ns",
                               absl::Nanoseconds(std::numeric_limits<int64_t>::min()),
                               "-2562047h47m16.854775808s"}),
    RowName);

struct BadCase {
  std::string name;
  std::string text;
  std::string message;
};
void PrintTo(const BadCase& row, std::ostream* out) { *out << row.name; }

class RefusedGoDurationTest : public ::testing::TestWithParam<BadCase> {};

TEST_P(RefusedGoDurationTest, IsRefusedWithGosWords) {
  const auto duration = ParseGoDuration(GetParam().text);
  ASSERT_FALSE(duration.ok()) << *duration;
  EXPECT_EQ(duration.status(), absl::InvalidArgumentError(GetParam().message));
}

INSTANTIATE_TEST_SUITE_P(
    Texts, RefusedGoDurationTest,
    ::testing::Values(
        BadCase{"Nothing", "", "time: invalid duration \"\""},
        BadCase{"ASignAlone", "-", "time: invalid duration \"-\""},
        BadCase{"APointAlone", ".", "time: invalid duration \".\""},
        BadCase{"APointAndAUnit", ".s", "time: invalid duration \".s\""},
        BadCase{"AUnitAlone", "s", "time: invalid duration \"s\""},
        BadCase{"NoUnit", "90", "time: missing unit in duration \"90\""},
        BadCase{"NoUnitAtTheEnd", "1m30", "time: missing unit in duration \"1m30\""},
        BadCase{"AnUnknownUnit", "1d", "time: unknown unit \"d\" in duration \"1d\""},
        BadCase{"ACapital", "1M", "time: unknown unit \"M\" in duration \"1M\""},
        BadCase{"ASpace", "1 s", "time: unknown unit \" s\" in duration \"1 s\""},
        BadCase{"ASpaceInFront", " 1s", "time: invalid duration \" 1s\""},
        BadCase{"TwoSigns", "--1s", "time: invalid duration \"--1s\""},
        BadCase{"ASignInside", "1m-1s", "time: unknown unit \"m-\" in duration \"1m-1s\""},
        BadCase{"TwoPoints", "1.2.3s", "time: missing unit in duration \"1.2.3s\""},
        BadCase{"OneTooMany", "9223372036854775808ns",
                "time: invalid duration \"9223372036854775808ns\""},
        BadCase{"OneTooManyOnTheOtherSide", "-9223372036854775809ns",
                "time: invalid duration \"-9223372036854775809ns\""},
        BadCase{"TooManyHours", "3000000h", "time: invalid duration \"3000000h\""},
        BadCase{"MoreThan64Bits", "99999999999999999999s",
                "time: invalid duration \"99999999999999999999s\""},
        BadCase{"ALineBreak", "1s\n", "time: unknown unit \"s\\n\" in duration \"1s\\n\""}),
    RowName);

}  // namespace
}  // namespace kipt::agent
