// SPDX-License-Identifier: Apache-2.0
#include "agent/config/settings.h"

#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <iterator>
#include <system_error>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "agent/config/value_texts.h"
#include "agent/detect/capabilities.h"
#include "agent/process/files.h"
#include "agent/text/printable.h"
#include "featuregates/go_text.h"
#include "featuregates/known_features.h"

namespace kipt::agent {
namespace {

using netlink::WatchMode;

// ---- values as text, and from the text of a flag ----

// As the values of OutputFormat.
constexpr absl::string_view kFormats[] = {"text", "json", "dot", "svg", "npd"};

std::string Text(bool value) { return value ? "true" : "false"; }
std::string Text(int value) { return absl::StrCat(value); }
std::string Text(const std::string& value) { return value; }
std::string Text(absl::Duration value) { return FormatGoDuration(value); }
std::string Text(const std::vector<std::string>& value) { return absl::StrJoin(value, ","); }
std::string Text(OutputFormat value) { return std::string(kFormats[static_cast<size_t>(value)]); }
std::string Text(featuregates::Version value) { return featuregates::ToString(value); }
std::string Text(const featuregates::FeatureGates& value) { return featuregates::ToString(value); }
std::string Text(WatchMode value) { return std::string(WatchModeName(value)); }
std::string Text(StaleChains value) { return std::string(StaleChainsName(value)); }
std::string Text(ForeignRulesPolicy value) { return std::string(ForeignRulesPolicyName(value)); }
std::string Text(HintPolicy value) { return std::string(HintPolicyName(value)); }
std::string Text(IptablesMode value) { return std::string(IptablesModeName(value)); }
std::string Text(std::optional<IptablesMode> value) { return value ? Text(*value) : "auto"; }
// What is not given shows as the zero value of its type.
template <typename T>
std::string Text(const std::optional<T>& value) {
  return Text(value.value_or(T()));
}

absl::Status BadValue(absl::string_view reason) { return absl::InvalidArgumentError(reason); }

template <typename T>
absl::Status Store(const absl::StatusOr<T>& parsed, T& value) {
  if (parsed.ok()) value = *parsed;
  return parsed.status();
}

absl::Status Read(absl::string_view /*type*/, absl::string_view text, bool& value) {
  absl::Status status = Store(featuregates::GoParseBool(text), value);
  if (status.ok()) return status;
  return BadValue(absl::StrCat(status.message(), "; it must be true or false"));
}
absl::Status Read(absl::string_view type, absl::string_view text, int& value) {
  // klog's -v. The other numbers are read as pflag reads kubelet's.
  if (type != "Level") return Store(featuregates::GoParseInt32(text), value);
  const absl::string_view digits = absl::StripPrefix(text, "-");
  if (digits.empty() || !std::all_of(digits.begin(), digits.end(), absl::ascii_isdigit) ||
      (digits[0] == '0' && digits.size() > 1)) {
    return BadValue("it must be a decimal integer");
  }
  return absl::SimpleAtoi(text, &value) ? absl::OkStatus() : BadValue("value out of range");
}
absl::Status Read(absl::string_view type, absl::string_view text, std::string& value) {
  value = std::string(text);
  const bool named = type != "directory" && type != "file" && type != "path";
  if (!text.empty() || named) return absl::OkStatus();
  return BadValue(absl::StrCat("it must be a ", type == "directory" ? type : "path"));
}
absl::Status Read(absl::string_view /*type*/, absl::string_view text, absl::Duration& value) {
  return Store(ParseGoDuration(text), value);
}
absl::Status Read(absl::string_view /*type*/, absl::string_view text,
                  std::vector<std::string>& value) {
  value.emplace_back(text);
  return absl::OkStatus();
}
absl::Status Read(absl::string_view /*type*/, absl::string_view text, OutputFormat& value) {
  const auto* const format = absl::c_find(kFormats, text);
  if (format == std::end(kFormats)) {
    return BadValue("it must be text or json, dot for audit, svg for marks, or npd for check");
  }
  value = static_cast<OutputFormat>(format - kFormats);
  return absl::OkStatus();
}
template <typename T>
absl::Status Read(absl::string_view type, absl::string_view text, std::optional<T>& value) {
  T read = {};
  absl::Status status = Read(type, text, read);
  if (status.ok()) value = std::move(read);
  return status;
}

// ---- effective values as text ----

// `members` lead from a Config to the value.
template <auto... members>
std::string Print(const Config& config) {
  return Text((config.*....*members));
}
std::string PrintFamilies(const Config& config) {
  return config.families_by_kernel ? "auto" : FamiliesText(config.families);
}

// ---- given values in a Config ----

absl::Status InvalidValue(absl::string_view value, absl::string_view advice) {
  return BadValue(absl::StrCat("invalid value ", QuoteForMessage(value), "; ", advice));
}

template <auto flag, auto member>
absl::Status Copy(const Flags& given, Config& config) {
  config.*member = *(given.*flag);
  return absl::OkStatus();
}

// The one of `values` with the given name; the default for "auto".
template <auto flag, auto member, auto... values>
absl::Status Choose(const Flags& given, Config& config) {
  ((Text(values) == *(given.*flag) ? static_cast<void>(config.*member = values) : void()), ...);
  return absl::OkStatus();
}

// A missing directory would be a host without iptables.
absl::Status ApplyHostRoot(const Flags& given, Config& config) {
  config.host_root = given.host_root;
  struct stat about {};
  const int error = stat(config.host_root->c_str(), &about) != 0 ? errno : ENOTDIR;
  if (S_ISDIR(about.st_mode)) return absl::OkStatus();
  return BadValue(absl::StrCat(QuoteForMessage(*config.host_root), ": ",
                               std::generic_category().message(error),
                               "; give the directory where the host's root is mounted"));
}

template <auto flag, auto member, bool may_be_never = false>
absl::Status ApplyPeriod(const Flags& given, Config& config) {
  const absl::Duration period = config.*member = *(given.*flag);
  if (may_be_never && period == absl::ZeroDuration()) return absl::OkStatus();
  if (period >= absl::Seconds(1) && period <= absl::Hours(24)) return absl::OkStatus();
  return BadValue(absl::StrCat(FormatGoDuration(period), " is not between 1s and 24h",
                               may_be_never ? ", or 0s" : ""));
}

template <auto flag, auto member>
absl::Status ApplyAddress(const Flags& given, Config& config) {
  config.*member = *(given.*flag);
  if ((config.*member).empty()) return absl::OkStatus();
  const absl::Status status = ParseBindAddress(config.*member).status();
  if (status.ok()) return absl::OkStatus();
  return InvalidValue(config.*member, absl::StrCat(status.message(), ", or empty for none"));
}

// A relative path of a daemon would be ambiguous.
absl::Status ApplyCniConfDirs(const Flags& given, Config& config) {
  if (given.cni_conf_dir->empty()) return absl::OkStatus();
  config.cni_conf_dirs = absl::StrSplit(*given.cni_conf_dir, ',');
  for (const std::string& directory : config.cni_conf_dirs) {
    if (!absl::StartsWith(directory, "/")) {
      return InvalidValue(directory, "give absolute paths with commas between them");
    }
  }
  return absl::OkStatus();
}

absl::Status ApplyExpectedRules(const Flags& given, Config& config) {
  constexpr size_t kMostBytes = size_t{1} << 20;
  config.expected_rules_file = *given.expected_rules;
  config.expected_rules.clear();
  if (config.expected_rules_file.empty()) return absl::OkStatus();
  const absl::StatusOr<std::string> text = ReadFile(config.expected_rules_file, kMostBytes);
  if (!text.ok()) return BadValue(text.status().message());
  absl::Status status = Store(ParseExpectedRules(*text), config.expected_rules);
  if (status.ok()) return status;
  return BadValue(absl::StrCat(config.expected_rules_file, ": ", status.message()));
}

// ---- the table ----

constexpr InFile kAgents = InFile::kAgents;
constexpr InFile kBoth = InFile::kAgentsAndKubelets;
constexpr InFile kNever = InFile::kNever;
constexpr absl::string_view kAll;   // of the commands
constexpr absl::string_view kBool;  // has no type in its help
constexpr bool kFixed = true;

constexpr Setting kRows[] = {
    {"emulated-version", kAll, "string", &Flags::emulated_version,
     "The Kubernetes release to emulate, 1.24 or newer: its kubelet's rules, flags and feature "
     "gates apply.",
     "emulatedVersion", kAgents, Print<&Config::emulated_version>},
    {"feature-gates", kAll, "mapStringBool", &Flags::feature_gates,
     "A set of key=value pairs that describe feature gates for alpha/experimental features. "
     "Options are:",
     "featureGates", kBoth, Print<&Config::gates>},
    {"make-iptables-util-chains", kAll, kBool, &Flags::make_iptables_util_chains,
     "If true, the agent ensures, as kubelet would, that the iptables utility rules are present on "
     "the host. If false, it changes nothing.",
     "makeIPTablesUtilChains", kAgents, Print<&Config::make_iptables_util_chains>,
     Copy<&Flags::make_iptables_util_chains, &Config::make_iptables_util_chains>},
    {"iptables-masquerade-bit", kAll, "int32", &Flags::iptables_masquerade_bit,
     "The bit of the fwmark space to mark packets for SNAT. Must be within the range [0, 31]. "
     "Please match this parameter with corresponding parameter in kube-proxy. No effect where "
     "IPTablesOwnershipCleanup is on; removed in 1.31.",
     "iptablesMasqueradeBit", kBoth, Print<&Config::bits, &MarkBits::masquerade>},
    {"iptables-drop-bit", kAll, "int32", &Flags::iptables_drop_bit,
     "The bit of the fwmark space to mark packets for dropping. Must be within the range [0, 31]. "
     "No effect where IPTablesOwnershipCleanup is on; removed in 1.31.",
     "iptablesDropBit", kBoth, Print<&Config::bits, &MarkBits::drop>},
    {"iptables-masquerade-label", kAll, "int32", &Flags::iptables_masquerade_label,
     "The connection label by which KUBELET-POSTROUTING masquerades. Must be within the range [0, "
     "127]. Needs the feature gate ConnLabelMarking.",
     "iptablesMasqueradeLabel", kAgents, Print<&Config::labels, &ConnLabels::masquerade>},
    {"iptables-drop-label", kAll, "int32", &Flags::iptables_drop_label,
     "The connection label by which KUBELET-FIREWALL drops. Must be within the range [0, 127]. "
     "Needs the feature gate ConnLabelMarking.",
     "iptablesDropLabel", kAgents, Print<&Config::labels, &ConnLabels::drop>},
    {"ip-families", kAll, "string", &Flags::ip_families,
     "auto, ipv4, ipv6 or ipv4,ipv6. auto is IPv4, and IPv6 where the network namespace has it.",
     "ipFamilies", kAgents, PrintFamilies, nullptr, "auto, ipv4, ipv6"},
    {"iptables-mode", kAll, "string", &Flags::iptables_mode,
     "auto, nft or legacy: which iptables to write. auto takes the first that decides: the host's "
     "iptables program, KUBE-IPTABLES-HINT, KUBE-KUBELET-CANARY, other rules. If they contradict "
     "each other, nothing is written.",
     "iptablesMode", kAgents, Print<&Config::iptables_mode>,
     Choose<&Flags::iptables_mode, &Config::iptables_mode, IptablesMode::kNft,
            IptablesMode::kLegacy>,
     "auto, nft, legacy", "", kFixed},
    {"host-root", kAll, "directory", &Flags::host_root,
     "Where the host's root is mounted. The kind of its iptables program decides the mode; the "
     "program is not run. (default / outside containers, none in them)",
     "hostRoot", kNever, Print<&Config::host_root>, ApplyHostRoot, "", "(own)", kFixed},
    {"iptables-sync-period", kAll, "duration", &Flags::iptables_sync_period,
     "How often run checks when no change is reported, from 1s to 24h, as in 1m0s or 90s.",
     "iptablesSyncPeriod", kAgents, Print<&Config::iptables_sync_period>,
     ApplyPeriod<&Flags::iptables_sync_period, &Config::iptables_sync_period>},
    {"watch", kAll, "string", &Flags::watch,
     "events or poll: how run notices changes. events: the kernel reports them at once, with the "
     "process; a large change costs its process some time. poll: run asks ten times a second, "
     "which costs other processes nothing.",
     "watch", kAgents, Print<&Config::watch>,
     Choose<&Flags::watch, &Config::watch, WatchMode::kEvents, WatchMode::kPoll>, "events, poll",
     "", kFixed},
    {"observe", kAll, kBool, &Flags::observe,
     "If true, run checks, plans and reports, and changes nothing. sync and retire --yes still "
     "write.",
     "observe", kAgents, Print<&Config::observe>, Copy<&Flags::observe, &Config::observe>},
    {"healthz-bind-address", kAll, "ip:port", &Flags::healthz_bind_address,
     "Where run serves /healthz, /livez and /readyz. Empty: nowhere.", "healthzBindAddress",
     kAgents, Print<&Config::healthz_bind_address>,
     ApplyAddress<&Flags::healthz_bind_address, &Config::healthz_bind_address>, "", "(none)",
     kFixed},
    {"metrics-bind-address", kAll, "ip:port", &Flags::metrics_bind_address,
     "Where run serves /metrics. Empty: nowhere.", "metricsBindAddress", kAgents,
     Print<&Config::metrics_bind_address>,
     ApplyAddress<&Flags::metrics_bind_address, &Config::metrics_bind_address>, "", "(none)",
     kFixed},
    {"stale-chains", kAll, "string", &Flags::stale_chains,
     "keep or retire: what happens to kubelet's chains and rules that other gate settings, bits or "
     "families left. retire removes the unused ones.",
     "staleChains", kAgents, Print<&Config::stale_chains>,
     Choose<&Flags::stale_chains, &Config::stale_chains, StaleChains::kKeep, StaleChains::kRetire>,
     "keep, retire"},
    {"hint-policy", kAll, "string", &Flags::hint_policy,
     "usable or always. always makes KUBE-IPTABLES-HINT on a node where iptables can hold no rule, "
     "too.",
     "hintPolicy", kAgents, Print<&Config::hint_policy>,
     Choose<&Flags::hint_policy, &Config::hint_policy, HintPolicy::kUsable, HintPolicy::kAlways>,
     "usable, always"},
    {"cni-conf-dir", kAll, "directory,...", &Flags::cni_conf_dir,
     "Directories of CNI configurations, which may name kubelet's chains (externalSetMarkChain). "
     "(default /etc/cni/net.d and the places of known distributions, under --host-root)",
     "cniConfDir", kAgents, Print<&Config::cni_conf_dirs>, ApplyCniConfDirs, "", "(known)"},
    {"incidents-file", kAll, "string", &Flags::incidents_file,
     "Where run keeps its last ten incidents, for status and incidents. Empty: nowhere.",
     "incidentsFile", kAgents, Print<&Config::incidents_file>,
     Copy<&Flags::incidents_file, &Config::incidents_file>, "", "(none)", kFixed},
    {"foreign-rules", kAll, "string", &Flags::foreign_rules,
     "auto, report or ignore: whether run reports new rules of other programs in base chains. "
     "These "
     "are rules that drop, reject or redirect packets or set the whole mark. auto: on nf_tables, "
     "where their writers are known.",
     "foreignRules", kAgents, Print<&Config::foreign_rules>,
     Choose<&Flags::foreign_rules, &Config::foreign_rules, ForeignRulesPolicy::kAuto,
            ForeignRulesPolicy::kReport, ForeignRulesPolicy::kIgnore>,
     "auto, report, ignore"},
    {"expected-rules", kAll, "string", &Flags::expected_rules,
     "A file of rules of other programs that are not reported: TABLE/CHAIN for a whole chain, "
     "TABLE/CHAIN RULE for one rule. Empty: none.",
     "expectedRules", kAgents, Print<&Config::expected_rules_file>, ApplyExpectedRules, "",
     "(none)"},
    {"audit-period", kAll, "duration", &Flags::audit_period,
     "How often run audits the node, in the background: which programs depend on kubelet's chains, "
     "and what a change would break. From 1s to 24h, or 0s for never. Less often where that would "
     "take more than a hundredth of a processor.",
     "auditPeriod", kAgents, Print<&Config::audit_period>,
     ApplyPeriod<&Flags::audit_period, &Config::audit_period, true>},
    {"config", kAll, "string", &Flags::config,
     "The file to read: a KubeIPTablesAgentConfiguration or a KubeletConfiguration. Only "
     "featureGates, iptablesMasqueradeBit and iptablesDropBit of the latter count. Flags override "
     "the file. (default /etc/kube-iptables-agent/config.yaml, if it exists)",
     "config", kNever, Print<&Config::config_file>, nullptr, "", "(none)"},
    {"netns", kAll, "path", &Flags::netns,
     "The network namespace to work in, as a file such as /run/netns/NAME. (default the current "
     "one)"},
    {"output", kAll, "string", &Flags::output,
     "text or json; audit also has dot, for graphviz, marks has svg, and check has npd, for "
     "node-problem-detector.",
     "", kNever, nullptr, nullptr, "text, json, dot, svg, npd"},
    {"color", kAll, "string", &Flags::color,
     "auto, always or never: whether plan, status, audit and explain colour text. auto colours on "
     "a terminal, unless NO_COLOR is set or TERM is dumb.",
     "", kNever, nullptr, nullptr, "auto, always, never"},
    {"v", kAll, "Level", &Flags::v,
     "number for the log level verbosity. 1: also the configuration, each change with its reason, "
     "and what retirement keeps. 2 and more: also each check."},
    {"vmodule", kAll, "pattern=N,...", &Flags::vmodule,
     "comma-separated list of pattern=N settings for file-filtered logging"},
    {"all-netns", "audit", kBool, &Flags::all_netns,
     "audit: read every network namespace that a process or a file in /run/netns holds."},
    {"before", "audit", "change", &Flags::before,
     "audit: what is about to change: ownership-cleanup, the default; kube-proxy-nftables; "
     "kube-proxy-ipvs-removal; or iptables-nft, from iptables-legacy.",
     "", kNever, nullptr, nullptr,
     "ownership-cleanup, kube-proxy-nftables, kube-proxy-ipvs-removal, iptables-nft"},
    {"allow", "audit", "file", &Flags::allow,
     "audit: a list of accepted findings, one a line; they are shown, and do not count."},
    {.flag = "capabilities",
     .only_for = "detect",
     .type = "software[=\"all\"]",
     .member = &Flags::capabilities,
     .help = "detect: which features of the kernel kubelet, kube-proxy's modes, portmap and this "
             "agent need, and whether they are present, loadable or missing. Loads nothing. Exit "
             "status 1 unknown, 2 missing.",
     .accepted = kCapabilitySoftware,
     .implied = "all"},
    {"all", "incidents, plan", kBool, &Flags::all,
     "incidents: also show those of other boots and network namespaces, marked. plan: also list "
     "what is in place, stale or not managed."},
    {"from-file", "explain", "file", &Flags::from_file,
     "explain: a file of iptables-save's output to read instead of this node's rules. - is "
     "standard input."},
    {"yes", "retire", kBool, &Flags::yes,
     "retire: remove what is listed, and KUBE-KUBELET-CANARY. Not while a kubelet keeps chains of "
     "its own."},
};

}  // namespace

constinit const absl::Span<const Setting> kSettings = kRows;

bool Setting::BelongsTo(absl::string_view command) const {
  const std::vector<absl::string_view> commands = absl::StrSplit(only_for, ", ");
  return only_for.empty() || absl::c_linear_search(commands, command);
}

std::vector<const Setting*> SettingsByFlag() {
  std::vector<const Setting*> settings;
  for (const Setting& setting : kRows) settings.push_back(&setting);
  absl::c_sort(settings, [](const Setting* a, const Setting* b) { return a->flag < b->flag; });
  return settings;
}

const Setting* SettingOf(FlagMember member) {
  const auto* const found =
      absl::c_find_if(kRows, [&](const auto& row) { return row.member == member; });
  return found == std::end(kRows) ? nullptr : found;
}

absl::Status ParseFlag(const Setting& setting, absl::string_view text, Flags& flags) {
  absl::Status status = std::visit(
      [&](auto member) { return Read(setting.type, text, flags.*member); }, setting.member);
  // What is part of a Config is checked there.
  if (!status.ok() || !setting.field.empty() || setting.accepted.empty()) return status;
  const std::vector<absl::string_view> accepted = absl::StrSplit(setting.accepted, ", ");
  if (absl::c_linear_search(accepted, text)) return absl::OkStatus();
  return BadValue(absl::StrCat("it must be one of ", setting.accepted));
}

bool IsGiven(const Setting& setting, const Flags& flags) {
  return std::visit([&](auto member) { return flags.*member != Flags().*member; }, setting.member);
}

std::string FlagText(const Setting& setting, const Flags& flags) {
  const bool has_default = setting.print != nullptr && setting.field != "featureGates";
  if (has_default && !IsGiven(setting, flags)) return setting.print(DefaultConfig());
  return std::visit([&](auto member) { return Text(flags.*member); }, setting.member);
}

Config DefaultConfig() {
  return {.emulated_version = featuregates::kDefaultEmulatedVersion,
          .gates = *featuregates::FeatureGates::Resolve({}, {}),
          .config_file = kDefaultConfigPath};
}

std::string HelpWithDefault(const Setting& setting) {
  const std::string value = FlagText(setting, Flags());
  // Like pflag, which does not print a zero.
  const bool silent = value.empty() || value == "0" || !setting.only_for.empty() ||
                      absl::StrContains(setting.help, "(default ");
  return absl::StrCat(setting.help, silent ? "" : absl::StrCat(" (default ", value, ")"));
}

}  // namespace kipt::agent
