// SPDX-License-Identifier: Apache-2.0
#include "agent/config/go_duration.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "featuregates/go_text.h"

namespace kipt::agent {
namespace {

using featuregates::GoQuote;

constexpr uint64_t kNsPerUs = 1'000;
constexpr uint64_t kNsPerMs = 1'000'000;
constexpr uint64_t kNsPerSecond = 1'000'000'000;
// Go's durations are an int64 of nanoseconds; its least value has no positive counterpart.
constexpr uint64_t kMostNegative = uint64_t{1} << 63;

constexpr std::array<std::pair<absl::string_view, uint64_t>, 8> kUnits = {{
    {"ns", 1},
    {"us", kNsPerUs},
    {"\u00b5s", kNsPerUs},  // micro sign
    {"\u03bcs", kNsPerUs},  // Greek letter mu
    {"ms", kNsPerMs},
    {"s", kNsPerSecond},
    {"m", 60 * kNsPerSecond},
    {"h", 3600 * kNsPerSecond},
}};

absl::string_view TakeWhile(absl::string_view& rest, bool (*wanted)(char)) {
  const auto end = std::find_if_not(rest.begin(), rest.end(), wanted);
  const absl::string_view taken = rest.substr(0, static_cast<size_t>(end - rest.begin()));
  rest.remove_prefix(taken.size());
  return taken;
}

bool IsDigit(char c) { return absl::ascii_isdigit(static_cast<unsigned char>(c)); }
bool IsOfUnit(char c) { return c != '.' && !IsDigit(c); }

// Nanoseconds, or kTooMany: wide enough for that many of any unit.
using Wide = unsigned __int128;
constexpr Wide kTooMany = Wide{1} << 64;

Wide Nanoseconds(absl::string_view whole, absl::string_view fraction, uint64_t unit) {
  Wide units = 0;
  for (const char digit : whole)
    units = std::min<Wide>(units * 10 + static_cast<Wide>(digit - '0'), kTooMany);
  // Below a nanosecond no digit counts any more; an hour has 13 that do.
  Wide numerator = 0;
  Wide denominator = 1;
  for (const char digit : fraction.substr(0, 13)) {
    numerator = numerator * 10 + static_cast<Wide>(digit - '0');
    denominator *= 10;
  }
  return units * unit + numerator * unit / denominator;
}

absl::Status Refused(absl::string_view what, absl::string_view text) {
  return absl::InvalidArgumentError(absl::StrCat("time: ", what, " ", GoQuote(text)));
}

// `value` / `unit` without trailing zeros: "1.5".
std::string Decimal(uint64_t value, uint64_t unit) {
  std::string out = absl::StrCat(value / unit);
  uint64_t rest = value % unit;
  if (rest == 0) return out;
  out += '.';
  for (uint64_t place = unit / 10; rest != 0; place /= 10) {
    absl::StrAppend(&out, rest / place);
    rest %= place;
  }
  return out;
}

}  // namespace

absl::StatusOr<absl::Duration> ParseGoDuration(absl::string_view text) {
  absl::string_view rest = text;
  const bool negative = absl::ConsumePrefix(&rest, "-");
  if (!negative) absl::ConsumePrefix(&rest, "+");
  if (rest == "0") return absl::ZeroDuration();
  if (rest.empty()) return Refused("invalid duration", text);
  Wide sum = 0;
  while (!rest.empty()) {
    const absl::string_view whole = TakeWhile(rest, IsDigit);
    const absl::string_view fraction =
        absl::ConsumePrefix(&rest, ".") ? TakeWhile(rest, IsDigit) : "";
    if (whole.empty() && fraction.empty()) return Refused("invalid duration", text);
    const absl::string_view name = TakeWhile(rest, IsOfUnit);
    if (name.empty()) return Refused("missing unit in duration", text);
    const auto* const unit =
        absl::c_find_if(kUnits, [name](const auto& known) { return known.first == name; });
    if (unit == kUnits.end()) {
      return Refused(absl::StrCat("unknown unit ", GoQuote(name), " in duration"), text);
    }
    sum = std::min(sum + Nanoseconds(whole, fraction, unit->second), kTooMany);
  }
  if (sum > (negative ? kMostNegative : kMostNegative - 1)) {
    return Refused("invalid duration", text);
  }
  // Unsigned, for the most negative one; two's complement is C++20's.
  return absl::Nanoseconds(static_cast<int64_t>(negative ? 0 - sum : sum));
}

std::string FormatGoDuration(absl::Duration duration) {
  const int64_t signed_ns = absl::ToInt64Nanoseconds(duration);
  if (signed_ns == 0) return "0s";
  const absl::string_view sign = signed_ns < 0 ? "-" : "";
  const uint64_t ns =
      signed_ns < 0 ? 0 - static_cast<uint64_t>(signed_ns) : static_cast<uint64_t>(signed_ns);
  if (ns < kNsPerUs) return absl::StrCat(sign, ns, "ns");
  if (ns < kNsPerMs) return absl::StrCat(sign, Decimal(ns, kNsPerUs), "\u00b5s");
  if (ns < kNsPerSecond) return absl::StrCat(sign, Decimal(ns, kNsPerMs), "ms");
  const uint64_t minutes = ns / (60 * kNsPerSecond);
  const std::string seconds = Decimal(ns % (60 * kNsPerSecond), kNsPerSecond);
  if (minutes == 0) return absl::StrCat(sign, seconds, "s");
  if (minutes < 60) return absl::StrCat(sign, minutes, "m", seconds, "s");
  return absl::StrCat(sign, minutes / 60, "h", minutes % 60, "m", seconds, "s");
}

}  // namespace kipt::agent
