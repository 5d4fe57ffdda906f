// SPDX-License-Identifier: Apache-2.0
#include "agent/agent.h"

#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace kipt::agent {

Agent::Agent(AgentOptions options, std::optional<VisitedNamespace> visited, AgentHandlers handlers)
    : program_deadline_(options.legacy.command_deadline),
      node_(std::move(options.config), std::move(options.legacy), std::move(visited),
            options.patience),
      handlers_(std::move(handlers)) {
  if (!options.netns) own_namespace_.emplace();
}

absl::StatusOr<std::unique_ptr<Agent>> Agent::Create(EventLoop& loop, AgentOptions options,
                                                     AgentHandlers handlers) {
  std::optional<VisitedNamespace> visited;
  if (options.netns) {
    absl::StatusOr<VisitedNamespace> opened = VisitedNamespace::Open(*options.netns);
    if (!opened.ok()) return opened.status();
    visited = *std::move(opened);
  }
  std::unique_ptr<Agent> agent(
      new Agent(std::move(options), std::move(visited), std::move(handlers)));
  absl::Status status = agent->own_namespace_ ? agent->own_namespace_->Opened() : absl::OkStatus();
  if (status.ok()) status = agent->Start(loop);
  if (!status.ok()) return status;
  return agent;
}

absl::Status Agent::Start(EventLoop& loop) {
  const SteadyTime start = SteadyNow();
  if (BackendOrError backend = OpenBackend(); backend.ok()) {
    // Before a host program drops what the other mode needs and this one does not.
    const auto other = node_.RetireOtherFirst(**backend);
    if (!other.ok()) {
      Notice(
          absl::LogSeverity::kWarning,
          absl::StrCat("The other iptables mode is not changed, because this one is not in place: ",
                       other.status().message()));
    } else if (other->has_value() && handlers_.retired) {
      handlers_.retired(**other);
    }
    early_backend_ = *std::move(backend);
  }
  if (const absl::Duration taken = SteadyNow() - start; taken > kSlowRound) {
    Notice(absl::LogSeverity::kWarning,
           absl::StrCat("Reading which iptables the node uses took ", absl::FormatDuration(taken),
                        ": an answer was lost or late; the kernel, a lock or a program is slow"));
  }
  loop_ = std::make_unique<ControlLoop>(
      loop, MakeOptions(), [this] { return OpenBackend(); },
      [this](const Round& round) { OnRound(round); });
  return absl::OkStatus();
}

absl::Status Agent::SetConfig(Config config) {
  const std::vector<std::string> fixed = WhatNeedsARestart(node_.config(), config);
  if (!fixed.empty()) {
    return absl::FailedPreconditionError(
        absl::StrCat("fixed at start, and changed: ", absl::StrJoin(fixed, ", ")));
  }
  if (absl::Status status = node_.ConfirmMode(config); !status.ok()) return status;
  // In observe mode it may be one that only reads.
  if (config.observe != node_.config().observe) early_backend_.reset();
  node_.SetConfig(std::move(config));
  loop_->SetDesired(MakeOptions());
  return absl::OkStatus();
}

absl::StatusOr<Diff> Agent::Plan() const {
  absl::StatusOr<Diff> found = absl::UnknownError("");
  const absl::Status status = Ask([&](Node& node) {
    const BackendOrError backend = node.Open(/*read_only=*/true);
    if (!backend.ok()) {
      found = backend.status();
      return;
    }
    Reconciler reconciler(backend->get(), node.clock(), &node.support());
    absl::StatusOr<agent::Plan> plan = reconciler.Check(node.Input());
    found = plan.ok() ? absl::StatusOr<Diff>(std::move(plan->diff)) : plan.status();
  });
  return status.ok() ? found : status;
}

AgentState Agent::state() const {
  AgentState state = loop_->state();
  state.must_restart = changed_mode_;
  return state;
}

absl::Status Agent::CheckNamespace() const {
  const absl::Status status = own_namespace_ ? own_namespace_->Check() : absl::OkStatus();
  return absl::IsFailedPrecondition(status) ? status : absl::OkStatus();
}

absl::Status Agent::Ask(absl::FunctionRef<void(Node&)> work) const {
  if (absl::Status status = CheckNamespace(); !status.ok()) return status;
  Config config = node_.config();
  if (node_.mode()) config.iptables_mode = node_.mode();
  return node_.InNamespace([&] {
    Node node(std::move(config), {.command_deadline = program_deadline_}, {},
              node_.clock().patience);
    work(node);
  });
}

BackendOrError Agent::OpenBackend() {
  if (early_backend_ != nullptr) return std::move(early_backend_);
  const bool first = !node_.mode();
  BackendOrError backend = node_.Open(/*read_only=*/config().observe);
  if (backend.ok() && first) Notice(absl::LogSeverity::kWarning, (*backend)->caveat());
  return backend;
}

ControlLoopOptions Agent::MakeOptions() {
  options_mode_ = node_.mode();
  return node_.MakeLoopOptions();
}

void Agent::OnRound(const Round& round) {
  // Before the handlers, which may set other options.
  last_round_ = {config().emulated_version, node_.Input(), round.report};
  if (round.periodic) NoteModeChange();
  Notice(absl::LogSeverity::kInfo, node_.support().TakeNews());
  if (options_mode_ != node_.mode()) loop_->SetDesired(MakeOptions());
  if (handlers_.round) handlers_.round(round);
}

// A doubt must not end repairs that another program's chain could have caused: the mode is decided
// at start.
void Agent::NoteModeChange() {
  const absl::StatusOr<std::string> change = node_.ModeChange();
  if (change.ok()) changed_mode_ = *change;
  if (absl::IsUnknown(change.status())) return;
  const std::string doubt(change.status().message());
  if (std::exchange(doubted_mode_, doubt) == doubt || doubt.empty()) return;
  Notice(absl::LogSeverity::kWarning,
         absl::StrCat("Continuing with iptables ", IptablesModeName(*node_.mode()),
                      " until the next start: ", doubt));
}

void Agent::Notice(absl::LogSeverity severity, absl::string_view text) const {
  if (!text.empty() && handlers_.notice) handlers_.notice(severity, text);
}

}  // namespace kipt::agent
