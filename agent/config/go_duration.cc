// SPDX-License-Identifier: Apache-2.0
#include "agent/config/go_duration.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <limits>
#include <optional>
#include <utility>

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

std::optional<uint64_t> UnitNs(absl::string_view name) {
  for (const auto& [known, ns] : kUnits) {
    if (known == name) return ns;
  }
  return std::nullopt;
}

absl::string_view TakeWhile(absl::string_view& rest, bool (*wanted)(char)) {
  const auto end = std::find_if_not(rest.begin(), rest.end(), wanted);
  const absl::string_view taken = rest.substr(0, static_cast<size_t>(end - rest.begin()));
  rest.remove_prefix(taken.size());
  return taken;
}

bool IsDigit(char c) { return absl::ascii_isdigit(static_cast<unsigned char>(c)); }
bool IsOfUnit(char c) { return c != '.' && !IsDigit(c); }

// What a 64-bit integer does not hold stays empty.
std::optional<uint64_t> Sum(std::optional<uint64_t> a, std::optional<uint64_t> b) {
  if (!a || !b || *a > std::numeric_limits<uint64_t>::max() - *b) return std::nullopt;
  return *a + *b;
}
std::optional<uint64_t> Product(std::optional<uint64_t> a, uint64_t b) {
  if (!a || (b != 0 && *a > std::numeric_limits<uint64_t>::max() / b)) return std::nullopt;
  return *a * b;
}

// `whole`.`fraction` units of `unit` nanoseconds.
std::optional<uint64_t> Nanoseconds(absl::string_view whole, absl::string_view fraction,
                                    uint64_t unit) {
  std::optional<uint64_t> sum = 0;
  for (const char digit : whole) sum = Sum(Product(sum, 10), static_cast<uint64_t>(digit - '0'));
  sum = Product(sum, unit);
  // Below a nanosecond no digit counts any more; an hour has 13 that do.
  uint64_t numerator = 0;
  uint64_t denominator = 1;
  for (const char digit : fraction.substr(0, 13)) {
    numerator = numerator * 10 + static_cast<uint64_t>(digit - '0');
    denominator *= 10;
  }
  const auto part =
      static_cast<uint64_t>(static_cast<unsigned __int128>(numerator) * unit / denominator);
  return Sum(sum, part);
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
  std::optional<uint64_t> sum = 0;
  while (!rest.empty()) {
    const absl::string_view whole = TakeWhile(rest, IsDigit);
    const absl::string_view fraction =
        absl::ConsumePrefix(&rest, ".") ? TakeWhile(rest, IsDigit) : "";
    if (whole.empty() && fraction.empty()) return Refused("invalid duration", text);
    const absl::string_view name = TakeWhile(rest, IsOfUnit);
    if (name.empty()) return Refused("missing unit in duration", text);
    const std::optional<uint64_t> unit = UnitNs(name);
    if (!unit) {
      return Refused(absl::StrCat("unknown unit ", GoQuote(name), " in duration"), text);
    }
    sum = Sum(sum, Nanoseconds(whole, fraction, *unit));
  }
  if (!sum || *sum > (negative ? kMostNegative : kMostNegative - 1)) {
    return Refused("invalid duration", text);
  }
  // Unsigned, for the most negative one; two's complement is C++20's.
  return absl::Nanoseconds(static_cast<int64_t>(negative ? 0 - *sum : *sum));
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
