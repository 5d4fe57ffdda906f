// SPDX-License-Identifier: Apache-2.0
//
// A cell while it runs: the node, its actors, and what is known of it.
#ifndef KIPT_TESTS_SKEW_MATRIX_CELL_RUN_H_
#define KIPT_TESTS_SKEW_MATRIX_CELL_RUN_H_

#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "tests/skew/actors/actors.h"
#include "tests/skew/matrix/cell.h"
#include "tests/skew/matrix/judge.h"
#include "tests/skew/matrix/node_facts.h"
#include "tests/skew/matrix/run_cell.h"
#include "tests/skew/matrix/test_services.h"
#include "tests/skew/node/test_node.h"
#include "tests/skew/probes/probe.h"
#include "tests/skew/probes/stream.h"
#include "tests/support/netns.h"

namespace kipt::skew {

// The worker's own /run.
inline constexpr char kCniConfDir[] = "/run/cni/net.d";

class CellRun {
 public:
  CellRun(const Cell& cell, std::vector<StepReport>& steps);
  ~CellRun();

  // Makes the node. To be called first; the calling thread is on the node from then on.
  absl::Status Prepare();

  // Steps. Each acts, waits until the agent has reacted, asks, and reports.
  absl::Status StartBoth(const Pair& pair, bool services);
  absl::Status ReplaceKubelet(const KubeletVersion& version);
  absl::Status ReplaceProxy(const ProxyVersion& version);
  absl::Status ServicesAppear();
  absl::Status CleanUpProxy();
  absl::Status StartProxyAgain();
  absl::Status MinutePasses();
  absl::Status FlushEverything();
  absl::Status MoveToNft();
  absl::Status ThirdPartiesAdd();

 private:
  // What an act did, and whether the facts require it to fail, and how.
  struct Done {
    StepReport& step;
    void Take(const Act& act, const KnownError& known = {});
  };
  absl::Status Step(const std::string& name, const std::function<void(Done)>& act);
  absl::Status Ask(StepReport& step);
  // Of the packets since the last time: the step's act, or what came after it.
  void JudgeStreams(const std::vector<FamilyFacts>& before, bool afterwards, StepReport& step);
  absl::Status StartStreams();

  // In both families.
  void StartKubelet(const KubeletVersion& version, Done done);
  void StartProxy(const ProxyVersion& version, Done done);
  void SyncProxy(Done done);
  ProxyActorSettings SettingsOf(const ProxyVersion& version) const;
  void AgentActsByItself();
  void AgentRetiresWhatItMay();
  // How kube-proxy's start, or its --cleanup, must fail, because of a foreign jump.
  KnownError FactsOfStart();
  KnownError FactsOfCleanup();
  KnownError FactsOfFullSync();
  KnownError FactsOfSync();
  std::vector<ServicePort> Services(testing::IpFamily family) const;
  std::string Rules() const;
  // Of kube-proxy's change to nftables mode (cell_questions.cc).
  void AuditBeforeNftables(Done done);
  std::set<std::string> ExpectedFindings() const;
  // After that change: whether new users of KUBE-MARK-MASQ work as was reported.
  void JudgePrediction(const FamilyFacts& facts, bool works, Done done) const;

  const Cell cell_;
  std::vector<StepReport>& steps_;
  testing::IptablesMode mode_;
  std::unique_ptr<TestNode> node_;
  std::optional<testing::InNetns> on_node_;
  std::unique_ptr<Battery> battery_;
  std::unique_ptr<Streams> streams_;
  std::vector<StreamQuestion> stream_questions_;
  std::unique_ptr<NodeAgent> agent_;
  // None while it is removed.
  std::unique_ptr<ServiceProxy> proxy_;
  KubeletVersion kubelet_version_;
  ProxyVersion proxy_version_;
  bool services_ = false;
  bool users_ = false;
  // kubelet's, and kube-proxy's, canary is missing; kube-proxy's last restore failed.
  bool kubelet_canary_gone_ = false;
  bool proxy_must_start_over_ = false;
  bool flushed_in_this_step_ = false;
  bool moved_in_this_step_ = false;
  bool proxy_changed_mode_in_this_step_ = false;
  // What audit reported before kube-proxy's change to nftables mode.
  std::optional<std::set<std::string>> predicted_ = {};
  // IPv4, IPv6.
  std::vector<FamilyFacts> facts_;
};

}  // namespace kipt::skew

#endif  // KIPT_TESTS_SKEW_MATRIX_CELL_RUN_H_
