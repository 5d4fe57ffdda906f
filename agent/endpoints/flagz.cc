// SPDX-License-Identifier: Apache-2.0
//
// FlagzText of statusz.h.
#include <algorithm>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "agent/config/flag_table.h"
#include "agent/config/go_duration.h"
#include "agent/config/load_config.h"
#include "agent/endpoints/statusz.h"
#include "featuregates/kubelet_features.h"
#include "featuregates/printable.h"

namespace kipt::agent {
namespace {

std::string Given(const std::optional<std::string>& value, absl::string_view fallback) {
  return value ? *value : std::string(fallback);
}
std::string Given(const std::optional<int>& value, int fallback) {
  return absl::StrCat(value.value_or(fallback));
}
std::string Given(const std::optional<bool>& value, bool fallback) {
  return value.value_or(fallback) ? "true" : "false";
}

struct PrinterRow {
  absl::string_view name;
  std::string (*print)(const Flags& flags);
};

constexpr PrinterRow kPrinters[] = {
    {"cni-conf-dir", [](const Flags& flags) { return Given(flags.cni_conf_dir, ""); }},
    {"config", [](const Flags& flags) { return Given(flags.config, kDefaultConfigPath); }},
    {"emulated-version",
     [](const Flags& flags) {
       return Given(flags.emulated_version,
                    featuregates::ToString(featuregates::kDefaultEmulatedVersion));
     }},
    {"feature-gates", [](const Flags& flags) { return absl::StrJoin(flags.feature_gates, ","); }},
    {"healthz-bind-address",
     [](const Flags& flags) { return Given(flags.healthz_bind_address, "127.0.0.1:10270"); }},
    {"hint-policy", [](const Flags& flags) { return Given(flags.hint_policy, "usable"); }},
    {"host-root", [](const Flags& flags) { return Given(flags.host_root, ""); }},
    {"ip-families", [](const Flags& flags) { return Given(flags.ip_families, "auto"); }},
    {"iptables-drop-bit",
     [](const Flags& flags) { return Given(flags.iptables_drop_bit, MarkBits{}.drop); }},
    {"iptables-drop-label",
     [](const Flags& flags) { return Given(flags.iptables_drop_label, ConnLabels{}.drop); }},
    {"iptables-masquerade-bit",
     [](const Flags& flags) {
       return Given(flags.iptables_masquerade_bit, MarkBits{}.masquerade);
     }},
    {"iptables-masquerade-label",
     [](const Flags& flags) {
       return Given(flags.iptables_masquerade_label, ConnLabels{}.masquerade);
     }},
    {"iptables-mode", [](const Flags& flags) { return Given(flags.iptables_mode, "auto"); }},
    {"iptables-sync-period",
     [](const Flags& flags) {
       return FormatGoDuration(flags.iptables_sync_period.value_or(absl::Minutes(1)));
     }},
    {"make-iptables-util-chains",
     [](const Flags& flags) { return Given(flags.make_iptables_util_chains, true); }},
    {"metrics-bind-address",
     [](const Flags& flags) { return Given(flags.metrics_bind_address, "127.0.0.1:10271"); }},
    {"netns", [](const Flags& flags) { return Given(flags.netns, ""); }},
    {"observe", [](const Flags& flags) { return Given(flags.observe, false); }},
    {"output",
     [](const Flags& flags) {
       return std::string(flags.output == OutputFormat::kJson ? "json" : "text");
     }},
    {"stale-chains", [](const Flags& flags) { return Given(flags.stale_chains, "keep"); }},
    {"v", [](const Flags& flags) { return Given(flags.v, 0); }},
    {"vmodule", [](const Flags& flags) { return Given(flags.vmodule, ""); }},
    {"watch", [](const Flags& flags) { return Given(flags.watch, "events"); }},
};

}  // namespace

std::string FlagzText(const Flags& flags) {
  std::string out =
      "kube-iptables-agent flags\n"
      "For people who look for a fault. Not for programs: any release may print it "
      "differently.\n\n";
  for (const FlagRow& row : kFlagTable) {
    const auto* printer =
        std::find_if(std::begin(kPrinters), std::end(kPrinters),
                     [&row](const PrinterRow& one) { return one.name == row.name; });
    if (printer == std::end(kPrinters)) continue;
    featuregates::AppendLine(out, row.name, "=", printer->print(flags));
  }
  return out;
}

}  // namespace kipt::agent
