// SPDX-License-Identifier: Apache-2.0
//
// Source: initNetworkUtil() and syncIPTablesRules() (up to 1.24 syncNetworkUtil()) in Kubernetes'
// pkg/kubelet/kubelet_network_linux.go. The calls of 1.31 to 1.36 are held against the captures.
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/skew/actors/actors.h"
#include "tests/skew/actors/iptables_calls.h"

namespace kipt::skew {
namespace {

using testing::IpFamily;
using testing::KubeletStep;

constexpr char kCanary[] = "KUBE-KUBELET-CANARY";

class KubeletFamily {
 public:
  KubeletFamily(const KubeletSettings& settings, IpFamily family)
      : family_(family),
        gives_up_(Does(settings.version.version, Trait::kGivesUpFamily)),
        probes_(Does(settings.version.version, Trait::kProbesFamilies)),
        wait_(testing::WaitFlags(Does(settings.version.version, Trait::kKubeletSleepFlag))),
        iptables_(settings.iptables.Of(family)),
        canary_(iptables_, kCanary, wait_,
                Does(settings.version.version, Trait::kKubeletLockIsLostCanary)) {
    for (KubeletStep& step : testing::KubeletSequence(FormOf(settings.version), family)) {
      if (step.chain != kCanary) rules_.push_back(std::move(step));
    }
  }

  void Start(Act& act) {
    FamilyNotes notes(family_, act);
    if (!IsServed(notes)) return;
    monitored_ = Sync(notes) || !gives_up_;
    if (monitored_) canary_.Ensure(notes);
  }

  void Tick(Act& act) {
    if (!monitored_) return;
    FamilyNotes notes(family_, act);
    if (!canary_.ensured()) return canary_.Ensure(notes);
    if (!canary_.IsGone(notes)) return;
    notes.Done("the canary is gone from mangle");
    Sync(notes);
    canary_.Ensure(notes);
  }

 private:
  // Where that fails the real one drops the family until it restarts, and mostly logs nothing.
  bool IsServed(FamilyNotes& notes) const {
    Call({"--version"}, notes);
    if (!probes_) return true;
    if (Call(Waiting(wait_, {"-S", "POSTROUTING", "-t", "nat"}), notes) == 0) return true;
    notes.Done("not served until kubelet restarts: -S POSTROUTING -t nat failed");
    return false;
  }

  int Call(const std::vector<std::string>& arguments, FamilyNotes& notes) const {
    const testing::ProgramResult result = iptables_.Run(arguments);
    notes.Called(iptables_, arguments, result);
    return result.exit_code;
  }

  bool Sync(FamilyNotes& notes) {
    const testing::KubeletRun run = testing::RunKubelet(iptables_, rules_, wait_);
    notes.Called(run);
    notes.Done(absl::StrCat(rules_.size(), " chains and rules ensured, ", run.chains_created,
                            " chains and ", run.rules_added, " rules were missing"));
    if (!run.error.empty()) notes.Failed(run.error);
    return run.error.empty();
  }

  const IpFamily family_;
  const bool gives_up_;
  const bool probes_;
  const std::vector<std::string> wait_;
  const testing::Iptables iptables_;
  std::vector<KubeletStep> rules_;
  Canary canary_;
  bool monitored_ = false;
};

class Kubelet : public NodeAgent {
 public:
  explicit Kubelet(const KubeletSettings& settings) : version_(settings.version) {
    for (const IpFamily family : testing::kBothFamilies) {
      if (family == IpFamily::kIpv6 && !Does(version_.version, Trait::kKubeletIpv6)) continue;
      families_.emplace_back(settings, family);
    }
  }

  Act Start() override {
    Act act;
    for (KubeletFamily& family : families_) family.Start(act);
    return act;
  }

  Act Tick() override {
    Act act;
    for (KubeletFamily& family : families_) family.Tick(act);
    return act;
  }

  Act Stop() override { return {}; }

 private:
  const KubeletVersion version_;
  std::vector<KubeletFamily> families_;
};

}  // namespace

std::unique_ptr<NodeAgent> NewKubelet(const KubeletSettings& settings) {
  return std::make_unique<Kubelet>(settings);
}

}  // namespace kipt::skew
