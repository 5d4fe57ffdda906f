// SPDX-License-Identifier: Apache-2.0
//
// File: agent/node/node.h
//
// Where a configuration meets a machine: which iptables the node uses, the backend for it, what it
// can hold, what is desired of it, and who depends on what is stale. `sync`, `plan`, `status`,
// `retire`, the daemon and the library all begin here.
#ifndef KIPT_AGENT_NODE_NODE_H_
#define KIPT_AGENT_NODE_NODE_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "agent/config/config.h"
#include "agent/detect/iptables_mode.h"
#include "agent/detect/mode_evidence.h"
#include "agent/detect/rule_support.h"
#include "agent/loop/agent.h"
#include "agent/loop/reconciler.h"
#include "agent/policy/diff.h"
#include "agent/policy/policy.h"
#include "agent/process/command.h"
#include "agent/process/network_namespaces.h"
#include "agent/xtables/iptables_legacy_backend.h"

namespace kipt::agent {

// What `config` wants on the node.
PolicyInput InputOf(const Config& config);

// The interfaces from whose neighbours the kernel takes packets for 127.0.0.0/8, or none where that
// cannot be read.
std::vector<std::string> RouteLocalnetOrNone();

// What a command may have to find out beyond the rules it manages.
struct NodeQuestions {
  // What the node can hold; null: everything.
  std::shared_ptr<SupportSource> support = nullptr;
  // --stale-chains=retire: who depends on what.
  std::optional<RetirementSources> retire = {};
  // The same, for what stands in the other iptables mode; nothing: there is nothing there.
  // `martians_dropped`: by the managed mode.
  std::function<std::optional<RetireReport>(bool martians_dropped, bool apply)> retire_other = {};
};

// Not safe for use by several threads at once. Must outlive what it returns.
class Node {
 public:
  // What a command is for. kSync has one attempt, so what the kernel refuses then counts whatever
  // files say; the others try nothing, so they read all that files tell.
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
  // What the node can hold is asked again; silently (SupportSource::TakeNews).
  void SetConfig(Config config);
  const ModeSources& sources() const { return sources_; }
  SupportSource& support() { return *support_; }
  // Fixed once a backend was opened; empty before.
  std::optional<IptablesMode> mode() const { return mode_; }

  // The backend of the iptables that the node uses (ChooseBackend), by --iptables-mode or by what
  // is found. `read_only`: nf_tables is not loaded for it.
  BackendOrError Open(bool read_only);
  // Whether the node has changed its iptables since, where nothing but the node decides about it:
  // "the node's iptables is now legacy, not nft". Empty: it has not. Nothing: it cannot be told.
  std::optional<std::string> ModeChange() const;

  // For one command; Open has succeeded.
  NodeQuestions Questions(Errand errand);
  // For the daemon's loop. Its sources of retirement are there once a backend was opened.
  AgentOptions MakeAgentOptions();
  // What stands in the other iptables mode; creates and loads nothing.
  OtherMode ReadOther() const;
  // With --stale-chains=retire: puts in place what is desired, through `backend`, and then retires
  // what the other iptables mode holds. Once, at the start, because that mode can be reached with
  // the privileges of the start only. Nothing: nothing is to be retired there.
  absl::StatusOr<std::optional<RetireReport>> RetireOtherFirst(netlink::Backend& backend);
  // Who depends on what, with the rules of `other`. What of them cannot be read (by a daemon that
  // may run no programs) counts as claiming every mark.
  RetirementSources Dependents(netlink::BackendKind other);

 private:
  // Does `work` where the rules are.
  absl::Status Inside(absl::FunctionRef<void()> work) const;
  std::shared_ptr<SupportSource> MakeSupport();
  std::vector<std::string> RouteLocalnet() const;
  bool Retires() const;
  netlink::BackendKind KindInUse() const;
  // All rules of the iptables `kind`, as the one that is not managed. Where the rules are.
  void Survey(netlink::BackendKind kind, DependentsCollector& collector) const;
  // Retires what the other mode holds: nothing of kubelet's is desired there, so hint and canary
  // are removed too, which would lead programs that look for them into that mode. Where the mode in
  // use drops martian packets (`martians_dropped`), the other's rule against them may be removed.
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

}  // namespace kipt::agent

#endif  // KIPT_AGENT_NODE_NODE_H_
