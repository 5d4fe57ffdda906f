// SPDX-License-Identifier: Apache-2.0
//
// File: agent/node_agent.h
//
// The library's front door: what `kube-iptables-agent run` does for one network namespace, inside a
// host program (a kubelet-like node agent) that brings its own event loop, log and configuration.
//
//   absl::StatusOr<Config> config = ResolveConfig(flags);         // agent/config/config.h
//   auto loop = EventLoop::Create();                              // agent/loop/event_loop.h
//   auto agent = NodeAgent::Create(**loop, {.config = *config}, {.round = Log});
//   (*loop)->Dispatch();                       // once, and whenever (*loop)->fd() is readable
//
// Version 0: the API is not frozen. It may change with every minor release.
//
// Threads. Everything of one loop belongs to the thread that turns it: agents are made, used and
// destroyed there, and handlers called there. Any number of agents, of different namespaces and
// iptables modes, may share a loop; each loop may have a thread of its own.
//
// Network namespaces. The caller's thread never leaves its own, on no path: where
// NodeAgentOptions::netns names another one, whatever has to happen in there is done by a thread
// that enters it, does it, and has ended before the call returns. That is so while an agent is
// made; later only when a socket that broke is opened anew, and, for legacy iptables, whenever one
// of its programs runs. In nf_tables mode the sockets made at the start do the rest from wherever
// they are used. Entering needs CAP_SYS_ADMIN, as long as the agent lives.
//
// Signals, standard streams, environment, capabilities, resource limits and the current directory
// of the process are left alone. In legacy mode the process has children, which are reaped one by
// one; a host program that ignores SIGCHLD, or reaps everybody's children, breaks that mode.
#ifndef KIPT_AGENT_NODE_AGENT_H_
#define KIPT_AGENT_NODE_AGENT_H_

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
#include "agent/loop/event_loop.h"
#include "agent/loop/events.h"
#include "agent/loop/retirer.h"
#include "agent/loop/round.h"
#include "agent/xtables/iptables_legacy_backend.h"

namespace kipt::agent {

// A program of legacy iptables' that hangs stops the loop for as long. A restore beside 30,000
// services takes three seconds.
inline constexpr absl::Duration kProgramDeadline = absl::Seconds(20);

struct NodeAgentOptions {
  // The families of `auto` are those of the thread that called ResolveConfig: see ResolveConfigIn.
  Config config;
  // A path as /run/netns/NAME or /proc/PID/ns/net; nothing: the calling thread's. The namespace is
  // held, and so lives at least as long as the agent.
  std::optional<std::string> netns = {};
  // How legacy iptables is read and written. lock_waited is called on the thread that is in the
  // namespace, while the loop's waits for it.
  IptablesLegacyOptions legacy = {.command_deadline = kProgramDeadline};
};

// All are called on the thread that turns the loop, in its own network namespace, and may be empty.
// They may call every member of the agent that is told of, and must not destroy it.
struct NodeAgentHandlers {
  // At the end of every round.
  std::function<void(const Round&)> round = {};
  // What an operator is to know once and what no round tells: one sentence.
  std::function<void(absl::LogSeverity, absl::string_view)> notice = {};
  // What was retired of the other iptables mode: once, within Create.
  std::function<void(const RetireReport&)> retired = {};
};

class NodeAgent {
 public:
  // Finds out which iptables is in use and opens it, if that is possible by now, and with
  // --stale-chains=retire retires what the other mode holds. Nothing else is written before the
  // loop turns.
  //
  // NotFound, InvalidArgument, PermissionDenied: `netns` as by EnterNetworkNamespace.
  // ResourceExhausted: no timer, thread or descriptor to be had. Nothing else is an error: what the
  // kernel or a missing program refuses is tried again for ever, and told by rounds.
  static absl::StatusOr<std::unique_ptr<NodeAgent>> Create(EventLoop& loop,
                                                           NodeAgentOptions options,
                                                           NodeAgentHandlers handlers);
  // Leaves the rules in place.
  ~NodeAgent();
  NodeAgent(const NodeAgent&) = delete;
  NodeAgent& operator=(const NodeAgent&) = delete;

  // From the next turn of the loop on, this is wanted. A loop around that one calls its Dispatch()
  // afterwards: fd() need not become readable by this alone.
  //
  // FailedPrecondition: WhatNeedsARestart says that it needs another agent; this one goes on as
  // before, and is not ready until a SetConfig succeeds; that of config() does.
  absl::Status SetConfig(Config config);
  const Config& config() const;

  // As it is now; a copy. must_restart is not empty where only a new agent can go on: the last
  // SetConfig was refused, or the node has changed its iptables mode.
  AgentState state() const;
  // Fixed once a backend was opened; empty before, and then config().iptables_mode may tell.
  std::optional<IptablesMode> iptables_mode() const;

 private:
  class Core;
  explicit NodeAgent(std::unique_ptr<Core> core);
  std::unique_ptr<Core> core_;
};

// ResolveConfig in the network namespace at `netns`, whose IPv6 it then is that `auto` goes by.
// Errors are ResolveConfig's and those that NodeAgent::Create has for `netns`.
absl::StatusOr<Config> ResolveConfigIn(const std::string& netns, const Flags& flags);

}  // namespace kipt::agent

#endif  // KIPT_AGENT_NODE_AGENT_H_
