// SPDX-License-Identifier: Apache-2.0
#include "agent/audit_commands.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <iterator>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "agent/audit/audit.h"
#include "agent/audit/explain.h"
#include "agent/confinement.h"
#include "agent/detect/cni_configs.h"
#include "agent/process/files.h"
#include "agent/xtables/iptables_save_reader.h"

namespace kipt::agent {
namespace {

// iptables-save beside 30,000 services prints some 60 MB.
constexpr size_t kMostRulesBytes = size_t{512} << 20;
constexpr size_t kMostAllowListBytes = size_t{1} << 20;

// "-" is standard input. Waits for whoever writes to a pipe.
absl::StatusOr<std::string> ReadFileOrInput(const std::string& path, size_t most) {
  if (path == "-") return ReadToEnd(STDIN_FILENO, "standard input", most);
  const OwnedFd file(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOCTTY));
  if (!file.valid()) return absl::ErrnoToStatus(errno, absl::StrCat("reading ", path));
  return ReadToEnd(file.get(), path, most);
}

absl::Status About(const std::string& path, const absl::Status& status) {
  return absl::Status(status.code(), absl::StrCat(path, ": ", status.message()));
}

absl::StatusOr<AllowList> ParseAllowListOf(const Flags& flags, const std::string& text) {
  if (!flags.allow) return AllowList();
  absl::StatusOr<AllowList> list = ParseAllowList(text);
  if (!list.ok()) return About(*flags.allow, list.status());
  return list;
}

// What is to be explained from: the node's modes, or a file.
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
  if (absl::Status status = ConfineToReading({.routes = true}, sources); !status.ok()) {
    return status;
  }
  NodeView view = GatherNodeView(sources, CniConfigs());
  if (view.surveys.empty()) {
    return absl::NotFoundError(view.problems.empty()
                                   ? "this network namespace has no iptables rules at all"
                                   : absl::StrCat("no rules can be seen: ", view.problems.front()));
  }
  return std::move(view.surveys);
}

}  // namespace

ExitCode RunAudit(const Config& config, const Flags& flags, const ModeSources& sources,
                  CommandStreams streams) {
  // A file that only root may read is read before root's privileges are given up.
  absl::StatusOr<std::string> allowed = std::string();
  if (flags.allow) allowed = ReadFileOrInput(*flags.allow, kMostAllowListBytes);
  if (!allowed.ok()) return Fail(allowed.status(), kExitUsage, streams.err);
  absl::Status confined = ConfineToReading({.routes = true, .all_netns = flags.all_netns}, sources);
  if (!confined.ok()) return Fail(confined, kExitFailed, streams.err);
  absl::StatusOr<AllowList> allow = ParseAllowListOf(flags, *allowed);
  if (!allow.ok()) return Fail(allow.status(), kExitUsage, streams.err);
  const CniConfigs cni = ReadNodeCniConfigs(sources.host_root, config.cni_conf_dirs);
  std::vector<NodeView> views;
  if (flags.all_netns) {
    views = GatherAllNamespaces(sources, cni);
    confined = ConfineToComputing();
    if (!confined.ok()) return Fail(confined, kExitFailed, streams.err);
  } else {
    views.push_back(GatherNodeView(sources, cni));
  }
  const AuditReport report =
      Audit(views, {.bits = config.bits, .mode = config.mode, .allow = *std::move(allow)});
  switch (flags.output) {
    case OutputFormat::kJson:
      streams.out << AuditJson(report);
      break;
    case OutputFormat::kDot:
      streams.out << AuditDot(views.front(), report);
      break;
    case OutputFormat::kText:
      streams.out << AuditText(report);
      break;
  }
  return AuditExitNeedsAttention(report) ? kExitDifferences : kExitOk;
}

ExitCode RunExplain(const std::string& chain, const Config& config, const Flags& flags,
                    const ModeSources& sources, CommandStreams streams) {
  const absl::StatusOr<std::vector<netlink::Survey>> surveys = SurveysFor(flags, sources);
  if (!surveys.ok()) {
    return Fail(surveys.status(), flags.from_file ? kExitUsage : kExitFailed, streams.err);
  }
  std::vector<netlink::Family> families = config.families;
  if (flags.from_file) families = {netlink::kFamilies.begin(), netlink::kFamilies.end()};
  std::vector<Explanation> explanations;
  absl::Status first_error;
  for (const netlink::Survey& survey : *surveys) {
    for (const netlink::Family family : families) {
      absl::StatusOr<Explanation> explanation = Explain(survey, family, chain);
      if (explanation.ok()) {
        explanations.push_back(*std::move(explanation));
      } else if (first_error.ok()) {
        first_error = explanation.status();
      }
    }
  }
  if (explanations.empty()) {
    return Fail(first_error, absl::IsInvalidArgument(first_error) ? kExitUsage : kExitFailed,
                streams.err);
  }
  if (flags.output == OutputFormat::kJson) {
    std::vector<std::string> objects;
    objects.reserve(explanations.size());
    for (const Explanation& one : explanations) objects.push_back(ExplainJson(one));
    streams.out << "[" << absl::StrJoin(objects, ",") << "]\n";
    return kExitOk;
  }
  for (const Explanation& explanation : explanations) {
    if (&explanation != &explanations.front()) streams.out << "\n";
    streams.out << ExplainText(explanation);
  }
  return kExitOk;
}

}  // namespace kipt::agent
