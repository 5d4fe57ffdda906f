// SPDX-License-Identifier: Apache-2.0
#include "agent/daemon.h"

#include <glog/logging.h>
#include <linux/capability.h>
#include <unistd.h>

#include <csignal>
#include <map>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "agent/agent.h"
#include "agent/config/load_config.h"
#include "agent/daemon_audits.h"
#include "agent/endpoints/conntrack.h"
#include "agent/endpoints/endpoints.h"
#include "agent/endpoints/http_server.h"
#include "agent/endpoints/metrics.h"
#include "agent/loop/event_loop.h"
#include "agent/node/node.h"
#include "agent/node_agent.h"
#include "agent/process/origin.h"
#include "agent/process/own_process.h"
#include "agent/process/record_file.h"
#include "agent/process/syscall_filter.h"
#include "agent/reload_watch.h"
#include "agent/report/incident_records.h"
#include "agent/round_log.h"

namespace kipt::agent {
namespace {

void LogNotice(absl::LogSeverity severity, absl::string_view text) {
  LOG_AT_LEVEL(severity == absl::LogSeverity::kInfo ? google::INFO : google::WARNING) << text;
}

template <typename T>
absl::Status Store(absl::StatusOr<T> made, T& value) {
  absl::Status status = made.status();
  if (status.ok()) value = *std::move(made);
  return status;
}

class Daemon {
 public:
  Daemon(const Flags& flags, const Config& config, MetricsOfProgram program)
      : flags_(flags), config_(config), version_(program.version), metrics_(std::move(program)) {}

  // The order matters: what needs a privilege comes before it is dropped. Threads, which would keep
  // it, come after.
  absl::StatusOr<ExitCode> Run() {
    KeepHeapSmall();
    // Before anything is opened: a passed number may be that of no descriptor.
    std::vector<OwnedFd> passed = TakePassedSockets();
    absl::Status status = MakeLoop();
    if (status.ok()) {
      Listen(std::move(passed));
      OpenIncidents();
      status = LimitToFirstCheck();
    }
    if (status.ok()) status = MakeAgent();
    if (status.ok()) status = DropCapabilities(MayRunPrograms());
    if (!status.ok()) return status;
    ServeConfined();
    WatchConfig();
    WatchConntrack();
    audits_->Start(*loop_, *endpoints_, config_);
    const absl::StatusOr<int> code = loop_->Run();
    service_manager_.Stopping();
    if (!code.ok()) LOG(ERROR) << code.status().message();
    const ExitCode exit_code = code.ok() ? static_cast<ExitCode>(*code) : kExitFailed;
    EndThreads(exit_code);
    return exit_code;
  }

 private:
  absl::Status MakeLoop() {
    if (absl::Status status = Store(EventLoop::Create(), loop_); !status.ok()) return status;
    for (const int signal : {SIGTERM, SIGINT, SIGHUP}) {
      absl::Status status = Keep(loop_->AddSignal(signal, [this, signal] { OnSignal(signal); }));
      if (!status.ok()) return status;
    }
    return loop_->EnableWatchdog([] { NotifyServiceManager("WATCHDOG=1"); }).status();
  }

  // Before privileges are dropped: a port below 1024 needs one.
  void Listen(std::vector<OwnedFd> passed) {
    std::vector<ServedAddresses::Endpoint> endpoints = {
        {config_.healthz_bind_address,
         [this](const HttpRequest& request) { return endpoints_->Health(request); }},
        {config_.metrics_bind_address,
         [this](const HttpRequest& request) { return endpoints_->Inspect(request); }}};
    std::erase_if(endpoints, [](const auto& endpoint) { return endpoint.address.empty(); });
    served_ = std::make_unique<ServedAddresses>(
        *loop_, std::move(endpoints),
        ServedAddresses::Handlers{.notice = LogNotice,
                                  .changed = [this] { Publish(agent_->state()); }});
    served_->Listen(std::move(passed));
  }

  // Before the right to open files for writing is given up.
  void OpenIncidents() {
    const auto warn = [](const absl::Status& status) {
      const bool no_directory = absl::IsNotFound(status);
      LOG_AT_LEVEL(no_directory ? google::INFO : google::WARNING)
          << "Incidents do not outlive this process: " << status.message();
    };
    if (config_.incidents_file.empty()) return;
    const absl::Status status = Store(RecordFile::Open(config_.incidents_file, warn), incidents_);
    if (!status.ok()) return warn(status);
    const absl::StatusOr<Origin> here = ReadOrigin();
    if (here.ok()) {
      origin_ = *here;
    } else {
      LOG(WARNING) << "Incidents are kept without their boot and network namespace, and earlier "
                      "ones are not shown: "
                   << here.status().message();
    }
    earlier_incidents_ = CurrentIncidentLines({.records = incidents_->earlier(), .here = origin_});
  }

  // What the first check may need in either iptables mode: CAP_SYS_PTRACE to see which files are
  // the host's, CAP_SYS_MODULE for iptables-legacy's modprobe, CAP_SETPCAP to drop the rest
  // afterwards.
  absl::Status LimitToFirstCheck() const {
    std::vector<unsigned int> kept = {CAP_NET_ADMIN, CAP_NET_RAW, CAP_SETPCAP, CAP_SYS_PTRACE};
    if (config_.iptables_mode != IptablesMode::kNft) kept.push_back(CAP_SYS_MODULE);
    return LimitCapabilities(kept, /*for_programs=*/true);
  }

  // An unknown mode may turn out to be iptables-legacy.
  bool MayRunPrograms() const { return KnownMode() != IptablesMode::kNft; }
  std::optional<IptablesMode> KnownMode() const {
    return agent_->iptables_mode() ? agent_->iptables_mode() : config_.iptables_mode;
  }

  // Opens its backend, if that is possible by now: the mode decides which privileges are dropped.
  absl::Status MakeAgent() {
    IptablesLegacyOptions legacy = {
        .command_deadline = NodeAgentOptions().program_deadline,
        .lock_waited = [this](absl::Duration wait) { metrics_.LockWaited(wait); }};
    metrics_.SetConfig(config_);
    // While it may still see which files are the host's.
    audits_ = std::make_unique<DaemonAudits>(config_.host_root, metrics_);
    return Store(
        Agent::Create(
            *loop_, {.config = config_, .netns = {}, .legacy = std::move(legacy)},
            {.round = [this](const Round& round) { OnRound(round); },
             .notice = LogNotice,
             .retired = [this](const RetireReport& other) { LogRetirement(other, kept_items_); }}),
        agent_);
  }

  // Files are given up before there are threads, which would keep what they had.
  void ServeConfined() {
    const bool programs = MayRunPrograms();
    absl::Status status = ForbidFileWrites(programs ? IptablesLegacyOptions().lock_path : "");
    if (!status.ok()) LOG(INFO) << "Continuing without Landlock: " << status.message();
    endpoints_ = std::make_unique<Endpoints>(
        Endpoints::Setup{.version = version_,
                         .flags = flags_,
                         .config = config_,
                         .metrics = [this] { return metrics_.Serialize(); }},
        Shown(agent_->state()));
    served_->Serve();
    // For claims on marks, and audits.
    may_audit_ = Audits();
    status = InstallSyscallFilter(
        {.programs = programs,
         .routes = may_audit_ || config_.stale_chains == StaleChains::kRetire});
    if (!status.ok())
      LOG(WARNING) << "Continuing without a system call filter: " << status.message();
  }

  void WatchConfig() {
    const std::string path = flags_.config.value_or(kDefaultConfigPath);
    const absl::Status status =
        Store(ReloadWatch::Create(*loop_, path, [this] { Reload("the file has changed"); }),
              reload_watch_);
    if (status.ok()) return;
    LOG(WARNING) << path << " is not watched; only SIGHUP reloads it: " << status.message();
  }

  void WatchConntrack() {
    const auto warn = [](const absl::Status& status) {
      LOG(WARNING) << "Who fills connection tracking is not known: " << status.message();
    };
    conntrack_watch_ = std::make_unique<ConntrackWatch>(
        *loop_, ConntrackWatch::Handlers{.report = [this](const auto& report) { OnFull(report); },
                                         .failure = warn});
  }

  // Without a thread that hangs, and so without the destructors that would wait for it.
  void EndThreads(ExitCode code) {
    constexpr absl::Duration kPatience = absl::Seconds(1);
    const bool audits = audits_->End(kPatience);
    const bool incidents = incidents_ == nullptr || incidents_->Finish(kPatience);
    if (audits && incidents) return;
    LOG(WARNING) << "Ending without waiting any longer for "
                 << (incidents ? "an audit: a program or a file hangs"
                               : "the incidents' file: its disk hangs");
    _exit(code);
  }

  bool Audits() const { return config_.audit_period != absl::ZeroDuration(); }

  void OnFull(const ConntrackReport& report) {
    const std::string text = ToString(report);
    LOG(WARNING) << "Nearly full: " << text;
    conntrack_report_ = absl::StrCat(
        absl::FormatTime(absl::RFC3339_sec, report.time, absl::UTCTimeZone()), ": ", text);
    Publish(agent_->state());
  }

  absl::Status Keep(absl::StatusOr<std::unique_ptr<EventSource>> source) {
    return Store(std::move(source), loop_sources_.emplace_back());
  }

  void OnSignal(int signal) {
    if (signal == SIGHUP) return Reload("SIGHUP");
    LOG(INFO) << "Ending; the rules stay in place";
    loop_->Exit(kExitOk);
  }

  void Reload(absl::string_view why) {
    service_manager_.Reloading();
    // The host's root is fixed at start, and may be out of sight without CAP_SYS_PTRACE.
    Flags flags = flags_;
    flags.host_root.reset();
    absl::StatusOr<Config> config = LoadConfig(flags);
    if (config.ok()) config->host_root = config_.host_root;
    if (config.ok() && config->config_file.empty() && !config_.config_file.empty()) {
      // A program may be replacing it. The defaults would end observe mode.
      config = absl::NotFoundError(absl::StrCat(
          config_.config_file, " is gone; write it again, or restart to use the defaults"));
    }
    if (config.ok()) {
      Use(*std::move(config), why);
    } else {
      config_problem_ = std::string(config.status().message());
      metrics_.ReloadFailed();
      LOG(ERROR) << "The new configuration (" << why
                 << ") is invalid; the previous one stays in force: " << config_problem_;
    }
    Publish(agent_->state());
    service_manager_.Ready();
  }

  void Use(Config config, absl::string_view why) {
    const bool same = config == config_;
    const absl::Status taken = same ? absl::OkStatus() : agent_->SetConfig(config);
    if (!taken.ok()) {
      must_restart_ = std::string(taken.message());
      return;
    }
    config_problem_.clear();
    const std::vector<ConfigChange> changes = WhatChanges(config_, config);
    config_ = std::move(config);
    metrics_.SetConfig(config_);
    if (same) {
      LOG(INFO) << "The configuration (" << why << ") is unchanged";
      return;
    }
    LOG(INFO) << "Using the new configuration (" << why << ")"
              << absl::StrJoin(changes, "", [](std::string* out, const ConfigChange& change) {
                   absl::StrAppend(out, "; ", change.name, ": ", change.to, ", was ", change.from);
                 });
    LogConfig(config_);
    endpoints_->SetConfig(config_);
    audits_->Set(config_);
  }

  void OnRound(const Round& round) {
    AgentState state = agent_->state();
    recent_.Note(absl::Now(), round);
    round_log_.Log(round, state);
    if (state.watching != watching_) {
      watching_ = state.watching;
      LOG(INFO) << "Watching: " << watching_;
    }
    metrics_.Record(round, state);
    if (round.incident && incidents_ != nullptr) {
      incidents_->Add(
          IncidentRecord(absl::Now(), *round.incident, origin_, RecordFile::kMostBytes));
    }
    if (round.retirement) LogRetirement(*round.retirement, kept_items_);
    Publish(std::move(state));
    if (round.trigger == Trigger::kStart) service_manager_.Ready();
    // These rounds read everything. Legacy tables can only be read whole.
    if (round.trigger == Trigger::kStart || KnownMode() == IptablesMode::kLegacy ||
        (round.retirement && round.retirement->surveyed)) {
      GiveBackFreePages();
    }
  }

  DaemonState Shown(AgentState of_agent) const {
    DaemonState state = {std::move(of_agent), recent_, config_problem_, served_->problem(),
                         conntrack_report_};
    for (const std::string& line : earlier_incidents_) {
      if (state.recent.incidents.size() < RecordFile::kRecords) {
        state.recent.incidents.push_back(line);
      }
    }
    if (state.must_restart.empty()) state.must_restart = must_restart_;
    return state;
  }

  void Publish(AgentState of_agent) {
    DaemonState state = Shown(std::move(of_agent));
    std::string status_line = StatusLine(state);
    if (status_line != status_line_) {
      status_line_ = std::move(status_line);
      service_manager_.Status(status_line_);
    }
    service_manager_.NotifyRest();
    if (Audits() && !may_audit_ && state.must_restart.empty()) {
      state.must_restart = "audit-period: 0s at start, which gave up what an audit reads";
    }
    if (!state.must_restart.empty()) {
      LOG(ERROR) << "Ending, to be restarted: " << state.must_restart;
      loop_->Exit(kExitFailed);
    }
    endpoints_->Publish(std::move(state));
  }

  const Flags flags_;
  Config config_;
  const std::string version_;
  Metrics metrics_;
  ServiceManager service_manager_;

  std::string config_problem_;
  // Why the configuration on disk needs another start; empty where it needs none.
  std::string must_restart_;
  std::string conntrack_report_;
  // Whether the system call filter lets an audit read everything.
  bool may_audit_ = true;
  // As last reported.
  std::string watching_;
  std::string status_line_;
  std::map<std::string, std::string> kept_items_;
  RoundLog round_log_;
  std::unique_ptr<RecordFile> incidents_;
  // Unknown: it cannot be read.
  std::optional<Origin> origin_;
  RecentEvents recent_;
  // Incidents of earlier processes in this boot and network namespace, newest first.
  std::vector<std::string> earlier_incidents_;

  std::unique_ptr<EventLoop> loop_;
  std::unique_ptr<ReloadWatch> reload_watch_;
  std::vector<std::unique_ptr<EventSource>> loop_sources_;
  std::unique_ptr<ConntrackWatch> conntrack_watch_;
  std::unique_ptr<Agent> agent_;
  std::unique_ptr<Endpoints> endpoints_;
  std::unique_ptr<DaemonAudits> audits_;
  // Last, so that its threads end first.
  std::unique_ptr<ServedAddresses> served_;
};

}  // namespace

ExitCode RunDaemon(const Flags& flags, const Config& config, MetricsOfProgram program) {
  Daemon daemon(flags, config, std::move(program));
  const absl::StatusOr<ExitCode> code = daemon.Run();
  if (code.ok()) return *code;
  LOG(ERROR) << code.status().message();
  return kExitFailed;
}

}  // namespace kipt::agent
