// SPDX-License-Identifier: Apache-2.0
//
// A Node, and the ControlLoop that keeps its rules in place: what `kube-iptables-agent run` and
// agent/node_agent.h have inside. The latter describes threads and network namespaces.
#ifndef KIPT_AGENT_AGENT_H_
#define KIPT_AGENT_AGENT_H_

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "absl/base/log_severity.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "agent/config/config.h"
#include "agent/loop/agent_state.h"
#include "agent/loop/clock.h"
#include "agent/loop/control_loop.h"
#include "agent/loop/event_loop.h"
#include "agent/loop/reconciler.h"
#include "agent/loop/round.h"
#include "agent/node/node.h"
#include "agent/policy/diff.h"
#include "agent/policy/policy.h"
#include "agent/process/network_namespaces.h"
#include "featuregates/feature.h"

namespace kipt::agent {

struct AgentOptions {
  Config config;
  // NodeAgentOptions::netns.
  std::optional<std::string> netns = {};
  // A program that hangs stops the loop for command_deadline. lock_waited is called on the thread
  // that is in the namespace, while the loop's waits for it.
  IptablesLegacyOptions legacy = {};
  // ControlLoopOptions::patience.
  absl::Duration patience = Clock().patience;
};

// Called on the loop's thread, in its own network namespace; may be empty. They may call every
// member of the agent, once Create has returned it, and must not destroy it.
struct AgentHandlers {
  // At the end of every round.
  std::function<void(const Round&)> round = {};
  // As NodeAgentHandlers::notice, and also within Create.
  std::function<void(absl::LogSeverity, absl::string_view)> notice = {};
  // What was retired of the other iptables mode: once, within Create.
  std::function<void(const RetireReport&)> retired = {};
};

// What a round desired, and what it found and did.
struct LastRound {
  featuregates::Version emulated_version;
  PolicyInput input;
  SyncReport report;
};

class Agent {
 public:
  // As NodeAgent::Create; the caller checks the options.
  static absl::StatusOr<std::unique_ptr<Agent>> Create(EventLoop& loop, AgentOptions options,
                                                       AgentHandlers handlers);
  Agent(const Agent&) = delete;
  Agent& operator=(const Agent&) = delete;

  // As NodeAgent::SetOptions. FailedPrecondition: WhatNeedsARestart, and Node::ConfirmMode.
  absl::Status SetConfig(Config config);
  const Config& config() const { return node_.config(); }

  // As NodeAgent's.
  absl::StatusOr<Diff> Plan() const;
  // The caller has checked the namespace.
  void Sync() { loop_->CheckNow(); }
  AgentState state() const;
  // Nothing before the first.
  const std::optional<LastRound>& last_round() const { return last_round_; }
  // What the agent desires is its Input().
  const Node& node() const { return node_; }
  // FailedPrecondition: the calling thread is in another network namespace than at Create, where a
  // socket would be opened anew. OK where --netns names the namespace, or /proc is missing.
  absl::Status CheckNamespace() const;
  // Does `work` in the agent's network namespace, with a Node of its own, so that the agent does
  // not notice: for plans and audits. Errors are CheckNamespace's and Node::InNamespace's.
  absl::Status Ask(absl::FunctionRef<void(Node&)> work) const;
  std::optional<IptablesMode> iptables_mode() const { return node_.mode(); }

 private:
  Agent(AgentOptions options, std::optional<VisitedNamespace> visited, AgentHandlers handlers);

  absl::Status Start(EventLoop& loop);
  BackendOrError OpenBackend();
  ControlLoopOptions MakeOptions();
  void OnRound(const Round& round);
  void NoteModeChange();
  void Notice(absl::LogSeverity severity, absl::string_view text) const;

  const absl::Duration program_deadline_;
  Node node_;
  const AgentHandlers handlers_;
  std::optional<LastRound> last_round_;
  // Nothing: the namespace is a visited one.
  std::optional<NetnsGuard> own_namespace_;
  // The node's when the loop's options were made.
  std::optional<IptablesMode> options_mode_;
  // Until the loop takes it.
  std::unique_ptr<netlink::Backend> early_backend_;
  // Why another agent is needed; empty where it is not.
  std::string changed_mode_;
  // Why the mode would be unknown at a start now.
  std::string doubted_mode_;
  std::unique_ptr<ControlLoop> loop_;
};

class NodeAgent;
// What `agent` is inside: for agent/capi, which prints reports that no installed header has.
Agent& AgentInside(NodeAgent& agent);

}  // namespace kipt::agent

#endif  // KIPT_AGENT_AGENT_H_
