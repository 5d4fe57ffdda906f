// SPDX-License-Identifier: Apache-2.0
#include "agent/detect/capabilities.h"

#include <algorithm>
#include <map>
#include <optional>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "agent/process/files.h"

namespace kipt::agent {
namespace {

// ---- features of the kernel ----

struct Feature {
  absl::string_view name;
  absl::string_view module;
  absl::string_view symbol;  // ModuleQuery's
  // Needed by this family only.
  std::optional<netlink::Family> family = {};
  // Since this release of Linux it is a part of nf_tables.
  std::pair<int, int> in_nf_tables = {};
};

constexpr netlink::Family k4 = netlink::Family::kIPv4;
constexpr netlink::Family k6 = netlink::Family::kIPv6;

constexpr Feature kFeatures[] = {
    {"nf_tables", "nf_tables", "nft_do_chain"},
    {"xtables in nf_tables", "nft_compat", "nft_match_select_ops"},
    {"nft table nat", "nft_chain_nat", "nft_nat_do_chain"},
    {"nft counter", "nft_counter", "nft_counter_init", {}, {5, 18}},
    {"nft ct", "nft_ct", "nft_ct_get_init"},
    {"nft dnat", "nft_nat", "nft_nat_init"},
    {"nft masquerade", "nft_masq", "nft_masq_init"},
    {"nft numgen", "nft_numgen", "nft_ng_random_init"},
    {"nft fib, IPv4", "nft_fib_ipv4", "nft_fib4_eval", k4},
    {"nft fib, IPv6", "nft_fib_ipv6", "nft_fib6_eval", k6},
    {"nft reject, IPv4", "nft_reject_ipv4", "nft_reject_ipv4_eval", k4},
    {"nft reject, IPv6", "nft_reject_ipv6", "nft_reject_ipv6_eval", k6},

    {"table filter, IPv4", "iptable_filter", "iptable_filter_table_init", k4},
    {"table nat, IPv4", "iptable_nat", "iptable_nat_table_init", k4},
    {"table mangle, IPv4", "iptable_mangle", "iptable_mangle_hook", k4},
    {"table filter, IPv6", "ip6table_filter", "ip6table_filter_table_init", k6},
    {"table nat, IPv6", "ip6table_nat", "ip6table_nat_table_init", k6},
    {"table mangle, IPv6", "ip6table_mangle", "ip6table_mangle_hook", k6},

    {"match addrtype", "xt_addrtype", "addrtype_mt_v1"},
    {"match comment", "xt_comment", "comment_mt"},
    {"match connlabel", "xt_connlabel", "connlabel_mt"},
    {"match conntrack", "xt_conntrack", "conntrack_mt_v3"},
    {"match mark", "xt_mark", "mark_mt"},
    {"match multiport", "xt_multiport", "multiport_mt"},
    {"match nfacct", "xt_nfacct", "nfacct_mt"},
    {"match physdev", "xt_physdev", "physdev_mt"},
    {"match recent", "xt_recent", "recent_mt"},
    {"match sctp", "xt_sctp", "sctp_mt"},
    {"match set", "xt_set", "set_match_v4"},
    {"match statistic", "xt_statistic", "statistic_mt"},
    {"match tcp", "xt_tcpudp", "tcp_mt"},
    {"target DNAT", "xt_nat", "xt_dnat_target_v2"},
    {"target MARK", "xt_mark", "mark_tg"},
    {"target MASQUERADE", "xt_MASQUERADE", "masquerade_tg"},
    {"target REJECT, IPv4", "ipt_REJECT", "reject_tg", k4},
    {"target REJECT, IPv6", "ip6t_REJECT", "reject_tg6", k6},

    {"conntrack netlink", "nf_conntrack_netlink", "ctnetlink_new_conntrack"},
    {"nfacct counters", "nfnetlink_acct", "nfnl_acct_find_get"},
    {"interface kind dummy", "dummy", "dummy_xmit"},
    {"IPVS", "ip_vs", "ip_vs_conn_new"},
    {"IPVS scheduler rr", "ip_vs_rr", "ip_vs_rr_schedule"},
    {"IPVS scheduler sh", "ip_vs_sh", "ip_vs_sh_schedule"},
    {"IPVS scheduler wrr", "ip_vs_wrr", "ip_vs_wrr_schedule"},
    {"set bitmap:port", "ip_set_bitmap_port", "bitmap_port_create"},
    {"set hash:ip", "ip_set_hash_ip", "hash_ip4_uadt"},
    {"set hash:ip,port", "ip_set_hash_ipport", "hash_ipport4_uadt"},
    {"set hash:ip,port,ip", "ip_set_hash_ipportip", "hash_ipportip4_kadt"},
    {"set hash:ip,port,net", "ip_set_hash_ipportnet", "hash_ipportnet4_kadt"},
};

// Null: it is decided otherwise than by a module.
const Feature* FindFeature(absl::string_view name) {
  const auto* const found =
      absl::c_find_if(kFeatures, [&](const Feature& one) { return one.name == name; });
  return found == std::end(kFeatures) ? nullptr : found;
}

// Decided otherwise than by a module.
constexpr absl::string_view kIptables = "iptables";
constexpr absl::string_view kLinux513 = "Linux 5.13";

// ---- which software needs which ----

enum class Kind : uint8_t {
  kNeeded,
  kOptional,        // the software works without it
  kWithNfacctOnly,  // needed where there are nfacct counters
};

struct Need {
  absl::string_view software;
  absl::string_view since;  // release of the software; empty: always
  absl::string_view until;  // the last release that needs it
  absl::string_view feature;
  absl::string_view why;
  Kind kind = Kind::kNeeded;
  absl::string_view finding = "";  // what happens where it is missing
};

constexpr absl::string_view kNft = "iptables-nft";
constexpr absl::string_view kLegacy = "iptables-legacy";
constexpr absl::string_view kKubelet = "kubelet";
constexpr absl::string_view kProxy = "kube-proxy-iptables";
constexpr absl::string_view kIpvs = "kube-proxy-ipvs";
constexpr absl::string_view kProxyNft = "kube-proxy-nftables";
constexpr absl::string_view kPortmap = "portmap";
constexpr absl::string_view kPortmapNft = "portmap-nftables";
constexpr absl::string_view kAgent = "kube-iptables-agent";

// The rows of one software are together, and iptables' before those of its users.
constexpr Need kNeeds[] = {
    {kNft, "", "", "nf_tables", "tables and chains"},
    {kNft, "", "", "xtables in nf_tables", "every rule with a match or target of iptables"},
    {kNft, "", "", "nft table nat", "chains of table nat"},
    {kNft, "", "", "nft counter", "the counters of every rule"},

    {kLegacy, "", "", "table filter, IPv4", "table filter"},
    {kLegacy, "", "", "table nat, IPv4", "table nat"},
    {kLegacy, "", "", "table mangle, IPv4", "table mangle, and the hint"},
    {kLegacy, "", "", "table filter, IPv6", "table filter"},
    {kLegacy, "", "", "table nat, IPv6", "table nat"},
    {kLegacy, "", "", "table mangle, IPv6", "table mangle, and the hint"},

    {kKubelet, "", "", kIptables, "chains and rules"},
    {kKubelet, "", "", "match comment", "the rule for martian packets"},
    {kKubelet, "", "", "match conntrack", "the rule for martian packets"},
    {kKubelet, "", "1.27", "match mark", "IPTablesOwnershipCleanup off: both marks"},
    {kKubelet, "", "1.27", "target MARK", "IPTablesOwnershipCleanup off: both marks"},
    {kKubelet, "", "1.27", "target MASQUERADE", "IPTablesOwnershipCleanup off: KUBE-POSTROUTING"},

    {kProxy, "", "", kIptables, "chains and rules"},
    {kProxy, "", "", "match comment", "every rule"},
    {kProxy, "", "", "match conntrack", "invalid packets, services without endpoints"},
    {kProxy, "", "", "match addrtype", "node ports"},
    {kProxy, "", "", "match mark", "what is to be masqueraded"},
    {kProxy, "", "", "target MARK", "what is to be masqueraded"},
    {kProxy, "", "", "target MASQUERADE", "what is to be masqueraded"},
    {kProxy, "", "", "target DNAT", "endpoints"},
    {kProxy, "", "", "target REJECT, IPv4", "services without endpoints"},
    {kProxy, "", "", "target REJECT, IPv6", "services without endpoints"},
    {kProxy, "", "", "match tcp", "services' ports, TCP and UDP"},
    {kProxy, "", "", "match sctp", "services' ports, SCTP", Kind::kOptional},
    {kProxy, "", "", "match statistic", "services with several endpoints"},
    {kProxy, "", "", "match recent", "services with session affinity"},
    {kProxy, "", "1.20", "match physdev", "external addresses"},
    {kProxy, "", "", "conntrack netlink", "forgetting UDP flows to endpoints that are gone"},
    {kProxy, "1.31", "", "nfacct counters", "two metrics", Kind::kOptional},
    {kProxy, "1.31", "", "match nfacct", "two metrics", Kind::kWithNfacctOnly,
     "every sync fails: the kernel counts (nfnetlink_acct), so kube-proxy writes rules with the "
     "match "
     "nfacct, which iptables-restore refuses with all others (kubernetes #142068)"},

    {kIpvs, "", "1.42", kIptables, "chains and rules"},
    {kIpvs, "", "1.42", "IPVS", "services"},
    {kIpvs, "", "1.42", "IPVS scheduler rr", "the default scheduler"},
    {kIpvs, "", "1.26", "IPVS scheduler wrr", "kube-proxy checks for it at its start"},
    {kIpvs, "", "1.26", "IPVS scheduler sh", "kube-proxy checks for it at its start"},
    {kIpvs, "", "1.42", "interface kind dummy", "kube-ipvs0, which has the services' addresses"},
    {kIpvs, "", "1.42", "match set", "which packets are to services"},
    {kIpvs, "", "1.42", "set hash:ip,port", "addresses of services"},
    {kIpvs, "", "1.42", "set hash:ip,port,ip", "hairpin, source ranges"},
    {kIpvs, "", "1.42", "set hash:ip,port,net", "source ranges"},
    {kIpvs, "", "1.42", "set bitmap:port", "node ports"},
    {kIpvs, "", "1.42", "set hash:ip", "KUBE-IPVS-IPS, which 1.28 has"},
    {kIpvs, "", "1.42", "target REJECT, IPv4", "services' addresses, on other ports"},
    {kIpvs, "", "1.42", "target REJECT, IPv6", "services' addresses, on other ports"},
    {kIpvs, "", "1.42", "match comment", "every rule"},
    {kIpvs, "", "1.42", "match conntrack", "KUBE-FORWARD"},
    {kIpvs, "", "1.42", "match addrtype", "node ports"},
    {kIpvs, "", "1.42", "match mark", "what is to be masqueraded"},
    {kIpvs, "", "1.42", "target MARK", "what is to be masqueraded"},
    {kIpvs, "", "1.42", "target MASQUERADE", "what is to be masqueraded"},
    {kIpvs, "", "1.42", "conntrack netlink", "forgetting UDP flows to endpoints that are gone"},

    {kProxyNft, "1.33", "", kLinux513, "an nft of the host that can read kube-proxy's table",
     Kind::kNeeded,
     "kube-proxy ends at its start, unless KUBE_PROXY_NFTABLES_SKIP_KERNEL_VERSION_CHECK is set"},
    {kProxyNft, "1.29", "", "nf_tables", "tables, chains, sets and maps"},
    {kProxyNft, "1.29", "", "nft table nat", "chains of type nat"},
    {kProxyNft, "1.29", "", "nft ct", "new connections only"},
    {kProxyNft, "1.29", "", "nft dnat", "endpoints"},
    {kProxyNft, "1.29", "", "nft masquerade", "what is to be masqueraded"},
    {kProxyNft, "1.29", "", "nft numgen", "which endpoint"},
    {kProxyNft, "1.29", "", "nft fib, IPv4", "external traffic policy Local"},
    {kProxyNft, "1.29", "", "nft fib, IPv6", "external traffic policy Local"},
    {kProxyNft, "1.29", "", "nft reject, IPv4", "services without endpoints"},
    {kProxyNft, "1.29", "", "nft reject, IPv6", "services without endpoints"},
    {kProxyNft, "1.29", "", "conntrack netlink", "forgetting UDP flows to endpoints that are gone"},

    {kPortmap, "", "", kIptables, "chains and rules"},
    {kPortmap, "", "", "match comment", "the container's name"},
    {kPortmap, "", "", "match addrtype", "the node's addresses"},
    {kPortmap, "", "", "match multiport", "host ports"},
    {kPortmap, "", "", "match tcp", "host ports, TCP and UDP"},
    {kPortmap, "", "", "match mark", "what is to be masqueraded"},
    {kPortmap, "", "", "target MARK", "what is to be masqueraded"},
    {kPortmap, "", "", "target MASQUERADE", "what is to be masqueraded"},
    {kPortmap, "", "", "target DNAT", "host ports"},

    {kPortmapNft, "1.6", "", "nf_tables", "tables and chains"},
    {kPortmapNft, "1.6", "", "nft table nat", "chains of type nat"},
    {kPortmapNft, "1.6", "", "nft dnat", "host ports"},
    {kPortmapNft, "1.6", "", "nft masquerade", "hairpin, and clients on the node"},
    {kPortmapNft, "1.6", "", "nft fib, IPv4", "the node's addresses"},
    {kPortmapNft, "1.6", "", "nft fib, IPv6", "the node's addresses"},

    {kAgent, "", "", kIptables, "chains and rules"},
    {kAgent, "", "", "match comment", "the rule for martian packets"},
    {kAgent, "", "", "match conntrack", "the rule for martian packets"},
    {kAgent, "", "", "match mark", "IPTablesOwnershipCleanup off: both marks"},
    {kAgent, "", "", "target MARK", "IPTablesOwnershipCleanup off: both marks"},
    {kAgent, "", "", "target MASQUERADE", "IPTablesOwnershipCleanup off: KUBE-POSTROUTING"},
    {kAgent, "", "", "match connlabel", "ConnLabelMarking on: both labels", Kind::kOptional},
};

// ---- reading ----

// "6.1.0-50-amd64": {6, 1}. None: not such a text.
std::optional<std::pair<int, int>> LinuxRelease(absl::string_view text) {
  const std::vector<absl::string_view> parts = absl::StrSplit(text, absl::MaxSplits('.', 2));
  if (parts.size() < 2) return std::nullopt;
  const absl::string_view minor = parts[1].substr(0, parts[1].find_first_not_of("0123456789"));
  std::pair<int, int> release;
  if (!absl::SimpleAtoi(parts[0], &release.first)) return std::nullopt;
  if (!absl::SimpleAtoi(minor, &release.second)) return std::nullopt;
  return release;
}

// xtables' own lists of what is registered, which root can read where iptables-legacy is in use.
// That a name is missing shows nothing.
bool IsRegistered(const KernelPaths& paths, const Feature& feature) {
  absl::string_view name = feature.name.substr(0, feature.name.find(','));
  const bool match = absl::ConsumePrefix(&name, "match ");
  if (!match && !absl::ConsumePrefix(&name, "target ")) return false;
  const std::string path =
      absl::StrCat(paths.proc, "/thread-self/net/", feature.family == k6 ? "ip6" : "ip", "_tables_",
                   match ? "matches" : "targets");
  const std::string text = ReadFile(path).value_or("");
  const std::vector<absl::string_view> lines = absl::StrSplit(text, '\n');
  return absl::c_linear_search(lines, name);
}

// By the software that is asked for, or by iptables, which that may use.
bool IsAsked(const Need& need, absl::string_view only) {
  return only == "all" || need.software == only || need.software == kNft ||
         need.software == kLegacy;
}

using Readings = std::map<absl::string_view, ModuleReading>;

Readings ReadFeatures(const KernelPaths& paths, std::optional<std::pair<int, int>> linux_release,
                      absl::string_view only) {
  std::vector<const Feature*> features;
  std::vector<ModuleQuery> queries;
  for (const Feature& feature : kFeatures) {
    if (!absl::c_any_of(kNeeds, [&](const Need& need) {
          return need.feature == feature.name && IsAsked(need, only);
        })) {
      continue;
    }
    features.push_back(&feature);
    const bool part = feature.in_nf_tables != std::pair<int, int>() && linux_release &&
                      *linux_release >= feature.in_nf_tables;
    queries.push_back(part ? ModuleQuery{kFeatures[0].module, kFeatures[0].symbol}
                           : ModuleQuery{feature.module, feature.symbol});
  }
  std::vector<ModuleReading> modules = ReadModules(paths, queries);
  Readings readings;
  for (size_t i = 0; i < modules.size(); ++i) {
    if (modules[i].state != ModuleState::kPresent && IsRegistered(paths, *features[i])) {
      modules[i] = {ModuleState::kPresent, absl::StrCat(features[i]->module, " is registered")};
    }
    readings[features[i]->name] = std::move(modules[i]);
  }
  return readings;
}

ModuleReading ReadLinux513(const std::string& kernel,
                           std::optional<std::pair<int, int>> linux_release) {
  if (!linux_release) return {ModuleState::kUnknown, "the kernel's release cannot be read"};
  const bool enough = *linux_release >= std::pair(5, 13);
  return {enough ? ModuleState::kPresent : ModuleState::kMissing, absl::StrCat("this is ", kernel)};
}

// ---- judging ----

// The worse, the higher.
int Rank(ModuleState state) {
  constexpr ModuleState kRanks[] = {ModuleState::kPresent, ModuleState::kLoadable,
                                    ModuleState::kUnknown, ModuleState::kMissing};
  return static_cast<int>(absl::c_find(kRanks, state) - std::begin(kRanks));
}

bool IsUsable(ModuleState state) {
  return state == ModuleState::kPresent || state == ModuleState::kLoadable;
}

bool IsNeeded(const Need& need, const Readings& readings) {
  return need.kind == Kind::kNeeded ||
         (need.kind == Kind::kWithNfacctOnly && IsUsable(readings.at("nfacct counters").state));
}

void Add(const Need& need, const Readings& readings, SoftwareCapabilities& software) {
  const ModuleReading& reading = readings.at(need.feature);
  const Feature* feature = FindFeature(need.feature);
  software.capabilities.push_back({.feature = need.feature,
                                   .module = feature == nullptr ? "" : feature->module,
                                   .family = feature == nullptr ? std::nullopt : feature->family,
                                   .since = need.since,
                                   .until = need.until,
                                   .why = need.why,
                                   .needed = IsNeeded(need, readings),
                                   .state = reading.state,
                                   .reason = reading.reason});
  if (!software.capabilities.back().needed) return;
  software.state = std::max(software.state, reading.state,
                            [](ModuleState a, ModuleState b) { return Rank(a) < Rank(b); });
  if (reading.state != ModuleState::kMissing || need.finding.empty()) return;
  software.findings.push_back(absl::StrCat("from ", need.since, " on, ", need.finding));
}

bool IsLeftOut(absl::string_view name, absl::Span<const netlink::Family> families) {
  const Feature* feature = FindFeature(name);
  return feature != nullptr && feature->family &&
         !absl::c_linear_search(families, *feature->family);
}

}  // namespace

CapabilityReport ReadCapabilities(const KernelPaths& paths,
                                  absl::Span<const netlink::Family> families,
                                  absl::string_view only) {
  CapabilityReport report = {.kernel = ReadFile(paths.proc + "/sys/kernel/osrelease").value_or("")};
  absl::StripTrailingAsciiWhitespace(&report.kernel);
  const auto linux_release = LinuxRelease(report.kernel);
  Readings readings = ReadFeatures(paths, linux_release, only);
  readings[kLinux513] = ReadLinux513(report.kernel, linux_release);
  for (const Need& need : kNeeds) {
    if (!IsAsked(need, only) || IsLeftOut(need.feature, families)) continue;
    if (report.software.empty() || report.software.back().software != need.software) {
      report.software.push_back({.software = need.software});
    }
    if (need.feature == kIptables && !readings.contains(kIptables)) {
      const ModuleState nft = report.software[0].state;
      const ModuleState legacy = report.software[1].state;
      readings[kIptables] = {Rank(nft) < Rank(legacy) ? nft : legacy,
                             absl::StrCat("iptables-nft: ", CapabilityStateName(nft),
                                          "; iptables-legacy: ", CapabilityStateName(legacy))};
    }
    Add(need, readings, report.software.back());
  }
  std::erase_if(report.software, [&](const SoftwareCapabilities& one) {
    return only != "all" && one.software != only;
  });
  return report;
}

ModuleState FeatureState(const KernelPaths& paths, absl::string_view name) {
  const Feature* feature = FindFeature(name);
  return feature == nullptr ? ModuleState::kUnknown
                            : FindModule(paths, feature->module, feature->symbol);
}

absl::string_view CapabilityStateName(ModuleState state) {
  constexpr absl::string_view kNames[] = {"present", "loadable", "unknown", "missing"};
  return kNames[Rank(state)];
}

}  // namespace kipt::agent
