// SPDX-License-Identifier: Apache-2.0
//
// `kube-proxy --cleanup`, as captured from 1.31 on. Source: CleanupLeftovers() in Kubernetes'
// pkg/proxy/iptables/proxier.go, ipvs/proxier.go and nftables/proxier.go. Not acted: ipset.
#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "tests/skew/actors/actors.h"
#include "tests/skew/actors/family_notes.h"
#include "tests/skew/kube_proxy/nftables_rules.h"
#include "tests/skew/kube_proxy/other_modes.h"
#include "tests/skew/kube_proxy/proxy_rules.h"
#include "tests/skew/kube_proxy/restore_text.h"

namespace kipt::skew {
namespace {

using testing::IpFamily;
using testing::ProgramResult;
using Arguments = std::vector<std::string>;

// What iptables says where there is no such rule, and where there is no such chain.
constexpr int kNoRule = 1;
constexpr int kNoChain = 2;

class Cleanup {
 public:
  Cleanup(const ProxyActorSettings& settings, IpFamily family, Act& act)
      : version_(settings.version.version),
        iptables_(settings.iptables.Of(family)),
        rules_{.version = version_, .family = family},
        wait_(testing::WaitFlags(Does(version_, Trait::kProxySleepFlag))),
        notes_(family, act) {}

  void Run() {
    Call({"--version"});
    if (Does(version_, Trait::kCleanupProbes) && Waiting({"-S", "POSTROUTING", "-t", "nat"}) != 0) {
      return notes_.Done("skipped: -S POSTROUTING -t nat failed");
    }
    std::vector<ProxyJump> jumps = JumpsOf(rules_);
    // No version names it.
    std::erase_if(jumps, [](const ProxyJump& jump) { return jump.chain == "KUBE-FIREWALL"; });
    for (const ProxyJump& jump : jumps) Delete(jump);
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
  int Call(const Arguments& arguments) {
    const ProgramResult result = iptables_.Run(arguments);
    notes_.Called(iptables_, arguments, result);
    return result.exit_code;
  }
  int Waiting(const Arguments& arguments) {
    Arguments all = wait_;
    all.insert(all.end(), arguments.begin(), arguments.end());
    return Call(all);
  }

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
    const Arguments present = Chains(table);
    TableText text(table);
    for (const std::string& chain : named) {
      if (std::find(present.begin(), present.end(), chain) != present.end()) text.Delete(chain);
    }
    for (const std::string& chain : present) {
      if (table == "nat" && IsServiceChain(version_, chain)) text.Delete(chain);
    }
    Arguments more = wait_;
    more.insert(more.end(), {"-T", table});
    const ProgramResult result = iptables_.Restore(text.Text(), more);
    if (result.exit_code != 0) notes_.Failed(table + ": " + WhatFailed(result));
  }

  Arguments Chains(const std::string& table) const {
    Arguments chains;
    const ProgramResult saved = iptables_.Save(table);
    for (absl::string_view line : absl::StrSplit(saved.out, '\n')) {
      if (absl::ConsumePrefix(&line, ":")) chains.emplace_back(line.substr(0, line.find(' ')));
    }
    return chains;
  }

  // Always up to 1.33, whatever the mode was. Failures are ignored.
  void IpvsPart() {
    for (const ProxyJump& jump : IpvsJumps(rules_)) Delete(jump);
    const std::pair<const char*, std::vector<const char*>> tables[] = {
        {"nat", {"KUBE-SERVICES", "KUBE-POSTROUTING", "KUBE-NODE-PORT", "KUBE-LOAD-BALANCER"}},
        {"filter",
         {"KUBE-FORWARD", "KUBE-NODE-PORT", "KUBE-PROXY-FIREWALL", "KUBE-SOURCE-RANGES-FIREWALL",
          "KUBE-IPVS-FILTER", "KUBE-IPVS-OUT-FILTER"}}};
    for (const char* operation : {"-F", "-X"}) {
      for (const auto& [table, chains] : tables) {
        for (const char* chain : chains) Waiting({operation, chain, "-t", table});
      }
    }
  }

  const Version version_;
  const testing::Iptables iptables_;
  const ProxySettings rules_;
  const Arguments wait_;
  FamilyNotes notes_;
};

}  // namespace

Act RemoveIptablesRules(const ProxyActorSettings& settings) {
  Act act;
  for (const IpFamily family : testing::kBothFamilies) Cleanup(settings, family, act).Run();
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
