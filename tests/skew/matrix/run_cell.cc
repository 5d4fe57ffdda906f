// SPDX-License-Identifier: Apache-2.0
#include "tests/skew/matrix/run_cell.h"

#include <functional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "tests/skew/matrix/cell_run.h"

namespace kipt::skew {
namespace {

using Steps = std::vector<std::function<absl::Status()>>;

class PathOf {
 public:
  PathOf(const Cell& cell, CellRun& run) : cell_(cell), run_(run) {}

  Steps All() && {
    switch (cell_.path) {
      case Path::kBoot:
        Boot(cell_.pair, true);
        break;
      case Path::kUpgradeKubeletFirst:
        Boot(cell_.from, true);
        KubeletThenProxy(cell_.from, cell_.pair);
        break;
      case Path::kUpgradeProxyFirst:
        Boot(cell_.from, true);
        ProxyThenKubelet(cell_.from, cell_.pair);
        break;
      case Path::kRollback:
        UpAndDown();
        break;
      case Path::kUpDownUp:
        UpAndDown();
        KubeletThenProxy(cell_.from, cell_.pair);
        break;
      case Path::kFlush:
        Boot(cell_.pair, true);
        steps_.push_back([run = &run_] { return run->FlushEverything(); });
        break;
      case Path::kIdleFlip:
        Boot(cell_.from, false);
        KubeletThenProxy(cell_.from, cell_.pair);
        steps_.push_back([run = &run_] { return run->MinutePasses(); });
        steps_.push_back([run = &run_] { return run->ServicesAppear(); });
        break;
      case Path::kToNft:
        Boot(cell_.pair, true);
        steps_.push_back([run = &run_] { return run->MoveToNft(); });
        break;
      case Path::kToNftables:
      case Path::kFromNftables:
        Boot(cell_.from, true);
        Proxy(cell_.from, cell_.pair);
        // With the gate off kubelet keeps what they use.
        if (cell_.company == Company::kThirdParties && CleansUp(cell_.pair.kubelet)) {
          RulesFromAnew();
        }
        break;
      case Path::kProxyCleanup:
        Boot(cell_.pair, true);
        steps_.push_back([run = &run_] { return run->CleanUpProxy(); });
        steps_.push_back([run = &run_] { return run->MinutePasses(); });
        steps_.push_back([run = &run_] { return run->StartProxyAgain(); });
        break;
      case Path::kLabelFlip:
        Boot(cell_.pair, true);
        LabelsOnAndOff(cell_.company == Company::kLabelUserStays);
        break;
    }
    steps_.push_back([run = &run_] { return run->MinutePasses(); });
    return std::move(steps_);
  }

 private:
  void Boot(const Pair& pair, bool services) {
    steps_.push_back([run = &run_, pair, services] { return run->StartBoth(pair, services); });
    if (cell_.company == Company::kThirdParties) {
      steps_.push_back([run = &run_] { return run->ThirdPartiesAdd(); });
    }
    if (cell_.company == Company::kRoundTrip1_8_7 || cell_.company == Company::kRoundTrip1_8_11) {
      steps_.push_back([run = &run_] { return run->RoundTrip(); });
    }
  }
  void Kubelet(const Pair& from, const Pair& to) {
    if (from.kubelet == to.kubelet && !cell_.replaces_same) return;
    steps_.push_back([run = &run_, version = to.kubelet] { return run->ReplaceKubelet(version); });
  }
  void Proxy(const Pair& from, const Pair& to) {
    if (from.proxy == to.proxy) return;
    steps_.push_back([run = &run_, version = to.proxy] { return run->ReplaceProxy(version); });
  }
  void KubeletThenProxy(const Pair& from, const Pair& to) {
    Kubelet(from, to);
    Proxy(from, to);
  }
  void ProxyThenKubelet(const Pair& from, const Pair& to) {
    Proxy(from, to);
    Kubelet(from, to);
  }
  // What a reboot makes of third parties' rules.
  void RulesFromAnew() {
    steps_.push_back([run = &run_] { return run->FlushEverything(); });
    steps_.push_back([run = &run_] { return run->MinutePasses(); });
    steps_.push_back([run = &run_] { return run->ThirdPartiesAdd(); });
  }
  void LabelsOnAndOff(bool user_stays) {
    CellRun* run = &run_;
    steps_.push_back([run] { return run->SetLabelGate(true); });
    steps_.push_back([run] { return run->LabelUserAdds(); });
    steps_.push_back([run] { return run->MinutePasses(); });
    if (!user_stays) steps_.push_back([run] { return run->LabelUserLeaves(); });
    steps_.push_back([run] { return run->SetLabelGate(false); });
    if (!user_stays) return;
    steps_.push_back([run] { return run->MinutePasses(); });
    steps_.push_back([run] { return run->LabelUserLeaves(); });
    // What was claimed it looks at again after ten minutes, or at its start.
    steps_.push_back([run] { return run->RestartAgent(); });
  }
  void UpAndDown() {
    Boot(cell_.from, true);
    KubeletThenProxy(cell_.from, cell_.pair);
    ProxyThenKubelet(cell_.pair, cell_.from);
  }

  const Cell& cell_;
  CellRun& run_;
  Steps steps_;
};

// With the kubelet that runs.
Cell Acting(Cell cell) {
  if (cell.instead.has_value()) cell.pair.kubelet = *cell.instead;
  return cell;
}

// "kubelet 1.25, 1.26, 1.27 gate off": the versions of the same generation.
std::vector<std::string> StandsFor(const Pair& pair) {
  std::vector<std::string> kubelets;
  std::vector<std::string> proxies;
  for (const Version version : AllVersions()) {
    for (const std::optional<bool> gate :
         {std::optional<bool>(), std::optional<bool>(true), std::optional<bool>(false)}) {
      const KubeletVersion kubelet = {version, gate};
      const bool settable = Does(version, Trait::kGateSettable);
      const bool told =
          !gate.has_value() || (settable && CleansUp(kubelet) != CleansUp({version, {}}));
      if (told && GenerationOf(kubelet) == GenerationOf(pair.kubelet)) {
        kubelets.push_back(ToString(kubelet));
      }
    }
    const ProxyVersion proxy = {version, pair.proxy.mode};
    if (GenerationOf(proxy) == GenerationOf(pair.proxy)) proxies.push_back(ToString(proxy));
  }
  return {absl::StrCat("kubelet ", absl::StrJoin(kubelets, ", ")),
          absl::StrCat("kube-proxy ", absl::StrJoin(proxies, ", "))};
}

}  // namespace

bool RunsProxyProgram(const HarnessOptions& options, const ProxyVersion& proxy) {
  if (options.proxy_program.empty() || proxy.mode == ProxyMode::kIpvs) return false;
  if (proxy.mode == ProxyMode::kNftables && !Does(options.proxy_version, Trait::kNftablesMode)) {
    return false;
  }
  return GenerationOf(proxy) == GenerationOf(ProxyVersion{options.proxy_version, proxy.mode});
}

bool RunsProxyProgram(const HarnessOptions& options, const Cell& cell) {
  if (*TraitsOf(cell.company).proxy_release != '\0') return false;
  const bool from = MovesBetweenVersions(cell.path) || HasOwnCells(cell.path);
  return RunsProxyProgram(options, cell.pair.proxy) ||
         (from && RunsProxyProgram(options, cell.from.proxy));
}

bool RunsKubeletProgram(const HarnessOptions& options, const KubeletVersion& kubelet) {
  return !options.kubelet_program.empty() &&
         GenerationOf(kubelet) == GenerationOf(options.kubelet_version);
}

bool RunsKubeletProgram(const HarnessOptions& options, const Cell& cell) {
  if (*TraitsOf(cell.company).kubelet_release != '\0' || cell.instead.has_value()) return false;
  const bool from = MovesBetweenVersions(cell.path) || HasOwnCells(cell.path);
  return RunsKubeletProgram(options, cell.pair.kubelet) ||
         (from && RunsKubeletProgram(options, cell.from.kubelet));
}

CellReport ReportOf(const Cell& cell) {
  CellReport report;
  report.id = CellId(cell);
  report.path = NameOf(cell.path);
  report.kubelet = ToString(cell.pair.kubelet);
  report.proxy = ToString(cell.pair.proxy);
  report.mode = testing::NameOf(cell.mode);
  report.actor = cell.side.empty() ? NameOf(cell.actor) : cell.side;
  report.side = cell.is_b ? "b" : "a";
  report.agent_only = IsOfTheAgentAlone(cell.path);
  const Pair pair = Acting(cell).pair;
  report.allowed = IsAllowed(pair.kubelet.version, pair.proxy.version);
  report.stands_for = StandsFor(pair);
  report.about = cell.about;
  return report;
}

CellReport RunCell(const Cell& cell, const HarnessOptions& options) {
  CellReport report = ReportOf(cell);
  const absl::Time started = absl::Now();
  {
    const Cell acting = Acting(cell);
    CellRun run(acting, options, report.steps);
    absl::Status status;
    if (*ChrootOf(cell.company) != '\0' && options.chroot_dir.empty()) {
      status = absl::FailedPreconditionError(
          absl::StrCat("needs the iptables of Debian ", ChrootOf(cell.company),
                       ": give --iptables-chroots=DIRECTORY, with that release in it"));
    } else {
      status = run.Prepare();
    }
    for (const std::function<absl::Status()>& step : PathOf(acting, run).All()) {
      if (!status.ok()) break;
      status = step();
    }
    if (!status.ok()) report.problem = status.ToString();
  }
  report.seconds = absl::ToDoubleSeconds(absl::Now() - started);
  return report;
}

}  // namespace kipt::skew
