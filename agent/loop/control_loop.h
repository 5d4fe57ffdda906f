// SPDX-License-Identifier: Apache-2.0
//
// Keeps a ruleset in place: checks whenever another process changes something, repairs, and reports
// what it did. No logs, flags, signals or threads; everything runs on the thread of its EventLoop.
#ifndef KIPT_AGENT_LOOP_CONTROL_LOOP_H_
#define KIPT_AGENT_LOOP_CONTROL_LOOP_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "agent/loop/attribution.h"
#include "agent/loop/clock.h"
#include "agent/loop/damping.h"
#include "agent/loop/event_loop.h"
#include "agent/loop/events.h"
#include "agent/loop/foreign_rules.h"
#include "agent/loop/pace.h"
#include "agent/loop/reconciler.h"
#include "agent/loop/round.h"
#include "agent/loop/writer.h"
#include "agent/loop/writer_watch.h"
#include "agent/policy/policy.h"
#include "featuregates/feature.h"
#include "netlink/backend.h"

namespace kipt::agent {

struct ControlLoopOptions {
  PolicyInput input;
  // What the node can hold; must outlive the agent. Null: everything.
  SupportSource* support = nullptr;
  // For AgentState only.
  featuregates::Version emulated_version;
  netlink::WatchMode watch = netlink::WatchMode::kEvents;
  // Nothing is written.
  bool observe = false;
  // Between two checks where nothing happens, and the longest wait after a failure or in a fight.
  absl::Duration sync_period = absl::Minutes(1);
  WriterSources writers = {};
  // --stale-chains=retire: what depends on which chain.
  std::optional<RetirementSources> retire = {};
  // ReadRouteLocalnet; may be empty.
  std::function<RouteLocalnet()> route_localnet = {};
  // Node::WhoDropsMartians; may be empty. Called where no rule of kubelet's drops martian packets.
  std::function<std::string()> who_drops_martians = {};
  // The rules of other programs that are expected; nothing: no others are reported, either.
  std::optional<std::vector<ExpectedRule>> foreign_rules = {};
  // What a check costs is the difference of two calls. Passed in for tests.
  std::function<absl::Duration()> cpu_used = CpuMeter();
  // How long one round retries where others keep changing the ruleset.
  absl::Duration patience = Clock().patience;
};

// Must be destroyed before its loop, and used only on the thread of the loop.
class ControlLoop {
 public:
  // Called until it succeeds, and again after its backend failed; must return the same kind then.
  using OpenBackend = std::function<absl::StatusOr<std::unique_ptr<netlink::Backend>>()>;
  // Called at the end of every round; may call the agent's const members and SetDesired.
  using Observer = std::function<void(const Round&)>;

  // The first round begins when the loop first turns. All failures are retried forever.
  ControlLoop(EventLoop& loop, ControlLoopOptions options, OpenBackend open_backend,
              Observer observer);
  ControlLoop(const ControlLoop&) = delete;
  ControlLoop& operator=(const ControlLoop&) = delete;

  // Holds from the next turn of the loop on, except `watch`. What it adds is no incident.
  void SetDesired(ControlLoopOptions options);
  // One round now, whatever is due. Not for the observer.
  void CheckNow();

  const AgentState& state() const { return state_; }

 private:
  struct FamilyRecord {
    // For this family alone; Pace waits where nothing can be read.
    Backoff backoff;
    // The last round put the desired state in place, except in `refused`: what is missing now was
    // damaged.
    bool settled = false;
    // The tables that `backoff` is for (FamilyResult::refused); empty: all.
    std::vector<netlink::Table> refused = {};
  };

  void OnSight();
  void OnTimer();
  // Sets the timer to the next check.
  void Rearm();
  double CpuShare() const;
  void NoteOptions();
  // To be called where the desired state changes.
  void ForgetRepairs();
  FamilyRecord& RecordOf(netlink::Family family);
  // Whether `change` belongs to a table of `record.refused`, or waits for one.
  bool IsRefused(const FamilyRecord& record, const Change& change) const;
  bool IsLegacy() const;

  // One round, now; where it throws, also later.
  void Turn(Trigger trigger);
  // After a round that threw, which began at `start`. Needs no memory.
  void DoLater(Trigger trigger, SteadyTime start);
  // A round, then its parts in order.
  Round DoRound(Trigger trigger, SteadyTime start);
  absl::Status EnsureBackend();
  void CloseBackend();
  // What was noticed since the last round. Starts to watch if necessary.
  SeenWriters Listen();
  // Reads, compares, and repairs what Restrain lets through.
  SyncReport Repair(bool periodic);
  // After each check.
  void NoteRules(const netlink::Snapshot& observed, const Plan& plan);
  std::vector<Change> Restrain(const Plan& plan);
  // A drop by another bit stays while what may mark packets with that bit has to wait.
  void HoldDrops(const Plan& plan, std::vector<Change>& allowed) const;
  // WaitsForOtherTables, of what is desired.
  bool Waits(const Change& change) const;
  // What WriterAttribution knows the new rules of other programs by.
  std::vector<Item> ForeignItems() const;
  // Jumps of kube-proxy's that the check before had, where its services still exist.
  std::vector<ForeignJump> LostProxyJumpsIn(const Plan& plan) const;
  // Findings about rules of other programs that the check before did not have.
  std::vector<Finding> NewBlockersIn(const Plan& plan) const;
  // What WriterAttribution is to find the writers of, apart from damage.
  std::vector<Item> ForeignChanges(const Plan& plan) const;
  void NoteLostProxyJumps(Round& round) const;
  void NoteBlockers(Round& round);
  // Reads which commits of others came before the last check.
  void NoteWriters(const SyncReport& report);
  void NoteForeignRules(Round& round);
  void NoteDamage(Round& round, SteadyTime noticed, SteadyTime ended);
  void NoteFamilies(Round& round, SteadyTime ended);
  void NoteState(const Round& round);

  ControlLoopOptions options_;
  OpenBackend open_backend_;
  Observer observer_;
  const std::unique_ptr<Timer> timer_;
  std::unique_ptr<netlink::Backend> backend_;
  // Of `backend_` and `options_`.
  std::optional<Reconciler> reconciler_;
  // Declared after backend_ so that it is destroyed first.
  WriterWatch writer_watch_;
  std::function<double()> jitter_;
  Pace pace_;
  Damping damping_;
  WriterAttribution attribution_;
  std::map<netlink::Family, FamilyRecord> records_;
  Trigger next_trigger_ = Trigger::kStart;
  SteadyTime last_periodic_ = SteadyTime::InfinitePast();
  // As the last check that succeeded found them.
  std::vector<ForeignJump> foreign_jumps_;
  std::optional<ForeignRules> foreign_rules_;
  Retirer retirer_;
  std::optional<uint64_t> martians_counted_;
  // Left out of this round: their next attempt is due later.
  std::set<netlink::Family> waiting_families_;
  AgentState state_;
};

}  // namespace kipt::agent

#endif  // KIPT_AGENT_LOOP_CONTROL_LOOP_H_
