// SPDX-License-Identifier: Apache-2.0
#include "agent/node_agent.h"

#include <string>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "agent/agent.h"
#include "agent/config/config.h"
#include "agent/loop/event_loop.h"
#include "agent/node/node.h"
#include "agent/text/printable.h"

namespace kipt::agent {
namespace {

absl::Status CheckLimits(const NodeAgentOptions& options) {
  for (const absl::Duration limit : {options.longest_retry, options.program_deadline}) {
    if (limit < absl::Milliseconds(1) || limit > absl::Hours(24)) {
      return absl::InvalidArgumentError(
          absl::StrCat("a limit of ", absl::FormatDuration(limit), "; it is from 1ms to 24h"));
    }
  }
  return absl::OkStatus();
}

// What the text of a flag cannot hold, and would be taken for something else.
absl::Status CheckTexts(const NodeAgentOptions& options) {
  for (const auto& [name, enabled] : options.feature_gates) {
    if (!absl::c_all_of(name, [](unsigned char c) { return absl::ascii_isalnum(c); })) {
      return absl::InvalidArgumentError(
          absl::StrCat("unrecognized feature gate: ", Printable(name)));
    }
  }
  for (const std::string& directory : options.cni_conf_dirs) {
    if (!absl::StartsWith(directory, "/") || absl::StrContains(directory, ',') ||
        directory.find('\0') != std::string::npos) {
      return absl::InvalidArgumentError(absl::StrCat("--cni-conf-dir=", Printable(directory),
                                                     ": give absolute paths without commas"));
    }
  }
  for (const std::optional<std::string>& path : {options.netns, options.host_root}) {
    if (path && path->find('\0') != std::string::npos) {
      return absl::InvalidArgumentError(
          absl::StrCat("the path ", Printable(*path), " has a NUL in it"));
    }
  }
  return absl::OkStatus();
}

// The program's flags with the same meaning, so that both are checked alike.
Flags FlagsOf(const NodeAgentOptions& options) {
  const auto add_gate = [](std::string* out, const auto& gate) {
    absl::StrAppend(out, gate.first, gate.second ? "=true" : "=false");
  };
  Flags flags = {
      .feature_gates = {absl::StrJoin(options.feature_gates, ",", add_gate)},
      .make_iptables_util_chains = options.make_iptables_util_chains,
      .ip_families = options.families.empty() ? "auto" : FamiliesText(options.families),
      .host_root = options.host_root,
      .iptables_sync_period = options.sync_period,
      .watch = std::string(WatchModeName(options.watch)),
      .observe = options.observe,
      .stale_chains = std::string(StaleChainsName(options.stale_chains)),
      .hint_policy = std::string(HintPolicyName(options.hint_policy)),
      .cni_conf_dir = absl::StrJoin(options.cni_conf_dirs, ","),
  };
  if (options.bits) {
    flags.iptables_masquerade_bit = options.bits->masquerade;
    flags.iptables_drop_bit = options.bits->drop;
  }
  if (options.labels) {
    flags.iptables_masquerade_label = options.labels->masquerade;
    flags.iptables_drop_label = options.labels->drop;
  }
  if (options.emulated_version) {
    flags.emulated_version = featuregates::ToString(*options.emulated_version);
  }
  if (options.iptables_mode) flags.iptables_mode.emplace(IptablesModeName(*options.iptables_mode));
  return flags;
}

}  // namespace

struct NodeAgent::Inside {
  NodeAgentHandlers handlers;
  // As given to Create.
  NodeAgentOptions options;
  // Until the first Dispatch.
  bool made = false;
  // For the next Dispatch or Sync.
  std::vector<std::pair<absl::LogSeverity, std::string>> queued_notices;
  std::unique_ptr<EventLoop> loop;
  // Declared after the loop so that it is destroyed first.
  std::unique_ptr<Agent> agent;

  void Notice(absl::LogSeverity severity, absl::string_view text) {
    if (!made) {
      queued_notices.emplace_back(severity, text);
    } else if (handlers.notice) {
      handlers.notice(severity, text);
    }
  }
  // Create and SetOptions call no handler.
  void NoticeWarnings(const Config& config) {
    for (const std::string& warning : config.warnings) {
      queued_notices.emplace_back(absl::LogSeverity::kWarning, warning);
    }
  }
  void GiveNotices() {
    made = true;
    // Where the handler throws, the rest is for the next Dispatch.
    if (!queued_notices.empty()) loop->DispatchAgain();
    // Those that the handler's SetOptions adds are for the next time.
    for (size_t left = queued_notices.size(); left > 0; --left) {
      const auto [severity, text] = std::move(queued_notices.front());
      queued_notices.erase(queued_notices.begin());
      Notice(severity, text);
    }
  }
  void NoticeRetired(const RetireReport& other) {
    if (!other.status.ok()) {
      Notice(absl::LogSeverity::kWarning,
             absl::StrCat("Stale items in iptables ", other.iptables_mode,
                          " were kept: ", other.status.message()));
    } else if (other.applied) {
      Notice(absl::LogSeverity::kInfo,
             absl::StrCat("Retired unused items in iptables ", other.iptables_mode, ", in ",
                          other.plan.changes.size(), " changes"));
    }
  }
};

NodeAgent::NodeAgent(std::unique_ptr<Inside> inside) : inside_(std::move(inside)) {}
NodeAgent::~NodeAgent() = default;

absl::StatusOr<std::unique_ptr<NodeAgent>> NodeAgent::Create(NodeAgentOptions options,
                                                             NodeAgentHandlers handlers) {
  absl::Status status = CheckLimits(options);
  if (status.ok()) status = CheckTexts(options);
  if (!status.ok()) return status;
  const Flags flags = FlagsOf(options);
  absl::StatusOr<Config> config =
      options.netns ? ResolveConfigIn(*options.netns, flags) : ResolveConfig(flags);
  if (!config.ok()) return config.status();
  absl::StatusOr<std::unique_ptr<EventLoop>> loop = EventLoop::Create();
  if (!loop.ok()) return loop.status();
  auto inside = std::make_unique<Inside>();
  Inside* const self = inside.get();
  self->handlers = std::move(handlers);
  self->loop = *std::move(loop);
  self->NoticeWarnings(*config);
  absl::StatusOr<std::unique_ptr<Agent>> agent =
      Agent::Create(*self->loop,
                    {.config = *std::move(config),
                     .netns = options.netns,
                     .legacy = {.command_deadline = options.program_deadline},
                     .patience = options.longest_retry},
                    {.round =
                         [self](const Round& round) {
                           if (self->handlers.round) self->handlers.round(round);
                         },
                     .notice = [self](absl::LogSeverity severity,
                                      absl::string_view text) { self->Notice(severity, text); },
                     .retired = [self](const RetireReport& other) { self->NoticeRetired(other); }});
  if (!agent.ok()) return agent.status();
  self->agent = *std::move(agent);
  self->options = std::move(options);
  return std::unique_ptr<NodeAgent>(new NodeAgent(std::move(inside)));
}

int NodeAgent::fd() const { return inside_->loop->fd(); }

absl::Status NodeAgent::Dispatch() {
  if (absl::Status status = inside_->agent->CheckNamespace(); !status.ok()) return status;
  inside_->GiveNotices();
  absl::Status status = inside_->loop->Dispatch();
  // Of a handler's SetOptions.
  if (!inside_->queued_notices.empty()) inside_->loop->DispatchAgain();
  return status;
}

absl::StatusOr<Diff> NodeAgent::Plan() const { return inside_->agent->Plan(); }

absl::StatusOr<std::vector<Change>> NodeAgent::Sync() {
  if (absl::Status status = inside_->agent->CheckNamespace(); !status.ok()) return status;
  inside_->GiveNotices();
  inside_->agent->Sync();
  return inside_->agent->last_round()->report.applied;
}

absl::Status NodeAgent::SetOptions(const NodeAgentOptions& options) {
  const NodeAgentOptions& now = inside_->options;
  if (options.netns != now.netns || options.longest_retry != now.longest_retry ||
      options.program_deadline != now.program_deadline) {
    return absl::FailedPreconditionError("the namespace and the limits are fixed at start");
  }
  absl::Status status = inside_->agent->CheckNamespace();
  if (status.ok()) status = CheckTexts(options);
  if (!status.ok()) return status;
  Flags flags = FlagsOf(options);
  // Fixed at start, too, and perhaps out of sight by now.
  const bool same_root = options.host_root == now.host_root;
  if (same_root) flags.host_root.reset();
  // The path may name another namespace by now, or none.
  absl::StatusOr<Config> config = absl::UnknownError("");
  status = inside_->agent->node().InNamespace([&] { config = ResolveConfig(flags); });
  if (status.ok()) status = config.status();
  if (status.ok() && same_root) config->host_root = inside_->agent->node().config().host_root;
  if (status.ok()) status = inside_->agent->SetConfig(*config);
  if (!status.ok()) return status;
  inside_->loop->DispatchAgain();
  inside_->NoticeWarnings(*config);
  return absl::OkStatus();
}

Agent& AgentInside(NodeAgent& agent) { return *agent.inside_->agent; }

AgentState NodeAgent::state() const { return inside_->agent->state(); }
std::optional<IptablesMode> NodeAgent::iptables_mode() const {
  return inside_->agent->iptables_mode();
}

}  // namespace kipt::agent
