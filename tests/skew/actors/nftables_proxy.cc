// SPDX-License-Identifier: Apache-2.0
//
// kube-proxy in nftables mode. Source: syncProxyRules() in Kubernetes'
// pkg/proxy/nftables/proxier.go, and platformCleanup() in cmd/kube-proxy/app/server_linux.go.
#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/skew/actors/actors.h"
#include "tests/skew/actors/iptables_calls.h"
#include "tests/skew/kube_proxy/nftables_rules.h"

namespace kipt::skew {
namespace {

using testing::IpFamily;
using testing::ProgramResult;
using Ports = std::vector<ServicePort>;

// One family: a proxier of its own, as in the real one.
class NftablesProxier {
 public:
  NftablesProxier(const ProxyActorSettings& settings, IpFamily family)
      : rules_(settings.RulesOf(family)) {}

  void Sync(const Ports& services, Act& act) {
    FamilyNotes notes(rules_.family, act);
    const std::string text = needs_full_sync_ ? NftablesSync(rules_, services)
                                              : NftablesPartialSync(rules_, services, synced_);
    notes.Done(absl::StrCat(needs_full_sync_ ? "full" : "partial", " sync: nft -f with ",
                            std::count(text.begin(), text.end(), '\n'), " lines"));
    const ProgramResult result = testing::RunProgram({kNft, "-f", "-"}, text);
    needs_full_sync_ = result.exit_code != 0;
    if (needs_full_sync_) return notes.Failed("nft -f: " + WhatFailed(result));
    synced_ = services;
  }

  // A failed sync is retried.
  void Tick(const Ports& services, Act& act) {
    if (needs_full_sync_) Sync(services, act);
  }

 private:
  const ProxySettings rules_;
  Ports synced_;
  bool needs_full_sync_ = true;
};

class NftablesProxy : public ServiceProxy {
 public:
  explicit NftablesProxy(const ProxyActorSettings& settings)
      : settings_(settings), ipv4_(settings, IpFamily::kIpv4), ipv6_(settings, IpFamily::kIpv6) {}

  std::string name() const override {
    return absl::StrCat("kube-proxy ", ToString(settings_.version));
  }

  Act Start(const Ports& ipv4, const Ports& ipv6) override {
    // What cannot be removed is logged; it goes on.
    Act act = RemoveIptablesRules(settings_);
    Sync(ipv4, ipv6, act);
    return act;
  }

  Act Sync(const Ports& ipv4, const Ports& ipv6) override {
    Act act;
    Sync(ipv4, ipv6, act);
    return act;
  }

  Act Tick() override {
    Act act;
    ipv4_.Tick(services_v4_, act);
    ipv6_.Tick(services_v6_, act);
    return act;
  }

  Act SyncAfterAnHour() override { return Sync(services_v4_, services_v6_); }

 private:
  void Sync(const Ports& ipv4, const Ports& ipv6, Act& act) {
    services_v4_ = ipv4;
    services_v6_ = ipv6;
    ipv4_.Sync(ipv4, act);
    ipv6_.Sync(ipv6, act);
  }

  const ProxyActorSettings settings_;
  NftablesProxier ipv4_;
  NftablesProxier ipv6_;
  Ports services_v4_;
  Ports services_v6_;
};

}  // namespace

std::unique_ptr<ServiceProxy> NewNftablesProxy(const ProxyActorSettings& settings) {
  return std::make_unique<NftablesProxy>(settings);
}

}  // namespace kipt::skew
