// SPDX-License-Identifier: Apache-2.0
//
// The part of config_inputs.h about the numbers that kubelet's rules use: bits of the packet mark,
// and labels of the connection.
#include <array>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "agent/config/config_inputs.h"
#include "featuregates/agent_features.h"
#include "featuregates/kubelet_features.h"
#include "netlink/ruleset.h"

namespace kipt::agent {
namespace {

using featuregates::Version;

// kubernetes/kubernetes#122363 removed --iptables-masquerade-bit and --iptables-drop-bit.
constexpr Version kFirstReleaseWithoutBitFlags = {1, 31};
constexpr int kMostMarkBit = 31;

// One of the numbers, by the names that its sources give it.
struct Number {
  absl::string_view flag;   // without dashes
  absl::string_view field;  // in our kind of file; the bits also in kubelet's
  int fallback;
  std::optional<int> from_flag;
  std::optional<FromLine<int>> from_file;

  int value() const { return ConfigInputs::Choose(from_flag, from_file, fallback); }
};
using Pair = std::array<Number, 2>;

Pair Bits(const ConfigInputs& inputs) {
  const auto& [flags, file] = inputs;
  return {{{"iptables-masquerade-bit", "iptablesMasqueradeBit", MarkBits{}.masquerade,
            flags.iptables_masquerade_bit, file.iptables_masquerade_bit},
           {"iptables-drop-bit", "iptablesDropBit", MarkBits{}.drop, flags.iptables_drop_bit,
            file.iptables_drop_bit}}};
}

Pair Labels(const ConfigInputs& inputs) {
  const auto& [flags, file] = inputs;
  return {{{"iptables-masquerade-label", "iptablesMasqueradeLabel", ConnLabels{}.masquerade,
            flags.iptables_masquerade_label, file.iptables_masquerade_label},
           {"iptables-drop-label", "iptablesDropLabel", ConnLabels{}.drop,
            flags.iptables_drop_label, file.iptables_drop_label}}};
}

// "14 (from the flag --iptables-drop-bit)".
std::string ValueAndSource(const ConfigInputs& inputs, const Number& number) {
  if (number.from_flag) {
    return absl::StrCat(*number.from_flag, " (from the flag --", number.flag, ")");
  }
  if (!number.from_file) return absl::StrCat(number.fallback, " (the default)");
  return absl::StrCat(number.from_file->value, " (from ", inputs.file.path, ":",
                      number.from_file->line, ")");
}

std::string Kubernetes(Version emulated) {
  return absl::StrCat("Kubernetes ", featuregates::ToString(emulated));
}

absl::Status CheckRange(const ConfigInputs& inputs, const Pair& pair, int most) {
  for (const Number& number : pair) {
    if (number.value() >= 0 && number.value() <= most) continue;
    return absl::InvalidArgumentError(absl::StrCat(
        "invalid configuration: ", number.field, " (--", number.flag, ") ", number.value(),
        " must be between 0 and ", most, ", inclusive; found ", ValueAndSource(inputs, number)));
  }
  return absl::OkStatus();
}

absl::Status MustDiffer(const ConfigInputs& inputs, const Pair& pair, absl::string_view advice) {
  return absl::InvalidArgumentError(absl::StrCat(
      "invalid configuration: ", pair[0].flag, " and ", pair[1].flag, " must be different; found ",
      ValueAndSource(inputs, pair[0]), " and ", ValueAndSource(inputs, pair[1]), advice));
}

absl::Status ResolveBits(const ConfigInputs& inputs, Config& config) {
  const Pair bits = Bits(inputs);
  absl::Status range = CheckRange(inputs, bits, kMostMarkBit);
  if (!range.ok() && config.emulated_version < kFirstReleaseWithoutBitFlags) return range;
  const MarkBits result = {.masquerade = bits[0].value(), .drop = bits[1].value()};
  const bool equal = result.masquerade == result.drop;
  if (equal && config.mode == Mode::kLegacy) {
    return MustDiffer(inputs, bits,
                      ". Choose another drop bit: the masquerade bit must be kube-proxy's");
  }
  config.bits = equal || !range.ok() ? MarkBits{} : result;
  return absl::OkStatus();
}

absl::Status ResolveLabels(const ConfigInputs& inputs, Config& config) {
  const Pair labels = Labels(inputs);
  if (absl::Status range = CheckRange(inputs, labels, netlink::kMostConnLabel); !range.ok()) {
    return range;
  }
  const ConnLabels result = {.masquerade = labels[0].value(), .drop = labels[1].value()};
  const bool equal = result.masquerade == result.drop;
  if (equal && config.gates.Enabled(featuregates::kConnLabelMarking)) {
    return MustDiffer(inputs, labels, ". Both are this agent's alone: change either");
  }
  config.labels = equal ? ConnLabels{} : result;
  return absl::OkStatus();
}

}  // namespace

absl::Status RefuseRemovedBitFlags(const ConfigInputs& inputs, Version emulated) {
  for (const Number& bit : Bits(inputs)) {
    if (!bit.from_flag || emulated < kFirstReleaseWithoutBitFlags) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("unknown flag: --", bit.flag, "; ", Kubernetes(kFirstReleaseWithoutBitFlags),
                     " removed it, and ", Kubernetes(emulated),
                     " is emulated: leave it out, or choose an older --emulated-version"));
  }
  return absl::OkStatus();
}

absl::Status ResolveBitsAndLabels(const ConfigInputs& inputs, Config& config) {
  absl::Status status = ResolveBits(inputs, config);
  if (status.ok()) status = ResolveLabels(inputs, config);
  return status;
}

// Of bits that have no effect. A flag is deprecated whatever its value, as in kubelet since 1.28; a
// field is in so many old files, with its default, that only another value is worth a line.
void WarnOfIgnoredBitsAndLabels(const ConfigInputs& inputs, Config& config) {
  const bool cleanup = config.gates.Enabled(featuregates::kIPTablesOwnershipCleanup);
  for (const Number& bit : cleanup ? Bits(inputs) : Pair{}) {
    if (!bit.from_flag) continue;
    config.warnings.push_back(absl::StrCat(
        "Flag --", bit.flag,
        " has been deprecated, This flag has no effect and will be removed in a future version."));
  }
  for (const Number& bit : cleanup ? Bits(inputs) : Pair{}) {
    if (!bit.from_file || bit.from_file->value == bit.fallback) continue;
    config.warnings.push_back(absl::StrCat(
        inputs.file.path, ":", bit.from_file->line, ": ", bit.field, " ", bit.from_file->value,
        " has no effect where IPTablesOwnershipCleanup is on; remove the field"));
  }
  const bool labelled = config.gates.Enabled(featuregates::kConnLabelMarking);
  for (const Number& label : labelled ? Pair{} : Labels(inputs)) {
    if (!label.from_flag && !label.from_file) continue;
    config.warnings.push_back(absl::StrCat(
        label.from_flag
            ? absl::StrCat("--", label.flag)
            : absl::StrCat(inputs.file.path, ":", label.from_file->line, ": ", label.field),
        " has no effect where ConnLabelMarking is off"));
  }
}

}  // namespace kipt::agent
