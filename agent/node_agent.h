// SPDX-License-Identifier: Apache-2.0
//
// The library's front door: what `kube-iptables-agent run` does for one network namespace, inside a
// host program (a kubelet-like node agent) that brings its own event loop, log and configuration.
//
//   auto agent = NodeAgent::Create({.iptables_mode = IptablesMode::kNft}, {.round = Log});
//   (*agent)->Dispatch();  // once, whenever (*agent)->fd() is readable, after Sync and SetOptions
//
// Version 0: the API is not frozen. It may change with every minor release.
//
// Threads. An agent is made, used and destroyed on one thread, and calls its handlers there. Any
// number of agents, of different namespaces and iptables modes, may share a thread.
//
// Time. Only Create, Dispatch, Plan and Sync wait, and SetOptions where the agent would now write
// in a mode that it detects anew. Dispatch does at most one round for each thing that happened, and
// begins none after 10 ms: fd() stays readable then. In nf_tables mode a round waits for each of
// the kernel's answers for 5 s at most; where other processes keep changing the rules it tries
// again for NodeAgentOptions::longest_retry at most. In iptables-legacy mode it also waits for the
// lock of the iptables programs, for 5 s at most, and for each program that it runs, for
// NodeAgentOptions::program_deadline at most. Without a limit the kernel makes a write wait for
// another program's transaction that is open, and a reading of rules that it adds.
//
// Network namespaces. Without NodeAgentOptions::netns the agent works in the one that the thread is
// in at Create. The thread must stay there: Dispatch, Plan, Sync and SetOptions are refused in
// another one. A namespace that NodeAgentOptions::netns names is entered by a thread that works
// there and has ended before the call returns; the caller's thread never leaves its own. That
// happens while an agent is made, in Plan and SetOptions, in rounds, and whenever a program runs.
// Entering needs CAP_SYS_ADMIN, as long as the agent lives.
//
// Signals, standard streams, environment, capabilities, resource limits and the current directory
// of the process are left alone. Where the namespace has tables of iptables-legacy, or the mode is
// given as kLegacy, the process may have children, programs of iptables-legacy, each for
// NodeAgentOptions::program_deadline at most. A host program that ignores SIGCHLD, or reaps every
// child, breaks that. Threads that end before a call returns run no signal handler. In a process
// that the host program forks, an agent of its parent may be destroyed; nothing else is allowed.
#ifndef KIPT_AGENT_NODE_AGENT_H_
#define KIPT_AGENT_NODE_AGENT_H_

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/base/log_severity.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "agent/detect/iptables_mode.h"
#include "agent/loop/events.h"
#include "agent/policy/diff.h"
#include "agent/policy/policy.h"
#include "agent/policy/retirement.h"
#include "featuregates/feature.h"
#include "netlink/backend.h"
#include "netlink/ruleset.h"

namespace kipt::agent {

class Agent;

// What is desired. Nothing else is read: no file, flag or variable.
struct NodeAgentOptions {
  // A path as /run/netns/NAME or /proc/PID/ns/net; nothing: the calling thread's. The agent holds
  // the namespace.
  std::optional<std::string> netns = {};
  // The Kubernetes release whose gates and rules count; nothing: the newest with a gate that can be
  // turned off. A minor release newer than the newest known behaves as that.
  std::optional<featuregates::Version> emulated_version = {};
  // {"IPTablesOwnershipCleanup", false}: those that are not at their default.
  std::map<std::string, bool> feature_gates = {};
  // False: no rule is touched.
  bool make_iptables_util_chains = true;
  // Nothing: kubelet's. Refused for 1.31 and later, which has no such setting.
  std::optional<MarkBits> bits = {};
  // For the gate ConnLabelMarking.
  std::optional<ConnLabels> labels = {};
  // Empty: IPv4, and IPv6 where the namespace has it.
  std::vector<netlink::Family> families = {};
  // kNft or kLegacy; nothing: what the node uses.
  std::optional<IptablesMode> iptables_mode = {};
  // Where the node's root file system is, for a host program that runs in a container.
  std::optional<std::string> host_root = {};
  // From 1 s to 24 h: between two checks if nothing happens.
  absl::Duration sync_period = absl::Minutes(1);
  netlink::WatchMode watch = netlink::WatchMode::kEvents;
  // Nothing is written.
  bool observe = false;
  StaleChains stale_chains = StaleChains::kKeep;
  HintPolicy hint_policy = HintPolicy::kUsable;
  // Directories of CNI configurations; empty: the known places of the node.
  std::vector<std::string> cni_conf_dirs = {};
  // See above. A round that gives up is tried again, after a pause.
  absl::Duration longest_retry = absl::Seconds(1);
  // A restore with 30,000 services takes three seconds.
  absl::Duration program_deadline = absl::Seconds(20);
};

// Called by Dispatch and Sync, never by another function: they may call every member of the agent
// but those two, and must not destroy it. What they throw, the call throws that called them. May be
// empty.
struct NodeAgentHandlers {
  // At the end of every round.
  std::function<void(const Event&)> round = {};
  // One sentence for the operator, which no round reports.
  std::function<void(absl::LogSeverity, absl::string_view)> notice = {};
};

class NodeAgent {
 public:
  // Finds out which iptables is in use and opens it, if that is possible by now, and with
  // StaleChains::kRetire retires what the other mode holds. Writes nothing else.
  //
  // InvalidArgument: an option is wrong; messages name it as the program's flag. The two limits are
  // from 1 ms to 24 h.
  // NotFound, InvalidArgument, PermissionDenied: `netns` does not exist, is no network namespace,
  // or cannot be entered.
  // ResourceExhausted: no timer, thread or descriptor. What the kernel or a missing program refuses
  // is no error: it is tried again for ever, and reported by rounds.
  static absl::StatusOr<std::unique_ptr<NodeAgent>> Create(NodeAgentOptions options,
                                                           NodeAgentHandlers handlers);
  // Leaves the rules in place.
  ~NodeAgent();
  NodeAgent(const NodeAgent&) = delete;
  NodeAgent& operator=(const NodeAgent&) = delete;

  // To be polled for input by the host's event loop, which must not close it.
  int fd() const;
  // Does what is due. Call it once before fd() is polled for the first time, each time fd() is
  // readable, and after Sync and SetOptions.
  //
  // FailedPrecondition: the thread is in another network namespace than at Create; nothing was
  // done. Other errors: the event loop failed, and needs another agent.
  absl::Status Dispatch();

  // From the next Dispatch on, this is desired.
  //
  // InvalidArgument: as Create; this agent continues unchanged. FailedPrecondition: an option that
  // is fixed at start has another value, or the agent would write where it did not so far and
  // cannot confirm the iptables mode. Both need another agent; this one continues unchanged.
  // PermissionDenied, ResourceExhausted: `netns` cannot be entered now.
  absl::Status SetOptions(const NodeAgentOptions& options);

  // Reads the kernel, and changes nothing: what is there, and what Sync would change. The agent
  // does not notice.
  //
  // FailedPrecondition: as Dispatch, or the iptables mode cannot be found out. Other errors are
  // those of reading: PermissionDenied, Unavailable, Aborted, ...
  absl::StatusOr<Diff> Plan() const;
  // One round now, with its handlers, whatever is due: what it changed, in order. What is fought
  // over, and a family whose next attempt is due later, wait all the same.
  //
  // FailedPrecondition: as Dispatch. What the kernel refused is in state().
  absl::StatusOr<std::vector<Change>> Sync();

  // A copy. must_restart is not empty where only a new agent can go on, because the node has
  // changed its iptables mode.
  AgentState state() const;
  // Fixed once it was found out; nothing before.
  std::optional<IptablesMode> iptables_mode() const;

 private:
  friend Agent& AgentInside(NodeAgent& agent);
  struct Inside;
  explicit NodeAgent(std::unique_ptr<Inside> inside);
  std::unique_ptr<Inside> inside_;
};

}  // namespace kipt::agent

#endif  // KIPT_AGENT_NODE_AGENT_H_
