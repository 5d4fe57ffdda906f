// SPDX-License-Identifier: Apache-2.0
//
// The one-shot commands: each reads the kernel through a Backend and prints a report.
#ifndef KIPT_AGENT_COMMANDS_H_
#define KIPT_AGENT_COMMANDS_H_

#include <iostream>
#include <ostream>
#include <string>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "agent/config/config.h"
#include "agent/detect/capabilities.h"
#include "agent/detect/iptables_mode.h"
#include "agent/node/node.h"
#include "agent/report/report.h"
#include "netlink/backend.h"

namespace kipt::agent {

// Exit codes of the program. 64 is sysexits(3)'s EX_USAGE.
enum ExitCode : int {
  kExitOk = 0,
  kExitFailed = 1,       // the kernel, a privilege
  kExitDifferences = 2,  // plan, status: changes are needed; any: a finding that needs attention
  kExitUsage = 64,       // flags or configuration, an unreadable file included
};
// An error ends the program with kExitFailed.
using ExitOrError = absl::StatusOr<ExitCode>;

// Reports go to `out`, in either format. Errors of a part, next to a report, go to `err`.
struct CommandInput {
  const Subject& subject;  // what is desired
  netlink::Backend& backend;
  Clock clock = SteadyClock();
  NodeQuestions node = {};
  OutputFormat format = OutputFormat::kText;
  bool color = false;  // of plan and status
  bool yes = false;    // of retire
  bool observe = false;
  std::ostream& out;
  std::ostream& err;
};

// About what `node` desires, in the iptables mode that it has opened.
Subject SubjectOf(const Node& node);

// What RunPlan prints as JSON, read through a backend of its own. Errors are Node::Open's and
// Backend::Read's.
absl::StatusOr<std::string> PlanReport(Node& node);

// Errors of these and of RunCheck and RunRetire, which nothing is printed for, are Backend::Read's.
ExitOrError RunPlan(const CommandInput& input);
ExitOrError RunStatus(const CommandInput& input);
ExitOrError RunSync(const CommandInput& input);

// Whether the node is ready, as /readyz judges it, without a running daemon. kExitDifferences: not
// ready. Reads again for a second before it says so, because a daemon may be repairing.
ExitOrError RunCheck(const CommandInput& input);
// What node-problem-detector expects of a custom plugin: 0 ok, 1 not ok, 2 unknown. RunCheck has
// printed its line; of an error the reason is printed.
int NpdExitStatus(const ExitOrError& checked, std::ostream& out);

// With `yes` retires what is unclaimed, first in the managed mode. `node.retire` must be given.
// kExitDifferences: something would be retired, or a family's rules are not in place.
ExitOrError RunRetire(const CommandInput& input);

// Prints what was detected. kExitDifferences: a contradiction (FamilyMode), with or without a mode.
// kExitFailed: a family's mode is unknown. "none" is kExitOk: either mode may be used.
ExitCode RunDetect(absl::Span<const FamilyMode> modes, OutputFormat format, std::ostream& out);

// Prints what the kernel can do. kExitDifferences: something that is needed is missing.
// kExitFailed: else, whether something that is needed is there cannot be read.
ExitCode RunCapabilities(const CapabilityReport& report, OutputFormat format, std::ostream& out);

// Prints "Error: ..." in one line, and returns `code`.
ExitCode Fail(const absl::Status& status, ExitCode code, std::ostream& err = std::cerr);

}  // namespace kipt::agent

#endif  // KIPT_AGENT_COMMANDS_H_
