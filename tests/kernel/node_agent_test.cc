// SPDX-License-Identifier: Apache-2.0
//
// The library inside a host program: agents of other network namespaces than the one that the
// program's thread is in and stays in, whatever happens.
#include "agent/node_agent.h"

#include <poll.h>
#include <pthread.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <csignal>
#include <memory>
#include <new>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/time/clock.h"
#include "agent/agent.h"
#include "agent/loop/clock.h"
#include "agent/loop/event_loop.h"
#include "agent/process/network_namespaces.h"
#include "tests/support/background_program.h"
#include "tests/support/kubelet_sequence.h"
#include "tests/support/matchers.h"
#include "tests/support/netns_fixture.h"
#include "tests/support/run_program.h"
#include "tests/support/status_matchers.h"
#include "tests/support/temporary_tree.h"
#include "tests/support/turn_loop.h"

namespace kipt::agent {
namespace {

using ::kipt::testing::NewNetns;

using ::kipt::testing::InNetns;
using ::kipt::testing::Netns;
using ::kipt::testing::NetnsTest;
using ::kipt::testing::NoCniUser;
using ::kipt::testing::ProgramResult;
using ::kipt::testing::RunProgram;

ino_t ThreadNetns() {
  struct stat about = {};
  return stat("/proc/thread-self/ns/net", &about) == 0 ? about.st_ino : 0;
}

Flags FlagsFor(const std::string& iptables_mode) {
  return {.config = {}, .iptables_mode = iptables_mode};
}

// What `program` prints inside `netns`.
std::string Printed(const Netns& netns, const std::vector<std::string>& argv) {
  const InNetns inside(netns);
  const ProgramResult result = RunProgram(argv);
  EXPECT_EQ(result.exit_code, 0) << result;
  return result.out;
}

std::string Program(const std::string& mode, const std::string& suffix = "") {
  return "iptables-" + mode + suffix;
}

// One agent, its rounds and its notices.
struct Hosted {
  std::unique_ptr<Agent> agent;
  std::vector<Round> rounds;
  std::vector<std::string> notices;

  bool InPlace() const {
    for (const FamilyState& family : agent->state().families) {
      if (family.phase != FamilyPhase::kInPlace) return false;
    }
    return !rounds.empty();
  }
};

class NodeAgentTest : public kipt::testing::PrivateRunTest {
 protected:
  void SetUp() override {
    PrivateRunTest::SetUp();
    if (HasFatalFailure()) return;
    home_ = ThreadNetns();
    absl::StatusOr<std::unique_ptr<EventLoop>> loop = EventLoop::Create();
    ASSERT_THAT(loop, IsOk());
    loop_ = *std::move(loop);
  }
  void TearDown() override {
    EXPECT_EQ(ThreadNetns(), home_) << "the host's thread has moved";
    // Nothing was ever made where the host program is.
    EXPECT_EQ(RunProgram({"nft", "list", "ruleset"}).out, "");
    EXPECT_THAT(kipt::testing::IptablesLegacyTables(kipt::testing::IpFamily::kIpv4), IsEmpty());
  }

  // Fails the test where there is none.
  std::unique_ptr<Hosted> Serve(const Netns& netns, const Flags& flags,
                                IptablesLegacyOptions legacy = {}) {
    auto hosted = std::make_unique<Hosted>();
    const absl::StatusOr<Config> config = ResolveConfigIn(netns.Path(), flags);
    EXPECT_THAT(config, IsOk());
    if (!config.ok()) return nullptr;
    absl::StatusOr<std::unique_ptr<Agent>> agent = Agent::Create(
        *loop_, {.config = *config, .netns = netns.Path(), .legacy = legacy},
        {.round = [to = hosted.get()](const Round& round) { to->rounds.push_back(round); },
         .notice = [to = hosted.get()](
                       absl::LogSeverity,
                       absl::string_view text) { to->notices.emplace_back(text); }});
    EXPECT_THAT(agent, IsOk());
    if (!agent.ok()) return nullptr;
    hosted->agent = *std::move(agent);
    EXPECT_EQ(ThreadNetns(), home_);
    return hosted;
  }

  bool TurnUntil(absl::FunctionRef<bool()> done) {
    return kipt::testing::TurnUntil(
        *loop_,
        [&] {
          EXPECT_EQ(ThreadNetns(), home_);
          return done();
        },
        absl::Seconds(10));
  }

  ino_t home_ = 0;
  std::unique_ptr<EventLoop> loop_;
};

class NodeAgentModeTest : public NodeAgentTest,
                          public ::testing::WithParamInterface<std::string> {};

TEST_P(NodeAgentModeTest, RetiresInTheNamespaceThatItServes) {
  const Netns served = NewNetns();
  Flags flags = FlagsFor(GetParam());
  flags.feature_gates = {"IPTablesOwnershipCleanup=false"};
  {
    const std::unique_ptr<Hosted> hosted = Serve(served, flags);
    ASSERT_NE(hosted, nullptr);
    ASSERT_TRUE(TurnUntil([&] { return hosted->InPlace(); }));
  }
  EXPECT_THAT(Printed(served, {Program(GetParam(), "-save")}), HasSubstr("KUBE-MARK-DROP"))
      << "an agent that ends leaves the rules";
  flags.feature_gates.clear();
  flags.stale_chains = "retire";
  const NoCniUser no_cni;
  flags.cni_conf_dir = no_cni.root();
  const std::unique_ptr<Hosted> hosted = Serve(served, flags);
  ASSERT_NE(hosted, nullptr);
  const auto retired = [](const Round& round) {
    return round.retirement && round.retirement->applied;
  };
  EXPECT_TRUE(TurnUntil(
      [&] { return std::any_of(hosted->rounds.begin(), hosted->rounds.end(), retired); }));
  EXPECT_THAT(Printed(served, {Program(GetParam(), "-save")}), Not(HasSubstr("KUBE-MARK-DROP")));
}

INSTANTIATE_TEST_SUITE_P(Modes, NodeAgentModeTest, ::testing::Values("nft", "legacy"),
                         [](const auto& mode) { return mode.param; });

TEST_F(NodeAgentTest, AgentsOfTwoThreadsDoNotKnowOfEachOther) {
  const Netns served[] = {NewNetns(), NewNetns()};
  bool in_place[] = {false, false};
  std::vector<std::thread> hosts;
  for (size_t i = 0; i < 2; ++i) {
    hosts.emplace_back([&, i] {
      const std::unique_ptr<EventLoop> loop = *EventLoop::Create();
      const Config config = *ResolveConfigIn(served[i].Path(), FlagsFor("nft"));
      const std::unique_ptr<Agent> agent =
          *Agent::Create(*loop, {.config = config, .netns = served[i].Path()}, {});
      const absl::Time deadline = absl::Now() + absl::Seconds(10);
      while (absl::Now() < deadline && loop->Dispatch().ok()) {
        in_place[i] = agent->state().families[0].phase == FamilyPhase::kInPlace;
        if (in_place[i]) break;
        absl::SleepFor(absl::Milliseconds(5));
      }
    });
  }
  for (std::thread& host : hosts) host.join();
  EXPECT_TRUE(in_place[0]);
  EXPECT_TRUE(in_place[1]);
}

TEST_F(NodeAgentTest, ANamespaceLivesOnWithoutItsName) {
  std::optional<Netns> served(NewNetns());
  const std::unique_ptr<Hosted> hosted = Serve(*served, FlagsFor("legacy"));
  ASSERT_NE(hosted, nullptr);
  served.reset();
  EXPECT_TRUE(TurnUntil([&] { return hosted->InPlace(); }));
}

// The library's front door, over the same.
class FrontDoorTest : public NodeAgentTest {
 protected:
  NodeAgentOptions In(const Netns& netns) const {
    return {.netns = netns.Path(), .iptables_mode = IptablesMode::kNft};
  }
  static bool DispatchUntil(NodeAgent& agent, absl::FunctionRef<bool()> done) {
    const SteadyTime deadline = SteadyNow() + absl::Seconds(10);
    while (!done()) {
      if (SteadyNow() > deadline || !agent.Dispatch().ok()) return false;
      pollfd waited{.fd = agent.fd(), .events = POLLIN, .revents = 0};
      if (!done()) poll(&waited, 1, 10);
    }
    return true;
  }
};

TEST_F(FrontDoorTest, PlansWithoutAChangeAndSyncsAtOnce) {
  const Netns served = NewNetns();
  std::vector<Event> events;
  auto agent = NodeAgent::Create(In(served),
                                 {.round = [&](const Event& event) { events.push_back(event); }});
  ASSERT_THAT(agent, IsOk());
  const absl::StatusOr<Diff> plan = (*agent)->Plan();
  ASSERT_THAT(plan, IsOk());
  EXPECT_THAT(plan->changes, Not(IsEmpty()));
  EXPECT_EQ((*agent)->Plan()->changes, plan->changes) << "the first changed nothing";
  EXPECT_THAT(events, IsEmpty());

  const absl::StatusOr<std::vector<Change>> made = (*agent)->Sync();
  ASSERT_THAT(made, IsOk());
  EXPECT_EQ(*made, plan->changes);
  ASSERT_THAT(events, SizeIs(1));
  EXPECT_EQ(events[0].trigger, Trigger::kStart);
  EXPECT_THAT((*agent)->Plan()->changes, IsEmpty());
  EXPECT_THAT(*(*agent)->Sync(), IsEmpty());

  // Who did it is known as in Dispatch.
  Printed(served, {"iptables-nft", "-F", "KUBE-FIREWALL"});
  EXPECT_THAT(*(*agent)->Sync(), SizeIs(1));
  EXPECT_TRUE(events.back().incident.has_value());
  ASSERT_TRUE(DispatchUntil(**agent, [&] { return IsReady((*agent)->state()); }));
}

TEST_F(FrontDoorTest, CallsNothingBeforeItIsMadeOrWhileItTakesOptions) {
  const Netns served = NewNetns();
  std::unique_ptr<NodeAgent> agent;
  std::vector<std::string> notices;
  bool fails = true;
  NodeAgentOptions options = In(served);
  options.labels = {.masquerade = 1, .drop = 2};  // without the gate: worth a warning
  auto made = NodeAgent::Create(options, {.notice = [&](absl::LogSeverity, absl::string_view text) {
                                  ASSERT_NE(agent, nullptr) << text;
                                  if (std::exchange(fails, false)) throw std::bad_alloc();
                                  notices.push_back(StatusLine(agent->state()));
                                }});
  ASSERT_THAT(made, IsOk());
  agent = *std::move(made);
  pollfd waited{.fd = agent->fd(), .events = POLLIN, .revents = 0};
  EXPECT_THAT(notices, IsEmpty());
  EXPECT_THROW(agent->Dispatch().IgnoreError(), std::bad_alloc);
  EXPECT_EQ(poll(&waited, 1, 0), 1) << "the others are due";
  EXPECT_THAT(agent->Dispatch(), IsOk());
  EXPECT_THAT(notices, Not(IsEmpty()));
  notices.clear();
  EXPECT_THAT(agent->SetOptions(options), IsOk());
  EXPECT_THAT(notices, IsEmpty());
  EXPECT_EQ(poll(&waited, 1, 0), 1) << "they are due";
  EXPECT_THAT(agent->Dispatch(), IsOk());
  EXPECT_THAT(notices, Not(IsEmpty()));
}

TEST_F(FrontDoorTest, WhatItSaysOfTheOptionsThatAHandlerSetComesSoon) {
  const Netns served = NewNetns();
  std::unique_ptr<NodeAgent> agent;
  int rounds = 0;
  int notices = 0;
  auto made = NodeAgent::Create(
      In(served), {.round =
                       [&](const Event&) {
                         if (++rounds > 1) return;
                         NodeAgentOptions options = In(served);
                         options.labels = {.masquerade = 1, .drop = 2};
                         EXPECT_THAT(agent->SetOptions(options), IsOk());
                         notices = 0;
                       },
                   .notice = [&](absl::LogSeverity, absl::string_view) { ++notices; }});
  ASSERT_THAT(made, IsOk());
  agent = *std::move(made);
  const SteadyTime end = SteadyNow() + absl::Seconds(10);
  pollfd waited{.fd = agent->fd(), .events = POLLIN, .revents = 0};
  while (notices == 0 && SteadyNow() < end) {
    ASSERT_THAT(agent->Dispatch(), IsOk());
    if (rounds > 0 && notices == 0) ASSERT_EQ(poll(&waited, 1, 5000), 1);
  }
}

TEST_F(FrontDoorTest, RefusesWhatIsWrongAndWhatIsFixedAndKeepsRunning) {
  const Netns served = NewNetns();
  NodeAgentOptions options = In(served);
  options.feature_gates = {{"NoSuchGate", true}};
  EXPECT_THAT(NodeAgent::Create(options, {}),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("--feature-gates: unrecognized feature gate: NoSuchGate")));
  options.feature_gates = {{"IPTablesOwnershipCleanup=false,AllAlpha", true}};
  EXPECT_THAT(NodeAgent::Create(options, {}), StatusIs(absl::StatusCode::kInvalidArgument));
  options.feature_gates = {{"IPTablesOwnershipCleanup", false}};
  for (const char* directory : {"/a,/b", "", "etc"}) {
    NodeAgentOptions odd = options;
    odd.cni_conf_dirs = {directory};
    EXPECT_THAT(NodeAgent::Create(odd, {}),
                StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("without commas")));
  }
  for (const absl::Duration limit : {absl::ZeroDuration(), absl::InfiniteDuration()}) {
    NodeAgentOptions limited = options;
    limited.program_deadline = limit;
    EXPECT_THAT(NodeAgent::Create(limited, {}), StatusIs(absl::StatusCode::kInvalidArgument));
  }
  auto agent = NodeAgent::Create(options, {});
  ASSERT_THAT(agent, IsOk());
  ASSERT_TRUE(DispatchUntil(**agent, [&] { return IsReady((*agent)->state()); }));
  EXPECT_EQ((*agent)->state().mode, Mode::kLegacy);
  EXPECT_THAT(AgentInside(**agent).Ask(
                  [](Node& node) { EXPECT_EQ(node.clock().patience, absl::Seconds(1)); }),
              IsOk());
  NodeAgentOptions other = options;
  other.longest_retry = absl::Seconds(2);
  EXPECT_THAT((*agent)->SetOptions(other), StatusIs(absl::StatusCode::kFailedPrecondition));
  other = options;
  other.iptables_mode = IptablesMode::kLegacy;
  EXPECT_THAT((*agent)->SetOptions(other),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("iptablesMode")));
  EXPECT_TRUE(IsReady((*agent)->state()));
  other = options;
  other.feature_gates.clear();
  EXPECT_THAT((*agent)->SetOptions(other), IsOk());
  ASSERT_TRUE(DispatchUntil(**agent, [&] {
    return (*agent)->state().mode == Mode::kCleanup && IsReady((*agent)->state());
  }));
}

TEST_F(FrontDoorTest, HearsOfChangesThoughAForkedChildHasDestroyedIt) {
  const Netns served = NewNetns();
  auto agent = NodeAgent::Create(In(served), {});
  ASSERT_THAT(agent, IsOk());
  ASSERT_TRUE(DispatchUntil(**agent, [&] { return IsReady((*agent)->state()); }));
  const pid_t child = fork();
  if (child == 0) {
    agent->reset();
    _exit(0);
  }
  waitpid(child, nullptr, 0);
  Printed(served, {"iptables-nft", "-F", "KUBE-FIREWALL"});
  EXPECT_TRUE(DispatchUntil(**agent, [&] { return (*agent)->state().incidents == 1; }));
}

TEST_F(FrontDoorTest, TakesOptionsThoughTheNamespaceAndTheHostsRootHaveLostTheirNames) {
  std::optional<Netns> served(NewNetns());
  std::optional<TemporaryTree> host(std::in_place);
  NodeAgentOptions options = In(*served);
  options.host_root = host->root();
  const auto agent = NodeAgent::Create(options, {});
  ASSERT_THAT(agent, IsOk());
  served.reset();
  host.reset();
  options.observe = true;
  EXPECT_THAT((*agent)->SetOptions(options), IsOk());
}

class VisitedNamespaceTest : public NetnsTest {};

TEST_F(VisitedNamespaceTest, IsVisitedByAnotherThreadThatHearsNoSignals) {
  const Netns there = NewNetns();
  const ino_t home = ThreadNetns();
  const absl::StatusOr<VisitedNamespace> visited = VisitedNamespace::Open(there.Path());
  ASSERT_THAT(visited, IsOk());
  ino_t seen = 0;
  pid_t visitor = 0;
  sigset_t blocked;
  EXPECT_THAT(visited->Visit([&] {
    seen = ThreadNetns();
    visitor = gettid();
    pthread_sigmask(SIG_BLOCK, nullptr, &blocked);
  }),
              IsOk());
  EXPECT_EQ(seen, visited->inode());
  EXPECT_NE(seen, home);
  EXPECT_EQ(ThreadNetns(), home);
  EXPECT_NE(visitor, gettid());
  EXPECT_EQ(sigismember(&blocked, SIGTERM), 1);
  sigset_t own;
  pthread_sigmask(SIG_BLOCK, nullptr, &own);
  EXPECT_EQ(sigismember(&own, SIGTERM), 0) << "the caller's are as before";
  static std::atomic<bool> heard = false;
  std::signal(SIGUSR1, [](int /*signal*/) { heard = true; });
  bool in_time = false;
  const pthread_t caller = pthread_self();
  EXPECT_THAT(visited->Visit([&] {
    pthread_kill(caller, SIGUSR1);
    in_time = kipt::testing::WaitUntil([] { return heard.load(); }, absl::Seconds(5));
  }),
              IsOk());
  EXPECT_TRUE(in_time) << "and it hears them while it waits";
  EXPECT_THROW(visited->Visit([] { throw std::bad_alloc(); }).IgnoreError(), std::bad_alloc);
}

}  // namespace
}  // namespace kipt::agent
