// SPDX-License-Identifier: Apache-2.0
//
// In time as the captured kube-proxies behaved (tests/skew/kube_proxy/testdata/README.md). Source:
// syncProxyRules() and NewProxier() in Kubernetes' pkg/proxy/iptables/proxier.go, ipvs/proxier.go
// and nftables/proxier.go, and platformCleanup() in cmd/kube-proxy/app/server_linux.go.
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "agent/process/files.h"
#include "tests/skew/actors/actors.h"
#include "tests/skew/actors/iptables_calls.h"
#include "tests/skew/kube_proxy/proxy_rules.h"

namespace kipt::skew {
namespace {

using testing::IpFamily;
using testing::KubeletStep;
using testing::ProgramResult;

constexpr char kRouteLocalnet[] = "/proc/sys/net/ipv4/conf/all/route_localnet";

bool SetsRouteLocalnet(const ProxyActorSettings& settings) {
  const Version version = settings.version.version;
  if (settings.version.mode == ProxyMode::kNftables) return false;
  // Iptables mode sets it because localhostNodePorts is true, its default.
  return settings.version.mode == ProxyMode::kIptables || Does(version, Trait::kIpvsRouteLocalnet);
}

// One family of a kube-proxy: a proxier of its own, as in the real one.
class Proxier {
 public:
  Proxier(const ProxyActorSettings& settings, IpFamily family)
      : wait_(testing::WaitFlags(Does(settings.version.version, Trait::kProxySleepFlag))),
        iptables_(settings.iptables.Of(family)),
        rules_(settings.RulesOf(family)),
        family_(family),
        sets_route_localnet_(family == IpFamily::kIpv4 && SetsRouteLocalnet(settings)) {}
  virtual ~Proxier() = default;
  Proxier(const Proxier&) = delete;
  Proxier& operator=(const Proxier&) = delete;

  void Start(const std::vector<ServicePort>& services, Act& act) {
    FamilyNotes notes(family_, act);
    // Real ones end here.
    if (sets_route_localnet_ && !SetRouteLocalnet(notes)) return;
    running_ = true;
    services_ = services;
    OnStart(notes);
    SyncRules(notes);
  }

  void Sync(const std::vector<ServicePort>& services, Act& act) {
    if (!running_) return;
    FamilyNotes notes(family_, act);
    services_ = services;
    SyncRules(notes);
  }

  void Tick(Act& act) {
    if (!running_) return;
    FamilyNotes notes(family_, act);
    OnTick(notes);
  }

 protected:
  virtual void OnStart(FamilyNotes& notes) = 0;
  virtual void OnTick(FamilyNotes& notes) = 0;
  virtual void SyncRules(FamilyNotes& notes) = 0;

  bool Ensure(const std::vector<KubeletStep>& steps, FamilyNotes& notes) const {
    const testing::KubeletRun run = testing::RunKubelet(iptables_, steps, wait_);
    notes.Called(run);
    notes.Done(absl::StrCat(steps.size(), " chains and jumps ensured, ", run.chains_created,
                            " chains and ", run.rules_added, " jumps were missing"));
    if (run.error.empty()) return true;
    notes.Failed("failed to ensure chain or jump: " + run.error);
    return false;
  }

  bool Restore(const char* what, const std::string& text, FamilyNotes& notes) const {
    const ProgramResult result = iptables_.Restore(text, wait_);
    notes.Done(absl::StrCat(what, ": a restore of ", std::count(text.begin(), text.end(), '\n'),
                            " lines"));
    if (result.exit_code == 0) return true;
    notes.Failed("failed to execute iptables-restore: " + WhatFailed(result));
    return false;
  }

  const std::vector<std::string> wait_;
  const testing::Iptables iptables_;
  ProxySettings rules_;
  std::vector<ServicePort> services_;

 private:
  // A 1 stays: kube-proxy never resets it.
  static bool SetRouteLocalnet(FamilyNotes& notes) {
    const agent::OwnedFd fd(open(kRouteLocalnet, O_RDWR | O_CLOEXEC));
    char old = '?';
    const bool read_it = fd.valid() && read(fd.get(), &old, 1) == 1;
    const bool set_it = read_it && (old == '1' || pwrite(fd.get(), "1", 1, 0) == 1);
    if (!set_it) notes.Failed(absl::StrCat(kRouteLocalnet, ": ", std::strerror(errno)));
    if (set_it && old != '1') notes.Done("route_localnet is now 1");
    return set_it;
  }

  const IpFamily family_;
  const bool sets_route_localnet_;
  bool running_ = false;
};

class IptablesProxier : public Proxier {
 public:
  IptablesProxier(const ProxyActorSettings& settings, IpFamily family)
      : Proxier(settings, family),
        canary_(iptables_, "KUBE-PROXY-CANARY", wait_,
                Does(settings.version.version, Trait::kProxyLockIsLostCanary)) {}

 private:
  // The monitor runs from the beginning on, and the first sync waits for the API server.
  void OnStart(FamilyNotes& notes) override { canary_.Ensure(notes); }

  void OnTick(FamilyNotes& notes) override {
    if (!canary_.ensured()) {
      canary_.Ensure(notes);
    } else if (canary_.IsGone(notes)) {
      notes.Done("the canary is gone from mangle");
      needs_full_sync_ = true;
      SyncRules(notes);
      return canary_.Ensure(notes);
    }
    if (failed_) SyncRules(notes);
  }

  bool HasCounters() const { return Does(rules_.version, Trait::kNfacct) && EnsureCounters(); }

  void SyncRules(FamilyNotes& notes) override {
    const bool partial = Does(rules_.version, Trait::kPartialSyncs) && !needs_full_sync_;
    // Until it has succeeded: what a failed one was to change is not known any more.
    failed_ = true;
    needs_full_sync_ = true;
    if (!partial && !Ensure(Jumps(), notes)) return;
    if (!partial) rules_.nfacct = HasCounters();
    const bool restored =
        partial
            ? Restore("partial sync", PartialSync(rules_, services_, synced_), notes)
            : Restore("full sync", FullSync(rules_, services_, ChainsOf(iptables_, "nat")), notes);
    if (!restored) return;
    failed_ = false;
    needs_full_sync_ = false;
    synced_ = services_;
  }

  std::vector<KubeletStep> Jumps() const {
    std::vector<KubeletStep> steps = StepsOf(JumpsOf(rules_));
    if (Does(rules_.version, Trait::kMakesMarkDrop))
      steps.push_back(EnsureChain("nat", "KUBE-MARK-DROP"));
    return steps;
  }

  Canary canary_;
  std::vector<ServicePort> synced_;
  bool needs_full_sync_ = true;
  bool failed_ = false;
};

// Has no canary: it syncs everything once per sync period.
class IpvsProxier : public Proxier {
 public:
  using Proxier::Proxier;

 private:
  void OnStart(FamilyNotes& /*notes*/) override {}
  void OnTick(FamilyNotes& notes) override { SyncRules(notes); }

  void SyncRules(FamilyNotes& notes) override {
    if (!MakeSets(notes)) return;
    std::vector<KubeletStep> steps;
    if (Does(rules_.version, Trait::kIpvsDropsByMarkDrop)) {
      steps.push_back(EnsureChain("nat", "KUBE-MARK-DROP"));
    }
    for (KubeletStep& step : StepsOf(IpvsJumps(rules_))) steps.push_back(std::move(step));
    if (Ensure(steps, notes)) Restore("sync", IpvsSync(rules_), notes);
  }

  bool MakeSets(FamilyNotes& notes) const {
    const std::string sets = IpvsSets(rules_);
    const ProgramResult made = testing::RunProgram({kIpset, "-exist", "restore"}, sets);
    notes.Done(absl::StrCat(std::count(sets.begin(), sets.end(), '\n'), " IP sets ensured"));
    if (made.exit_code == 0) return true;
    notes.Failed("ipset restore: " + WhatFailed(made));
    return false;
  }
};

class NftablesProxier : public Proxier {
 public:
  using Proxier::Proxier;

 private:
  void OnStart(FamilyNotes& /*notes*/) override {}
  // It has no canary, but retries a failed sync.
  void OnTick(FamilyNotes& notes) override {
    if (needs_full_sync_) SyncRules(notes);
  }

  void SyncRules(FamilyNotes& notes) override {
    const std::string text = needs_full_sync_ ? NftablesSync(rules_, services_)
                                              : NftablesPartialSync(rules_, services_, synced_);
    notes.Done(absl::StrCat(needs_full_sync_ ? "full" : "partial", " sync: nft -f with ",
                            std::count(text.begin(), text.end(), '\n'), " lines"));
    const ProgramResult result = testing::RunProgram({kNft, "-f", "-"}, text);
    needs_full_sync_ = result.exit_code != 0;
    if (needs_full_sync_) return notes.Failed("nft -f: " + WhatFailed(result));
    synced_ = services_;
  }

  std::vector<ServicePort> synced_;
  bool needs_full_sync_ = true;
};

std::unique_ptr<Proxier> NewProxier(const ProxyActorSettings& settings, IpFamily family) {
  switch (settings.version.mode) {
    case ProxyMode::kIptables:
      return std::make_unique<IptablesProxier>(settings, family);
    case ProxyMode::kIpvs:
      return std::make_unique<IpvsProxier>(settings, family);
    case ProxyMode::kNftables:
      return std::make_unique<NftablesProxier>(settings, family);
  }
  return nullptr;
}

class KubeProxy : public ServiceProxy {
 public:
  explicit KubeProxy(const ProxyActorSettings& settings)
      : settings_(settings),
        ipv4_(NewProxier(settings, IpFamily::kIpv4)),
        ipv6_(NewProxier(settings, IpFamily::kIpv6)) {}

  Act Start(const std::vector<ServicePort>& ipv4, const std::vector<ServicePort>& ipv6) override {
    Act act;
    if (settings_.version.mode == ProxyMode::kNftables) {
      // A failed removal is logged, and the start continues.
      act = RemoveIptablesRules(settings_);
    } else if (Does(settings_.version.version, Trait::kNftablesMode)) {
      RemoveNftablesTables();
    }
    ipv4_->Start(ipv4, act);
    ipv6_->Start(ipv6, act);
    return act;
  }

  Act Sync(const std::vector<ServicePort>& ipv4, const std::vector<ServicePort>& ipv6) override {
    Act act;
    ipv4_->Sync(ipv4, act);
    ipv6_->Sync(ipv6, act);
    return act;
  }

  Act Tick() override {
    Act act;
    ipv4_->Tick(act);
    ipv6_->Tick(act);
    return act;
  }

 private:
  const ProxyActorSettings settings_;
  const std::unique_ptr<Proxier> ipv4_;
  const std::unique_ptr<Proxier> ipv6_;
};

}  // namespace

ProxySettings ProxyActorSettings::RulesOf(IpFamily family) const {
  const bool four = family == IpFamily::kIpv4;
  return {.version = version.version,
          .family = family,
          .pod_cidr = four ? pod_cidr_v4 : pod_cidr_v6,
          .masquerade_bit = masquerade_bit,
          .node_ip = four ? node_ip_v4 : node_ip_v6,
          .service_cidr = four ? service_cidr_v4 : service_cidr_v6};
}

std::unique_ptr<ServiceProxy> NewKubeProxy(const ProxyActorSettings& settings) {
  return std::make_unique<KubeProxy>(settings);
}

}  // namespace kipt::skew
