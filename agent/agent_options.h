// SPDX-License-Identifier: Apache-2.0
//
// File: agent/agent_options.h
//
// What the daemon gives its agent to do: from the configuration, from the node's iptables mode once
// that is known, and from what the kernel can hold.
#ifndef KIPT_AGENT_AGENT_OPTIONS_H_
#define KIPT_AGENT_AGENT_OPTIONS_H_

#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "agent/config/config.h"
#include "agent/detect/iptables_mode.h"
#include "agent/detect/mode_evidence.h"
#include "agent/detect/rule_support.h"
#include "agent/loop/agent.h"
#include "agent/loop/reconciler.h"
#include "agent/loop/round.h"
#include "netlink/backend.h"

namespace kipt::agent {

class AgentOptionsSource {
 public:
  // `sources` must outlive it, and the options it makes.
  explicit AgentOptionsSource(const ModeSources& sources)
      : sources_(sources),
        support_([this] { return sources_.xt_compat(symbols_); },
                 [this] { return sources_.conn_label_match(symbols_); }) {}

  // As things are now; `mode` is empty until it is known.
  AgentOptions Make(const Config& config, std::optional<IptablesMode> mode);

  // After a round: whether Make would give something else by now. The mode has become known; a rule
  // was refused for want of a match, or proves that there are such; or modules have come, which is
  // looked for with the timer.
  // `why` is for the log, and may be empty.
  bool IsOutdated(const Config& config, std::optional<IptablesMode> mode, const Round& round,
                  std::string& why);

  // What the other iptables mode holds goes, if --stale-chains=retire: once, at the start, for it
  // can be reached with the privileges of the start only. First what is wanted is put in place
  // through `backend`. Nothing: nothing is to be retired there.
  absl::StatusOr<std::optional<RetiredMode>> RetireOtherModeFirst(const Config& config,
                                                                  IptablesMode mode,
                                                                  netlink::Backend& backend);

 private:
  const ModeSources& sources_;
  KernelSymbols symbols_ = KernelSymbols::kSkip;
  SupportWatch support_;
  // Of the options last made.
  std::optional<IptablesMode> mode_;
};

}  // namespace kipt::agent

#endif  // KIPT_AGENT_AGENT_OPTIONS_H_
