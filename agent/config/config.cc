// SPDX-License-Identifier: Apache-2.0
#include "agent/config/config.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "agent/config/settings.h"
#include "featuregates/go_text.h"
#include "featuregates/known_features.h"

namespace kipt::agent {
namespace {

using featuregates::FeatureGates;
using featuregates::Overrides;
using featuregates::Version;

// kubernetes/kubernetes#122363 removed --iptables-masquerade-bit and --iptables-drop-bit.
constexpr Version kFirstReleaseWithoutBitFlags = {1, 31};
constexpr int kMostMarkBit = 31;

std::string Kubernetes(Version emulated) {
  return absl::StrCat("Kubernetes ", featuregates::ToString(emulated));
}

// One of the numbers that kubelet's rules use: a bit of the packet mark, or a connection label.
struct Number {
  const Setting& setting;
  std::optional<int> from_flag;
  std::optional<int> from_file;
  int fallback;

  int value() const { return from_flag.value_or(from_file.value_or(fallback)); }
};
using Pair = std::array<Number, 2>;

// Flags over file over defaults, for one configuration.
class Resolver {
 public:
  Resolver(const Flags& flags, const ConfigFile& file) : flags_(flags), file_(file) {}

  absl::StatusOr<Config> Resolve(const std::string& if_inet6_path) {
    config_.config_file = file_.path;
    absl::Status status = ResolveVersion();
    if (status.ok()) status = ResolveGates();
    if (!status.ok()) return status;
    // Before what depends on the mode.
    status = Apply(*SettingOf(&Flags::make_iptables_util_chains));
    config_.mode = ModeFor(config_.gates, config_.make_iptables_util_chains);
    if (status.ok()) {
      status = ResolvePair(
          Bits(), kMostMarkBit, config_.emulated_version < kFirstReleaseWithoutBitFlags,
          config_.mode == Mode::kLegacy,
          "Choose another drop bit: the masquerade bit must be kube-proxy's", config_.bits);
    }
    if (status.ok()) {
      status = ResolvePair(Labels(), netlink::kMostConnLabel, /*refuse_range=*/true,
                           config_.gates.Enabled(featuregates::kConnLabelMarking),
                           "Both are this agent's alone: change either", config_.labels);
    }
    if (status.ok()) status = ResolveFamilies(if_inet6_path);
    for (const Setting& setting : kSettings) {
      if (status.ok()) status = Apply(setting);
    }
    if (!status.ok()) return status;

    for (const std::string& warning : config_.gates.warnings()) config_.warnings.push_back(warning);
    WarnOfIgnoredGate();
    WarnOfIgnoredNumbers();
    if (!file_.writable.empty()) config_.warnings.push_back(file_.writable);
    return std::move(config_);
  }

 private:
  template <typename T>
  std::optional<T> Given(std::optional<T> Flags::*member) const {
    return flags_.*member ? flags_.*member : file_.given.*member;
  }
  // "FILE:LINE".
  std::string Line(const Setting& setting) const {
    return absl::StrCat(file_.path, ":", file_.lines.at(setting.field));
  }

  // The flag or the line that gave the value: "--FLAG: reason", or "FILE:LINE: FIELD: reason".
  absl::Status Blame(const Setting& setting, absl::string_view reason) const {
    const bool by_file = !IsGiven(setting, flags_) && IsGiven(setting, file_.given);
    return absl::InvalidArgumentError(
        absl::StrCat(by_file ? absl::StrCat(Line(setting), ": ", setting.field)
                             : absl::StrCat("--", setting.flag),
                     ": ", reason));
  }

  absl::Status Apply(const Setting& setting) {
    const Flags& given = IsGiven(setting, flags_) ? flags_ : file_.given;
    if (setting.apply == nullptr || !IsGiven(setting, given)) return absl::OkStatus();
    const std::string text = FlagText(setting, given);
    const std::vector<absl::string_view> accepted =
        absl::StrSplit(setting.accepted, ", ", absl::SkipEmpty());
    if (!accepted.empty() && !absl::c_linear_search(accepted, text)) {
      return Blame(setting, absl::StrCat("invalid value ", featuregates::QuoteForMessage(text),
                                         "; accepted are ", setting.accepted));
    }
    const absl::Status status = setting.apply(given, config_);
    return status.ok() ? status : Blame(setting, status.message());
  }

  absl::Status ResolveVersion() {
    const auto emulated = featuregates::ResolveEmulatedVersion(
        Given(&Flags::emulated_version).value_or(featuregates::ToString(config_.emulated_version)));
    if (!emulated.ok()) {
      return Blame(*SettingOf(&Flags::emulated_version),
                   absl::StripPrefix(emulated.status().message(), "--emulated-version: "));
    }
    config_.emulated_version = emulated->version;
    if (!emulated->warning.empty()) config_.warnings.push_back(emulated->warning);
    // The command line knows the flags of every release, and only here the release is known.
    for (const Number& bit : Bits()) {
      if (!bit.from_flag || config_.emulated_version < kFirstReleaseWithoutBitFlags) continue;
      return absl::InvalidArgumentError(absl::StrCat(
          "unknown flag: --", bit.setting.flag, "; ", Kubernetes(kFirstReleaseWithoutBitFlags),
          " removed it, and ", Kubernetes(config_.emulated_version),
          " is emulated: leave it out, or choose an older --emulated-version"));
    }
    return absl::OkStatus();
  }

  // ---- feature gates ----

  absl::Status ResolveGates() {
    std::vector<Overrides> overrides = {
        file_.kind == ConfigFile::Kind::kKubelet
            ? featuregates::FromKubeletConfiguration(file_.feature_gates)
            : Overrides{.values = file_.feature_gates}};
    for (const std::string& text : flags_.feature_gates) {
      absl::StatusOr<featuregates::GateValues> values = featuregates::ParseFeatureGatesFlag(text);
      if (!values.ok()) {
        return absl::InvalidArgumentError(
            absl::StrCat("invalid argument ", featuregates::QuoteForMessage(text),
                         " for \"--feature-gates\" flag: ", values.status().message()));
      }
      overrides.push_back(Overrides{.values = *std::move(values)});
    }
    absl::StatusOr<FeatureGates> gates = ResolveFeatureGates(config_.emulated_version, overrides);
    if (!gates.ok()) return ExplainGates(gates.status(), overrides.front());
    config_.gates = *std::move(gates);
    return absl::OkStatus();
  }

  // Resolve's message, the file that is to blame, and what could be set instead.
  absl::Status ExplainGates(const absl::Status& status, const Overrides& from_file) const {
    const bool file_is_wrong = !ResolveFeatureGates(config_.emulated_version, {from_file}).ok();
    const absl::StatusOr<FeatureGates> gates = ResolveFeatureGates(config_.emulated_version, {});
    const auto known = gates.ok() ? gates->States() : std::vector<featuregates::GateState>();
    return absl::Status(
        status.code(),
        absl::StrCat(file_is_wrong ? file_.path : "--feature-gates", ": ", status.message(),
                     "; the gates of ", Kubernetes(config_.emulated_version),
                     " that this agent knows are ",
                     absl::StrJoin(known, ", ", [](std::string* out, const auto& gate) {
                       absl::StrAppend(out, gate.name, gate.locked ? " (locked)" : "");
                     })));
  }

  // kubelet of that release refuses its own gate in the file. Here the file may be another
  // release's, so that a gate which would have chosen the other mode is worth a line.
  void WarnOfIgnoredGate() {
    const absl::string_view name = featuregates::kIPTablesOwnershipCleanup.name;
    const auto gate = file_.feature_gates.find(std::string(name));
    const bool enabled = config_.gates.Enabled(featuregates::kIPTablesOwnershipCleanup);
    if (!absl::c_linear_search(config_.gates.ignored(), name) ||
        gate == file_.feature_gates.end() || gate->second == enabled) {
      return;
    }
    config_.warnings.push_back(
        absl::StrCat(file_.path, ": featureGates.", name, " ", gate->second ? "true" : "false",
                     " has no effect: ", Kubernetes(config_.emulated_version),
                     " has no such gate, and the agent is in ", ModeName(config_.mode),
                     " mode; remove it, or give an --emulated-version from 1.25 to 1.27"));
  }

  // ---- families ----

  absl::Status ResolveFamilies(const std::string& if_inet6_path) {
    const Setting& setting = *SettingOf(&Flags::ip_families);
    const std::string text = Given(&Flags::ip_families).value_or("auto");
    const std::vector<std::string> names = absl::StrSplit(text, ',');
    for (const netlink::Family family : netlink::kFamilies) {
      if (absl::c_linear_search(names, FamiliesText({family}))) config_.families.push_back(family);
    }
    config_.families_by_kernel = text == "auto";
    if (!config_.families_by_kernel && config_.families.size() != names.size()) {
      return Blame(setting, absl::StrCat("invalid value ", featuregates::QuoteForMessage(text),
                                         "; accepted are auto, ipv4, ipv6, ipv4,ipv6"));
    }
    if (config_.families_by_kernel) config_.families = {netlink::Family::kIPv4};
    const absl::Status status = FindIPv6(if_inet6_path);
    return status.ok() ? status : Blame(setting, status.message());
  }

  // Adds IPv6 for "auto" where the namespace has it, and refuses it where it does not.
  absl::Status FindIPv6(const std::string& if_inet6_path) {
    const bool by_kernel = config_.families_by_kernel;
    const bool asked = config_.families.back() == netlink::Family::kIPv6;
    if (!by_kernel && !asked) return absl::OkStatus();
    const int error = access(if_inet6_path.c_str(), F_OK) == 0 ? 0 : errno;
    // That it is not there is an answer. That it cannot be seen is none, and leaves no family out.
    if (error != 0 && error != ENOENT && error != ENOTDIR) {
      return absl::ErrnoToStatus(
          error, absl::StrCat("cannot tell whether this network namespace has IPv6 (",
                              if_inet6_path, ")"));
    }
    if (by_kernel && error == 0) config_.families.push_back(netlink::Family::kIPv6);
    if (error == 0 || by_kernel) return absl::OkStatus();
    return absl::InvalidArgumentError(absl::StrCat(
        "ipv6 is asked for, but this network namespace has no IPv6 (", if_inet6_path,
        " does not exist); enable IPv6 in the kernel (ipv6.disable=0), or choose auto or ipv4"));
  }

  // ---- bits of the packet mark, and connection labels ----

  Pair Bits() const {
    return {NumberOf(&Flags::iptables_masquerade_bit, MarkBits{}.masquerade),
            NumberOf(&Flags::iptables_drop_bit, MarkBits{}.drop)};
  }
  Pair Labels() const {
    return {NumberOf(&Flags::iptables_masquerade_label, ConnLabels{}.masquerade),
            NumberOf(&Flags::iptables_drop_label, ConnLabels{}.drop)};
  }
  Number NumberOf(std::optional<int> Flags::*member, int fallback) const {
    return {*SettingOf(member), flags_.*member, file_.given.*member, fallback};
  }

  // Where an invalid pair is not refused it has no effect, and `result` stays at its default.
  template <typename T>
  absl::Status ResolvePair(const Pair& pair, int most, bool refuse_range, bool refuse_equal,
                           absl::string_view advice, T& result) const {
    const auto outside = absl::c_find_if(
        pair, [most](const Number& number) { return number.value() < 0 || number.value() > most; });
    if (outside != pair.end() && refuse_range) {
      return Invalid(absl::StrCat(outside->setting.field, " (--", outside->setting.flag, ") ",
                                  outside->value(), " must be between 0 and ", most,
                                  ", inclusive; found ", ValueAndSource(*outside)));
    }
    const bool equal = pair[0].value() == pair[1].value();
    if (equal && refuse_equal) {
      return Invalid(absl::StrCat(pair[0].setting.flag, " and ", pair[1].setting.flag,
                                  " must be different; found ", ValueAndSource(pair[0]), " and ",
                                  ValueAndSource(pair[1]), ". ", advice));
    }
    if (!equal && outside == pair.end()) result = {pair[0].value(), pair[1].value()};
    return absl::OkStatus();
  }

  // "14 (from the flag --iptables-drop-bit)".
  std::string ValueAndSource(const Number& number) const {
    const std::string source = number.from_flag
                                   ? absl::StrCat("from the flag --", number.setting.flag)
                               : number.from_file ? absl::StrCat("from ", Line(number.setting))
                                                  : "the default";
    return absl::StrCat(number.value(), " (", source, ")");
  }

  static absl::Status Invalid(absl::string_view what) {
    return absl::InvalidArgumentError(absl::StrCat("invalid configuration: ", what));
  }

  // A flag is deprecated whatever its value, as in kubelet since 1.28; a field is in so many old
  // files, with its default, that only another value is worth a line.
  void WarnOfIgnoredNumbers() {
    const bool cleanup = config_.gates.Enabled(featuregates::kIPTablesOwnershipCleanup);
    const bool labelled = config_.gates.Enabled(featuregates::kConnLabelMarking);
    for (const Number& bit : Bits()) {
      if (!cleanup || !bit.from_flag) continue;
      config_.warnings.push_back(absl::StrCat("Flag --", bit.setting.flag,
                                              " has been deprecated, This flag has no effect and "
                                              "will be removed in a future version."));
    }
    for (const Number& bit : Bits()) {
      if (!cleanup || !bit.from_file || *bit.from_file == bit.fallback) continue;
      config_.warnings.push_back(
          absl::StrCat(Line(bit.setting), ": ", bit.setting.field, " ", *bit.from_file,
                       " has no effect where IPTablesOwnershipCleanup is on; remove the field"));
    }
    for (const Number& label : Labels()) {
      if (labelled || (!label.from_flag && !label.from_file)) continue;
      config_.warnings.push_back(absl::StrCat(
          label.from_flag ? absl::StrCat("--", label.setting.flag)
                          : absl::StrCat(Line(label.setting), ": ", label.setting.field),
          " has no effect where ConnLabelMarking is off"));
    }
  }

  const Flags& flags_;
  const ConfigFile& file_;
  Config config_ = DefaultConfig();
};

// Every line of ToString, as a change to its value.
std::vector<ConfigChange> ConfigLines(const Config& config) {
  std::vector<ConfigChange> lines;
  for (const Setting& setting : kSettings) {
    if (setting.print == nullptr) continue;
    std::string value = setting.print(config);
    if (value.empty()) value = std::string(setting.if_empty);
    if (setting.field == "ipFamilies" && config.families_by_kernel) {
      absl::StrAppend(&value, " (", FamiliesText(config.families), ")");
    }
    lines.push_back({std::string(setting.field), "", value, setting.fixed});
    // No setting, but what the ones above choose.
    if (setting.flag == "make-iptables-util-chains") {
      lines.push_back({"mode", "", std::string(ModeName(config.mode))});
    }
  }
  return lines;
}

}  // namespace

absl::StatusOr<FeatureGates> ResolveFeatureGates(Version emulated,
                                                 absl::Span<const Overrides> overrides) {
  return FeatureGates::Resolve(
      {featuregates::KubeletComponent(emulated), featuregates::AgentComponent(kAgentRelease)},
      overrides);
}

absl::StatusOr<Config> ResolveConfig(const Flags& flags, const ConfigFile& file,
                                     const std::string& if_inet6_path) {
  return Resolver(flags, file).Resolve(if_inet6_path);
}

absl::string_view WatchModeName(netlink::WatchMode mode) {
  return mode == netlink::WatchMode::kPoll ? "poll" : "events";
}

std::string FamiliesText(absl::Span<const netlink::Family> families) {
  return absl::StrJoin(families, ",", [](std::string* out, netlink::Family family) {
    *out += family == netlink::Family::kIPv4 ? "ipv4" : "ipv6";
  });
}

std::string ToString(const Config& config) {
  std::string text;
  for (const ConfigChange& line : ConfigLines(config)) {
    absl::StrAppend(&text, line.name, ": ", line.to, "\n");
  }
  return text;
}

std::vector<ConfigChange> WhatChanges(const Config& from, const Config& to) {
  std::vector<ConfigChange> changes = ConfigLines(to);
  for (size_t i = 0; const ConfigChange& before : ConfigLines(from)) changes[i++].from = before.to;
  std::erase_if(changes, [](const ConfigChange& change) { return change.from == change.to; });
  return changes;
}

std::vector<std::string> WhatNeedsARestart(const Config& running, const Config& wanted) {
  std::vector<std::string> lines;
  for (const ConfigChange& change : WhatChanges(running, wanted)) {
    if (change.fixed) {
      lines.push_back(absl::StrCat(change.name, ": ", change.from, " now, ", change.to, " wanted"));
    }
  }
  return lines;
}

}  // namespace kipt::agent
