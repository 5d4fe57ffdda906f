// SPDX-License-Identifier: Apache-2.0
#include "agent/config/value_texts.h"

#include <cstdint>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "tests/support/matchers.h"
#include "tests/support/status_matchers.h"

namespace kipt::agent::value_texts_test {
namespace {

// How Go 1.22 parses the text, and how it prints the result.
TEST(GoDurationTest, IsReadAndPrintedAsInGo) {
  struct Row {
    std::string text;
    absl::Duration duration;
    std::string printed;
  };
  for (const Row& row : std::vector<Row>{
           {"1m0s", absl::Minutes(1), "1m0s"},
           {"1h30m", absl::Minutes(90), "1h30m0s"},
           {".5s", absl::Milliseconds(500), "500ms"},
           {"1s1h", absl::Seconds(3601), "1h0m1s"},
           {"0", absl::ZeroDuration(), "0s"},
           {"-1m30.5s", -absl::Milliseconds(90'500), "-1m30.5s"},
           {"1500ns", absl::Nanoseconds(1500), "1.5\u00b5s"},
           {"2\u00b5s", absl::Microseconds(2), "2\u00b5s"},
           {"2\u03bcs", absl::Microseconds(2), "2\u00b5s"},
           {"0.9999ns", absl::ZeroDuration(), "0s"},
           {"0.3333333333333333333h", absl::Nanoseconds(1'199'999'999'999), "19m59.999999999s"},
           {"9223372036854775807ns", absl::Nanoseconds(std::numeric_limits<int64_t>::max()),
            "2562047h47m16.854775807s"},
           {"-9223372036854775808ns", absl::Nanoseconds(std::numeric_limits<int64_t>::min()),
            "-2562047h47m16.854775808s"},
       }) {
    SCOPED_TRACE(row.text);
    const auto duration = ParseGoDuration(row.text);
    ASSERT_TRUE(duration.ok()) << duration.status();
    EXPECT_EQ(*duration, row.duration);
    EXPECT_EQ(FormatGoDuration(*duration), row.printed);
    EXPECT_EQ(*ParseGoDuration(row.printed), *duration);
  }
}

TEST(GoDurationTest, IsRefusedWithGosWords) {
  const std::pair<std::string, std::string> rows[] = {
      {"", "time: invalid duration \"\""},
      {"-", "time: invalid duration \"-\""},
      {".s", "time: invalid duration \".s\""},
      {"90", "time: missing unit in duration \"90\""},
      {"1m30", "time: missing unit in duration \"1m30\""},
      {"1M", "time: unknown unit \"M\" in duration \"1M\""},
      {"1 s", "time: unknown unit \" s\" in duration \"1 s\""},
      {"--1s", "time: invalid duration \"--1s\""},
      {"1m-1s", "time: unknown unit \"m-\" in duration \"1m-1s\""},
      {"9223372036854775808ns", "time: invalid duration \"9223372036854775808ns\""},
      {"-9223372036854775809ns", "time: invalid duration \"-9223372036854775809ns\""},
      {"1s\n", "time: unknown unit \"s\\n\" in duration \"1s\\n\""},
  };
  for (const auto& [text, message] : rows) {
    EXPECT_EQ(ParseGoDuration(text).status(), absl::InvalidArgumentError(message)) << text;
  }
}

TEST(BindAddressTest, IsPrintedInOneForm) {
  const std::pair<std::string, std::string> rows[] = {{"[10.0.0.5]:1", "10.0.0.5:1"},
                                                      {"[FD00::05]:1", "[fd00::5]:1"}};
  for (const auto& [text, printed] : rows) {
    EXPECT_EQ(ToString(ParseBindAddress(text).value_or(BindAddress())), printed) << text;
  }
}

TEST(BindAddressTest, ThatIsWrongIsRefusedWithAnExample) {
  for (const std::string& row :
       {std::string(), std::string("127.0.0.1\0:80", 13), std::string("127.0.0.1"),
        std::string("127.0.0.1:"), std::string(":10270"), std::string("localhost:10270"),
        std::string("127.0.0.1:65536"), std::string("127.0.0.1:000080"),
        std::string("127.0.0.1:+1"), std::string("::1:80"), std::string("[127.0.0.1:80"),
        std::string("127.0.0.1]:80"), std::string("[[127.0.0.1]]:80"), std::string("[]:80"),
        std::string("[fe80::1%lo]:80"), std::string("127.0.0.01:80")}) {
    EXPECT_THAT(ParseBindAddress(row),
                StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("[::1]:10270")))
        << row;
  }
}

}  // namespace
}  // namespace kipt::agent::value_texts_test
