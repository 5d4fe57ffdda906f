// SPDX-License-Identifier: Apache-2.0
//
// The texts on a command line: gates, versions, durations, addresses, prefixes, and whole command
// lines. What is taken prints as a text that is taken as the same; what is refused gets a reason.
#include <array>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "agent/config/command_line.h"
#include "agent/config/config.h"
#include "agent/config/value_texts.h"
#include "featuregates/feature_gates.h"
#include "featuregates/go_text.h"
#include "featuregates/known_features.h"
#include "netlink/ruleset.h"
#include "tests/fuzz/config_text.h"
#include "tests/fuzz/require.h"
#include "tests/fuzz/targets.h"
#include "tests/support/unescaped.h"

namespace kipt::testing {
namespace {

using featuregates::GateValues;

// "1.27 A=true,B=false": at this release, where one is named.
void CheckGates(absl::string_view text) {
  const absl::string_view first = TakePart(text, ' ');
  const auto emulated = featuregates::ResolveEmulatedVersion(first);
  if (!emulated.ok()) KIPT_REQUIRE_REASON(emulated.status());
  const auto values = featuregates::ParseFeatureGatesFlag(text);
  if (!values.ok()) return KIPT_REQUIRE_REASON(values.status());
  const std::string again =
      absl::StrJoin(*values, ",", [](std::string* out, const GateValues::value_type& gate) {
        absl::StrAppend(out, gate.first, "=", gate.second ? "true" : "false");
      });
  KIPT_REQUIRE(*featuregates::ParseFeatureGatesFlag(again) == *values);

  const featuregates::Version version =
      emulated.ok() ? emulated->version : featuregates::kDefaultEmulatedVersion;
  const auto gates = agent::ResolveFeatureGates(version, {{.values = *values}});
  if (!gates.ok()) return KIPT_REQUIRE_REASON(gates.status());
  for (const featuregates::GateState& gate : gates->States()) {
    const auto given = values->find(gate.name);
    KIPT_REQUIRE(gate.explicitly_set == (given != values->end()));
    KIPT_REQUIRE(given == values->end() || given->second == gate.enabled);
  }
  KIPT_REQUIRE(featuregates::ParseFeatureGatesFlag(ToString(*gates)).ok());
}

void CheckVersion(absl::string_view text) {
  const auto version = featuregates::ParseVersion(text);
  if (!version.ok()) return KIPT_REQUIRE_REASON(version.status());
  KIPT_REQUIRE(version->major >= 0 && version->minor >= 0);
  KIPT_REQUIRE(*featuregates::ParseVersion(featuregates::ToString(*version)) == *version);
}

void CheckDuration(absl::string_view text) {
  const auto duration = agent::ParseGoDuration(text);
  if (!duration.ok()) return KIPT_REQUIRE_REASON(duration.status());
  const auto again = agent::ParseGoDuration(agent::FormatGoDuration(*duration));
  KIPT_REQUIRE(again.ok() && *again == *duration);
}

void CheckBindAddress(absl::string_view text) {
  const auto address = agent::ParseBindAddress(text);
  if (!address.ok()) return KIPT_REQUIRE_REASON(address.status());
  KIPT_REQUIRE(address->family() == AF_INET || address->family() == AF_INET6);
  KIPT_REQUIRE(address->size > 0 && address->size <= sizeof(address->storage));
}

void CheckPrefix(absl::string_view text) {
  for (const netlink::Family family : netlink::kFamilies) {
    const auto prefix = netlink::ParsePrefix(family, text);
    if (!prefix.ok()) {
      KIPT_REQUIRE_REASON(prefix.status());
      continue;
    }
    const auto again = netlink::ParsePrefix(family, ToString(family, *prefix));
    KIPT_REQUIRE(again.ok() && *again == *prefix);
  }
}

void CheckGoText(absl::string_view text) {
  const absl::string_view trimmed = featuregates::GoTrimSpace(text);
  KIPT_REQUIRE(featuregates::GoTrimSpace(trimmed) == trimmed);
  const auto value = featuregates::GoParseBool(text);
  if (!value.ok()) KIPT_REQUIRE_REASON(value.status());
  const std::string quoted = featuregates::GoQuote(text);
  KIPT_REQUIRE(quoted.size() >= 2 && quoted.front() == '"' && quoted.back() == '"');
  const std::string printable = featuregates::Printable(text);
  KIPT_REQUIRE(featuregates::Printable(printable) == printable);
  for (const std::string& shown : {quoted, printable}) {
    KIPT_REQUIRE(FindUnescaped(shown).empty() && shown.find('\n') == std::string::npos);
  }
}

// One argument a line.
void CheckCommandLine(absl::string_view text) {
  const auto parsed = agent::ParseCommandLine(std::vector<std::string>(absl::StrSplit(text, '\n')));
  if (!parsed.ok()) return KIPT_REQUIRE_REASON(parsed.status());
  if (!parsed->help.empty()) return;
  agent::Flags flags = parsed->flags;
  // No files of this machine.
  flags.config.reset();
  flags.host_root.reset();
  (void)LoadAndCheck(flags);
}

constexpr std::array<void (*)(absl::string_view), 7> kParsers = {
    CheckGates,  CheckVersion, CheckDuration,   CheckBindAddress,
    CheckPrefix, CheckGoText,  CheckCommandLine};

}  // namespace

// '0' and on: which of kParsers.
void FuzzFlags(FuzzBytes input) {
  const size_t parser = TakeSelector(input, kParsers.size());
  kParsers[parser](AsText(input));
}

}  // namespace kipt::testing
