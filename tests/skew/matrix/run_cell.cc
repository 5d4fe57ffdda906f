// SPDX-License-Identifier: Apache-2.0
#include "tests/skew/matrix/run_cell.h"

#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "tests/skew/matrix/cell_run.h"

namespace kipt::skew {
namespace {

// Takes the steps of the cell's path, up to the first that fails.
class PathWalk {
 public:
  PathWalk(const Cell& cell, CellRun& run) : cell_(cell), run_(run) {}

  absl::Status Walk() && {
    Do(&CellRun::Prepare);
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
        Do(&CellRun::FlushEverything);
        break;
      case Path::kIdleFlip:
        Boot(cell_.from, false);
        KubeletThenProxy(cell_.from, cell_.pair);
        Do(&CellRun::MinutePasses);
        Do(&CellRun::ServicesAppear);
        break;
      case Path::kToNft:
        Boot(cell_.pair, true);
        Do(&CellRun::MoveToNft);
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
        Do(&CellRun::CleanUpProxy);
        Do(&CellRun::MinutePasses);
        Do(&CellRun::StartProxyAgain);
        break;
    }
    Do(&CellRun::MinutePasses);
    return status_;
  }

 private:
  template <typename Step, typename... Arguments>
  void Do(Step step, const Arguments&... arguments) {
    if (status_.ok()) status_ = (run_.*step)(arguments...);
  }

  void Boot(const Pair& pair, bool services) {
    Do(&CellRun::StartBoth, pair, services);
    if (cell_.company == Company::kThirdParties) Do(&CellRun::ThirdPartiesAdd);
  }
  void Kubelet(const Pair& from, const Pair& to) {
    if (from.kubelet == to.kubelet && !cell_.replaces_same) return;
    Do(&CellRun::ReplaceKubelet, to.kubelet);
  }
  void Proxy(const Pair& from, const Pair& to) {
    if (from.proxy != to.proxy) Do(&CellRun::ReplaceProxy, to.proxy);
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
    Do(&CellRun::FlushEverything);
    Do(&CellRun::MinutePasses);
    Do(&CellRun::ThirdPartiesAdd);
  }
  void UpAndDown() {
    Boot(cell_.from, true);
    KubeletThenProxy(cell_.from, cell_.pair);
    ProxyThenKubelet(cell_.pair, cell_.from);
  }

  const Cell& cell_;
  CellRun& run_;
  absl::Status status_;
};

// With the kubelet that runs.
Cell Acting(Cell cell) {
  if (cell.instead.has_value()) cell.pair.kubelet = *cell.instead;
  return cell;
}

}  // namespace

CellReport ReportOf(const Cell& cell) {
  CellReport report;
  report.id = CellId(cell);
  report.path = NameOf(cell.path);
  report.kubelet = ToString(cell.pair.kubelet);
  report.proxy = ToString(cell.pair.proxy);
  report.mode = testing::NameOf(cell.mode);
  report.actor = cell.side.empty() ? NameOf(cell.actor) : cell.side;
  report.side = cell.is_b ? "b" : "a";
  const Pair pair = Acting(cell).pair;
  report.allowed = IsAllowed(pair.kubelet.version, pair.proxy.version);
  report.about = cell.about;
  return report;
}

CellReport RunCell(const Cell& cell) {
  CellReport report = ReportOf(cell);
  const absl::Time started = absl::Now();
  {
    const Cell acting = Acting(cell);
    CellRun run(acting, report.steps);
    const absl::Status status = PathWalk(acting, run).Walk();
    if (!status.ok()) report.problem = status.ToString();
  }
  report.seconds = absl::ToDoubleSeconds(absl::Now() - started);
  return report;
}

}  // namespace kipt::skew
