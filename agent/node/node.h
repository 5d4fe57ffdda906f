// SPDX-License-Identifier: Apache-2.0
//
// The machine: which iptables it uses, its backend, what it can hold, what is desired there, and
// what depends on stale chains. Every command begins here.
#ifndef KIPT_AGENT_NODE_NODE_H_
#define KIPT_AGENT_NODE_NODE_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "agent/config/config.h"
#include "agent/detect/iptables_mode.h"
#include "agent/detect/mode_evidence.h"
#include "agent/detect/rule_support.h"
#include "agent/loop/clock.h"
#include "agent/loop/control_loop.h"
#include "agent/loop/reconciler.h"
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
  // Node::WhoDropsMartians.
  std::function<std::string()> who_drops_martians = {};
  // --stale-chains=retire: what depends on which chain.
  std::optional<RetirementSources> retire = {};
  // Retires what the other iptables mode holds; nothing: it holds nothing. `martians_dropped`: the
  // managed mode is reported to drop martian packets, so it is surveyed whether it drops all.
  std::function<std::optional<RetireReport>(bool martians_dropped, bool apply)> retire_other = {};
};

// Not safe for use by several threads at once. Must outlive what it returns.
class Node {
 public:
  // kSync tries once, so the kernel's refusal decides; the others read every file that shows what
  // the kernel has.
  enum class Purpose : uint8_t { kCheck, kSync, kRetire };

  // This machine, in the calling thread's network namespace or in `visited`, which is entered on
  // another thread wherever that is needed. `patience` is that of the clock.
  explicit Node(Config config, IptablesLegacyOptions legacy = {},
                std::optional<VisitedNamespace> visited = {},
                absl::Duration patience = Clock().patience);
  // Another machine, for tests.
  Node(Config config, ModeSources sources, absl::Duration patience = Clock().patience);
  Node(const Node&) = delete;
  Node& operator=(const Node&) = delete;

  const Config& config() const { return config_; }
  // What the node can hold is read again; silently (SupportSource::TakeNews).
  void SetConfig(Config config);
  // What the configuration desires.
  PolicyInput Input() const;
  const ModeSources& sources() const { return sources_; }
  // For all that waits until others write no more.
  const Clock& clock() const { return clock_; }
  SupportSource& support() { return *support_; }
  // Does `work` in the node's network namespace: on the calling thread if that is in it. Errors are
  // VisitedNamespace::Visit's.
  absl::Status InNamespace(absl::FunctionRef<void()> work) const;
  // Fixed once a backend was opened; empty before.
  std::optional<IptablesMode> mode() const { return mode_; }

  // The backend (ChooseBackend) of --iptables-mode or of the iptables that the node uses.
  // `read_only`: nf_tables is not loaded for it.
  BackendOrError Open(bool read_only, Purpose purpose = Purpose::kCheck);
  // "the node's iptables is now legacy, not nft"; empty where it has not changed, or a setting
  // fixes it. FailedPrecondition: WhyUnknown, because kubelet writes in another mode than that of
  // the host's program. Unknown: that cannot be read.
  absl::StatusOr<std::string> ModeChange() const;
  // FailedPrecondition: with `next` the agent would write where it did not so far, and a detection
  // now does not confirm the mode. A start has the privileges that decide it.
  absl::Status ConfirmMode(const Config& next) const;

  // For one command; Open has succeeded.
  NodeQuestions Questions(Purpose purpose);
  // For the daemon's loop; with sources of retirement once a backend was opened.
  ControlLoopOptions MakeLoopOptions();
  // What the other iptables mode holds; creates and loads nothing.
  OtherMode ReadOther() const;
  // With --stale-chains=retire: puts the desired state in place through `backend`, and then retires
  // what the other iptables mode holds, if anything; only at the start, which has the privileges.
  absl::StatusOr<std::optional<RetireReport>> RetireOtherFirst(netlink::Backend& backend);
  // What depends on which chain, with the rules of `other`. What cannot be read of them (by a
  // daemon that must not run programs) counts as claiming every mark.
  RetirementSources Dependents(netlink::BackendKind other);
  // agent::ReadRouteLocalnet; also unread where the namespace cannot be entered.
  RouteLocalnet ReadRouteLocalnet() const;
  // ReadWhoDropsMartians.
  std::string WhoDropsMartians() const;
  CniConfigs ReadCniConfigs() const;

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
  const Clock clock_;
  KernelSymbols symbols_ = KernelSymbols::kSkip;
  bool one_attempt_ = false;
  std::shared_ptr<SupportSource> support_ = MakeSupport();
  std::optional<IptablesMode> mode_;
};

// ResolveConfig in the network namespace at `netns`, so that `auto` depends on its IPv6. Errors are
// ResolveConfig's and VisitedNamespace::Open's.
absl::StatusOr<Config> ResolveConfigIn(const std::string& netns, const Flags& flags);

}  // namespace kipt::agent

#endif  // KIPT_AGENT_NODE_NODE_H_
