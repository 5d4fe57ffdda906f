// SPDX-License-Identifier: Apache-2.0
#include "agent/audit/change_facts.h"

#include <linux/netfilter/nfnetlink.h>
#include <linux/netfilter/nfnetlink_acct.h>
#include <sys/socket.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <cstddef>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "agent/detect/capabilities.h"
#include "agent/process/files.h"
#include "agent/xtables/iptables_legacy_programs.h"
#include "agent/xtables/xtables_lock.h"
#include "netlink/attributes.h"
#include "netlink/socket.h"

namespace kipt::agent {
namespace {

// ---- the kernel ----

void ReadKernel(const ModeSources& sources, ChangeFacts& facts) {
  utsname name = {};
  if (uname(&name) == 0) facts.kernel = name.release;
  const CapabilityReport report =
      ReadCapabilities(sources.kernel, netlink::kFamilies, "kube-proxy-nftables");
  for (const SoftwareCapabilities& software : report.software) {
    for (const Capability& one : software.capabilities) {
      // The other modes need conntrack's netlink, too. `kernel` has the Linux release.
      const bool changes = one.feature != "conntrack netlink" && !one.module.empty();
      if (changes && one.state == ModuleState::kMissing) facts.missing.push_back(one);
    }
  }
}

// nfnetlink_acct's. Not asked where that would load it.
void ReadCounters(const ModeSources& sources, NodeView& view) {
  const ModuleState state = FeatureState(sources.kernel, "nfacct counters");
  if (state != ModuleState::kPresent && state != ModuleState::kNothingToLoad) return;
  const auto socket = netlink::Socket::Open();
  if (!socket.ok()) return AddProblem(view, "nfacct counters", socket.status());
  netlink::Requests request((*socket)->ReserveSequences(1));
  request.Begin(NFNL_SUBSYS_ACCT << 8 | NFNL_MSG_ACCT_GET, AF_UNSPEC, NLM_F_DUMP);
  const absl::Status asked = (*socket)->Ask(request, [&](const netlink::Reply& reply) {
    if (reply.message == nullptr) return;
    const auto counter = netlink::Attributes::OfMessage(netlink::MessageBytes(reply.message));
    const auto name = counter.Text(NFACCT_NAME);
    const auto packets = counter.U64(NFACCT_PKTS);
    if (name && packets) view.facts.counters[*name] = *packets;
  });
  if (asked.ok()) return;
  // Half of the counters prove nothing.
  view.facts.counters.clear();
  AddProblem(view, "nfacct counters", asked);
}

// ---- IPVS ----

void ReadIpvs(const ModeSources& sources, NodeView& view) {
  ChangeFacts& facts = view.facts;
  const ModuleState state = FeatureState(sources.kernel, "IPVS");
  facts.has_ip_vs = state == ModuleState::kPresent || state == ModuleState::kLoadable;
  const std::string& proc = sources.kernel.proc;
  facts.ipvs_device = access((proc + "/sys/net/ipv4/conf/kube-ipvs0").c_str(), F_OK) == 0;
  // 10,000 services of five endpoints have 4 MB.
  const auto services = ReadProcNetFile(proc + "/thread-self/net/ip_vs", size_t{64} << 20);
  if (!services.ok() && !absl::IsNotFound(services.status())) {
    AddProblem(view, "IPVS", services.status());
  }
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

void ReadNftVersion(const NodeFiles& node, NodeView& view) {
  ChangeFacts& facts = view.facts;
  for (const char* const path : {"/usr/local/sbin/nft", "/usr/local/bin/nft", "/usr/sbin/nft",
                                 "/usr/bin/nft", "/sbin/nft"}) {
    const absl::StatusOr<std::string> program = node.Read(path, size_t{16} << 20);
    if (!program.ok() && !absl::IsNotFound(program.status())) {
      AddProblem(view, "the version of nft", program.status());
    }
    if (!program.ok()) continue;
    facts.nft_path = node.Shown(path);
    for (const absl::string_view text : absl::StrSplit(*program, '\0')) {
      if (IsVersion(text)) facts.nft_version = std::string(text);
      if (!facts.nft_version.empty()) return;
    }
    return;
  }
}

// ---- kubelet's probe ----

// How long a program may hold the lock without being a finding.
constexpr absl::Duration kShortHold = absl::Seconds(2);

void ReadProbe(const ModeSources& sources, NodeView& view) {
  const auto has = [&](absl::string_view mode) {
    return absl::c_any_of(view.surveys, [&](const auto& survey) { return survey.mode == mode; });
  };
  const absl::string_view nat = has("legacy") && !has("nft") ? "table nat, IPv6" : "nft table nat";
  if (!view.surveys.empty() && FeatureState(sources.kernel, nat) == ModuleState::kMissing) {
    view.facts.no_nat = std::string(nat);
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

void GatherChangeFacts(const ModeSources& sources, absl::Span<const NodeChange> changes,
                       NodeView& view) {
  const auto any = [&](NodeChange change) { return absl::c_linear_search(changes, change); };
  const bool nftables = any(NodeChange::kKubeProxyNftables);
  const bool ipvs = any(NodeChange::kKubeProxyIpvsRemoval);
  const bool iptables_nft = any(NodeChange::kIptablesNft);
  ReadProbe(sources, view);
  if (const NodeFiles node(sources.host_root.directory); !sources.host_root.directory.empty()) {
    ReadBootRules(node, view);
    if (nftables) ReadNftVersion(node, view);
  }
  if (iptables_nft && sources.xt_compat) {
    XtCompatReading reading = sources.xt_compat(KernelSymbols::kRead);
    if (reading.compat == XtCompat::kAbsent) view.facts.no_nft_compat = std::move(reading.reason);
  }
  if (nftables || ipvs) ReadIpvs(sources, view);
  if (!nftables) return;
  ReadKernel(sources, view.facts);
  ReadCounters(sources, view);
}

}  // namespace kipt::agent
