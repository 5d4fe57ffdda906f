// SPDX-License-Identifier: Apache-2.0
//
// kube-iptables-agent: flags -> Config -> Ruleset -> command.
#include <fcntl.h>
#include <glog/logging.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <exception>
#include <iostream>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/types/span.h"
#include "agent/audit/audit.h"
#include "agent/audit/mark_map.h"
#include "agent/build.h"
#include "agent/commands.h"
#include "agent/config/command_line.h"
#include "agent/config/completion.h"
#include "agent/config/load_config.h"
#include "agent/confinement.h"
#include "agent/daemon.h"
#include "agent/detect/capabilities.h"
#include "agent/detect/host_files.h"
#include "agent/detect/mode_evidence.h"
#include "agent/node/node.h"
#include "agent/process/files.h"
#include "agent/process/network_namespaces.h"
#include "agent/process/origin.h"
#include "agent/process/own_process.h"
#include "agent/process/record_file.h"
#include "agent/report/colors.h"
#include "agent/report/incident_records.h"
#include "agent/report/report.h"
#include "agent/round_log.h"
#include "agent/xtables/saved_survey.h"
#include "featuregates/feature.h"
#include "featuregates/go_text.h"

namespace kipt::agent {
namespace {

static_assert(kAgentRelease == featuregates::Version{KIPT_VERSION_MAJOR, KIPT_VERSION_MINOR});

// While it exists every LOG is one line of standard error, as similar to klog's as glog allows:
// "I1120 23:24:11.000000 TID file:line] ". Messages are escaped, because names and comments of
// rules come from others. One object a process.
class StderrLog final : private google::LogSink {
 public:
  // `waits`: for a slow reader, as a command may that is not a daemon.
  StderrLog(const char* program, const Flags& flags, bool waits) : waits_(waits) {
    FLAGS_v = flags.v.value_or(0);
    FLAGS_vmodule = flags.vmodule.value_or("");
    // glog itself writes nowhere: neither files nor, unescaped, standard error.
    FLAGS_logtostderr = FLAGS_logtostdout = FLAGS_alsologtostderr = false;
    FLAGS_stderrthreshold = google::NUM_SEVERITIES;
    google::InitGoogleLogging(program);
    for (int severity = 0; severity < google::NUM_SEVERITIES; ++severity) {
      google::SetLogDestination(severity, "");
    }
    google::AddLogSink(this);
  }
  ~StderrLog() override { google::RemoveLogSink(this); }
  StderrLog(const StderrLog&) = delete;
  StderrLog& operator=(const StderrLog&) = delete;

  // Lines that nobody read in time.
  uint64_t dropped() const { return output_.dropped(); }

 private:
  using google::LogSink::send;
  void send(google::LogSeverity severity, const char* /*full_filename*/, const char* file, int line,
            const google::LogMessageTime& time, const char* message, size_t size) override {
    const std::string header =
        absl::StrFormat("%c%02d%02d %02d:%02d:%02d.%06d %5d %s:%d] ",
                        google::GetLogSeverityName(severity)[0], time.month() + 1, time.day(),
                        time.hour(), time.min(), time.sec(), time.usec(), gettid(), file, line);
    std::string text;
    if (const uint64_t lost = dropped() - told_; lost != 0) {
      absl::StrAppend(&text, header, lost, " lines are missing here: standard error was full\n");
    }
    absl::StrAppend(&text, header);
    featuregates::AppendLine(text, absl::string_view(message, size));
    // One write, so that lines of other processes on the same file do not come between.
    if (waits_) {
      std::fwrite(text.data(), 1, text.size(), stderr);
    } else if (const uint64_t lost = dropped(); output_.Write(text)) {
      told_ = lost;
    }
  }

  const bool waits_;
  LossyOutput output_{STDERR_FILENO};
  // Of the lines that were dropped, those that a later line told of.
  std::atomic<uint64_t> told_ = 0;
};

// ---- the commands ----

ExitCode Fail(const absl::Status& status, ExitCode code) { return Fail(status, code, std::cerr); }

bool HasColors(const Flags& flags) {
  return flags.output == OutputFormat::kText && UsesColors(flags.color);
}

ExitOrError RunGates(const Config& config, OutputFormat format) {
  if (absl::Status status = ConfineToComputing(); !status.ok()) return status;
  std::cout << (format == OutputFormat::kJson ? GatesJson : GatesText)(config.emulated_version,
                                                                       config.gates);
  return kExitOk;
}

// iptables-save prints some 60 MB with 30,000 services.
constexpr size_t kMostRulesBytes = size_t{512} << 20;
constexpr size_t kMostAllowListBytes = size_t{1} << 20;

// "-" is standard input. Waits for the writer of a pipe.
absl::StatusOr<std::string> ReadFileOrInput(const std::string& path, size_t most) {
  if (path == "-") return ReadToEnd(STDIN_FILENO, "standard input", most);
  const OwnedFd file(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOCTTY));
  if (!file.valid()) return absl::ErrnoToStatus(errno, absl::StrCat("reading ", path));
  return ReadToEnd(file.get(), path, most);
}

absl::Status About(const std::string& path, const absl::Status& status) {
  return absl::Status(status.code(), absl::StrCat(path, ": ", status.message()));
}

// kExitDifferences: there are findings that are worse than information and not allowed.
// kExitUsage: the allow list is wrong. kExitFailed: the rules of an iptables mode cannot be read.
ExitOrError RunAudit(const Flags& flags, const Node& node) {
  const ModeSources& sources = node.sources();
  // Root's privileges may be needed to read the file.
  absl::StatusOr<std::string> allowed = std::string();
  if (flags.allow) allowed = ReadFileOrInput(*flags.allow, kMostAllowListBytes);
  if (!allowed.ok()) return Fail(allowed.status(), kExitUsage);
  absl::Status confined = ConfineToReading({.routes = true, .all_netns = flags.all_netns}, sources);
  if (!confined.ok()) return confined;
  absl::StatusOr<AllowList> allow = ParseAllowList(*allowed);
  if (!allow.ok()) return Fail(About(*flags.allow, allow.status()), kExitUsage);
  const CniConfigs cni = node.ReadCniConfigs();
  const AuditOptions options = {
      .bits = node.config().bits,
      .mode = node.config().mode,
      .allow = *std::move(allow),
      .change = ChangeFromName(flags.before).value_or(NodeChange::kOwnershipCleanup),
      .families = node.config().families,
      .mode_unknown =
          ModeContradiction(node.config().families, node.config().iptables_mode, sources)};
  std::vector<NodeView> views;
  if (flags.all_netns) {
    views = GatherAllNamespaces(sources, cni, options.change);
    if (confined = ConfineToComputing(); !confined.ok()) return confined;
  } else if (flags.output == OutputFormat::kDot || !options.allow.empty()) {
    // A picture has every jump, and an allow list names single rules.
    views.push_back(GatherNodeView(sources, cni, options.change));
  } else {
    views.push_back(
        SiftedNodeView(sources, cni, {&options.change, 1}, {.marks = options.OurMarks()}));
  }
  const AuditReport report = Audit(views, options);
  std::cout << Colored(HasColors(flags), ColoredText::kAudit,
                       flags.output == OutputFormat::kJson  ? AuditJson(report)
                       : flags.output == OutputFormat::kDot ? AuditDot(views.front(), report)
                                                            : AuditText(report));
  return AuditExitNeedsAttention(report) ? kExitDifferences : kExitOk;
}

// kExitDifferences: a bit that is configured meets another program's, or a source cannot be read.
ExitOrError RunMarks(const Flags& flags, const Node& node) {
  absl::Status confined = ConfineToReading({.routes = true}, node.sources());
  if (!confined.ok()) return confined;
  const NodeView view = GatherNodeView(node.sources(), CniConfigs(), std::nullopt);
  const MarkMap map =
      MapMarks(view, {.bits = node.config().bits, .mode = node.config().mode, .allow = {}});
  std::cout << (flags.output == OutputFormat::kJson  ? MarkMapJson(map)
                : flags.output == OutputFormat::kSvg ? MarkMapSvg(map)
                                                     : MarkMapText(map));
  return MarksNeedAttention(map) ? kExitDifferences : kExitOk;
}

// The rules of the node's iptables modes, or of a file.
absl::StatusOr<std::vector<netlink::Survey>> SurveysFor(const Flags& flags,
                                                        const ModeSources& sources) {
  if (flags.from_file) {
    const absl::StatusOr<std::string> text = ReadFileOrInput(*flags.from_file, kMostRulesBytes);
    if (!text.ok()) return text.status();
    if (absl::Status status = ConfineToComputing(); !status.ok()) return status;
    absl::StatusOr<netlink::Survey> survey = ParseSavedFile(*text);
    if (!survey.ok()) return About(*flags.from_file, survey.status());
    return std::vector<netlink::Survey>{*std::move(survey)};
  }
  absl::Status confined = ConfineToReading({.routes = true}, sources);
  if (!confined.ok()) return confined;
  NodeView view = GatherNodeView(sources, CniConfigs(), std::nullopt);
  if (view.surveys.empty()) {
    return absl::NotFoundError(view.problems.empty()
                                   ? "this network namespace has no iptables rules at all"
                                   : absl::StrCat("no rules can be seen: ", view.problems.front()));
  }
  return std::move(view.surveys);
}

// Explains `chain` in every iptables mode and managed family that has it, or in all that a file
// has. kExitFailed: no such chain, or the rules cannot be read. kExitUsage: the file cannot be
// read, or the chain's name is malformed.
ExitCode RunExplain(const std::string& chain, const Flags& flags, const Node& node) {
  const absl::StatusOr<std::vector<netlink::Survey>> surveys = SurveysFor(flags, node.sources());
  if (!surveys.ok()) return Fail(surveys.status(), flags.from_file ? kExitUsage : kExitFailed);
  std::vector<netlink::Family> families = node.config().families;
  if (flags.from_file) families = {netlink::kFamilies.begin(), netlink::kFamilies.end()};
  std::vector<std::string> explanations;
  absl::Status first_error;
  const bool json = flags.output == OutputFormat::kJson;
  for (const netlink::Survey& survey : *surveys) {
    for (const netlink::Family family : families) {
      const absl::StatusOr<Explanation> explanation = Explain(survey, family, chain, *surveys);
      // That a table is missing says more than that a chain is.
      if (absl::IsFailedPrecondition(explanation.status()) &&
          !absl::IsFailedPrecondition(first_error)) {
        first_error = explanation.status();
      }
      first_error.Update(explanation.status());
      if (!explanation.ok()) continue;
      explanations.push_back(json ? ExplainJson(*explanation) : ExplainText(*explanation));
    }
  }
  const std::string gone = NoLongerMade(chain);
  if (explanations.empty() && absl::IsNotFound(first_error) && !gone.empty()) {
    (json ? std::cerr : std::cout) << gone << "\n";
    if (json) std::cout << "[]\n";
    return kExitDifferences;
  }
  if (explanations.empty()) {
    return Fail(first_error, absl::IsInvalidArgument(first_error) ? kExitUsage : kExitFailed);
  }
  std::cout << Colored(HasColors(flags), ColoredText::kExplain,
                       json ? absl::StrCat("[", absl::StrJoin(explanations, ","), "]\n")
                            : absl::StrJoin(explanations, "\n"));
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
  if (incidents.ok()) {
    const bool json = flags.output == OutputFormat::kJson;
    std::cout << (json ? IncidentsJson : IncidentsText)(*incidents, flags.all);
    return kExitOk;
  }
  return absl::Status(incidents.status().code(),
                      absl::StrCat(incidents.status().message(),
                                   "; run keeps its incidents there if the directory exists"));
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

// The commands on the rules of the node's iptables mode.
ExitOrError RunOnRules(Command command, const Flags& flags, Node& node) {
  const Config& config = node.config();
  const bool checks = command == Command::kCheck;
  const bool status = command == Command::kStatus;
  const bool read_only = command != Command::kSync && !flags.yes;
  IncidentRecords incidents;
  // Root's privileges may be needed to read the file.
  if (status) incidents = ReadIncidents(config.incidents_file).value_or(incidents);
  if (read_only) {
    // The node's iptables may turn out to be iptables-legacy without any table.
    const ReadingNeeds needs{
        .programs = config.iptables_mode != IptablesMode::kNft,
        .routes = command == Command::kRetire || config.stale_chains == StaleChains::kRetire};
    absl::Status confined = ConfineToReading(needs, node.sources());
    if (!confined.ok()) return confined;
  }
  const BackendOrError backend = node.Open(read_only);
  if (!backend.ok()) return backend.status();
  const std::string caveat = (*backend)->caveat();
  if (!caveat.empty()) LOG(WARNING) << caveat;
  Subject subject = SubjectOf(node);
  subject.incidents = std::move(incidents);
  subject.show_all = flags.all;
  if (read_only && !checks) subject.other_mode = node.ReadOther();
  if (checks || status) subject.route_localnet = node.ReadRouteLocalnet();
  const auto run = [&](auto* function, Node::Purpose errand) {
    return function({.subject = subject,
                     .backend = **backend,
                     .node = node.Questions(errand),
                     .format = flags.output,
                     .color = HasColors(flags),
                     .yes = flags.yes,
                     .observe = config.observe,
                     .out = std::cout,
                     .err = std::cerr});
  };
  if (command == Command::kSync) return run(RunSync, Node::Purpose::kSync);
  if (command == Command::kRetire) return run(RunRetire, Node::Purpose::kRetire);
  if (checks) return run(RunCheck, Node::Purpose::kCheck);
  return run(status ? RunStatus : RunPlan, Node::Purpose::kCheck);
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
  return RunOnRules(command, flags, node);
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
    return kipt::agent::Fail(absl::UnknownError(error.what()), kipt::agent::kExitFailed, std::cerr);
  }
}
