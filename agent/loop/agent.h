// SPDX-License-Identifier: Apache-2.0
//
// File: agent/loop/agent.h
//
// Keeps a ruleset in place: checks whenever another process changes something, repairs, and tells
// what it did. A library: no logs, no flags, no signals, no threads; everything runs on the thread
// that turns its EventLoop.
#ifndef KIPT_AGENT_LOOP_AGENT_H_
#define KIPT_AGENT_LOOP_AGENT_H_

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
#include "agent/loop/clock.h"
#include "agent/loop/damping.h"
#include "agent/loop/event_loop.h"
#include "agent/loop/events.h"
#include "agent/loop/pace.h"
#include "agent/loop/reconciler.h"
#include "agent/loop/retirer.h"
#include "agent/loop/round.h"
#include "agent/loop/suspects.h"
#include "agent/loop/writer.h"
#include "agent/policy/policy.h"
#include "featuregates/version.h"
#include "netlink/backend.h"

namespace kipt::agent {

struct AgentOptions {
  PolicyInput input;
  // What the node can hold, for the agent's life; must outlive it. Null: everything.
  SupportSource* support = nullptr;
  // For AgentState only.
  featuregates::Version emulated_version;
  netlink::WatchMode watch = netlink::WatchMode::kEvents;
  // Everything but the writing is done.
  bool observe = false;
  // Between two looks where nothing happens, and the longest wait after a failure or in a fight.
  absl::Duration sync_period = absl::Minutes(1);
  WriterSources writers = {};
  // --stale-chains=retire: who depends on what. Chains are retired when nothing else is going on:
  // at the start, after a change of what is wanted, and by the timer.
  std::optional<RetirementSources> retire = {};
  // ReadRouteLocalnet, or nothing where that is not to be known.
  std::function<std::vector<std::string>()> route_localnet = {};
  // What a look costs is the difference of two calls. Passed in so that tests cost nothing.
  std::function<absl::Duration()> cpu_used = CpuUsed;
  // How long one round retries where others keep changing the ruleset.
  absl::Duration patience = Clock().patience;
};

// Must be destroyed before its loop, and used on the thread that turns the loop only.
class Agent {
 public:
  // Called until it succeeds, and again when the backend it gave has failed; it must give one of
  // the same mode then.
  using OpenBackend = std::function<absl::StatusOr<std::unique_ptr<netlink::Backend>>()>;
  // Called at the end of every round. May call the agent's const members and SetDesired.
  using Observer = std::function<void(const Round&)>;

  // The first attempt is made when the loop first turns. ResourceExhausted: no timer to be had.
  // Whatever fails later is retried for ever.
  static absl::StatusOr<std::unique_ptr<Agent>> Create(EventLoop& loop, AgentOptions options,
                                                       OpenBackend open_backend, Observer observer);

  ~Agent();
  Agent(const Agent&) = delete;
  Agent& operator=(const Agent&) = delete;

  // From the next turn of the loop on, something else is desired. What is put in place then is no
  // damage. How to watch stays as it is.
  void SetDesired(AgentOptions options);

  const AgentState& state() const { return state_; }

 private:
  struct FamilyRecord {
    // Of this family alone: where nothing can be read, Pace waits.
    Backoff backoff;
    // At the end of the last round the desired state was in place, except in tables of `refused`:
    // what is missing now was damaged.
    bool settled = false;
    // The tables that `backoff` is for (FamilyResult::refused); none: all of them.
    std::vector<netlink::Table> refused = {};
  };

  Agent(EventLoop& loop, AgentOptions options, OpenBackend open_backend, Observer observer);

  void OnSight();
  void OnTimer();
  // Sets the timer to the next check.
  void Rearm();
  void SetPace();
  void NoteOptions();
  // What was repaired by now is no measure of what is desired from now on.
  void ForgetRepairs();
  FamilyRecord& RecordOf(netlink::Family family);
  // Whether `change` belongs to a table of `record.refused`, or waits for one.
  bool IsRefused(const FamilyRecord& record, const Change& change) const;
  bool IsLegacy() const;

  // One round.
  void Turn(Trigger trigger);
  absl::Status EnsureBackend();
  void CloseBackend();
  // What was noticed since the last round. Watches from here on, if that is possible.
  Sighting Listen();
  // Reads, compares, and repairs what Restrain lets through.
  SyncReport Repair(Trigger trigger);
  Diff Restrain(const Plan& plan);
  // Which commits of others came before the last check of this round, as far as is known by now.
  void NoteSuspects(const SyncReport& report);
  // What the last round left in place and this one had to repair.
  void NoteDamage(Round& round, SteadyTime noticed, SteadyTime ended);
  void NoteFamilies(Round& round, SteadyTime ended);
  void NoteState(const Round& round);

  AgentOptions options_;
  OpenBackend open_backend_;
  Observer observer_;
  std::unique_ptr<EventSource> timer_;
  std::unique_ptr<netlink::Backend> backend_;
  // Declared after backend_ so that it is destroyed first.
  Lookout lookout_;
  // What waits are multiplied with.
  std::function<double()> jitter_;
  Pace pace_;
  Damping damping_;
  Suspects suspects_;
  std::map<netlink::Family, FamilyRecord> records_;
  Trigger next_trigger_ = Trigger::kStart;
  // Of the last check that succeeded.
  std::vector<ForeignJump> foreign_jumps_;
  Retirer retirer_;
  std::optional<uint64_t> martians_counted_;
  // Left out of this round, for it is not yet time for their next attempt.
  std::set<netlink::Family> waiting_families_;
  AgentState state_;
};

}  // namespace kipt::agent

#endif  // KIPT_AGENT_LOOP_AGENT_H_
