// SPDX-License-Identifier: Apache-2.0
//
// kube-iptables-agent: flags -> Config -> Ruleset -> command.
#include <glog/logging.h>
#include <unistd.h>

#include <csignal>
#include <exception>
#include <functional>
#include <iostream>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "agent/build.h"
#include "agent/commands.h"
#include "agent/config/command_line.h"
#include "agent/config/completion.h"
#include "agent/config/load_config.h"
#include "agent/confinement.h"
#include "agent/daemon.h"
#include "agent/detect/capabilities.h"
#include "agent/detect/mode_evidence.h"
#include "agent/node/node.h"
#include "agent/process/network_namespaces.h"
#include "agent/process/origin.h"
#include "agent/process/own_process.h"
#include "agent/process/record_file.h"
#include "agent/report/incident_records.h"
#include "agent/report/report.h"
#include "agent/round_log.h"
#include "agent/stderr_log.h"
#include "agent/survey_commands.h"
#include "featuregates/feature.h"

namespace kipt::agent {
namespace {

static_assert(kAgentRelease == featuregates::Version{KIPT_VERSION_MAJOR, KIPT_VERSION_MINOR});

// ---- the commands ----

ExitOrError RunGates(const Config& config, OutputFormat format) {
  if (absl::Status status = ConfineToComputing(); !status.ok()) return status;
  std::cout << (format == OutputFormat::kJson ? GatesJson : GatesText)(config.emulated_version,
                                                                       config.gates);
  return kExitOk;
}

// Errors are ReadRecords'. Why none can be current is logged.
absl::StatusOr<IncidentRecords> ReadIncidents(const std::string& path) {
  absl::StatusOr<std::vector<std::string>> records = ReadRecords(path);
  if (!records.ok()) return records.status();
  const absl::StatusOr<Origin> here = ReadOrigin();
  IncidentRecords incidents{.records = *std::move(records)};
  if (here.ok()) {
    incidents.here = *here;
  } else if (!incidents.records.empty()) {
    LOG(WARNING) << "The boot or the network namespace is unknown, so only incidents --all shows "
                    "incidents: "
                 << here.status().message();
  }
  return incidents;
}

ExitOrError RunIncidents(const Flags& flags, const Config& config) {
  if (config.incidents_file.empty()) return absl::NotFoundError("--incidents-file is empty");
  const absl::StatusOr<IncidentRecords> incidents = ReadIncidents(config.incidents_file);
  if (absl::Status status = ConfineToComputing(); !status.ok()) return status;
  const bool none = absl::IsNotFound(incidents.status());
  if (!incidents.ok() && !none) return incidents.status();
  if (none) std::cerr << config.incidents_file << " does not exist: run has kept no incidents\n";
  const bool json = flags.output == OutputFormat::kJson;
  std::cout << (json ? IncidentsJson : IncidentsText)(incidents.value_or(IncidentRecords()),
                                                      flags.all);
  return kExitOk;
}

// node-problem-detector kills a plugin after 5 s by default, and knows no reason then.
void AnswerInTime() {
  std::signal(SIGALRM, [](int /*signal*/) {
    constexpr absl::string_view kLate = "unknown: the rules could not be read within 4 s\n";
    // Unknown, also where that cannot be written.
    [[maybe_unused]] const ssize_t written = write(STDOUT_FILENO, kLate.data(), kLate.size());
    _exit(2);
  });
  alarm(4);
}

// What the node can do, or which iptables it uses.
ExitOrError RunDetectOrCapabilities(const Flags& flags, const Node& node) {
  const Config& config = node.config();
  const ModeSources& sources = node.sources();
  // Without capabilities and sockets nothing can make the kernel load a module.
  const bool files_only =
      flags.capabilities && !absl::StartsWith(sources.host_root.directory, "/proc/");
  absl::Status confined = files_only ? ConfineToComputing() : ConfineToReading({}, sources);
  if (!confined.ok()) return confined;
  if (flags.capabilities) {
    return RunCapabilities(ReadCapabilities(sources.kernel, config.families, *flags.capabilities),
                           flags.output, std::cout);
  }
  return RunDetect(DetectModes(config.families, config.iptables_mode, sources, Thoroughness::kAll),
                   flags.output, std::cout);
}

// What a command on the rules of the node's iptables mode reads and does.
struct RuleCommand {
  Command command;
  ExitOrError (*run)(const CommandInput& input);
  Node::Purpose purpose;
  bool reads_other_mode = false;
  bool reads_route_localnet = false;
  bool reads_incidents = false;
};
constexpr RuleCommand kRuleCommands[] = {
    {.command = Command::kPlan,
     .run = RunPlan,
     .purpose = Node::Purpose::kCheck,
     .reads_other_mode = true},
    {.command = Command::kStatus,
     .run = RunStatus,
     .purpose = Node::Purpose::kCheck,
     .reads_other_mode = true,
     .reads_route_localnet = true,
     .reads_incidents = true},
    {.command = Command::kCheck,
     .run = RunCheck,
     .purpose = Node::Purpose::kCheck,
     .reads_route_localnet = true},
    {.command = Command::kSync, .run = RunSync, .purpose = Node::Purpose::kSync},
    {.command = Command::kRetire,
     .run = RunRetire,
     .purpose = Node::Purpose::kRetire,
     .reads_other_mode = true},
};

ExitOrError RunOnRules(const RuleCommand& command, const Flags& flags, Node& node) {
  const Config& config = node.config();
  const bool read_only = command.purpose != Node::Purpose::kSync && !flags.yes;
  IncidentRecords incidents;
  // Root's privileges may be needed to read the file.
  if (command.reads_incidents) {
    incidents = ReadIncidents(config.incidents_file).value_or(incidents);
  }
  if (read_only) {
    // The node's iptables may turn out to be iptables-legacy without any table.
    const ReadingNeeds needs{.programs = config.iptables_mode != IptablesMode::kNft,
                             .routes = command.purpose == Node::Purpose::kRetire ||
                                       config.stale_chains == StaleChains::kRetire};
    absl::Status confined = ConfineToReading(needs, node.sources());
    if (!confined.ok()) return confined;
  }
  const BackendOrError backend = node.Open(read_only, command.purpose);
  if (!backend.ok()) return backend.status();
  Subject subject = SubjectOf(node);
  subject.incidents = std::move(incidents);
  subject.show_all = flags.all;
  if (read_only && command.reads_other_mode) subject.other_mode = node.ReadOther();
  if (command.reads_route_localnet) subject.route_localnet = node.ReadRouteLocalnet();
  ExitOrError exit = command.run({.subject = subject,
                                  .backend = **backend,
                                  .node = node.Questions(command.purpose),
                                  .format = flags.output,
                                  .color = HasColors(flags),
                                  .yes = flags.yes,
                                  .observe = config.observe,
                                  .out = std::cout,
                                  .err = std::cerr});
  // By now most backends know it without running a program.
  const std::string caveat = (*backend)->caveat();
  if (!caveat.empty()) LOG(WARNING) << caveat;
  return exit;
}

// The first line of the daemon's log, which a report of a fault should contain.
void LogStart(const Config& config) {
  const Build build = ThisBuild();
  absl::StatusOr<IptablesMode> mode = IptablesMode::kUnknown;
  if (config.iptables_mode) {
    mode = *config.iptables_mode;
  } else {
    const Node node(config);
    mode = ChooseMode(
        DetectModes(config.families, std::nullopt, node.sources(), Thoroughness::kUntilDecided));
  }
  LOG(INFO) << "kube-iptables-agent v" << build.version << ", commit " << build.git_commit
            << ", emulates Kubernetes " << featuregates::ToString(config.emulated_version) << " in "
            << ModeName(config.mode) << " mode, iptables "
            << IptablesModeName(mode.value_or(IptablesMode::kUnknown));
}

ExitOrError Run(const CommandLine& command_line, const Config& config,
                std::function<uint64_t()> log_lines_dropped) {
  const Command command = command_line.command;
  const Flags& flags = command_line.flags;
  if (command == Command::kGates) return RunGates(config, flags.output);
  if (command == Command::kIncidents) return RunIncidents(flags, config);
  if (command == Command::kRun) {
    return RunDaemon(flags, config,
                     {.version = KIPT_VERSION, .log_lines_dropped = std::move(log_lines_dropped)});
  }
  Node node(config);
  if (command == Command::kDetect) return RunDetectOrCapabilities(flags, node);
  // These read more than the rules of one iptables mode.
  if (command == Command::kAudit) return RunAudit(flags, node);
  if (command == Command::kMarks) return RunMarks(flags, node);
  if (command == Command::kExplain) return RunExplain(command_line.argument, flags, node);
  for (const RuleCommand& on_rules : kRuleCommands) {
    if (on_rules.command == command) return RunOnRules(on_rules, flags, node);
  }
  return absl::UnimplementedError("this command has no row in kRuleCommands");
}

// `unwritten`: the exit status where the output cannot be written.
int Main(const char* program, const std::vector<std::string>& arguments, int& unwritten) {
  if (!arguments.empty() && arguments[0] == kCompleteCommand) {
    std::cout << Complete(AgentCompletion(), absl::MakeConstSpan(arguments).subspan(1));
    return kExitOk;
  }
  const absl::StatusOr<CommandLine> parsed = ParseCommandLine(arguments);
  if (!parsed.ok()) return Fail(parsed.status(), kExitUsage);
  const CommandLine& command_line = *parsed;
  if (!command_line.help.empty()) {
    std::cout << command_line.help;
    return kExitOk;
  }
  const Flags& flags = command_line.flags;
  if (command_line.command == Command::kVersion) {
    std::cout << (flags.output == OutputFormat::kJson ? VersionJson(ThisBuild())
                                                      : "kube-iptables-agent v" KIPT_VERSION "\n");
    return kExitOk;
  }
  if (command_line.command == Command::kCompletion) {
    const absl::StatusOr<std::string> script = Completion(AgentCompletion(), command_line.argument);
    if (!script.ok()) return Fail(script.status(), kExitUsage);
    std::cout << *script;
    return kExitOk;
  }

  const StderrLog log(program, flags, /*waits=*/command_line.command != Command::kRun);
  const bool npd = flags.output == OutputFormat::kNpd;
  // node-problem-detector's "unknown".
  if (npd) unwritten = 2;
  if (npd) AnswerInTime();
  const auto fail = [npd](const absl::Status& status, ExitCode code) {
    return npd ? NpdExitStatus(status, std::cout) : Fail(status, code);
  };
  // First, because whether there is IPv6 depends on the namespace.
  if (flags.netns.has_value()) {
    absl::Status entered = EnterNetworkNamespace(*flags.netns);
    if (!entered.ok()) {
      return fail(entered, absl::IsPermissionDenied(entered) ? kExitFailed : kExitUsage);
    }
  }
  absl::StatusOr<Config> config = LoadConfig(flags);
  if (!config.ok()) return fail(config.status(), kExitUsage);
  if (command_line.command == Command::kRun) LogStart(*config);
  LogConfig(*config);
  const ExitOrError code = Run(command_line, *config, [&log] { return log.dropped(); });
  if (npd) return NpdExitStatus(code, std::cout);
  return code.ok() ? *code : Fail(code.status(), kExitFailed);
}

}  // namespace
}  // namespace kipt::agent

int main(int argc, char** argv) {
  kipt::agent::OccupyStandardDescriptors();
  // A reader of the log that ends must not end the daemon: writing fails instead.
  std::signal(SIGPIPE, SIG_IGN);
  // The parent may have left it ignored, and then the exit codes of programs are lost.
  std::signal(SIGCHLD, SIG_DFL);
  // This project throws nothing; a library may, where memory runs out.
  try {
    int unwritten = kipt::agent::kExitFailed;
    const int code =
        kipt::agent::Main(argv[0], std::vector<std::string>(argv + 1, argv + argc), unwritten);
    return kipt::agent::FinishOutput(code, unwritten);
  } catch (const std::exception& error) {
    return kipt::agent::Fail(absl::UnknownError(error.what()), kipt::agent::kExitFailed);
  }
}
