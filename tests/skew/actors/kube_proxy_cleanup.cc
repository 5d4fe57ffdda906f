// SPDX-License-Identifier: Apache-2.0
//
// `kube-proxy --cleanup`, as captured from 1.31 on. Source: CleanupLeftovers() in Kubernetes'
// pkg/proxy/iptables/proxier.go, ipvs/proxier.go and nftables/proxier.go. Not acted: ipset, IPVS in
// the kernel, and userspace mode (up to 1.25), whose chains no node here has. Up to 1.20 the node
// is one that can use IPVS: elsewhere the part for IPVS fails before it begins.
#include <sys/prctl.h>

#include <algorithm>
#include <array>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "tests/skew/actors/actors.h"
#include "tests/skew/actors/iptables_calls.h"
#include "tests/skew/kube_proxy/proxy_rules.h"
#include "tests/skew/kube_proxy/rule_parts.h"

namespace kipt::skew {
namespace {

// The calling process is called `name` for as long as this object lives, because the agent reads
// the name of the process whose iptables writes. Only the main thread's name is the process' name.
class ProcessName {
 public:
  explicit ProcessName(const char* name) {
    prctl(PR_GET_NAME, own_.data());
    prctl(PR_SET_NAME, name);
  }
  ~ProcessName() { prctl(PR_SET_NAME, own_.data()); }
  ProcessName(const ProcessName&) = delete;
  ProcessName& operator=(const ProcessName&) = delete;

 private:
  // The kernel's TASK_COMM_LEN.
  std::array<char, 16> own_ = {};
};

using testing::IpFamily;
using testing::ProgramResult;
using Arguments = std::vector<std::string>;

// iptables' answers for a missing rule, and for a missing chain.
constexpr int kNoRule = 1;
constexpr int kNoChain = 2;
constexpr char kNoChainMessage[] = "No chain/target/match by that name";

class Cleanup {
 public:
  Cleanup(const ProxyActorSettings& settings, IpFamily family, Act& act)
      : version_(settings.version.version),
        iptables_(settings.iptables.Of(family)),
        rules_{.version = version_, .family = family},
        wait_(testing::WaitFlags(Does(version_, Trait::kProxySleepFlag))),
        notes_(family, act) {}

  void CleanUp() {
    if (rules_.family == IpFamily::kIpv6 && !Does(version_, Trait::kCleanupOfIpv6)) return;
    Call({"--version"});
    if (Does(version_, Trait::kCleanupProbes) && Waiting({"-S", "POSTROUTING", "-t", "nat"}) != 0) {
      return notes_.Done("skipped: -S POSTROUTING -t nat failed");
    }
    for (const ProxyJump& jump : Jumps()) Delete(jump);
    const bool more = Does(version_, Trait::kCleanupOfMarkMasq);
    Arguments nat = {"KUBE-SERVICES", "KUBE-NODEPORTS", "KUBE-POSTROUTING"};
    if (more) nat.insert(nat.end(), {"KUBE-MARK-MASQ", "KUBE-PROXY-CANARY"});
    DeleteChains("nat", nat);
    Arguments filter = {"KUBE-SERVICES", "KUBE-EXTERNAL-SERVICES", "KUBE-FORWARD",
                        "KUBE-NODEPORTS"};
    if (more) filter.insert(filter.end(), {"KUBE-PROXY-FIREWALL", "KUBE-PROXY-CANARY"});
    DeleteChains("filter", filter);
    if (more) {
      Waiting({"-X", "KUBE-PROXY-CANARY", "-t", "mangle"});
    } else {
      IpvsPart();
    }
  }

 private:
  std::vector<ProxyJump> Jumps() const {
    std::vector<ProxyJump> jumps = JumpsOf(rules_);
    std::erase_if(jumps, [&](const ProxyJump& jump) {
      // No version names KUBE-FIREWALL.
      return jump.chain == "KUBE-FIREWALL" ||
             (jump.chain == "KUBE-POSTROUTING" && Does(version_, Trait::kCleanupFails));
    });
    if (Does(version_, Trait::kCleanupOfOldInput)) {
      const ProxySettings before = {.version = {1, 19}, .family = rules_.family};
      for (const ProxyJump& jump : JumpsOf(before)) {
        if (jump.base_chain == "INPUT" && jump.chain == "KUBE-SERVICES") jumps.push_back(jump);
      }
    }
    return jumps;
  }

  ProgramResult Run(const Arguments& arguments) {
    ProgramResult result = iptables_.Run(arguments);
    notes_.Called(iptables_, arguments, result);
    return result;
  }
  int Call(const Arguments& arguments) { return Run(arguments).exit_code; }
  int Waiting(const Arguments& arguments) { return Call(skew::Waiting(wait_, arguments)); }

  void Delete(const ProxyJump& jump) {
    Arguments rule = {"-C", jump.base_chain, "-t", jump.table};
    rule.insert(rule.end(), jump.match.begin(), jump.match.end());
    rule.insert(rule.end(), {"-j", jump.chain});
    int code = Waiting(rule);
    if (code == kNoRule || code == kNoChain) return;
    rule[0] = "-D";
    if (code == 0) code = Waiting(rule);
    if (code != 0) notes_.Failed(absl::StrCat("cannot delete the jump to ", jump.chain));
  }

  // All in one restore: a jump to one of them from elsewhere makes it fail as a whole.
  void DeleteChains(const std::string& table, const Arguments& named) {
    const Arguments present = ChainsOf(iptables_, table);
    TableText text(table);
    for (const std::string& chain : named) {
      if (std::find(present.begin(), present.end(), chain) != present.end()) text.Delete(chain);
    }
    for (const std::string& chain : present) {
      if (table == "nat" && IsServiceChain(version_, chain)) text.Delete(chain);
    }
    const ProgramResult result =
        iptables_.Restore(text.Text(), skew::Waiting(wait_, {"-T", table}));
    if (result.exit_code != 0) notes_.Failed(table + ": " + WhatFailed(result));
  }

  // Always up to 1.33, whatever the mode was.
  void IpvsPart() {
    for (const ProxyJump& jump : IpvsJumps(rules_)) Delete(jump);
    std::vector<const char*> nat = {"KUBE-SERVICES", "KUBE-POSTROUTING"};
    std::vector<const char*> filter = {"KUBE-FORWARD"};
    if (Does(version_, Trait::kIpvsDropsByMarkDrop)) {
      nat.push_back("KUBE-FIREWALL");
    } else {
      filter.insert(filter.end(),
                    {"KUBE-NODE-PORT", "KUBE-PROXY-FIREWALL", "KUBE-SOURCE-RANGES-FIREWALL"});
    }
    nat.insert(nat.end(), {"KUBE-NODE-PORT", "KUBE-LOAD-BALANCER"});
    if (Does(version_, Trait::kIpvsAccessFilter)) filter.push_back("KUBE-IPVS-FILTER");
    if (Does(version_, Trait::kIpvsOutFilter)) filter.push_back("KUBE-IPVS-OUT-FILTER");
    for (const char* operation : {"-F", "-X"}) {
      for (const char* chain : nat) Empty(operation, chain, "nat");
      for (const char* chain : filter) Empty(operation, chain, "filter");
    }
  }

  void Empty(const char* operation, const char* chain, const char* table) {
    const ProgramResult result = Run(skew::Waiting(wait_, {operation, chain, "-t", table}));
    if (result.exit_code == 0 || absl::StrContains(result.err, kNoChainMessage)) return;
    notes_.Failed(absl::StrCat("ipvs: ", operation, " ", chain, ": ", WhatFailed(result)));
  }

  const Version version_;
  const testing::Iptables iptables_;
  const ProxySettings rules_;
  const Arguments wait_;
  FamilyNotes notes_;
};

}  // namespace

Act RemoveIptablesRules(const ProxyActorSettings& settings) {
  const ProcessName name("kube-proxy");
  Act act;
  for (const IpFamily family : testing::kBothFamilies) Cleanup(settings, family, act).CleanUp();
  return act;
}

void RemoveNftablesTables() {
  for (const IpFamily family : testing::kBothFamilies) {
    testing::RunProgram({kNft, "-f", "-"}, NftablesRemoval(family));
  }
}

Act CleanUpKubeProxy(const ProxyActorSettings& settings) {
  Act act = RemoveIptablesRules(settings);
  RemoveNftablesTables();
  return act;
}

}  // namespace kipt::skew
