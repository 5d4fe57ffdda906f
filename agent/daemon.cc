// SPDX-License-Identifier: Apache-2.0
#include "agent/daemon.h"

#include <glog/logging.h>

#include <csignal>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "agent/agent_options.h"
#include "agent/config_log.h"
#include "agent/detect/backend_choice.h"
#include "agent/detect/mode_evidence.h"
#include "agent/endpoints/endpoints.h"
#include "agent/endpoints/http_server.h"
#include "agent/endpoints/metrics.h"
#include "agent/loop/agent.h"
#include "agent/loop/event_loop.h"
#include "agent/process/command.h"
#include "agent/process/config_watch.h"
#include "agent/process/heap.h"
#include "agent/process/privileges.h"
#include "agent/process/service_manager.h"
#include "agent/process/syscall_filter.h"
#include "agent/round_log.h"

namespace kipt::agent {
namespace {

// An editor moves the old file away before the new one comes: for a moment there is none.
constexpr absl::Duration kEditorPause = absl::Milliseconds(100);

// A program that hangs stops the loop for as long. A restore beside 30,000 services takes three
// seconds.
constexpr absl::Duration kProgramDeadline = absl::Seconds(20);

class Daemon {
 public:
  Daemon(const Flags& flags, const Config& config, const std::string& version)
      : flags_(flags),
        config_(config),
        version_(version),
        metrics_(version),
        runner_(NewCommandRunner()),
        sources_(SystemModeSources(
            config.host_root, runner_.get(),
            {.command_deadline = kProgramDeadline,
             .lock_waited = [this](absl::Duration wait) { metrics_.LockWaited(wait); }})) {}

  // The order matters: what needs a privilege comes before it is dropped, and threads, which keep
  // the privileges they were started with, after that.
  absl::StatusOr<ExitCode> Run() {
    KeepHeapSmall();
    if (absl::Status status = MakeLoop(); !status.ok()) return status;
    if (absl::Status status = Listen(); !status.ok()) return status;
    OpenBackendEarly();
    RetireOtherMode();
    if (absl::Status status = DropCapabilities(MayRunPrograms()); !status.ok()) return status;
    if (absl::Status status = MakeAgent(); !status.ok()) return status;
    if (absl::Status status = Serve(); !status.ok()) return status;
    FilterSyscalls();
    WatchConfig();
    const absl::StatusOr<int> code = loop_->Run();
    service_manager_.Stopping();
    if (!code.ok()) return code.status();
    return static_cast<ExitCode>(*code);
  }

 private:
  absl::Status MakeLoop() {
    absl::StatusOr<std::unique_ptr<EventLoop>> loop = EventLoop::Create();
    if (!loop.ok()) return loop.status();
    loop_ = *std::move(loop);
    for (const int signal : {SIGTERM, SIGINT, SIGHUP}) {
      absl::StatusOr<std::unique_ptr<EventSource>> source =
          loop_->AddSignal(signal, [this, signal] { OnSignal(signal); });
      if (!source.ok()) return source.status();
      loop_sources_.push_back(*std::move(source));
    }
    return loop_->EnableWatchdog().status();
  }

  absl::Status Listen() {
    for (const auto& [address, listener] :
         {std::pair(&config_.healthz_bind_address, &health_listener_),
          std::pair(&config_.metrics_bind_address, &metrics_listener_)}) {
      if (address->empty()) continue;
      absl::StatusOr<HttpListener> bound = HttpListener::Bind(*address);
      if (!bound.ok()) return bound.status();
      *listener = *std::move(bound);
    }
    return absl::OkStatus();
  }

  // So that the mode is known before the privileges that the other mode would need are dropped.
  void OpenBackendEarly() {
    absl::StatusOr<std::unique_ptr<netlink::Backend>> backend = OpenBackend();
    if (backend.ok()) early_backend_ = *std::move(backend);
  }

  // Also where the mode is not known yet: it may turn out to be legacy.
  bool MayRunPrograms() const { return KnownMode() != IptablesMode::kNft; }

  std::optional<IptablesMode> KnownMode() const {
    return iptables_mode_ ? iptables_mode_ : config_.iptables_mode;
  }

  absl::StatusOr<std::unique_ptr<netlink::Backend>> OpenBackend() {
    if (early_backend_ != nullptr) return std::move(early_backend_);
    absl::StatusOr<std::unique_ptr<netlink::Backend>> backend = ChooseBackend(
        {.flag = KnownMode(), .families = config_.families, .off = config_.mode == Mode::kOff},
        sources_);
    if (!backend.ok() || iptables_mode_) return backend;
    iptables_mode_ = (*backend)->mode() == "legacy" ? IptablesMode::kLegacy : IptablesMode::kNft;
    if (const std::string caveat = (*backend)->caveat(); !caveat.empty()) LOG(WARNING) << caveat;
    return backend;
  }

  // Before the privileges for it are dropped.
  void RetireOtherMode() {
    if (!iptables_mode_ || early_backend_ == nullptr) return;
    const absl::StatusOr<std::optional<RetiredMode>> other =
        options_.RetireOtherModeFirst(config_, *iptables_mode_, *early_backend_);
    if (!other.ok()) {
      LOG(WARNING) << "The other iptables mode is left as it is, for this one is not in place: "
                   << other.status().message();
    } else if (other->has_value()) {
      LogRetirement((*other)->iptables_mode, (*other)->report);
    }
  }

  absl::Status MakeAgent() {
    absl::StatusOr<std::unique_ptr<Agent>> agent = Agent::Create(
        *loop_, options_.Make(config_, iptables_mode_), [this] { return OpenBackend(); },
        [this](const Round& round) { OnRound(round); });
    if (!agent.ok()) return agent.status();
    agent_ = *std::move(agent);
    metrics_.SetConfig(config_);
    return absl::OkStatus();
  }

  absl::Status Serve() {
    endpoints_ = std::make_unique<Endpoints>(
        Endpoints::Setup{.version = version_,
                         .flags = flags_,
                         .config = config_,
                         .metrics = [this] { return metrics_.Serialize(); }},
        agent_->state());
    if (absl::Status status = Start(health_listener_, &Endpoints::Health); !status.ok()) {
      return status;
    }
    return Start(metrics_listener_, &Endpoints::Inspect);
  }

  absl::Status Start(std::optional<HttpListener>& listener,
                     HttpReply (Endpoints::*handler)(const HttpRequest&) const) {
    if (!listener) return absl::OkStatus();
    absl::StatusOr<std::unique_ptr<HttpServer>> server =
        HttpServer::Start(*std::move(listener), [this, handler](const HttpRequest& request) {
          return (endpoints_.get()->*handler)(request);
        });
    if (!server.ok()) return server.status();
    LOG(INFO) << "Listening on http://" << (*server)->address();
    servers_.push_back(*std::move(server));
    return absl::OkStatus();
  }

  void FilterSyscalls() {
    const absl::Status status = InstallSyscallFilter(MayRunPrograms());
    if (!status.ok()) LOG(WARNING) << "Going on without a system call filter: " << status.message();
  }

  void WatchConfig() {
    const std::string path = flags_.config.value_or(kDefaultConfigPath);
    absl::StatusOr<std::unique_ptr<EventSource>> timer =
        loop_->AddTimer([this] { Reload("the file has changed"); });
    absl::StatusOr<std::unique_ptr<ConfigWatch>> watch = ConfigWatch::Create(path);
    absl::Status status = timer.status();
    status.Update(watch.status());
    if (status.ok()) {
      reload_timer_ = *std::move(timer);
      config_watch_ = *std::move(watch);
      absl::StatusOr<std::unique_ptr<EventSource>> source =
          loop_->AddReadable(config_watch_->fd(), [this] { OnConfigChange(); });
      status = source.status();
      if (status.ok()) loop_sources_.push_back(*std::move(source));
    }
    if (!status.ok()) {
      LOG(WARNING) << path << " is not watched, only SIGHUP loads it again: " << status.message();
    }
  }

  void OnSignal(int signal) {
    if (signal == SIGHUP) return Reload("SIGHUP");
    LOG(INFO) << "Ending; the rules stay in place";
    loop_->Exit(kExitOk);
  }

  void OnConfigChange() {
    const absl::StatusOr<bool> changed = config_watch_->Drain();
    absl::Status status = changed.status();
    if (status.ok() && *changed) status = reload_timer_->FireAfter(kEditorPause);
    if (!status.ok()) LOG(WARNING) << "Watching the configuration: " << status.message();
  }

  void Reload(absl::string_view why) {
    service_manager_.Reloading();
    absl::StatusOr<Config> config = LoadConfig(flags_);
    if (!config.ok()) {
      config_problem_ = std::string(config.status().message());
      LOG(ERROR) << "The new configuration (" << why
                 << ") is wrong and not used, the old one stays in force: " << config_problem_;
    } else if (const auto fixed = WhatNeedsARestart(config_, *config); !fixed.empty()) {
      must_restart_ = absl::StrCat("fixed at start, and changed: ", absl::StrJoin(fixed, ", "));
    } else {
      config_problem_.clear();
      Use(*std::move(config), why);
    }
    Publish();
    service_manager_.Ready();
    EndIfDue();
  }

  void Use(Config config, absl::string_view why) {
    if (config == config_) {
      LOG(INFO) << "The configuration (" << why << ") says what it said before";
      return;
    }
    config_ = std::move(config);
    LOG(INFO) << "Using the new configuration (" << why << ")";
    LogConfig(config_);
    metrics_.SetConfig(config_);
    endpoints_->SetConfig(config_);
    agent_->SetDesired(options_.Make(config_, iptables_mode_));
  }

  void OnRound(const Round& round) {
    const AgentState& state = agent_->state();
    LogRound(round, state);
    if (state.watching != watching_) {
      watching_ = state.watching;
      LOG(INFO) << "Watching: " << watching_;
    }
    metrics_.Record(round, state);
    if (round.retirement) LogRetirement(state.iptables_mode, *round.retirement);
    if (round.trigger == Trigger::kTimer) CheckMode();
    RenewOptions(round);
    Publish();
    if (round.trigger == Trigger::kStart) service_manager_.Ready();
    if (LookedAtEverything(round)) GiveBackFreePages();
    EndIfDue();
  }

  // Legacy tables can only be read whole.
  bool LookedAtEverything(const Round& round) const {
    return round.trigger == Trigger::kStart || KnownMode() == IptablesMode::kLegacy ||
           (round.retirement && round.retirement->surveyed);
  }

  void RenewOptions(const Round& round) {
    std::string why;
    if (!options_.IsOutdated(config_, iptables_mode_, round, why)) return;
    if (!why.empty()) LOG(INFO) << why;
    agent_->SetDesired(options_.Make(config_, iptables_mode_));
  }

  // Where the node's iptables was found out, somebody may have switched it since.
  void CheckMode() {
    if (config_.iptables_mode || config_.mode == Mode::kOff || !iptables_mode_) return;
    const std::vector<FamilyMode> modes =
        DetectModes(config_.families, std::nullopt, sources_, Thoroughness::kUntilDecided);
    const absl::StatusOr<IptablesMode> now = ChooseMode(modes);
    if (!now.ok() || *now == *iptables_mode_) return;
    for (const FamilyMode& mode : modes) {
      if (mode.mode != *now) return;
    }
    must_restart_ = absl::StrCat("the node's iptables is now ", IptablesModeName(*now), ", not ",
                                 IptablesModeName(*iptables_mode_));
  }

  void Publish() {
    AgentState state = agent_->state();
    state.config_problem = config_problem_;
    state.must_restart = must_restart_;
    std::string status_line = StatusLine(state);
    if (status_line != status_line_) {
      status_line_ = std::move(status_line);
      service_manager_.Status(status_line_);
    }
    endpoints_->Publish(std::move(state));
  }

  void EndIfDue() {
    if (must_restart_.empty()) return;
    LOG(ERROR) << "Ending, to be started anew: " << must_restart_;
    loop_->Exit(kExitFailed);
  }

  const Flags flags_;
  Config config_;
  const std::string version_;
  Metrics metrics_;
  const std::unique_ptr<CommandRunner> runner_;
  const ModeSources sources_;
  ServiceManager service_manager_;

  // Fixed once a backend was opened.
  std::optional<IptablesMode> iptables_mode_;
  AgentOptionsSource options_{sources_};
  std::unique_ptr<netlink::Backend> early_backend_;
  std::string config_problem_;
  std::string must_restart_;
  // As last told.
  std::string watching_;
  std::string status_line_;

  std::unique_ptr<EventLoop> loop_;
  std::unique_ptr<ConfigWatch> config_watch_;
  std::unique_ptr<EventSource> reload_timer_;
  std::vector<std::unique_ptr<EventSource>> loop_sources_;
  std::unique_ptr<Agent> agent_;
  std::unique_ptr<Endpoints> endpoints_;
  std::optional<HttpListener> health_listener_;
  std::optional<HttpListener> metrics_listener_;
  // Last, so that its threads end first.
  std::vector<std::unique_ptr<HttpServer>> servers_;
};

}  // namespace

ExitCode RunDaemon(const Flags& flags, const Config& config, const std::string& version) {
  Daemon daemon(flags, config, version);
  const absl::StatusOr<ExitCode> code = daemon.Run();
  if (code.ok()) return *code;
  LOG(ERROR) << code.status().message();
  return kExitFailed;
}

}  // namespace kipt::agent
