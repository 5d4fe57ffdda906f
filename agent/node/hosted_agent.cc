// SPDX-License-Identifier: Apache-2.0
#include "agent/node/hosted_agent.h"

#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "agent/loop/clock.h"

namespace kipt::agent {

HostedAgent::HostedAgent(HostedAgentOptions options, std::optional<VisitedNamespace> visited,
                         HostedAgentHandlers handlers)
    : node_(std::move(options.config), std::move(options.legacy), std::move(visited)),
      patience_(options.patience),
      handlers_(std::move(handlers)) {}

absl::StatusOr<std::unique_ptr<HostedAgent>> HostedAgent::Create(EventLoop& loop,
                                                                 HostedAgentOptions options,
                                                                 HostedAgentHandlers handlers) {
  std::optional<VisitedNamespace> visited;
  if (options.netns) {
    absl::StatusOr<VisitedNamespace> opened = VisitedNamespace::Open(*options.netns);
    if (!opened.ok()) return opened.status();
    visited = *std::move(opened);
  }
  std::unique_ptr<HostedAgent> agent(
      new HostedAgent(std::move(options), std::move(visited), std::move(handlers)));
  if (absl::Status status = agent->Start(loop); !status.ok()) return status;
  return agent;
}

absl::Status HostedAgent::Start(EventLoop& loop) {
  const SteadyTime start = SteadyNow();
  BackendOrError backend = OpenBackend();
  if (backend.ok()) early_backend_ = *std::move(backend);
  RetireOtherMode();
  if (const absl::Duration taken = SteadyNow() - start; taken > kSlowRound) {
    Notice(absl::LogSeverity::kWarning,
           absl::StrCat("Reading which iptables the node uses took ", absl::FormatDuration(taken),
                        ": an answer was lost or late; the kernel, a lock or a program is slow"));
  }
  absl::StatusOr<std::unique_ptr<Agent>> agent = Agent::Create(
      loop, MakeOptions(), [this] { return OpenBackend(); },
      [this](const Round& round) { OnRound(round); });
  if (!agent.ok()) return agent.status();
  agent_ = *std::move(agent);
  return absl::OkStatus();
}

absl::Status HostedAgent::SetConfig(Config config) {
  const std::vector<std::string> fixed = WhatNeedsARestart(node_.config(), config);
  if (!fixed.empty()) {
    refused_config_ = absl::StrCat("fixed at start, and changed: ", absl::StrJoin(fixed, ", "));
    return absl::FailedPreconditionError(refused_config_);
  }
  refused_config_.clear();
  node_.SetConfig(std::move(config));
  agent_->SetDesired(MakeOptions());
  return absl::OkStatus();
}

AgentState HostedAgent::state() const {
  AgentState state = agent_->state();
  state.must_restart = refused_config_.empty() ? changed_mode_ : refused_config_;
  return state;
}

BackendOrError HostedAgent::OpenBackend() {
  if (early_backend_ != nullptr) return std::move(early_backend_);
  const bool first = !node_.mode();
  BackendOrError backend = node_.Open(/*read_only=*/config().observe);
  if (backend.ok() && first) Notice(absl::LogSeverity::kWarning, (*backend)->caveat());
  return backend;
}

void HostedAgent::RetireOtherMode() {
  if (early_backend_ == nullptr) return;
  const auto other = node_.RetireOtherFirst(*early_backend_);
  if (!other.ok()) {
    Notice(absl::LogSeverity::kWarning,
           absl::StrCat("The other iptables mode is left as it is, for this one is not in place: ",
                        other.status().message()));
  } else if (other->has_value() && handlers_.retired) {
    handlers_.retired(**other);
  }
}

AgentOptions HostedAgent::MakeOptions() {
  options_mode_ = node_.mode();
  AgentOptions options = node_.MakeAgentOptions();
  options.patience = patience_;
  return options;
}

void HostedAgent::OnRound(const Round& round) {
  if (round.trigger == Trigger::kTimer) {
    changed_mode_ = node_.ModeChange().value_or(changed_mode_);
  }
  Notice(absl::LogSeverity::kInfo, node_.support().TakeNews());
  if (options_mode_ != node_.mode()) agent_->SetDesired(MakeOptions());
  if (handlers_.round) handlers_.round(round);
}

void HostedAgent::Notice(absl::LogSeverity severity, absl::string_view text) const {
  if (!text.empty() && handlers_.notice) handlers_.notice(severity, text);
}

absl::StatusOr<Config> ResolveConfigIn(const std::string& netns, const Flags& flags) {
  const absl::StatusOr<VisitedNamespace> visited = VisitedNamespace::Open(netns);
  if (!visited.ok()) return visited.status();
  absl::StatusOr<Config> config;
  const absl::Status status = visited->Visit([&] { config = ResolveConfig(flags); });
  if (!status.ok()) return status;
  return config;
}

}  // namespace kipt::agent
