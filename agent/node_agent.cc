// SPDX-License-Identifier: Apache-2.0
#include "agent/node_agent.h"

#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "agent/loop/agent.h"
#include "agent/loop/clock.h"
#include "agent/node/node.h"
#include "agent/process/network_namespaces.h"

namespace kipt::agent {

class NodeAgent::Core {
 public:
  Core(NodeAgentOptions options, std::optional<VisitedNamespace> visited,
       NodeAgentHandlers handlers)
      : node_(std::move(options.config), std::move(options.legacy), std::move(visited)),
        handlers_(std::move(handlers)) {}

  absl::Status Start(EventLoop& loop) {
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

  absl::Status SetConfig(Config config) {
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

  const Config& config() const { return node_.config(); }
  AgentState state() const {
    AgentState state = agent_->state();
    state.must_restart = refused_config_.empty() ? changed_mode_ : refused_config_;
    return state;
  }
  std::optional<IptablesMode> iptables_mode() const { return node_.mode(); }

 private:
  BackendOrError OpenBackend() {
    if (early_backend_ != nullptr) return std::move(early_backend_);
    const bool first = !node_.mode();
    BackendOrError backend = node_.Open(/*read_only=*/config().observe);
    if (backend.ok() && first) Notice(absl::LogSeverity::kWarning, (*backend)->caveat());
    return backend;
  }

  // Before a host program drops what the other mode needs and this one does not.
  void RetireOtherMode() {
    if (early_backend_ == nullptr) return;
    const auto other = node_.RetireOtherFirst(*early_backend_);
    if (!other.ok()) {
      Notice(
          absl::LogSeverity::kWarning,
          absl::StrCat("The other iptables mode is left as it is, for this one is not in place: ",
                       other.status().message()));
    } else if (other->has_value() && handlers_.retired) {
      handlers_.retired(**other);
    }
  }

  AgentOptions MakeOptions() {
    options_mode_ = node_.mode();
    return node_.MakeAgentOptions();
  }

  void OnRound(const Round& round) {
    if (round.trigger == Trigger::kTimer) {
      changed_mode_ = node_.ModeChange().value_or(changed_mode_);
    }
    Notice(absl::LogSeverity::kInfo, node_.support().TakeNews());
    if (options_mode_ != node_.mode()) agent_->SetDesired(MakeOptions());
    if (handlers_.round) handlers_.round(round);
  }

  void Notice(absl::LogSeverity severity, absl::string_view text) const {
    if (!text.empty() && handlers_.notice) handlers_.notice(severity, text);
  }

  Node node_;
  const NodeAgentHandlers handlers_;
  // Of the options that the agent has.
  std::optional<IptablesMode> options_mode_;
  // Until the agent takes it.
  std::unique_ptr<netlink::Backend> early_backend_;
  // Why another agent is needed: the last SetConfig was refused, the node's iptables is another.
  // Empty where it is not.
  std::string refused_config_;
  std::string changed_mode_;
  std::unique_ptr<Agent> agent_;
};

NodeAgent::NodeAgent(std::unique_ptr<Core> core) : core_(std::move(core)) {}
NodeAgent::~NodeAgent() = default;

absl::StatusOr<std::unique_ptr<NodeAgent>> NodeAgent::Create(EventLoop& loop,
                                                             NodeAgentOptions options,
                                                             NodeAgentHandlers handlers) {
  std::optional<VisitedNamespace> visited;
  if (options.netns) {
    absl::StatusOr<VisitedNamespace> opened = VisitedNamespace::Open(*options.netns);
    if (!opened.ok()) return opened.status();
    visited = *std::move(opened);
  }
  auto core = std::make_unique<Core>(std::move(options), std::move(visited), std::move(handlers));
  if (absl::Status status = core->Start(loop); !status.ok()) return status;
  return std::unique_ptr<NodeAgent>(new NodeAgent(std::move(core)));
}

absl::Status NodeAgent::SetConfig(Config config) { return core_->SetConfig(std::move(config)); }
const Config& NodeAgent::config() const { return core_->config(); }
AgentState NodeAgent::state() const { return core_->state(); }
std::optional<IptablesMode> NodeAgent::iptables_mode() const { return core_->iptables_mode(); }

absl::StatusOr<Config> ResolveConfigIn(const std::string& netns, const Flags& flags) {
  const absl::StatusOr<VisitedNamespace> visited = VisitedNamespace::Open(netns);
  if (!visited.ok()) return visited.status();
  absl::StatusOr<Config> config = absl::UnknownError("");
  const absl::Status status = visited->Visit([&] { config = ResolveConfig(flags); });
  if (!status.ok()) return status;
  return config;
}

}  // namespace kipt::agent
