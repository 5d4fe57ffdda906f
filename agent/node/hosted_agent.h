// SPDX-License-Identifier: Apache-2.0
//
// File: agent/node/hosted_agent.h
//
// A Node and the Agent that keeps its rules in place, in an event loop of the caller: the heart of
// `kube-iptables-agent run`, and of what agent/node_agent.h offers to others. Threads and network
// namespaces are as described there.
#ifndef KIPT_AGENT_NODE_HOSTED_AGENT_H_
#define KIPT_AGENT_NODE_HOSTED_AGENT_H_

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "absl/base/log_severity.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "agent/config/config.h"
#include "agent/detect/iptables_mode.h"
#include "agent/loop/agent.h"
#include "agent/loop/event_loop.h"
#include "agent/loop/events.h"
#include "agent/loop/retirer.h"
#include "agent/loop/round.h"
#include "agent/node/node.h"
#include "agent/process/network_namespaces.h"
#include "agent/xtables/iptables_legacy_backend.h"

namespace kipt::agent {

// A program of iptables-legacy that hangs stops the loop for as long. A restore with 30,000
// services takes three seconds.
inline constexpr absl::Duration kProgramDeadline = absl::Seconds(20);

struct HostedAgentOptions {
  // The families of `auto` are those of the thread that called ResolveConfig: see ResolveConfigIn.
  Config config;
  // A path as /run/netns/NAME or /proc/PID/ns/net; nothing: the calling thread's. The namespace is
  // held, and so lives at least as long as the agent.
  std::optional<std::string> netns = {};
  // How iptables-legacy is read and written. lock_waited is called on the thread that is in the
  // namespace, while the loop's waits for it.
  IptablesLegacyOptions legacy = {.command_deadline = kProgramDeadline};
  // AgentOptions::patience.
  absl::Duration patience = Clock().patience;
};

// All are called on the thread that turns the loop, in its own network namespace, and may be empty.
// They may call every member of the agent, once Create has returned it, and must not destroy it.
struct HostedAgentHandlers {
  // At the end of every round.
  std::function<void(const Round&)> round = {};
  // What an operator is to know once and what no round tells: one sentence. Also within Create.
  std::function<void(absl::LogSeverity, absl::string_view)> notice = {};
  // What was retired of the other iptables mode: once, within Create.
  std::function<void(const RetireReport&)> retired = {};
};

class HostedAgent {
 public:
  // Finds out which iptables is in use and opens it, if that is possible by now, and with
  // --stale-chains=retire retires what the other mode holds. Nothing else is written before the
  // loop turns.
  //
  // NotFound, InvalidArgument, PermissionDenied: `netns` as by EnterNetworkNamespace.
  // ResourceExhausted: no timer, thread or descriptor to be had. Nothing else is an error: what the
  // kernel or a missing program refuses is tried again for ever, and told by rounds.
  static absl::StatusOr<std::unique_ptr<HostedAgent>> Create(EventLoop& loop,
                                                             HostedAgentOptions options,
                                                             HostedAgentHandlers handlers);
  HostedAgent(const HostedAgent&) = delete;
  HostedAgent& operator=(const HostedAgent&) = delete;

  // From the next turn of the loop on, this is desired.
  //
  // FailedPrecondition: WhatNeedsARestart says that it needs another agent; this one goes on as
  // before, and is not ready until a SetConfig succeeds; that of config() does.
  absl::Status SetConfig(Config config);
  const Config& config() const { return node_.config(); }

  // As it is now; a copy. must_restart is not empty where only a new agent can go on: the last
  // SetConfig was refused, or the node has changed its iptables mode.
  AgentState state() const;
  // Fixed once a backend was opened; empty before, and then config().iptables_mode may tell.
  std::optional<IptablesMode> iptables_mode() const { return node_.mode(); }

 private:
  HostedAgent(HostedAgentOptions options, std::optional<VisitedNamespace> visited,
              HostedAgentHandlers handlers);

  absl::Status Start(EventLoop& loop);
  BackendOrError OpenBackend();
  // Before a host program drops what the other mode needs and this one does not.
  void RetireOtherMode();
  AgentOptions MakeOptions();
  void OnRound(const Round& round);
  void Notice(absl::LogSeverity severity, absl::string_view text) const;

  Node node_;
  const absl::Duration patience_;
  const HostedAgentHandlers handlers_;
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

// ResolveConfig in the network namespace at `netns`, whose IPv6 it then is that `auto` goes by.
// Errors are ResolveConfig's and those that HostedAgent::Create has for `netns`.
absl::StatusOr<Config> ResolveConfigIn(const std::string& netns, const Flags& flags);

}  // namespace kipt::agent

#endif  // KIPT_AGENT_NODE_HOSTED_AGENT_H_
