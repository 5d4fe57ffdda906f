// SPDX-License-Identifier: Apache-2.0
//
// An agent's loop over the kernel in memory, in real time.
#ifndef KIPT_TESTS_AGENT_LOOP_CONTROL_LOOP_FIXTURE_H_
#define KIPT_TESTS_AGENT_LOOP_CONTROL_LOOP_FIXTURE_H_

#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "agent/loop/control_loop.h"
#include "tests/support/borrowed_backend.h"
#include "tests/support/fake_backend.h"
#include "tests/support/matchers.h"
#include "tests/support/observed.h"
#include "tests/support/status_matchers.h"
#include "tests/support/turn_loop.h"

namespace kipt::agent {

// A kernel whose monitors report the changes that `filter` keeps.
class FiltersChanges : public BorrowedBackend {
 public:
  using Filter = std::function<void(netlink::RulesetChanges&)>;
  FiltersChanges(netlink::Backend* backend, Filter filter)
      : BorrowedBackend(backend), filter_(std::move(filter)) {}
  absl::StatusOr<std::unique_ptr<netlink::Monitor>> Watch(netlink::WatchMode mode) override {
    absl::StatusOr<std::unique_ptr<netlink::Monitor>> monitor = BorrowedBackend::Watch(mode);
    if (!monitor.ok()) return monitor;
    return std::make_unique<Filtering>(*std::move(monitor), filter_);
  }

 private:
  class Filtering : public netlink::Monitor {
   public:
    Filtering(std::unique_ptr<netlink::Monitor> monitor, Filter filter)
        : monitor_(std::move(monitor)), filter_(std::move(filter)) {}
    int fd() const override { return monitor_->fd(); }
    absl::StatusOr<netlink::RulesetChanges> Drain() override {
      absl::StatusOr<netlink::RulesetChanges> changes = monitor_->Drain();
      if (changes.ok()) filter_(*changes);
      return changes;
    }

   private:
    std::unique_ptr<netlink::Monitor> monitor_;
    Filter filter_;
  };

  Filter filter_;
};

class AgentTest : public ::testing::Test {
 protected:
  void SetUp() override {
    absl::StatusOr<std::unique_ptr<EventLoop>> loop = EventLoop::Create();
    ASSERT_THAT(loop, IsOk());
    loop_ = *std::move(loop);
  }

  ControlLoopOptions Options(Mode mode) const {
    return {.input = Wanting(mode, netlink::kFamilies, {}),
            .emulated_version = {1, 27},
            .watch = netlink::WatchMode::kEvents,
            .sync_period = sync_period_,
            .writers = {}};
  }

  // With --stale-chains=retire.
  ControlLoopOptions Retiring(Mode mode) const {
    ControlLoopOptions options = Options(mode);
    options.retire = RetirementSources{.cni = [] { return CniConfigs(); },
                                       .route_localnet = [] { return RouteLocalnet(); },
                                       .other_mode = [](DependentsCollector&) {}};
    options.route_localnet = [] { return RouteLocalnet(); };
    return options;
  }

  void Start(Mode mode) { StartWith(Options(mode)); }
  // Starts it and waits for its first rounds.
  bool Started(Mode mode, size_t rounds = 1) { return StartedWith(Options(mode), rounds); }
  bool StartedWith(ControlLoopOptions options, size_t rounds = 1) {
    StartWith(std::move(options));
    return TurnUntilRounds(rounds);
  }
  // The kernel refuses as `refusal` describes; tests may change that later.
  void Refuse(FamilyRefusal refusal) {
    refusal_ = refusal;
    door_ = [this] { return std::make_unique<RefusesFamily>(&kernel_, &refusal_); };
  }
  void StartWith(ControlLoopOptions options) {
    agent_ = std::make_unique<ControlLoop>(
        *loop_, std::move(options),
        [this]() -> absl::StatusOr<std::unique_ptr<netlink::Backend>> {
          ++opened_;
          return door_();
        },
        [this](const Round& round) {
          rounds_.push_back(round);
          at_round_();
        });
  }

  bool TurnUntil(absl::FunctionRef<bool()> done) { return kipt::testing::TurnUntil(*loop_, done); }
  bool TurnUntilRounds(size_t count) {
    return TurnUntil([&] { return rounds_.size() >= count; });
  }
  void TurnFor(absl::Duration duration) {
    const SteadyTime end = SteadyNow() + duration;
    TurnUntil([&] { return SteadyNow() >= end; });
  }
  bool InPlace() {
    for (const FamilyState& family : agent_->state().families) {
      if (family.phase != FamilyPhase::kInPlace) return false;
    }
    return true;
  }
  // Deletes the jump in `chain`, as another process.
  void DeleteJump(const netlink::ChainId& chain) {
    const netlink::ObservedChain* found = kernel_.state().Find(chain);
    ASSERT_NE(found, nullptr);
    ASSERT_THAT(found->rules, Not(IsEmpty()));
    kernel_.RemoveRule(chain, found->rules[0].handle);
  }

  // Another process deletes the jump in `chain` as soon as it is there. True where it is missing
  // and its repair waits for `wait` or longer: the first wait is so short that it might pass
  // unnoticed.
  bool FightUntilItWaits(const netlink::ChainId& chain,
                         absl::Duration wait = absl::Milliseconds(200)) {
    return TurnUntil([&] {
      const netlink::ObservedChain* found = kernel_.state().Find(chain);
      const bool exists = found != nullptr && !found->rules.empty();
      if (exists) {
        kernel_.ActAs(4'194'306, "rival");
        kernel_.RemoveRule(chain, found->rules[0].handle);
      }
      return !exists && !agent_->state().fights.empty() && agent_->state().fights[0].wait >= wait;
    });
  }

  FakeBackend kernel_;
  // What the agent is given whenever it opens a backend.
  std::function<std::unique_ptr<netlink::Backend>()> door_ = [this] {
    return std::make_unique<BorrowedBackend>(&kernel_);
  };
  FamilyRefusal refusal_ = {};
  int opened_ = 0;
  absl::Duration sync_period_ = absl::Minutes(1);
  std::vector<Round> rounds_;
  // Called at the end of each round, before anything else happens.
  std::function<void()> at_round_ = [] {};
  std::unique_ptr<EventLoop> loop_;
  std::unique_ptr<ControlLoop> agent_;
};

}  // namespace kipt::agent

#endif  // KIPT_TESTS_AGENT_LOOP_CONTROL_LOOP_FIXTURE_H_
