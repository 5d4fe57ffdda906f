// SPDX-License-Identifier: Apache-2.0
#include "agent/node_agent.h"

#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "agent/agent_options.h"
#include "agent/detect/backend_choice.h"
#include "agent/detect/mode_evidence.h"
#include "agent/loop/agent.h"
#include "agent/loop/clock.h"
#include "agent/process/command.h"
#include "agent/process/network_namespaces.h"
#include "agent/visiting_backend.h"

namespace kipt::agent {

class NodeAgent::Core {
 public:
  Core(NodeAgentOptions options, std::optional<VisitedNamespace> visited,
       NodeAgentHandlers handlers)
      : config_(std::move(options.config)),
        visited_(std::move(visited)),
        handlers_(std::move(handlers)),
        runner_(NewCommandRunner()),
        sources_(SystemModeSources(config_.host_root, runner_.get(), std::move(options.legacy))) {}

  absl::Status Start(EventLoop& loop) {
    const absl::Time start = SteadyNow();
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
    const std::vector<std::string> fixed = WhatNeedsARestart(config_, config);
    if (!fixed.empty()) {
      refused_config_ = absl::StrCat("fixed at start, and changed: ", absl::StrJoin(fixed, ", "));
      return absl::FailedPreconditionError(refused_config_);
    }
    refused_config_.clear();
    config_ = std::move(config);
    agent_->SetDesired(MakeOptions());
    return absl::OkStatus();
  }

  const Config& config() const { return config_; }
  AgentState state() const {
    AgentState state = agent_->state();
    state.must_restart = refused_config_.empty() ? changed_mode_ : refused_config_;
    return state;
  }
  std::optional<IptablesMode> iptables_mode() const { return iptables_mode_; }

 private:
  // Does `work` where the rules are.
  absl::Status Inside(absl::FunctionRef<void()> work) const {
    if (visited_) return visited_->Visit(work);
    work();
    return absl::OkStatus();
  }

  BackendOrError OpenBackend() {
    if (early_backend_ != nullptr) return std::move(early_backend_);
    const std::optional<IptablesMode> known =
        iptables_mode_ ? iptables_mode_ : config_.iptables_mode;
    BackendOrError backend = absl::UnknownError("");
    const absl::Status status = Inside([&] {
      backend = ChooseBackend({.flag = known,
                               .families = config_.families,
                               .off = config_.mode == Mode::kOff,
                               .read_only = config_.observe},
                              sources_);
    });
    if (!status.ok()) return status;
    if (!backend.ok()) return backend;
    const bool legacy = (*backend)->kind() == netlink::BackendKind::kIptablesLegacy;
    if (legacy && visited_) backend = NewVisitingBackend(*std::move(backend), *visited_);
    if (!iptables_mode_) {
      iptables_mode_ = legacy ? IptablesMode::kLegacy : IptablesMode::kNft;
      Notice(absl::LogSeverity::kWarning, (*backend)->caveat());
    }
    return backend;
  }

  // Before a host program drops what the other mode needs and this one does not.
  void RetireOtherMode() {
    if (!iptables_mode_ || early_backend_ == nullptr) return;
    absl::StatusOr<std::optional<RetiredMode>> other = std::optional<RetiredMode>();
    const absl::Status status = Inside(
        [&] { other = options_.RetireOtherModeFirst(config_, *iptables_mode_, *early_backend_); });
    if (!status.ok()) other = status;
    if (!other.ok()) {
      Notice(
          absl::LogSeverity::kWarning,
          absl::StrCat("The other iptables mode is left as it is, for this one is not in place: ",
                       other.status().message()));
    } else if (other->has_value() && handlers_.retired) {
      handlers_.retired(**other);
    }
  }

  // What asks the system asks from inside. Where that cannot be entered any more, no interface is
  // known, and the other iptables mode counts as claiming every mark.
  AgentOptions MakeOptions() {
    AgentOptions options = options_.Make(config_, iptables_mode_);
    if (!visited_) return options;
    const auto interfaces_inside = [this](std::function<std::vector<std::string>()> read) {
      return [this, read = std::move(read)] {
        std::vector<std::string> interfaces;
        Inside([&] { interfaces = read(); }).IgnoreError();
        return interfaces;
      };
    };
    options.route_localnet = interfaces_inside(std::move(options.route_localnet));
    if (!options.retire) return options;
    options.retire->route_localnet = interfaces_inside(std::move(options.retire->route_localnet));
    options.retire->other_mode =
        [this, look = std::move(options.retire->other_mode)](DependentsCollector& collector) {
          const absl::Status status = Inside([&] { look(collector); });
          if (!status.ok()) {
            collector.OtherModeUnreadable(
                absl::StrCat("rules of the other iptables mode: ", status.message()));
          }
        };
    return options;
  }

  void OnRound(const Round& round) {
    if (round.trigger == Trigger::kTimer) CheckMode();
    RenewOptions(round);
    if (handlers_.round) handlers_.round(round);
  }

  void RenewOptions(const Round& round) {
    std::string why;
    if (!options_.IsOutdated(config_, iptables_mode_, round, why)) return;
    Notice(absl::LogSeverity::kInfo, why);
    agent_->SetDesired(MakeOptions());
  }

  // Where the node's iptables was found out, somebody may have switched it since.
  void CheckMode() {
    if (config_.iptables_mode || config_.mode == Mode::kOff || !iptables_mode_) return;
    std::vector<FamilyMode> modes;
    const absl::Status status = Inside([&] {
      modes = DetectModes(config_.families, std::nullopt, sources_, Thoroughness::kUntilDecided);
    });
    if (!status.ok()) return;
    const absl::StatusOr<IptablesMode> now = ChooseMode(modes);
    if (!now.ok()) return;
    changed_mode_.clear();
    if (*now == *iptables_mode_) return;
    for (const FamilyMode& mode : modes) {
      if (mode.mode != *now) return;
    }
    changed_mode_ = absl::StrCat("the node's iptables is now ", IptablesModeName(*now), ", not ",
                                 IptablesModeName(*iptables_mode_));
  }

  void Notice(absl::LogSeverity severity, absl::string_view text) const {
    if (!text.empty() && handlers_.notice) handlers_.notice(severity, text);
  }

  Config config_;
  const std::optional<VisitedNamespace> visited_;
  const NodeAgentHandlers handlers_;
  const std::unique_ptr<CommandRunner> runner_;
  const ModeSources sources_;
  AgentOptionsSource options_{sources_};
  // Fixed once a backend was opened.
  std::optional<IptablesMode> iptables_mode_;
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
