// SPDX-License-Identifier: Apache-2.0
//
// The library and the daemon on this machine's kernel, next to kube-proxy's rules for a number of
// services. Times are those of single operations, with what was prepared before them left out.
#include <benchmark/benchmark.h>
#include <poll.h>

#include <csignal>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "tests/bench/node.h"
#include "tests/support/background_program.h"
#include "tests/support/figures.h"
#include "tests/support/generation_listener.h"
#include "tests/support/http_get.h"
#include "tests/support/process_cost.h"

namespace kipt::testing {
namespace {

using benchmark::State;
using Step = std::function<absl::Status(Node&)>;

constexpr int kHealthPort = 10270;
// The daemon's comm: 15 characters of its name.
constexpr char kDaemonComm[] = "kube-iptables-a";
// A commit that deletes leaves work in the kernel, for which the next xtables match waits.
constexpr absl::Duration kSettling = absl::Milliseconds(60);
// Beyond the second within which repeated damage is a fight.
constexpr absl::Duration kBetweenIncidents = absl::Milliseconds(1100);
constexpr int kStormRules = 40000;
constexpr absl::Duration kIdle = absl::Seconds(60);

// One node at a time: 30,000 services take a while to load.
absl::StatusOr<Node*> NodeOf(IptablesMode mode, int services) {
  static std::unique_ptr<Node> current;
  if (current == nullptr || current->mode() != mode || current->services() != services) {
    current.reset();
    absl::StatusOr<std::unique_ptr<Node>> made = Node::Create(mode, services);
    if (!made.ok()) return made.status();
    current = *std::move(made);
  }
  return current.get();
}

void SetCounters(State& state, const Figures& figures) {
  state.counters["min_us"] = absl::ToDoubleMicroseconds(figures.Quantile(0));
  state.counters["median_us"] = absl::ToDoubleMicroseconds(figures.Median());
  state.counters["p99_us"] = absl::ToDoubleMicroseconds(figures.Quantile(0.99));
}

void Time(State& state, IptablesMode mode, int services, const Step& prepare, const Step& run) {
  const absl::StatusOr<Node*> node = NodeOf(mode, services);
  if (!node.ok()) return state.SkipWithError(std::string(node.status().message()).c_str());
  Figures figures;
  for (auto _ : state) {
    absl::Status status = prepare(**node);
    const absl::Time start = absl::Now();
    if (status.ok()) status = run(**node);
    const absl::Duration took = absl::Now() - start;
    if (!status.ok()) return state.SkipWithError(std::string(status.message()).c_str());
    state.SetIterationTime(absl::ToDoubleSeconds(took));
    figures.Add(took);
  }
  SetCounters(state, figures);
}

absl::Status Settled(absl::Status status) {
  absl::SleepFor(kSettling);
  return status;
}

std::unique_ptr<BackgroundProgram> StartDaemon(IptablesMode mode,
                                               const std::string& watch = "events") {
  auto daemon = std::make_unique<BackgroundProgram>(std::vector<std::string>{
      KIPT_AGENT_PROGRAM, "run", "--watch=" + watch, absl::StrCat("--iptables-mode=", NameOf(mode)),
      "--feature-gates=IPTablesOwnershipCleanup=false"});
  WaitUntil([] { return HttpGet(kHealthPort, "/readyz").status == 200; }, absl::Minutes(1));
  return daemon;
}

// From the commit of the damage to that of the repair, as this process wakes for the kernel's
// events.
absl::StatusOr<absl::Duration> RepairOnNft(Node& node, GenerationListener& listener) {
  if (const auto before = listener.Drain(); !before.ok()) return before.status();
  BackgroundProgram damage({"iptables-nft", "-t", "nat", "-F", "KUBE-POSTROUTING"});
  absl::Time damaged = absl::InfinitePast();
  const absl::Time deadline = absl::Now() + kPatience;
  while (absl::Now() < deadline) {
    pollfd readable = {.fd = listener.fd(), .events = POLLIN, .revents = 0};
    poll(&readable, 1, 100);
    const absl::Time now = absl::Now();
    const auto changes = listener.Drain();
    if (!changes.ok()) return changes.status();
    for (const netlink::RulesetChange& change : changes->writers) {
      if (change.command != kDaemonComm) damaged = now;
      if (change.command == kDaemonComm && damaged != absl::InfinitePast()) {
        damage.Wait();
        if (absl::Status status = node.Check(); !status.ok()) return status;
        return now - damaged;
      }
    }
  }
  return absl::DeadlineExceededError("damage was not repaired");
}

// From the end of the damaging program to the line in the daemon's log.
absl::StatusOr<absl::Duration> RepairOnLegacy(Node& node, BackgroundProgram& daemon, int number) {
  if (absl::Status status = node.DamagePostrouting(); !status.ok()) return status;
  const absl::Time damaged = absl::Now();
  while (CountOf("Repaired in ", daemon.Output()) < number) {
    if (absl::Now() > damaged + kPatience) {
      return absl::DeadlineExceededError("damage was not repaired: " + daemon.Output());
    }
    absl::SleepFor(absl::Microseconds(200));
  }
  return absl::Now() - damaged;
}

void Incidents(State& state, IptablesMode mode, int services) {
  const absl::StatusOr<Node*> node = NodeOf(mode, services);
  if (!node.ok()) return state.SkipWithError(std::string(node.status().message()).c_str());
  const auto daemon = StartDaemon(mode);
  auto listener = GenerationListener::Create();
  if (!listener.ok()) return state.SkipWithError("no listener");
  Figures figures;
  int number = 0;
  for (auto _ : state) {
    const absl::StatusOr<absl::Duration> took = mode == IptablesMode::kNft
                                                    ? RepairOnNft(**node, *listener)
                                                    : RepairOnLegacy(**node, *daemon, ++number);
    if (!took.ok()) return state.SkipWithError(std::string(took.status().message()).c_str());
    state.SetIterationTime(absl::ToDoubleSeconds(*took));
    figures.Add(*took);
    absl::SleepFor(kBetweenIncidents);
  }
  SetCounters(state, figures);
  daemon->Signal(SIGTERM);
  daemon->Wait();
}

// What a transaction of many rules takes another program, next to the daemon that watches in this
// way, or without it (`watch` empty). And what each takes of the daemon's time; with events also
// its wake-ups afterwards, while nothing happens, and its memory.
void OthersCommit(State& state, const std::string& watch) {
  const absl::StatusOr<Node*> node = NodeOf(IptablesMode::kNft, 0);
  if (!node.ok()) return state.SkipWithError(std::string(node.status().message()).c_str());
  const auto daemon = watch.empty() ? nullptr : StartDaemon(IptablesMode::kNft, watch);
  const bool measures_daemon = watch == "events";
  Figures commits;
  Figures cpu;
  for (auto _ : state) {
    if (measures_daemon) ComesToRest(daemon->pid());
    const auto before = ThreadCosts(measures_daemon ? daemon->pid() : 0);
    const auto took = (*node)->other_program().CommitRules(kStormRules);
    if (!took.ok()) return state.SkipWithError("the transaction failed");
    absl::SleepFor(absl::Milliseconds(500));
    if (measures_daemon) cpu.Add(Spent(before, ThreadCosts(daemon->pid())).cpu);
    state.SetIterationTime(absl::ToDoubleSeconds(*took));
    commits.Add(*took);
    (*node)->other_program().RemoveRules().IgnoreError();
  }
  SetCounters(state, commits);
  if (!measures_daemon) return;
  state.counters["storm_cpu_us"] = absl::ToDoubleMicroseconds(cpu.Median());
  ComesToRest(daemon->pid());
  const auto before = ThreadCosts(daemon->pid());
  absl::SleepFor(kIdle);
  state.counters["idle_wakeups"] =
      static_cast<double>(Spent(before, ThreadCosts(daemon->pid())).wakeups);
  const Memory memory = MemoryOf(daemon->pid());
  state.counters["rss_anon_kib"] = static_cast<double>(memory.anonymous_kib);
  state.counters["rss_kib"] = static_cast<double>(memory.resident_kib);
}

void Register(IptablesMode mode, int services) {
  const bool nft = mode == IptablesMode::kNft;
  const auto add = [&](const std::string& name, int iterations, const Step& prepare,
                       const Step& run) {
    benchmark::RegisterBenchmark(absl::StrCat(NameOf(mode), "/", services, "/", name).c_str(),
                                 [=](State& state) { Time(state, mode, services, prepare, run); })
        ->UseManualTime()
        ->Iterations(iterations);
  };
  const Step nothing = [](Node&) { return absl::OkStatus(); };
  const Step check = [](Node& node) { return node.Check(); };
  const Step repair = [](Node& node) { return node.Repair(); };
  add("check", nft ? 1000 : 10, nothing, check);
  if (nft) {
    const Step commit = [](Node& node) {
      return Settled(node.other_program().CommitChain().status());
    };
    add("the kernel's part of a check", 1000, nothing,
        [](Node& node) { return node.AskForEverything(); });
    add("check after a commit", 50, commit, check);
  }
  add(
      "repair", 10, [](Node& node) { return Settled(node.DamagePostrouting()); }, repair);
  add(
      "cold", 10, [](Node& node) { return Settled(RemoveKubelets(node.mode())); }, repair);
  if (services > 10000 || (!nft && services > 0)) return;
  benchmark::RegisterBenchmark(absl::StrCat(NameOf(mode), "/", services, "/incident").c_str(),
                               [=](State& state) { Incidents(state, mode, services); })
      ->UseManualTime()
      ->Iterations(100);
}

}  // namespace
}  // namespace kipt::testing

int main(int argc, char** argv) {
  using kipt::testing::IptablesMode;
  for (const int services : {0, 1000, 10000, 30000}) {
    kipt::testing::Register(IptablesMode::kNft, services);
  }
  for (const int services : {0, 1000, 10000}) {
    kipt::testing::Register(IptablesMode::kLegacy, services);
  }
  for (const std::string watch : {"", "events", "poll"}) {
    const std::string name = "nft/0/40,000 rules of another program, " +
                             (watch.empty() ? "no daemon" : "--watch=" + watch);
    benchmark::RegisterBenchmark(
        name.c_str(), [=](benchmark::State& state) { kipt::testing::OthersCommit(state, watch); })
        ->UseManualTime()
        ->Iterations(9);
  }
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 64;
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}
