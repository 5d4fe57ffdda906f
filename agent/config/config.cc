// SPDX-License-Identifier: Apache-2.0
#include "agent/config/config.h"

#include <unistd.h>

#include <array>
#include <cerrno>
#include <iterator>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "agent/config/settings.h"
#include "agent/process/files.h"
#include "agent/text/printable.h"
#include "featuregates/known_features.h"

namespace kipt::agent {
namespace {

using featuregates::FeatureGates;
using featuregates::Overrides;
using featuregates::Version;

// kubernetes/kubernetes#122363 removed --iptables-masquerade-bit and --iptables-drop-bit.
constexpr Version kFirstReleaseWithoutBitFlags = {1, 31};
constexpr int kMostMarkBit = 31;
constexpr char kWithGate[] = "--emulated-version from 1.25 to 1.27";

std::string Kubernetes(Version emulated) {
  return absl::StrCat("Kubernetes ", featuregates::ToString(emulated));
}

// What masquerades, and what drops.
using Pair = std::array<std::optional<int> Flags::*, 2>;
constexpr Pair kBits = {&Flags::iptables_masquerade_bit, &Flags::iptables_drop_bit};
constexpr Pair kLabels = {&Flags::iptables_masquerade_label, &Flags::iptables_drop_label};

absl::Status Invalid(absl::string_view what) {
  return absl::InvalidArgumentError(absl::StrCat("invalid configuration: ", what));
}

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
    status.Update(ResolvePair(
        kBits, kMostMarkBit, config_.emulated_version < kFirstReleaseWithoutBitFlags,
        config_.mode == Mode::kLegacy,
        "Choose another drop bit: the masquerade bit must be kube-proxy's", config_.bits));
    status.Update(ResolvePair(kLabels, netlink::kMostConnLabel, /*refuse_range=*/true,
                              config_.gates.Enabled(featuregates::kConnLabelMarking),
                              "Both are this agent's alone: change either", config_.labels));
    status.Update(ResolveFamilies(if_inet6_path));
    for (const Setting& setting : kSettings) status.Update(Apply(setting));
    if (status.ok()) status = CheckAddressesDiffer();
    if (!status.ok()) return status;

    absl::c_copy(config_.gates.warnings(), std::back_inserter(config_.warnings));
    WarnOfIgnoredGate();
    WarnOfIgnoredNumbers();
    config_.warnings.insert(config_.warnings.end(), file_.warnings.begin(), file_.warnings.end());
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

  // "--FLAG: reason", or "FILE:LINE: FIELD: reason".
  absl::Status Blame(const Setting& setting, absl::string_view reason) const {
    const bool by_file = !IsGiven(setting, flags_) && IsGiven(setting, file_.given);
    const std::string source = by_file ? absl::StrCat(Line(setting), ": ", setting.field)
                                       : absl::StrCat("--", setting.flag);
    return absl::InvalidArgumentError(absl::StrCat(source, ": ", reason));
  }

  absl::Status Apply(const Setting& setting) {
    const Flags& given = IsGiven(setting, flags_) ? flags_ : file_.given;
    if (setting.apply == nullptr || !IsGiven(setting, given)) return absl::OkStatus();
    const std::string text = FlagText(setting, given);
    const std::vector<absl::string_view> accepted =
        absl::StrSplit(setting.accepted, ", ", absl::SkipEmpty());
    if (!accepted.empty() && !absl::c_linear_search(accepted, text)) {
      return Blame(setting, absl::StrCat("invalid value ", QuoteForMessage(text), "; accepted are ",
                                         setting.accepted));
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
    for (const auto bit : kBits) {
      if (!(flags_.*bit) || config_.emulated_version < kFirstReleaseWithoutBitFlags) continue;
      return absl::InvalidArgumentError(absl::StrCat(
          "unknown flag: --", SettingOf(bit)->flag, "; ", Kubernetes(kFirstReleaseWithoutBitFlags),
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
            absl::StrCat("invalid argument ", QuoteForMessage(text),
                         " for \"--feature-gates\" flag: ", values.status().message()));
      }
      overrides.push_back(Overrides{.values = *std::move(values)});
    }
    const auto resolve = [&](absl::Span<const Overrides> some) {
      return ResolveFeatureGates(config_.emulated_version, some);
    };
    absl::StatusOr<FeatureGates> gates = resolve(overrides);
    if (gates.ok()) {
      config_.gates = *std::move(gates);
      return absl::OkStatus();
    }
    const bool file_is_wrong = !resolve({overrides.front()}).ok();
    const absl::StatusOr<FeatureGates> defaults = resolve({});
    const absl::string_view own = featuregates::kIPTablesOwnershipCleanup.name;
    const bool about_own = absl::StrContains(gates.status().message(), own);
    const auto known = defaults.ok() ? defaults->States() : std::vector<featuregates::GateState>();
    return absl::Status(
        gates.status().code(),
        absl::StrCat(
            file_is_wrong ? file_.path : "--feature-gates", ": ", gates.status().message(),
            "; the gates of ", Kubernetes(config_.emulated_version), " that this agent knows are ",
            absl::StrJoin(known, ", ",
                          [](std::string* out, const auto& gate) {
                            absl::StrAppend(out, gate.name, gate.locked ? " (locked)" : "");
                          }),
            about_own ? absl::StrCat("; ", own, " needs an ", kWithGate) : ""));
  }

  // kubelet of that release refuses its own gate in the file. Here the file may be another
  // release's, but a gate that would have chosen the other mode deserves a warning.
  void WarnOfIgnoredGate() {
    const absl::string_view name = featuregates::kIPTablesOwnershipCleanup.name;
    const auto gate = file_.feature_gates.find(std::string(name));
    if (gate == file_.feature_gates.end() ||
        !absl::c_linear_search(config_.gates.ignored(), name) ||
        gate->second == config_.gates.Enabled(featuregates::kIPTablesOwnershipCleanup)) {
      return;
    }
    config_.warnings.push_back(
        absl::StrCat(file_.path, ": featureGates.", name, " ", gate->second ? "true" : "false",
                     " has no effect: ", Kubernetes(config_.emulated_version),
                     " has no such gate, and the agent is in ", ModeName(config_.mode),
                     " mode; remove it, or give an ", kWithGate));
  }

  // The second would wait for the first for ever.
  absl::Status CheckAddressesDiffer() {
    if (config_.healthz_bind_address != config_.metrics_bind_address) return absl::OkStatus();
    const std::string& both = config_.metrics_bind_address;
    if (both.empty() || absl::EndsWith(both, ":0")) return absl::OkStatus();
    return Blame(*SettingOf(&Flags::metrics_bind_address),
                 absl::StrCat(QuoteForMessage(both),
                              " is the health address, too; give another "
                              "port, or an empty one for none"));
  }

  // ---- families ----

  absl::Status ResolveFamilies(const std::string& if_inet6_path) {
    const Setting& setting = *SettingOf(&Flags::ip_families);
    const std::string text = Given(&Flags::ip_families).value_or("auto");
    const bool by_kernel = config_.families_by_kernel = text == "auto";
    const std::vector<std::string> names = absl::StrSplit(by_kernel ? "ipv4" : text, ',');
    for (const netlink::Family family : netlink::kFamilies) {
      if (absl::c_linear_search(names, FamiliesText({family}))) config_.families.push_back(family);
    }
    if (config_.families.size() != names.size()) {
      return Blame(setting, absl::StrCat("invalid value ", QuoteForMessage(text),
                                         "; accepted are auto, ipv4, ipv6, ipv4,ipv6"));
    }
    if (!by_kernel && config_.families.back() != netlink::Family::kIPv6) return absl::OkStatus();
    const int error = access(if_inet6_path.c_str(), F_OK) == 0 ? 0 : errno;
    const std::string directory = if_inet6_path.substr(0, if_inet6_path.rfind('/'));
    const bool no_proc = error == ENOENT && !ShowsProcNet(if_inet6_path);
    // A path that cannot be read is no reason to leave a family out.
    if (no_proc || (error != 0 && error != ENOENT && error != ENOTDIR)) {
      return Blame(setting, absl::StrCat("cannot tell whether this network namespace has IPv6 (",
                                         no_proc ? directory : if_inet6_path, ": ",
                                         ErrorText(error), "); give ipv4 or ipv4,ipv6"));
    }
    if (by_kernel && error == 0) config_.families.push_back(netlink::Family::kIPv6);
    if (by_kernel || error == 0) return absl::OkStatus();
    return Blame(
        setting,
        absl::StrCat("ipv6 is requested, but this network namespace has no IPv6 (", if_inet6_path,
                     " does not exist); enable IPv6 in the kernel (ipv6.disable=0), or "
                     "choose auto or ipv4"));
  }

  // ---- bits of the packet mark, and connection labels ----

  // Where an invalid pair is not refused it has no effect, and `result` stays at its default.
  template <typename T>
  absl::Status ResolvePair(const Pair& pair, int most, bool refuse_range, bool refuse_equal,
                           absl::string_view advice, T& result) const {
    const T given = {Given(pair[0]).value_or(T().masquerade), Given(pair[1]).value_or(T().drop)};
    bool valid = true;
    for (const auto& [member, number] :
         {std::pair(pair[0], given.masquerade), {pair[1], given.drop}}) {
      if (number >= 0 && number <= most) continue;
      const Setting& setting = *SettingOf(member);
      if (refuse_range) {
        return Invalid(absl::StrCat(setting.field, " (--", setting.flag, ") ", number,
                                    " must be between 0 and ", most, ", inclusive; found ",
                                    ValueAndSource(setting, number)));
      }
      valid = false;
    }
    if (given.masquerade == given.drop) {
      if (!refuse_equal) return absl::OkStatus();
      const Setting& masquerade = *SettingOf(pair[0]);
      const Setting& drop = *SettingOf(pair[1]);
      return Invalid(absl::StrCat(masquerade.flag, " and ", drop.flag, " must be different; found ",
                                  ValueAndSource(masquerade, given.masquerade), " and ",
                                  ValueAndSource(drop, given.drop), ". ", advice));
    }
    if (valid) result = given;
    return absl::OkStatus();
  }

  // "14 (from the flag --iptables-drop-bit)".
  std::string ValueAndSource(const Setting& setting, int value) const {
    if (IsGiven(setting, flags_))
      return absl::StrCat(value, " (from the flag --", setting.flag, ")");
    if (!IsGiven(setting, file_.given)) return absl::StrCat(value, " (the default)");
    return absl::StrCat(value, " (from ", Line(setting), ")");
  }

  // kubelet since 1.28 warns of a deprecated flag whatever its value. Many old files have the field
  // with its default, which is no reason for a warning.
  void WarnOfIgnoredNumbers() {
    const bool cleanup = config_.gates.Enabled(featuregates::kIPTablesOwnershipCleanup);
    const bool labelled = config_.gates.Enabled(featuregates::kConnLabelMarking);
    const auto warn = [this](auto... parts) { config_.warnings.push_back(absl::StrCat(parts...)); };
    for (const auto bit : kBits) {
      if (!cleanup || !(flags_.*bit)) continue;
      warn(
          "Flag --", SettingOf(bit)->flag,
          " has been deprecated, This flag has no effect and will be removed in a future version.");
    }
    for (const auto bit : kBits) {
      const Setting& setting = *SettingOf(bit);
      const std::string value = FlagText(setting, file_.given);
      if (!cleanup || value == FlagText(setting, {})) continue;
      warn(Line(setting), ": ", setting.field, " ", value,
           " has no effect where IPTablesOwnershipCleanup is on; remove the field");
    }
    for (const auto label : kLabels) {
      if (labelled || !Given(label)) continue;
      const Setting& setting = *SettingOf(label);
      warn(flags_.*label ? absl::StrCat("--", setting.flag)
                         : absl::StrCat(Line(setting), ": ", setting.field),
           " has no effect where ConnLabelMarking is off");
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

std::vector<std::string> WhatNeedsARestart(const Config& running, const Config& desired) {
  std::vector<std::string> lines;
  for (const ConfigChange& change : WhatChanges(running, desired)) {
    if (change.fixed) {
      lines.push_back(
          absl::StrCat(change.name, ": ", change.from, " now, ", change.to, " desired"));
    }
  }
  return lines;
}

}  // namespace kipt::agent
