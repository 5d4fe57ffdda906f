// SPDX-License-Identifier: Apache-2.0
#include "tests/faults/report.h"

#include <sys/utsname.h>
#include <unistd.h>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/strip.h"
#include "tests/support/run_program.h"

namespace kipt::testing {
namespace {

std::string FirstLine(std::vector<std::string> argv) {
  const std::string out = RunProgram(std::move(argv)).out;
  return out.substr(0, out.find('\n'));
}

std::string Machine() {
  utsname name = {};
  uname(&name);
  return absl::StrCat("Linux ", name.release, ", ", sysconf(_SC_NPROCESSORS_ONLN), " CPUs, ",
                      FirstLine({"/usr/sbin/iptables-nft", "--version"}), ", ",
                      FirstLine({"/usr/sbin/nft", "--version"}));
}

std::string Failures(const Tally& tally) {
  std::string text;
  for (const std::string& failure : tally.failures()) {
    absl::StrAppend(&text, "* ", failure.substr(0, failure.find('\n')), "\n");
  }
  return text.empty() ? text : absl::StrCat("\nFailed:\n\n", text);
}

std::string SyncSection(const Outcome& outcome) {
  std::string text =
      "\n## `sync`\n\n"
      "*In place*: exit code 0, and every rule stands as without the fault. *Clear error*: exit "
      "code "
      "1 or 64, an error that says what was done and what failed, nothing half done, and the next "
      "`sync` puts everything in place. Started from:\n\n";
  for (const Scene& scene : outcome.scenes) absl::StrAppend(&text, "* ", NameOf(scene), "\n");
  absl::StrAppend(&text, "\n", outcome.sync.Table("clear error"),
                  absl::StrFormat("\n%d runs, %d failed; the longest took %.1f s. %d different "
                                  "errors were said.\n",
                                  outcome.sync.runs(), outcome.sync.failures().size(),
                                  outcome.sync.longest(), outcome.sync.errors().size()),
                  Failures(outcome.sync));
  return text;
}

std::string DaemonSection(const Outcome& outcome) {
  std::string text =
      "\n## The daemon\n\n"
      "*In place*: within 4 s of the incident, one more period of the timer. *Later*: within its "
      "own "
      "deadlines and pauses, and its log says why. It is alive afterwards and ends with 0 when it "
      "is "
      "told to. *Not reached*: how often it looks is a matter of time. Incidents:\n\n";
  for (const Incident& incident : outcome.incidents) {
    absl::StrAppend(&text, "* `", incident.name, "`: ", incident.text, "\n");
  }
  absl::StrAppend(
      &text, "\n", outcome.daemon.Table("later"),
      absl::StrFormat("\n%d runs, %d failed; the longest took %.1f s.\n", outcome.daemon.runs(),
                      outcome.daemon.failures().size(), outcome.daemon.longest()),
      Failures(outcome.daemon));
  return text;
}

}  // namespace

std::string ReportText(const Outcome& outcome) {
  std::string text = absl::StrCat(
      "# Faults that were tried\n\n"
      "Written by `tests/faults/run`; what is done is in [README.md](README.md). ",
      Machine(), ". ", outcome.sync.runs() + outcome.daemon.runs(), " runs in ",
      absl::ToInt64Minutes(absl::Ceil(outcome.taken, absl::Minutes(1))), " minutes.\n");
  if (outcome.sync.runs() > 0) absl::StrAppend(&text, SyncSection(outcome));
  if (outcome.daemon.runs() > 0) absl::StrAppend(&text, DaemonSection(outcome));
  return text;
}

}  // namespace kipt::testing
