// SPDX-License-Identifier: Apache-2.0
#include "agent/survey_commands.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <iostream>
#include <map>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "agent/audit/audit.h"
#include "agent/audit/explain.h"
#include "agent/audit/explain_sieve.h"
#include "agent/audit/mark_map.h"
#include "agent/confinement.h"
#include "agent/detect/mode_evidence.h"
#include "agent/process/files.h"
#include "agent/report/colors.h"
#include "agent/xtables/saved_survey.h"

namespace kipt::agent {
namespace {

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

// The rules of each iptables mode, or of a file: those that explain a chain, and what was seen of
// it.
struct Explained {
  std::vector<netlink::Survey> surveys;
  std::vector<ExplainSieve> sieves;  // of `surveys`, in their order
};

absl::StatusOr<Explained> ExplainedOfFile(const std::string& path, const std::string& chain) {
  const absl::StatusOr<std::string> text = ReadFileOrInput(path, kMostRulesBytes);
  if (!text.ok()) return text.status();
  if (absl::Status status = ConfineToComputing(); !status.ok()) return status;
  absl::StatusOr<netlink::Survey> whole = ParseSavedFile(*text);
  if (!whole.ok()) return About(path, whole.status());
  ExplainSieve sieve(chain);
  absl::StatusOr<netlink::Survey> survey = netlink::Sifted(*std::move(whole), sieve);
  if (!survey.ok()) return survey.status();
  Explained explained;
  explained.surveys.push_back(*std::move(survey));
  explained.sieves.push_back(std::move(sieve));
  return explained;
}

absl::StatusOr<Explained> ExplainedOfNode(const ModeSources& sources, const std::string& chain) {
  absl::Status confined = ConfineToReading({}, sources);
  if (!confined.ok()) return confined;
  std::map<std::string, ExplainSieve> sieves;
  NodeView view = GatherRules(sources, [&](netlink::Backend& backend) {
    ExplainSieve sieve(chain);
    absl::StatusOr<netlink::Survey> survey = backend.SiftSurvey(sieve);
    if (survey.ok()) sieves.insert_or_assign(survey->mode, std::move(sieve));
    return survey;
  });
  if (view.surveys.empty() && !view.problems.empty()) {
    return absl::NotFoundError(absl::StrCat("no rules can be seen: ", view.problems.front()));
  }
  Explained explained = {.surveys = std::move(view.surveys), .sieves = {}};
  for (const netlink::Survey& survey : explained.surveys) {
    explained.sieves.push_back(std::move(sieves.at(survey.mode)));
  }
  return explained;
}

}  // namespace

bool HasColors(const Flags& flags) {
  return flags.output == OutputFormat::kText && UsesColors(flags.color);
}

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

ExitOrError RunMarks(const Flags& flags, const Node& node) {
  absl::Status confined = ConfineToReading({.routes = true}, node.sources());
  if (!confined.ok()) return confined;
  const NodeView view =
      SiftedNodeView(node.sources(), CniConfigs(), {}, {.marks = netlink::kAllMarks});
  const MarkMap map =
      MapMarks(view, {.bits = node.config().bits, .mode = node.config().mode, .allow = {}});
  std::cout << (flags.output == OutputFormat::kJson  ? MarkMapJson(map)
                : flags.output == OutputFormat::kSvg ? MarkMapSvg(map)
                                                     : MarkMapText(map));
  return MarksNeedAttention(map) ? kExitDifferences : kExitOk;
}

ExitOrError RunExplain(const std::string& chain, const Flags& flags, const Node& node) {
  const absl::StatusOr<Explained> explained = flags.from_file
                                                  ? ExplainedOfFile(*flags.from_file, chain)
                                                  : ExplainedOfNode(node.sources(), chain);
  if (!explained.ok()) return Fail(explained.status(), flags.from_file ? kExitUsage : kExitFailed);
  std::vector<netlink::Family> families = node.config().families;
  if (flags.from_file) families = {netlink::kFamilies.begin(), netlink::kFamilies.end()};
  std::vector<std::string> explanations;
  absl::Status first_error;
  if (explained->surveys.empty()) {
    first_error = absl::NotFoundError("this network namespace has no iptables rules at all");
  }
  const bool json = flags.output == OutputFormat::kJson;
  for (size_t mode = 0; mode < explained->surveys.size(); ++mode) {
    for (const netlink::Family family : families) {
      const absl::StatusOr<Explanation> explanation =
          Explain(explained->surveys[mode], explained->sieves[mode], family, explained->surveys);
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

}  // namespace kipt::agent
