// SPDX-License-Identifier: Apache-2.0
#include "agent/config/flag_table.h"

#include <algorithm>
#include <optional>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "agent/config/config.h"
#include "agent/config/go_duration.h"
#include "featuregates/feature_gates.h"
#include "featuregates/go_text.h"
#include "featuregates/kubelet_features.h"

namespace kipt::agent {
namespace {

absl::Status StoreText(absl::string_view value, std::optional<std::string>& field) {
  field = std::string(value);
  return absl::OkStatus();
}

// As pflag reads kubelet's flags of the same name, so that one command line suits both.
absl::Status StoreInt32(absl::string_view value, std::optional<int>& field) {
  const absl::StatusOr<int32_t> number = featuregates::GoParseInt32(value);
  if (!number.ok()) return number.status();
  field = *number;
  return absl::OkStatus();
}

// klog's -v is decimal.
absl::Status StoreDecimal(absl::string_view value, std::optional<int>& field) {
  const absl::string_view digits = absl::StripPrefix(value, "-");
  const bool decimal =
      !digits.empty() && std::all_of(digits.begin(), digits.end(), absl::ascii_isdigit);
  if (!decimal || (digits[0] == '0' && digits.size() > 1)) {
    return absl::InvalidArgumentError("it must be a decimal integer");
  }
  int number = 0;
  if (!absl::SimpleAtoi(value, &number)) return absl::InvalidArgumentError("value out of range");
  field = number;
  return absl::OkStatus();
}

absl::Status StoreBool(absl::string_view value, bool& field) {
  const absl::StatusOr<bool> parsed = featuregates::GoParseBool(value);
  if (!parsed.ok()) {
    return absl::InvalidArgumentError(
        absl::StrCat(parsed.status().message(), "; it must be true or false"));
  }
  field = *parsed;
  return absl::OkStatus();
}

absl::Status StoreConfig(absl::string_view value, Flags& flags) {
  return StoreText(value, flags.config);
}
absl::Status StoreFeatureGates(absl::string_view value, Flags& flags) {
  flags.feature_gates.emplace_back(value);
  return absl::OkStatus();
}
absl::Status StoreMakeChains(absl::string_view value, Flags& flags) {
  bool make = false;
  absl::Status status = StoreBool(value, make);
  if (status.ok()) flags.make_iptables_util_chains = make;
  return status;
}
absl::Status StoreObserve(absl::string_view value, Flags& flags) {
  bool observe = false;
  absl::Status status = StoreBool(value, observe);
  if (status.ok()) flags.observe = observe;
  return status;
}
absl::Status StoreMasqueradeBit(absl::string_view value, Flags& flags) {
  return StoreInt32(value, flags.iptables_masquerade_bit);
}
absl::Status StoreDropBit(absl::string_view value, Flags& flags) {
  return StoreInt32(value, flags.iptables_drop_bit);
}
absl::Status StoreMasqueradeLabel(absl::string_view value, Flags& flags) {
  return StoreInt32(value, flags.iptables_masquerade_label);
}
absl::Status StoreDropLabel(absl::string_view value, Flags& flags) {
  return StoreInt32(value, flags.iptables_drop_label);
}
absl::Status StoreV(absl::string_view value, Flags& flags) { return StoreDecimal(value, flags.v); }
absl::Status StoreVmodule(absl::string_view value, Flags& flags) {
  return StoreText(value, flags.vmodule);
}
absl::Status StoreEmulatedVersion(absl::string_view value, Flags& flags) {
  return StoreText(value, flags.emulated_version);
}
absl::Status StoreIpFamilies(absl::string_view value, Flags& flags) {
  return StoreText(value, flags.ip_families);
}
absl::Status StoreIptablesMode(absl::string_view value, Flags& flags) {
  return StoreText(value, flags.iptables_mode);
}
absl::Status StoreHostRoot(absl::string_view value, Flags& flags) {
  if (value.empty()) return absl::InvalidArgumentError("it must be a directory");
  return StoreText(value, flags.host_root);
}
absl::Status StoreOutput(absl::string_view value, Flags& flags) {
  if (value == "text") {
    flags.output = OutputFormat::kText;
  } else if (value == "json") {
    flags.output = OutputFormat::kJson;
  } else if (value == "dot") {
    flags.output = OutputFormat::kDot;
  } else {
    return absl::InvalidArgumentError("it must be text or json, or dot for audit");
  }
  return absl::OkStatus();
}
absl::Status StoreNetns(absl::string_view value, Flags& flags) {
  if (value.empty()) return absl::InvalidArgumentError("it must be a path");
  return StoreText(value, flags.netns);
}
absl::Status StoreSyncPeriod(absl::string_view value, Flags& flags) {
  const absl::StatusOr<absl::Duration> parsed = ParseGoDuration(value);
  if (!parsed.ok()) return parsed.status();
  flags.iptables_sync_period = *parsed;
  return absl::OkStatus();
}
absl::Status StoreWatch(absl::string_view value, Flags& flags) {
  return StoreText(value, flags.watch);
}
absl::Status StoreHealthzBindAddress(absl::string_view value, Flags& flags) {
  return StoreText(value, flags.healthz_bind_address);
}
absl::Status StoreMetricsBindAddress(absl::string_view value, Flags& flags) {
  return StoreText(value, flags.metrics_bind_address);
}

absl::Status StoreStaleChains(absl::string_view value, Flags& flags) {
  return StoreText(value, flags.stale_chains);
}
absl::Status StoreHintPolicy(absl::string_view value, Flags& flags) {
  return StoreText(value, flags.hint_policy);
}
absl::Status StoreCniConfDir(absl::string_view value, Flags& flags) {
  return StoreText(value, flags.cni_conf_dir);
}
absl::Status StoreYes(absl::string_view value, Flags& flags) { return StoreBool(value, flags.yes); }
absl::Status StoreAllow(absl::string_view value, Flags& flags) {
  if (value.empty()) return absl::InvalidArgumentError("it must be a path");
  return StoreText(value, flags.allow);
}
absl::Status StoreAllNetns(absl::string_view value, Flags& flags) {
  return StoreBool(value, flags.all_netns);
}
absl::Status StoreFromFile(absl::string_view value, Flags& flags) {
  if (value.empty()) return absl::InvalidArgumentError("it must be a path");
  return StoreText(value, flags.from_file);
}

constexpr CommandRow kCommands[] = {
    {"run", Command::kRun, "keep the chains and rules in place; what is done without a command"},
    {"sync", Command::kSync, "put the chains and rules in place, once"},
    {"plan", Command::kPlan, "show what sync would change, and why; exit status 2 if anything"},
    {"status", Command::kStatus, "show the effective configuration and what stands in the kernel"},
    {"retire", Command::kRetire,
     "show what another mode, bit or family left behind; --yes removes what nobody uses"},
    {"audit", Command::kAudit,
     "show who depends on the chains that the feature gate ends; exit status 2 on findings"},
    {"explain", Command::kExplain, "say of every rule that leads to a chain what it is for",
     "TABLE/CHAIN", "nat/KUBE-MARK-MASQ"},
    {"detect", Command::kDetect,
     "show which iptables the node uses, and why; exit status 1 unknown, 2 contradictory"},
    {"gates", Command::kGates, "list the feature gates of the emulated release"},
    {"completion", Command::kCompletion, "write what lets a shell complete this command line",
     "bash|zsh", "bash"},
    {"version", Command::kVersion, "show the version of this program"},
};

constexpr FlagRow kFlags[] = {
    {"all-netns", "", true,
     "Of audit: every network namespace that a process or a file in /run/netns holds.",
     StoreAllNetns, Command::kAudit},
    {"allow", "file", false,
     "Of audit: what is known and accepted, one line each; it is shown, and is no finding.",
     StoreAllow, Command::kAudit},
    {"cni-conf-dir", "directory,...", false,
     "Where CNI configurations are, which may name a chain as theirs (externalSetMarkChain). "
     "(default /etc/cni/net.d and the places of known distributions, under --host-root)",
     StoreCniConfDir},
    {"config", "string", false,
     "The file to read: a KubeIPTablesAgentConfiguration, or a KubeletConfiguration, of which only "
     "featureGates, iptablesMasqueradeBit and iptablesDropBit count. Flags win over the file. "
     "(default /etc/kube-iptables-agent/config.yaml, where that exists)",
     StoreConfig},
    {"emulated-version", "string", false,
     "The Kubernetes release, 1.24 or newer, whose kubelet's rules, flags and feature gates hold. "
     "(default 1.27)",
     StoreEmulatedVersion},
    {"feature-gates", "mapStringBool", false,
     "A set of key=value pairs that describe feature gates for alpha/experimental features. "
     "Options are:",
     StoreFeatureGates},
    {"from-file", "file", false,
     "Of explain: what iptables-save printed, instead of what stands on this node. - is standard "
     "input.",
     StoreFromFile, Command::kExplain},
    {"healthz-bind-address", "ip:port", false,
     "Where run serves /healthz, /livez and /readyz. Empty: nowhere. (default 127.0.0.1:10270)",
     StoreHealthzBindAddress},
    {"hint-policy", "string", false,
     "usable or always: whether KUBE-IPTABLES-HINT is also made on a node where iptables can hold "
     "no rule. (default usable)",
     StoreHintPolicy},
    {"host-root", "directory", false,
     "Where the host's file system is seen, whose iptables program tells nft from legacy. It is "
     "not "
     "run. (default / outside containers, else it is not asked)",
     StoreHostRoot},
    {"ip-families", "string", false,
     "auto, ipv4, ipv6 or ipv4,ipv6. auto is IPv4, and IPv6 where the network namespace has it. "
     "(default auto)",
     StoreIpFamilies},
    {"iptables-drop-bit", "int32", false,
     "The bit of the fwmark space to mark packets for dropping. Must be within the range [0, 31]. "
     "No effect where IPTablesOwnershipCleanup is on; gone from 1.31 on. (default 15)",
     StoreDropBit},
    {"iptables-drop-label", "int32", false,
     "The label of the connection by which KUBELET-FIREWALL drops. Must be within the range [0, "
     "127]. Only with the feature gate ConnLabelMarking. (default 115)",
     StoreDropLabel},
    {"iptables-masquerade-bit", "int32", false,
     "The bit of the fwmark space to mark packets for SNAT. Must be within the range [0, 31]. "
     "Please match this parameter with corresponding parameter in kube-proxy. No effect where "
     "IPTablesOwnershipCleanup is on; gone from 1.31 on. (default 14)",
     StoreMasqueradeBit},
    {"iptables-masquerade-label", "int32", false,
     "The label of the connection by which KUBELET-POSTROUTING masquerades. Must be within the "
     "range [0, 127]. Only with the feature gate ConnLabelMarking. (default 114)",
     StoreMasqueradeLabel},
    {"iptables-mode", "string", false,
     "auto, nft or legacy: which iptables to write. auto goes by the host's iptables program, "
     "KUBE-IPTABLES-HINT, KUBE-KUBELET-CANARY and other rules, in this order; where they "
     "contradict "
     "each other nothing is written. (default auto)",
     StoreIptablesMode},
    {"iptables-sync-period", "duration", false,
     "How often run looks when nobody has changed anything, from 1s to 24h, as in 1m0s or 90s. "
     "(default 1m0s)",
     StoreSyncPeriod},
    {"make-iptables-util-chains", "", true,
     "If true, kubelet will ensure iptables utility rules are present on host; here it is this "
     "agent that does. If false, nothing is touched. (default true)",
     StoreMakeChains},
    {"metrics-bind-address", "ip:port", false,
     "Where run serves /metrics. Empty: nowhere. (default 127.0.0.1:10271)",
     StoreMetricsBindAddress},
    {"netns", "path", false,
     "The network namespace to work in, as a file such as /run/netns/NAME. (default the own one)",
     StoreNetns},
    {"observe", "", true,
     "run looks, plans and reports, and changes nothing. sync and retire --yes are asked for by "
     "name, and do. (default false)",
     StoreObserve},
    {"output", "string", false, "text or json; of audit also dot, for graphviz. (default text)",
     StoreOutput},
    {"stale-chains", "string", false,
     "keep or retire: what becomes of chains and rules of kubelet's that another mode, bit or "
     "family left behind. retire removes those that nobody uses. (default keep)",
     StoreStaleChains},
    {"v", "Level", false, "number for the log level verbosity", StoreV},
    {"vmodule", "pattern=N,...", false,
     "comma-separated list of pattern=N settings for file-filtered logging", StoreVmodule},
    {"watch", "string", false,
     "events or poll: how run notices changes. events: the kernel tells at once, and who made "
     "them, at some cost to whoever makes large ones. poll: asks ten times a second and costs "
     "others nothing. (default events)",
     StoreWatch},
    {"yes", "", true,
     "Of retire: do it. KUBE-KUBELET-CANARY goes too: not while a kubelet keeps chains of its own.",
     StoreYes, Command::kRetire},
};

// `text` in lines of at most 100 columns, each indented.
void AppendWrapped(absl::string_view text, std::string& out) {
  static constexpr absl::string_view kIndent = "           ";
  size_t column = 0;
  for (absl::string_view word : absl::StrSplit(text, ' ')) {
    if (column == 0 || column + 1 + word.size() > 100) {
      absl::StrAppend(&out, column == 0 ? "" : "\n", kIndent);
      column = kIndent.size();
    }
    absl::StrAppend(&out, " ", word);
    column += 1 + word.size();
  }
  out += '\n';
}

std::vector<std::string> KnownFeatures(absl::string_view emulated_version) {
  const auto emulated = featuregates::ResolveEmulatedVersion(emulated_version);
  const auto gates = ResolveFeatureGates(
      emulated.ok() ? emulated->version : featuregates::kDefaultEmulatedVersion, {});
  return gates.ok() ? gates->KnownFeatures() : std::vector<std::string>();
}

}  // namespace

constinit const absl::Span<const CommandRow> kCommandTable = kCommands;
constinit const absl::Span<const FlagRow> kFlagTable = kFlags;

absl::string_view CommandName(Command command) {
  for (const CommandRow& row : kCommands) {
    if (row.command == command) return row.name;
  }
  return "";
}

std::string HelpText(absl::string_view emulated_version) {
  std::string out =
      "Keeps kubelet's iptables chains as KEP-3178 wants them, through nf_tables or legacy "
      "iptables.\n\n"
      "Usage:\n  kube-iptables-agent [COMMAND] [flags]\n\nCommands:\n";
  for (const CommandRow& row : kCommands) {
    absl::StrAppend(&out, "  ", row.name, std::string(12 - row.name.size(), ' '), row.help, "\n");
    if (!row.argument.empty())
      absl::StrAppend(&out, "              (", row.name, " ", row.argument, ")\n");
  }
  out +=
      "\nFlags, of every command but where they say of which:\n  -h, --help\n            this "
      "text\n";
  for (const FlagRow& row : kFlags) {
    absl::StrAppend(&out, row.name == "v" ? "  -v, --" : "      --", row.name,
                    row.type.empty() ? "" : " ", row.type, "\n");
    AppendWrapped(row.help, out);
    if (row.name != "feature-gates") continue;
    for (const std::string& line : KnownFeatures(emulated_version)) AppendWrapped(line, out);
  }
  return out;
}

}  // namespace kipt::agent
