// SPDX-License-Identifier: Apache-2.0
//
// How one knows what a running agent has done, without sleeping and hoping:
//
//   * That it has put things right after others' changes: `kube-iptables-agent plan`, a process of
//     its own, finds nothing to change. What the kernel holds is asked, not the daemon.
//   * That a minute has passed for it: its period is a second here (the shortest there is), and its
//     log, with --vmodule=round_log=2, has a line "Round (timer)" when one of its periodic rounds
//     is over; retiring what is stale is part of that round.
#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "tests/skew/actors/actors.h"
#include "tests/skew/actors/iptables_calls.h"
#include "tests/support/background_program.h"
#include "tests/support/http_get.h"

namespace kipt::skew {
namespace {

using testing::BackgroundProgram;
using testing::ProgramResult;
using testing::WaitUntil;

// The node's network namespace is its own, and so are its ports.
constexpr int kHealthPort = 10270;

// Longer than the agent waits for a `kube-proxy --cleanup` (kCleanupWait of agent/loop/damping.h).
constexpr absl::Duration kPatience = absl::Seconds(10);

// `plan` opens the lock of legacy iptables, which wakes the daemon: not more often than is needed.
constexpr absl::Duration kFirstPause = absl::Milliseconds(10);
constexpr absl::Duration kLongestPause = absl::Milliseconds(200);

// Longer than any round takes on a test node: a round that ends later than this has begun since.
constexpr absl::Duration kLongestRound = absl::Milliseconds(250);
constexpr char kTimerRound[] = "Round (timer)";

constexpr Version kOldestEmulated = {1, 24};

// Nothing of /etc/kube-iptables-agent counts.
constexpr char kConfig[] =
    "apiVersion: kube-iptables-agent/v1alpha1\nkind: KubeIPTablesAgentConfiguration\n";
constexpr char kConfigFile[] = "config.yaml";

// A finding that needs attention ends `plan` with 2 too.
bool NothingToDo(const ProgramResult& plan) {
  return plan.exit_code == 0 ||
         (plan.exit_code == 2 && absl::StrContains(plan.out, "\n0 to add, 0 to remove, "));
}

// The part of a log line that belongs in a report: warnings and errors, and what was done. Empty:
// not worth it. A line is "I1121 05:14:03.568277 12650 round_log.cc:54] Made 8 changes ...".
std::string NewsOf(const std::string& line) {
  const size_t head = line.find("] ");
  if (head == std::string::npos) return "";
  std::string text = line.substr(head + 2);
  if (absl::StrContains("WEF", line.substr(0, 1))) return text;
  for (const char* start : {"Made ", "Refilled ", "Retired unused ", "Kept "}) {
    if (absl::StartsWith(text, start)) return text;
  }
  return "";
}

// A directory that is removed with the object. It is made in /run: where that is a PrivateRun's,
// even a killed process leaves nothing.
class OwnDirectory {
 public:
  OwnDirectory() {
    std::string pattern = "/run/kipt-scratch-XXXXXX";
    if (mkdtemp(pattern.data()) != nullptr) path_ = pattern;
  }
  ~OwnDirectory() {
    std::error_code ignored;
    if (!path_.empty()) std::filesystem::remove_all(path_, ignored);
  }
  OwnDirectory(const OwnDirectory&) = delete;
  OwnDirectory& operator=(const OwnDirectory&) = delete;

  std::string Path(const std::string& name) const { return path_ + "/" + name; }
  // False where there is no place for it.
  bool Fill() const {
    std::error_code error;
    if (path_.empty() || !std::filesystem::create_directory(Path("host"), error) ||
        !std::filesystem::create_directory(Path("cni"), error)) {
      return false;
    }
    std::ofstream(Path("cni/10-net.conf")) << "{}";
    std::ofstream file(Path(kConfigFile));
    file << kConfig;
    file.close();
    return file.good();
  }

 private:
  std::string path_;
};

class AgentDaemon : public NodeAgent {
 public:
  explicit AgentDaemon(const AgentDaemonSettings& settings)
      : settings_(settings), emulated_(settings.version) {
    emulated_.version = std::max(emulated_.version, kOldestEmulated);
  }

  Act Start() override {
    if (!directory_.Fill()) {
      return {.ok = false, .error = "no directory of its own to be had in /run"};
    }
    std::vector<std::string> command = {settings_.program, "run"};
    for (std::string& flag : Flags()) command.push_back(std::move(flag));
    command.insert(command.end(), {absl::StrCat("--healthz-bind-address=127.0.0.1:", kHealthPort),
                                   "--metrics-bind-address=", "--iptables-sync-period=1s",
                                   "--stale-chains=retire", "--vmodule=round_log=2"});
    reported_ = 0;
    daemon_ = std::make_unique<BackgroundProgram>(std::move(command));
    const bool over = WaitUntil([this] { return IsReady() || !daemon_->Running(); }, kPatience);
    if (over && daemon_->Running()) return Finish({.done = {"ready"}});
    const std::string body = AskHealth("/readyz?verbose").body;
    return Finish({.ok = false,
                   .error = absl::StrCat(
                       over ? absl::StrCat("ended with ", daemon_->Wait(), ": ") : "not ready: ",
                       LastLines(body), LastLines(daemon_->Output()))});
  }

  Act Settle() override {
    Act act;
    if (!Runs(act)) return act;
    ProgramResult plan;
    absl::Duration pause = kFirstPause;
    const absl::Time end = absl::Now() + kPatience;
    while (!NothingToDo(plan = Plan())) {
      if (absl::Now() >= end) {
        act = {.ok = false, .error = "not settled: " + LastLines(plan.out + plan.err, 12)};
        break;
      }
      absl::SleepFor(pause);
      pause = std::min(2 * pause, kLongestPause);
    }
    return Finish(std::move(act));
  }

  Act Tick() override {
    Act act;
    if (!Runs(act)) return act;
    const absl::Time begin = absl::Now();
    int rounds = TimerRounds() + 1;
    bool ticked = WaitForTimerRounds(rounds);
    // It may have begun before what this tick is to follow.
    if (ticked && absl::Now() - begin < kLongestRound) ticked = WaitForTimerRounds(++rounds);
    if (!ticked) {
      act = {.ok = false, .error = "no periodic round: " + LastLines(daemon_->Output())};
      return Finish(std::move(act));
    }
    return Settle();
  }

  Act Stop() override {
    Act act;
    if (!Runs(act)) return act;
    daemon_->Signal(SIGTERM);
    const int code = daemon_->Wait(kPatience);
    if (code != 0) {
      act = {.ok = false,
             .error = absl::StrCat("ended with ", code, ": ", LastLines(daemon_->Output()))};
    }
    return Finish(std::move(act));
  }

 private:
  // The flags that decide which rules are desired: the same for `run` and `plan`.
  std::vector<std::string> Flags() const {
    std::vector<std::string> flags = {
        "--config=" + directory_.Path(kConfigFile),
        absl::StrCat("--emulated-version=", featuregates::ToString(emulated_.version)),
        absl::StrCat("--iptables-mode=", testing::NameOf(settings_.mode)),
        "--ip-families=ipv4,ipv6",
        // No iptables program of the machine's, no CNI configuration that names a chain.
        "--host-root=" + directory_.Path("host"),
        "--cni-conf-dir=" +
            (settings_.cni_conf_dir.empty() ? directory_.Path("cni") : settings_.cni_conf_dir)};
    if (Does(emulated_.version, Trait::kGateSettable) && emulated_.ownership_cleanup.has_value()) {
      flags.push_back(absl::StrCat("--feature-gates=IPTablesOwnershipCleanup=",
                                   *emulated_.ownership_cleanup ? "true" : "false"));
    }
    return flags;
  }

  // Without leftovers to retire: the daemon's timer removes those, not an event.
  ProgramResult Plan() const {
    std::vector<std::string> command = {settings_.program, "plan", "--stale-chains=keep"};
    for (std::string& flag : Flags()) command.push_back(std::move(flag));
    return testing::RunProgram(std::move(command));
  }

  // An agent that cuts off its own node's loopback interface does not answer.
  static testing::HttpAnswer AskHealth(const std::string& path) {
    return testing::HttpGet(kHealthPort, path, absl::Seconds(1));
  }
  static bool IsReady() { return AskHealth("/readyz").status == 200; }

  bool Runs(Act& act) const {
    if (daemon_ != nullptr && daemon_->Running()) return true;
    act = {.ok = false,
           .error = daemon_ == nullptr ? "not started"
                                       : absl::StrCat("ended with ", daemon_->Wait(), ": ",
                                                      LastLines(daemon_->Output()))};
    return false;
  }

  int TimerRounds() const { return testing::CountOf(kTimerRound, daemon_->Output()); }
  bool WaitForTimerRounds(int count) const {
    return daemon_->Prints(kTimerRound, count, kPatience);
  }

  // With what it has logged since the last act.
  Act Finish(Act act) {
    std::string log = daemon_->Output();
    log.resize(log.rfind('\n') + 1);  // whole lines
    for (const absl::string_view line :
         absl::StrSplit(absl::string_view(log).substr(reported_), '\n')) {
      if (std::string news = NewsOf(std::string(line)); !news.empty()) {
        act.done.push_back(std::move(news));
      }
    }
    reported_ = log.size();
    return act;
  }

  const AgentDaemonSettings settings_;
  // The version of settings_, or the oldest there is.
  KubeletVersion emulated_;
  // Outlives the daemon.
  const OwnDirectory directory_;
  std::unique_ptr<BackgroundProgram> daemon_;
  size_t reported_ = 0;
};

}  // namespace

std::unique_ptr<NodeAgent> NewAgentDaemon(const AgentDaemonSettings& settings) {
  return std::make_unique<AgentDaemon>(settings);
}

}  // namespace kipt::skew
