// SPDX-License-Identifier: Apache-2.0
//
// kube-iptables-agent: flags -> Config -> Ruleset -> command. Flags are read here and nowhere else.
#include <glog/logging.h>

#include <csignal>
#include <cstdio>
#include <exception>
#include <iostream>
#include <memory>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "agent/audit_commands.h"
#include "agent/commands.h"
#include "agent/config/command_line.h"
#include "agent/config/completion.h"
#include "agent/config/config.h"
#include "agent/config/load_config.h"
#include "agent/config_log.h"
#include "agent/confinement.h"
#include "agent/daemon.h"
#include "agent/detect/mode_evidence.h"
#include "agent/loop/clock.h"
#include "agent/node/node.h"
#include "agent/process/command.h"
#include "agent/process/network_namespaces.h"
#include "agent/process/own_process.h"
#include "agent/report/report.h"
#include "agent/stderr_log.h"
#include "featuregates/go_text.h"

namespace kipt::agent {
namespace {

static_assert(kAgentRelease == featuregates::Version{KIPT_VERSION_MAJOR, KIPT_VERSION_MINOR});

int Fail(const absl::Status& status, ExitCode code) { return Fail(status, code, std::cerr); }

int RunVersion(const Flags& flags) {
  const std::string version = KIPT_VERSION;
  if (flags.output == OutputFormat::kJson) {
    std::cout << VersionJson(version);
  } else {
    std::cout << "kube-iptables-agent v" << version << "\n";
  }
  return kExitOk;
}

int RunCompletion(const std::string& shell) {
  const absl::StatusOr<std::string> script = Completion(AgentCompletion(), shell);
  if (!script.ok()) return Fail(script.status(), kExitUsage);
  std::cout << *script;
  return kExitOk;
}

int RunGates(const Config& config, OutputFormat format) {
  if (absl::Status status = ConfineToComputing(); !status.ok()) return Fail(status, kExitFailed);
  std::cout << (format == OutputFormat::kJson ? GatesJson(config.emulated_version, config.gates)
                                              : GatesText(config.emulated_version, config.gates));
  return kExitOk;
}

int RunDetection(const Config& config, OutputFormat format) {
  const std::unique_ptr<CommandRunner> runner = NewCommandRunner();
  const ModeSources sources = SystemModeSources(config.host_root, runner.get());
  if (absl::Status status = ConfineToReading({}, sources); !status.ok()) {
    return Fail(status, kExitFailed);
  }
  return RunDetect(DetectModes(config.families, config.iptables_mode, sources, Thoroughness::kAll),
                   format, {.out = std::cout, .err = std::cerr});
}

int RunLook(const CommandLine& command_line, const Config& config) {
  const std::unique_ptr<CommandRunner> runner = NewCommandRunner();
  const ModeSources sources = SystemModeSources(config.host_root, runner.get());
  const CommandStreams streams{.out = std::cout, .err = std::cerr};
  if (command_line.command == Command::kAudit) {
    return RunAudit(config, command_line.flags, sources, streams);
  }
  return RunExplain(command_line.argument, config, command_line.flags, sources, streams);
}

int RunOnKernel(Command command, const Flags& flags, const Config& config) {
  Node node(config);
  const bool read_only = command != Command::kSync && !flags.yes;
  if (read_only) {
    // The node's iptables may turn out to be legacy without any table.
    const ReadingNeeds needs{.programs = config.iptables_mode != IptablesMode::kNft};
    if (absl::Status status = ConfineToReading(needs, node.sources()); !status.ok()) {
      return Fail(status, kExitFailed);
    }
  }
  const BackendOrError backend = node.Open(read_only);
  if (!backend.ok()) return Fail(backend.status(), kExitFailed);
  const std::string caveat = (*backend)->caveat();
  if (!caveat.empty()) LOG(WARNING) << caveat;
  Subject subject{.emulated_version = config.emulated_version,
                  .iptables_mode = std::string(netlink::BackendKindName((*backend)->kind())),
                  .input = InputOf(config)};
  if (read_only) subject.other_mode = node.ReadOther();
  if (command == Command::kStatus) subject.route_localnet = RouteLocalnetOrNone();
  const CommandStreams streams{.out = std::cout, .err = std::cerr};
  switch (command) {
    case Command::kSync:
      return RunSync(subject, **backend, SteadyClock(), flags.output, streams,
                     node.Questions(Node::Errand::kSync));
    case Command::kRetire:
      return RunRetire(subject, **backend, flags.yes, SteadyClock(), flags.output, streams,
                       node.Questions(Node::Errand::kRetire));
    case Command::kStatus:
      return RunStatus(subject, **backend, SteadyClock(), flags.output, streams,
                       node.Questions(Node::Errand::kLook));
    default:
      return RunPlan(subject, **backend, SteadyClock(), flags.output, streams,
                     node.Questions(Node::Errand::kLook));
  }
}

int Main(const char* program, const std::vector<std::string>& arguments) {
  absl::StatusOr<std::variant<CommandLine, Help>> parsed = ParseCommandLine(arguments);
  if (!parsed.ok()) return Fail(parsed.status(), kExitUsage);
  if (const auto* help = std::get_if<Help>(&*parsed)) {
    std::cout << help->text;
    return kExitOk;
  }
  const CommandLine& command_line = std::get<CommandLine>(*parsed);
  const Flags& flags = command_line.flags;
  if (command_line.command == Command::kVersion) return RunVersion(flags);
  if (command_line.command == Command::kCompletion) return RunCompletion(command_line.argument);

  const StderrLog log(program, flags);
  // First, because whether there is IPv6 is the namespace's affair.
  if (flags.netns.has_value()) {
    absl::Status entered = EnterNetworkNamespace(*flags.netns);
    if (!entered.ok()) {
      return Fail(entered, absl::IsPermissionDenied(entered) ? kExitFailed : kExitUsage);
    }
  }
  absl::StatusOr<Config> config = LoadConfig(flags);
  if (!config.ok()) return Fail(config.status(), kExitUsage);
  LogConfig(*config);
  if (command_line.command == Command::kGates) return RunGates(*config, flags.output);
  if (command_line.command == Command::kDetect) return RunDetection(*config, flags.output);
  if (command_line.command == Command::kAudit || command_line.command == Command::kExplain) {
    return RunLook(command_line, *config);
  }
  if (command_line.command == Command::kRun) return RunDaemon(flags, *config, KIPT_VERSION);
  return RunOnKernel(command_line.command, flags, *config);
}

}  // namespace
}  // namespace kipt::agent

int main(int argc, char** argv) {
  kipt::agent::OccupyStandardDescriptors();
  // A reader of the log that ends must not end the daemon: writing fails instead.
  std::signal(SIGPIPE, SIG_IGN);
  // The parent may have left it ignored, and then the exit codes of programs are lost.
  std::signal(SIGCHLD, SIG_DFL);
  // Ours throws nothing; what a library throws, memory that ran out say, ends here and says so.
  try {
    return kipt::agent::FinishOutput(
        kipt::agent::Main(argv[0], std::vector<std::string>(argv + 1, argv + argc)));
  } catch (const std::exception& error) {
    std::fputs("Error: ", stderr);
    std::fputs(kipt::featuregates::Printable(error.what()).c_str(), stderr);
    std::fputs("\n", stderr);
    return kipt::agent::kExitFailed;
  }
}
