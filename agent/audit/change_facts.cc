// SPDX-License-Identifier: Apache-2.0
//
// What a change depends on beyond rules: kernel, modules, counters, IPVS, files of the host. Files
// and netlink only; nothing is run and no module is loaded.
#include <linux/netfilter/nfnetlink.h>
#include <linux/netfilter/nfnetlink_acct.h>
#include <sys/socket.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <array>
#include <cstddef>
#include <memory>
#include <set>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "absl/time/clock.h"
#include "agent/audit/audit_parts.h"
#include "agent/process/files.h"
#include "agent/xtables/xtables_lock.h"
#include "netlink/attributes.h"
#include "netlink/socket.h"

namespace kipt::agent {
namespace {

// ---- the kernel ----

struct ModuleRow {
  absl::string_view module;
  absl::string_view symbol;  // as for FindModule
};
// By the expressions in kube-proxy's rules, nftables mode of 1.31 to 1.36.
constexpr ModuleRow kNftablesNeeds[] = {
    {"nf_tables", "nft_do_chain"},     {"nft_chain_nat", "nft_nat_do_chain"},
    {"nft_ct", "nft_ct_get_eval"},     {"nft_fib_ipv4", "nft_fib4_eval"},
    {"nft_masq", "nft_masq_init"},     {"nft_nat", "nft_nat_eval"},
    {"nft_reject", "nft_reject_init"}, {"nft_numgen", "nft_ng_random_eval"},
};

bool IsMissing(const ModeSources& sources, const ModuleRow& row) {
  return FindModule(sources.kernel, row.module, row.symbol) == ModuleState::kMissing;
}

void ReadKernel(const ModeSources& sources, ChangeFacts& facts) {
  utsname name = {};
  if (uname(&name) == 0) facts.kernel = name.release;
  for (const ModuleRow& row : kNftablesNeeds) {
    if (IsMissing(sources, row)) facts.missing.emplace_back(row.module);
  }
}

// nfnetlink_acct's. Not asked where that would load it.
void ReadCounters(const ModeSources& sources, ChangeFacts& facts) {
  const ModuleState state = FindModule(sources.kernel, "nfnetlink_acct", "nfnl_acct_new");
  if (state != ModuleState::kPresent && state != ModuleState::kNothingToLoad) return;
  const auto socket = netlink::Socket::Open();
  if (!socket.ok()) return;
  netlink::Messages request((*socket)->ReserveSequences(1));
  request.Begin(NFNL_SUBSYS_ACCT << 8 | NFNL_MSG_ACCT_GET, AF_UNSPEC, NLM_F_DUMP);
  const absl::Status asked = (*socket)->Ask(request, [&](const netlink::Reply& reply) {
    if (reply.message == nullptr) return;
    const auto counter = netlink::Attributes::OfMessage(netlink::MessageBytes(reply.message));
    const auto name = counter.Text(NFACCT_NAME);
    const auto packets = counter.U64(NFACCT_PKTS);
    if (name && packets) facts.counters[*name] = *packets;
  });
  // Half of the counters prove nothing.
  if (!asked.ok()) facts.counters.clear();
}

// ---- IPVS ----

void ReadIpvs(const ModeSources& sources, ChangeFacts& facts) {
  const ModuleState state = FindModule(sources.kernel, "ip_vs", "ip_vs_in_hook");
  facts.has_ip_vs = state == ModuleState::kPresent || state == ModuleState::kLoadable;
  const std::string& proc = sources.kernel.proc;
  facts.ipvs_device = access((proc + "/sys/net/ipv4/conf/kube-ipvs0").c_str(), F_OK) == 0;
  // 10,000 services of five endpoints have 4 MB.
  const auto services = ReadFile(proc + "/thread-self/net/ip_vs", size_t{64} << 20);
  for (const absl::string_view line : absl::StrSplit(services.value_or(""), '\n')) {
    // "TCP  0A600001:0050 rr ", "FWM  00000001 wlc"; then "  -> " of each endpoint.
    const std::vector<absl::string_view> words = absl::StrSplit(line, ' ', absl::SkipEmpty());
    constexpr absl::string_view kProtocols[] = {"TCP", "UDP", "SCTP", "FWM"};
    if (words.size() > 2 && absl::c_linear_search(kProtocols, words[0])) {
      ++facts.ipvs_schedulers[std::string(words[2])];
    }
  }
}

// ---- files of the host ----

// "1.0.6"; the only text of such a form in the program's constants.
bool IsVersion(absl::string_view text) {
  const std::vector<absl::string_view> numbers = absl::StrSplit(text, '.');
  return numbers.size() >= 2 && numbers.size() <= 4 &&
         absl::c_all_of(numbers, [](absl::string_view number) {
           return !number.empty() && number.size() < 4 &&
                  absl::c_all_of(number, [](unsigned char c) { return absl::ascii_isdigit(c); });
         });
}

void ReadNftVersion(const NodeFiles& node, ChangeFacts& facts) {
  for (const char* const path : {"/usr/local/sbin/nft", "/usr/local/bin/nft", "/usr/sbin/nft",
                                 "/usr/bin/nft", "/sbin/nft"}) {
    const absl::StatusOr<std::string> program = node.Read(path, size_t{16} << 20);
    if (!program.ok()) continue;
    facts.nft_path = node.Shown(path);
    for (const absl::string_view text : absl::StrSplit(*program, '\0')) {
      if (IsVersion(text)) facts.nft_version = std::string(text);
      if (!facts.nft_version.empty()) return;
    }
    return;
  }
}

// What netfilter-persistent, Red Hat's iptables-services, nftables.service, ufw, firewalld and
// ifupdown load at boot.
constexpr const char* kSavedRules[] = {
    "/etc/iptables/rules.v4", "/etc/iptables/rules.v6",       "/etc/iptables.rules",
    "/etc/iptables.up.rules", "/etc/sysconfig/iptables",      "/etc/sysconfig/ip6tables",
    "/etc/nftables.conf",     "/etc/sysconfig/nftables.conf", "/etc/ufw/before.rules",
    "/etc/ufw/after.rules",   "/etc/ufw/before6.rules",       "/etc/ufw/after6.rules",
    "/etc/ufw/user.rules",    "/etc/ufw/user6.rules",         "/etc/firewalld/direct.xml",
};

// The chain after -j or -g; empty where that is none of Kubernetes'.
absl::string_view SavedJump(absl::string_view line) {
  for (const absl::string_view option : {"-j KUBE-", "-g KUBE-", "jump KUBE-", "goto KUBE-"}) {
    const size_t at = line.find(option);
    if (at == absl::string_view::npos) continue;
    line.remove_prefix(line.find("KUBE-", at));
    return line.substr(0, line.find_first_of(" \t<;}\""));
  }
  return "";
}

SavedRules ReadSaved(const std::string& file, absl::string_view text) {
  SavedRules saved = {.file = file};
  std::set<absl::string_view> declared;
  std::set<absl::string_view> used;
  size_t number = 0;
  for (const absl::string_view whole : absl::StrSplit(text, '\n')) {
    ++number;
    absl::string_view line = absl::StripAsciiWhitespace(whole);
    if (!absl::StrContains(line, "KUBE-") || absl::StartsWith(line, "#") ||
        absl::StartsWith(line, "<!--")) {
      continue;
    }
    if (++saved.count <= kMostExamples) {
      // A file may be a single line.
      saved.lines.push_back(absl::StrCat(number, ": ", line.substr(0, 200)));
    }
    if (absl::ConsumePrefix(&line, ":") || absl::ConsumePrefix(&line, "chain ")) {
      declared.insert(line.substr(0, line.find(' ')));
    } else if (const absl::string_view chain = SavedJump(line); !chain.empty()) {
      used.insert(chain);
    }
  }
  saved.undeclared = !absl::c_includes(declared, used);
  return saved;
}

void ReadSavedRules(const NodeFiles& node, NodeView& view) {
  for (const char* const path : kSavedRules) {
    const absl::StatusOr<std::string> text = node.Read(path, size_t{64} << 20);
    if (text.ok()) {
      SavedRules saved = ReadSaved(node.Shown(path), *text);
      if (saved.count != 0) view.facts.saved.push_back(std::move(saved));
    } else if (!absl::IsNotFound(text.status())) {
      view.problems.push_back(absl::StrCat("saved rules: ", text.status().message()));
    }
  }
}

// ---- kubelet's probe ----

// How long a program may hold the lock without being a finding.
constexpr absl::Duration kShortHold = absl::Seconds(2);

void ReadProbe(const ModeSources& sources, NodeView& view) {
  const auto has = [&](absl::string_view mode) {
    return absl::c_any_of(view.surveys, [&](const auto& survey) { return survey.mode == mode; });
  };
  constexpr ModuleRow kLegacyNat = {"ip6table_nat", "ip6table_nat_table_init"};
  const ModuleRow& nat = has("legacy") && !has("nft") ? kLegacyNat : kNftablesNeeds[1];
  if (!view.surveys.empty() && IsMissing(sources, nat)) {
    view.facts.no_nat = std::string(nat.module);
  }
  // iptables-nft takes no lock.
  if (!has("legacy")) return;
  const std::string path =
      NodeFiles(sources.host_root.directory).Shown(IptablesLegacyOptions().lock_path);
  const auto holder = [&] { return DescribeXtablesLockHolder(path); };
  const std::string first = holder();
  if (!absl::StartsWith(first, "held by ")) return;
  absl::SleepFor(kShortHold);
  if (holder() == first) view.facts.lock_holder = absl::StrCat(path, ": ", first);
}

}  // namespace

void GatherChangeFacts(const ModeSources& sources, NodeChange change, NodeView& view) {
  ReadProbe(sources, view);
  if (change == NodeChange::kOwnershipCleanup) return;
  if (const NodeFiles node(sources.host_root.directory); !sources.host_root.directory.empty()) {
    ReadSavedRules(node, view);
    if (change == NodeChange::kKubeProxyNftables) ReadNftVersion(node, view.facts);
  }
  if (change == NodeChange::kIptablesNft) {
    if (!sources.xt_compat) return;
    XtCompatReading reading = sources.xt_compat(KernelSymbols::kRead);
    if (reading.compat == XtCompat::kAbsent) view.facts.no_nft_compat = std::move(reading.reason);
    return;
  }
  ReadIpvs(sources, view.facts);
  if (change != NodeChange::kKubeProxyNftables) return;
  ReadKernel(sources, view.facts);
  ReadCounters(sources, view.facts);
}

}  // namespace kipt::agent
