// SPDX-License-Identifier: Apache-2.0
//
// File: agent/node/node.h
//
// Where a configuration meets a machine. A Node finds out which iptables the machine uses, its
// backend, what it can hold, what is desired there, and who depends on what is stale. `sync`,
// `plan`, `status`, `retire`, the daemon and the library all begin here. A HostedAgent is a Node
// and the Agent that keeps its rules in place: the core of `kube-iptables-agent run` and of
// agent/node_agent.h, which describes its threads and network namespaces.
#ifndef KIPT_AGENT_NODE_NODE_H_
#define KIPT_AGENT_NODE_NODE_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/base/log_severity.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "agent/config/config.h"
#include "agent/detect/iptables_mode.h"
#include "agent/detect/mode_evidence.h"
#include "agent/detect/rule_support.h"
#include "agent/loop/agent.h"
#include "agent/policy/diff.h"
#include "agent/policy/policy.h"
#include "agent/process/command.h"
#include "agent/process/network_namespaces.h"
#include "agent/xtables/iptables_legacy_backend.h"

namespace kipt::agent {

// What a command may have to find out beyond the rules it manages.
struct NodeQuestions {
  // What the node can hold; null: everything.
  std::shared_ptr<SupportSource> support = nullptr;
  // --stale-chains=retire: who depends on what.
  std::optional<RetirementSources> retire = {};
  // Retires what the other iptables mode holds; nothing: it holds nothing. `martians_dropped`: the
  // managed mode drops martian packets.
  std::function<std::optional<RetireReport>(bool martians_dropped, bool apply)> retire_other = {};
};

// Not safe for use by several threads at once. Must outlive what it returns.
class Node {
 public:
  // kSync tries once, so a refusal by the kernel counts whatever files say; the others try nothing,
  // so they read all files that tell.
  enum class Errand : uint8_t { kLook, kSync, kRetire };

  // This machine, in the calling thread's network namespace or in `visited`, which is entered on
  // another thread wherever that is needed.
  explicit Node(Config config, IptablesLegacyOptions legacy = {},
                std::optional<VisitedNamespace> visited = {});
  // Another machine, for tests.
  Node(Config config, ModeSources sources);
  Node(const Node&) = delete;
  Node& operator=(const Node&) = delete;

  const Config& config() const { return config_; }
  // What the node can hold is read again; silently (SupportSource::TakeNews).
  void SetConfig(Config config);
  // What the configuration desires.
  PolicyInput Input() const;
  const ModeSources& sources() const { return sources_; }
  SupportSource& support() { return *support_; }
  // Fixed once a backend was opened; empty before.
  std::optional<IptablesMode> mode() const { return mode_; }

  // The backend (ChooseBackend) of --iptables-mode or of the iptables that the node uses.
  // `read_only`: nf_tables is not loaded for it.
  BackendOrError Open(bool read_only);
  // Whether the node has changed its iptables, where no setting fixes it: "the node's iptables is
  // now legacy, not nft". Empty: it has not. Nothing: that is not known.
  std::optional<std::string> ModeChange() const;

  // For one command; Open has succeeded.
  NodeQuestions Questions(Errand errand);
  // For the daemon's loop; with sources of retirement once a backend was opened.
  AgentOptions MakeAgentOptions();
  // What the other iptables mode holds; creates and loads nothing.
  OtherMode ReadOther() const;
  // With --stale-chains=retire: puts the desired state in place through `backend`, and then retires
  // what the other iptables mode holds. At the start only, because reaching that mode needs
  // privileges that are dropped then. Nothing: nothing is to be retired there.
  absl::StatusOr<std::optional<RetireReport>> RetireOtherFirst(netlink::Backend& backend);
  // Who depends on what, with the rules of `other`. What cannot be read of them (by a daemon that
  // may run no programs) counts as claiming every mark.
  RetirementSources Dependents(netlink::BackendKind other);
  // Interfaces from whose neighbours the kernel accepts packets for 127.0.0.0/8; none where that
  // cannot be read.
  std::vector<std::string> RouteLocalnet() const;

 private:
  std::shared_ptr<SupportSource> MakeSupport();
  bool Retires() const;
  netlink::BackendKind KindInUse() const;
  // See NodeQuestions. Removes hint and canary, too, which would lead programs into that mode.
  std::optional<RetireReport> RetireOther(bool martians_dropped, bool apply);

  Config config_;
  std::unique_ptr<CommandRunner> runner_;
  const std::optional<VisitedNamespace> visited_;
  const ModeSources sources_;
  KernelSymbols symbols_ = KernelSymbols::kSkip;
  bool one_attempt_ = false;
  std::shared_ptr<SupportSource> support_ = MakeSupport();
  std::optional<IptablesMode> mode_;
};

struct HostedAgentOptions {
  // The families of `auto` are those of the thread that called ResolveConfig: see ResolveConfigIn.
  Config config;
  // NodeAgentOptions::netns.
  std::optional<std::string> netns = {};
  // How iptables-legacy is read and written: command_deadline is how long a program that hangs
  // stops the loop. lock_waited is called on the thread that is in the namespace, while the loop's
  // waits for it.
  IptablesLegacyOptions legacy = {};
  // AgentOptions::patience.
  absl::Duration patience = Clock().patience;
};

// All are called on the thread of the loop, in its own network namespace, and may be empty. They
// may call every member of the agent, once Create has returned it, and must not destroy it.
struct HostedAgentHandlers {
  // At the end of every round.
  std::function<void(const Round&)> round = {};
  // What an operator should know once and no round reports: one sentence. Also within Create.
  std::function<void(absl::LogSeverity, absl::string_view)> notice = {};
  // What was retired of the other iptables mode: once, within Create.
  std::function<void(const RetireReport&)> retired = {};
};

class HostedAgent {
 public:
  // As NodeAgent::Create; the caller checks the options.
  static absl::StatusOr<std::unique_ptr<HostedAgent>> Create(EventLoop& loop,
                                                             HostedAgentOptions options,
                                                             HostedAgentHandlers handlers);
  HostedAgent(const HostedAgent&) = delete;
  HostedAgent& operator=(const HostedAgent&) = delete;

  // From the next turn of the loop on, this is desired.
  //
  // FailedPrecondition: it needs another agent (WhatNeedsARestart). This one continues, and is not
  // ready until a SetConfig succeeds; that of config() does.
  absl::Status SetConfig(Config config);
  const Config& config() const { return node_.config(); }

  // A copy. must_restart is not empty where only a new agent can continue: the last SetConfig was
  // refused, or the node has changed its iptables mode.
  AgentState state() const;
  // Fixed once a backend was opened; empty before, and then config().iptables_mode may tell.
  std::optional<IptablesMode> iptables_mode() const { return node_.mode(); }

 private:
  HostedAgent(HostedAgentOptions options, std::optional<VisitedNamespace> visited,
              HostedAgentHandlers handlers);

  absl::Status Start(EventLoop& loop);
  BackendOrError OpenBackend();
  AgentOptions MakeOptions();
  void OnRound(const Round& round);
  void Notice(absl::LogSeverity severity, absl::string_view text) const;

  Node node_;
  const absl::Duration patience_;
  const HostedAgentHandlers handlers_;
  // When the agent's options were made.
  std::optional<IptablesMode> options_mode_;
  // Until the agent takes it.
  std::unique_ptr<netlink::Backend> early_backend_;
  // Why another agent is needed; empty where it is not.
  std::string refused_config_;
  std::string changed_mode_;
  std::unique_ptr<Agent> agent_;
};

// ResolveConfig in the network namespace at `netns`, so that `auto` depends on its IPv6. Errors are
// ResolveConfig's and VisitedNamespace::Open's.
absl::StatusOr<Config> ResolveConfigIn(const std::string& netns, const Flags& flags);

}  // namespace kipt::agent

#endif  // KIPT_AGENT_NODE_NODE_H_
