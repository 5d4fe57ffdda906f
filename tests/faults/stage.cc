// SPDX-License-Identifier: Apache-2.0
#include "tests/faults/stage.h"

#include <algorithm>
#include <semaphore>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "tests/support/http_get.h"
#include "tests/support/netns.h"
#include "tests/support/run_program.h"

namespace kipt::testing {
namespace {

constexpr int kHealthPort = 10270;
constexpr int kHttpOk = 200;
// The safety net for an event that never came.
constexpr char kSyncPeriod[] = "--iptables-sync-period=3s";

// Preparing is most of the CPU time of a run. A limit on it, not on the runs, lets many runs wait
// for their deadlines at once while those that are being repaired find a CPU.
constexpr int kPreparedAtOnce = 4;
std::counting_semaphore<kPreparedAtOnce> g_preparing(kPreparedAtOnce);

class Turn {
 public:
  Turn() { g_preparing.acquire(); }
  ~Turn() { g_preparing.release(); }
  Turn(const Turn&) = delete;
  Turn& operator=(const Turn&) = delete;
};

}  // namespace

Stage::Stage(const Incident& incident, const Programs& programs)
    : incident_(incident), programs_(programs), control_(programs) {}

std::string Stage::Begin() {
  {
    const Turn turn;
    if (!directory_.made()) return "no directory can be made in /run";
    const absl::Status moved = Netns::MoveToNew();
    if (!moved.ok()) return std::string(moved.message());
    std::string problem = PutForeignRules(incident_.iptables);
    const std::string config = directory_.Path("config.yaml");
    if (problem.empty()) problem = WriteFile(config, ConfigFor(incident_.cleanup));
    if (!problem.empty() || incident_.strike == nullptr) return problem;
    StartDaemon(control_.environment());
    const bool ended_or_ready = WaitUntil([&] { return !daemon_->Running() || IsReady(); });
    if (!ended_or_ready || !daemon_->Running()) {
      return absl::StrCat("the daemon is not ready: ", daemon_->Output());
    }
  }
  absl::SleepFor(kRest);
  said_before_ = daemon_->Output().size();
  return "";
}

std::string Stage::Strike() {
  control_->armed = 1;
  std::string problem;
  if (incident_.strike == nullptr) {
    struck_ = absl::Now();
    StartDaemon(control_.environment());
  } else {
    problem =
        incident_.strike({.daemon = daemon_->pid(), .config_path = directory_.Path("config.yaml")});
    struck_ = absl::Now();
  }
  last_missing_ = struck_;
  return problem;
}

bool Stage::BecomesInPlace(const KernelText& desired, absl::Duration bound) {
  // The pauses grow because each read takes CPU time that the daemon needs.
  for (absl::Duration pause = absl::Milliseconds(20);;
       pause = std::min(pause * 1.6, absl::Duration(absl::Seconds(1)))) {
    absl::SleepFor(pause);
    const absl::Time asked = absl::Now();
    // One program is enough to see that something is missing.
    now_ = ReadNftables();
    if (now_.parts.at(kNftPart) == desired.parts.at(kNftPart))
      now_ = ReadKernel(incident_.iptables);
    if (now_ == desired) return true;
    last_missing_ = asked;
    if (daemon_->Running() && absl::Now() - struck_ <= bound) continue;
    now_ = ReadKernel(incident_.iptables);
    return false;
  }
}

void Stage::StartAgain() {
  StartDaemon({});
  WaitUntil([&] { return !daemon_->Running() || IsReady(); });
}

int Stage::PlanExitCode() const {
  std::vector<std::string> command = Flags();
  command.insert(command.begin(), {programs_.agent, "plan"});
  return RunProgram(std::move(command)).exit_code;
}

void Stage::StartDaemon(const std::vector<std::string>& environment) {
  std::vector<std::string> command = Flags();
  command.insert(command.begin(), {programs_.agent, "run", kSyncPeriod});
  daemon_.emplace(std::move(command), environment);
}

bool Stage::IsReady() { return HttpGet(kHealthPort, "/readyz").status == kHttpOk; }

std::vector<std::string> Stage::Flags() const {
  std::vector<std::string> flags = {absl::StrCat("--config=", directory_.Path("config.yaml"))};
  if (incident_.iptables == IptablesMode::kLegacy) flags.push_back("--iptables-mode=legacy");
  return flags;
}

}  // namespace kipt::testing
