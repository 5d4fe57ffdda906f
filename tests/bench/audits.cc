// SPDX-License-Identifier: Apache-2.0
#include "tests/bench/audits.h"

#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <ctime>
#include <fstream>
#include <iterator>
#include <memory>
#include <string>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "tests/bench/bench_daemon.h"
#include "tests/bench/figures.h"
#include "tests/bench/incident_rig.h"
#include "tests/bench/report.h"
#include "tests/bench/service_rules.h"
#include "tests/support/netns.h"
#include "tests/support/private_run.h"
#include "tests/support/process_cost.h"
#include "tests/support/scratch_directory.h"

namespace kipt::testing {
namespace {

// The default of --audit-period.
constexpr absl::Duration kPeriod = absl::Minutes(10);
// Nothing is damaged twice within the second that would make it a fight.
constexpr absl::Duration kSpacing = absl::Milliseconds(1200 / IncidentRig::kDamages);
// Repairs of one daemon. The first audit of each begins a second after its start, and an audit is
// followed by a hundred times as long without one.
constexpr int kRepairsOfADaemon = 30;
// On iptables-legacy a daemon checks less often after its first checks have taken 3 s.
constexpr absl::Duration kCpuOfADaemon = absl::Milliseconds(1500);
constexpr absl::Duration kSampleEvery = absl::Milliseconds(2);
// Of an audit next to 10,000 services of iptables-legacy on a busy machine.
constexpr absl::Duration kLongestAudit = absl::Minutes(2);

// Of the process, threads that have ended included, and of the programs that it has waited for.
absl::Duration CpuOf(pid_t process) {
  clockid_t clock = 0;
  timespec time = {};
  if (clock_getcpuclockid(process, &clock) != 0) return absl::ZeroDuration();
  clock_gettime(clock, &time);
  std::ifstream file(absl::StrCat("/proc/", process, "/stat"));
  const std::string text(std::istreambuf_iterator<char>(file), {});
  // The second field is the name, in brackets; it may hold anything. cutime is the 16th.
  const std::vector<std::string> fields = absl::StrSplit(
      text.substr(std::min(text.rfind(')') + 1, text.size())), ' ', absl::SkipEmpty());
  int64_t ticks = 0;
  for (const size_t field : {13U, 14U}) {
    int64_t one = 0;
    if (fields.size() > field && absl::SimpleAtoi(fields[field], &one)) ticks += one;
  }
  return absl::DurationFromTimespec(time) +
         absl::Seconds(static_cast<double>(ticks) / static_cast<double>(sysconf(_SC_CLK_TCK)));
}

size_t ThreadsOf(pid_t process) { return ThreadCosts(process).size(); }

struct Cell {
  Figures without;
  Figures with;
  Figures during;
  int unseen = 0;
  // Of the quiet audits.
  Figures audit_cpu;
  Figures audit;
  int64_t rest_kib = 0;
  int64_t peak_kib = 0;
};

class Rig {
 public:
  Rig(IptablesMode mode, int services, const AuditsOptions& options)
      : mode_(mode), services_(services), options_(options) {}

  absl::StatusOr<Cell> Run() {
    if (absl::Status status = MakeHost(); !status.ok()) return status;
    if (absl::Status status = LoadServices(mode_, services_); !status.ok()) return status;
    if (absl::Status status = CountThreads(); !status.ok()) return status;
    for (int i = 0; i < options_.audits; ++i) {
      if (absl::Status status = QuietAudit(); !status.ok()) return status;
    }
    const absl::Time deadline = absl::Now() + options_.budget;
    // In turns, so that a slow minute of the machine is everybody's.
    while (static_cast<int>(cell_.with.count()) < options_.repairs && absl::Now() < deadline) {
      if (absl::Status status = Repairs(/*audits=*/false); !status.ok()) return status;
      if (absl::Status status = Repairs(/*audits=*/true); !status.ok()) return status;
    }
    return std::move(cell_);
  }

 private:
  // A host with a list of the kernel's modules, as every distribution has it, and without CNI
  // configurations.
  absl::Status MakeHost() {
    utsname kernel = {};
    uname(&kernel);
    const std::string modules = absl::StrCat("lib/modules/", kernel.release);
    for (const std::string& directory : {std::string("lib"), std::string("lib/modules"), modules}) {
      if (!host_.MakeDirectory(directory)) return absl::InternalError("/run cannot be written");
    }
    const bool written = host_.WriteFile(modules + "/modules.builtin",
                                         "kernel/nft_compat.ko\nkernel/xt_comment.ko\n"
                                         "kernel/xt_conntrack.ko\nkernel/xt_mark.ko\n");
    return written ? absl::OkStatus() : absl::InternalError("/run cannot be written");
  }

  absl::StatusOr<std::unique_ptr<BackgroundProgram>> Start(const std::string& period) const {
    return StartDaemon(mode_, {"--audit-period=" + period, "--host-root=" + host_.Path(""),
                               "--cni-conf-dir=" + host_.Path(""), "--iptables-sync-period=1h"});
  }

  // When the first audit begins. The first check of iptables-legacy takes seconds next to many
  // services, and an audit that begins meanwhile would not be seen.
  std::string FirstAudit(int seconds) const {
    return absl::StrCat(seconds + (mode_ == IptablesMode::kLegacy ? services_ / 1000 : 0), "s");
  }

  // An audit has a thread of its own while it runs.
  absl::Status CountThreads() {
    auto daemon = Start("0s");
    if (!daemon.ok()) return daemon.status();
    ComesToRest((*daemon)->pid());
    at_rest_ = ThreadsOf((*daemon)->pid());
    return absl::OkStatus();
  }
  bool Audits(pid_t daemon) const { return ThreadsOf(daemon) > at_rest_; }
  absl::Status WaitForAudit(pid_t daemon) const {
    const absl::Time patience = absl::Now() + kLongestAudit;
    while (!Audits(daemon)) {
      if (absl::Now() > patience) return absl::DeadlineExceededError("no audit begins");
      absl::SleepFor(kSampleEvery / 4);
    }
    return absl::OkStatus();
  }

  // One audit while nothing else happens.
  absl::Status QuietAudit() {
    // The first audit comes after the daemon has come to rest.
    auto daemon = Start(FirstAudit(4));
    if (!daemon.ok()) return daemon.status();
    const pid_t pid = (*daemon)->pid();
    ComesToRest(pid);
    cell_.rest_kib = std::max(cell_.rest_kib, MemoryOf(pid).anonymous_kib);
    const absl::Duration before = CpuOf(pid);
    if (absl::Status status = WaitForAudit(pid); !status.ok()) return status;
    const absl::Time begin = absl::Now();
    while (Audits(pid)) {
      cell_.peak_kib = std::max(cell_.peak_kib, MemoryOf(pid).anonymous_kib);
      if (absl::Now() > begin + kLongestAudit) {
        return absl::DeadlineExceededError("an audit does not end");
      }
      absl::SleepFor(kSampleEvery);
    }
    cell_.audit.Add(absl::Now() - begin);
    cell_.audit_cpu.Add(CpuOf(pid) - before);
    return absl::OkStatus();
  }

  // Of one daemon, from the beginning of its first audit on.
  absl::Status Repairs(bool audits) {
    auto daemon = Start(audits ? FirstAudit(1) : "0s");
    if (!daemon.ok()) return daemon.status();
    const pid_t pid = (*daemon)->pid();
    auto rig = IncidentRig::Create(mode_, **daemon);
    if (!rig.ok()) return rig.status();
    if (audits) {
      if (absl::Status status = WaitForAudit(pid); !status.ok()) return status;
    }
    for (int i = 0; i < std::min(kRepairsOfADaemon, options_.repairs); ++i) {
      const absl::Time next = absl::Now() + kSpacing;
      const bool during = audits && Audits(pid);
      const absl::StatusOr<Incident> incident = (*rig)->Next();
      if (!incident.ok()) return incident.status();
      if (incident->outage) {
        (audits ? cell_.with : cell_.without).Add(*incident->outage);
        if (during) cell_.during.Add(*incident->outage);
      } else {
        ++cell_.unseen;
      }
      if (mode_ == IptablesMode::kLegacy && CpuOf(pid) > kCpuOfADaemon) break;
      absl::SleepFor(next - absl::Now());
    }
    return absl::OkStatus();
  }

  const IptablesMode mode_;
  const int services_;
  const AuditsOptions& options_;
  const ScratchDirectory host_;
  size_t at_rest_ = 0;
  Cell cell_;
};

double SharePercent(const Cell& cell) {
  return 100 * absl::FDivDuration(cell.audit_cpu.Quantile(1), kPeriod);
}

void Judge(IptablesMode mode, int services, const Cell& cell, Targets& targets) {
  const std::string where = absl::StrCat(", ", NameOf(mode), ", ", services, " services");
  targets.AtMost("repairs later with audits, p99" + where,
                 absl::ToDoubleMilliseconds(cell.with.Quantile(0.99) - cell.without.Quantile(0.99)),
                 1, "ms");
  targets.AtMost("CPU share at the default period" + where, SharePercent(cell), 1, "%");
  targets.AtMost("RssAnon at an audit's peak" + where, static_cast<double>(cell.peak_kib) / 1024, 8,
                 "MiB");
}

nlohmann::json JsonOf(IptablesMode mode, int services, const Cell& cell) {
  return {{"mode", NameOf(mode)},
          {"services", services},
          {"without", cell.without.Summary()},
          {"with", cell.with.Summary()},
          {"during", cell.during.Summary()},
          {"unseen", cell.unseen},
          {"audit_cpu_us", absl::ToDoubleMicroseconds(cell.audit_cpu.Median())},
          {"audit_us", absl::ToDoubleMicroseconds(cell.audit.Median())},
          {"share_percent", SharePercent(cell)},
          {"rest_kib", cell.rest_kib},
          {"peak_kib", cell.peak_kib}};
}

constexpr char kIntroduction[] = R"(# What audits cost

Written by `tests/bench/run audits`; `tests/bench/README.md` explains how it measures.

)";

constexpr char kTargets[] = R"(## Targets

| promise | target | measured | |
|---|---:|---:|---|
)";

constexpr char kRepairs[] = R"(
## Damage to repaired

| rules | kube-proxy services | audits | repairs | median | p90 | p99 |
|---|---:|---|---:|---:|---:|---:|
)";

constexpr char kOneAudit[] = R"(
## One audit, with nothing else to do

| rules | kube-proxy services | takes | CPU time | of a core, every 10 minutes | RssAnon before | at its peak |
|---|---:|---:|---:|---:|---:|---:|
)";

std::string Head(const nlohmann::json& cell) {
  return absl::StrCat("| ", cell["mode"] == "nft" ? "nf_tables" : "iptables-legacy", " | ",
                      NumberText(cell["services"]), " | ");
}

std::string RepairsText(const nlohmann::json& summary) {
  if (summary.is_null()) return "0 | – | – | –";
  return absl::StrCat(summary["n"].get<int>(), " | ", TimeText(summary["median"]), " | ",
                      TimeText(summary["p90"]), " | ", TimeText(summary["p99"]));
}

}  // namespace

absl::StatusOr<nlohmann::json> MeasureAudits(const AuditsOptions& options) {
  Targets targets(options.slack);
  nlohmann::json cells = nlohmann::json::array();
  for (const IptablesMode mode : options.modes) {
    for (const int services : options.services) {
      absl::StatusOr<Netns> netns = Netns::Create();
      if (!netns.ok()) return netns.status();
      const PrivateRun private_run;
      const InNetns inside(*netns);
      const absl::StatusOr<Cell> cell = Rig(mode, services, options).Run();
      if (!cell.ok()) return cell.status();
      Judge(mode, services, *cell, targets);
      cells.push_back(JsonOf(mode, services, *cell));
    }
  }
  return nlohmann::json{{"met", targets.all_met()}, {"targets", targets.all()}, {"cells", cells}};
}

std::string AuditsText(const FiguresView& figures) {
  const nlohmann::json& audits = figures.Part("audits");
  std::string text = absl::StrCat(kIntroduction, StampText(figures), kTargets);
  for (const nlohmann::json& target : audits["targets"]) {
    absl::StrAppendFormat(&text, "| %s | ≤ %g %s | %.2f %s | %s |\n",
                          target["what"].get<std::string>(), target["target"].get<double>(),
                          target["unit"].get<std::string>(), target["figure"].get<double>(),
                          target["unit"].get<std::string>(),
                          target["met"].get<bool>() ? "met" : "**missed**");
  }
  absl::StrAppend(&text, kRepairs);
  for (const nlohmann::json& cell : audits["cells"]) {
    for (const auto& [name, label] : {std::pair("without", "off"), std::pair("with", "on"),
                                      std::pair("during", "on, while an audit ran")}) {
      absl::StrAppend(&text, Head(cell), label, " | ", RepairsText(cell[name]), " |\n");
    }
  }
  absl::StrAppend(&text, kOneAudit);
  for (const nlohmann::json& cell : audits["cells"]) {
    absl::StrAppendFormat(&text, "%s%s | %s | %.3f %% | %.1f MiB | %.1f MiB |\n", Head(cell),
                          TimeText(cell["audit_us"]), TimeText(cell["audit_cpu_us"]),
                          cell["share_percent"].get<double>(),
                          cell["rest_kib"].get<double>() / 1024,
                          cell["peak_kib"].get<double>() / 1024);
  }
  return text;
}

}  // namespace kipt::testing
