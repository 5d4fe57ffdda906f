// SPDX-License-Identifier: Apache-2.0
#include "tests/bench/incidents.h"

#include <poll.h>

#include <cstdio>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "tests/bench/bench_daemon.h"
#include "tests/bench/figures.h"
#include "tests/bench/service_rules.h"
#include "tests/support/background_program.h"
#include "tests/support/generation_listener.h"
#include "tests/support/netns.h"
#include "tests/support/private_run.h"

namespace kipt::testing {
namespace {

// Beyond the second within which the agent takes repeated damage for a fight.
constexpr absl::Duration kSpacing = absl::Milliseconds(1100);
// The daemon's comm: 15 characters of its name.
constexpr char kDaemonComm[] = "kube-iptables-a";
constexpr char kLogWord[] = "Repaired in ";

struct Damage {
  IpFamily family;
  std::vector<std::string> arguments;
};

std::vector<Damage> Damages() {
  return {{IpFamily::kIpv4, {"-t", "mangle", "-X", "KUBE-IPTABLES-HINT"}},
          {IpFamily::kIpv4, {"-D", "INPUT", "-j", "KUBE-FIREWALL"}},
          {IpFamily::kIpv4, {"-F", "KUBE-FIREWALL"}},
          {IpFamily::kIpv4, {"-t", "nat", "-F", "KUBE-POSTROUTING"}},
          {IpFamily::kIpv6, {"-t", "mangle", "-X", "KUBE-IPTABLES-HINT"}},
          {IpFamily::kIpv6, {"-t", "nat", "-F", "KUBE-POSTROUTING"}}};
}

std::vector<std::string> DamageCommand(IptablesMode mode, const Damage& damage) {
  std::vector<std::string> argv = {
      absl::StrCat(damage.family == IpFamily::kIpv4 ? "iptables-" : "ip6tables-", NameOf(mode)),
      "-w", "60"};
  // iptables-nft knows the option and has no lock.
  argv.insert(argv.end(), damage.arguments.begin(), damage.arguments.end());
  return argv;
}

struct Measured {
  Figures outage;   // from damage to repaired
  Figures own;      // the daemon's own part of it, by its log
  Figures writing;  // the kernel's part, or that of iptables-restore
  int unseen = 0;   // where both commits were seen in one wake-up of ours
};

// What the daemon says of one incident.
struct LogLine {
  absl::Duration total;
  absl::Duration writing;
  // Since midnight, local time.
  absl::Duration time_of_day;
};

// "W1121 05:18:02.123456 4242 round_log.cc:53] Repaired in 950 us (writing 700 us) ..."
std::optional<LogLine> ParseLogLine(absl::string_view line) {
  const std::vector<absl::string_view> words = absl::StrSplit(line, ' ', absl::SkipEmpty());
  std::optional<int64_t> total;
  std::optional<int64_t> writing;
  for (size_t i = 0; i + 1 < words.size(); ++i) {
    int64_t number = 0;
    if (!absl::SimpleAtoi(words[i + 1], &number)) continue;
    if (words[i] == "in" && !total) total = number;
    if (words[i] == "(writing" && !writing) writing = number;
  }
  if (words.size() < 2 || !total || !writing) return std::nullopt;
  const std::vector<absl::string_view> clock = absl::StrSplit(words[1], ':');
  int hours = 0;
  int minutes = 0;
  double seconds = 0;
  if (clock.size() != 3 || !absl::SimpleAtoi(clock[0], &hours) ||
      !absl::SimpleAtoi(clock[1], &minutes) || !absl::SimpleAtod(clock[2], &seconds)) {
    return std::nullopt;
  }
  return LogLine{
      .total = absl::Microseconds(*total),
      .writing = absl::Microseconds(*writing),
      .time_of_day = absl::Hours(hours) + absl::Minutes(minutes) + absl::Seconds(seconds)};
}

absl::Duration TimeOfDay(absl::Time time) {
  const absl::CivilSecond civil = absl::ToCivilSecond(time, absl::LocalTimeZone());
  return absl::Hours(civil.hour()) + absl::Minutes(civil.minute()) + absl::Seconds(civil.second()) +
         (time - absl::FromCivil(civil, absl::LocalTimeZone()));
}

absl::Duration Since(absl::Duration from, absl::Duration to) {
  return to >= from - absl::Hours(12) ? to - from : to - from + absl::Hours(24);
}

// When the damage and its repair were committed, as this process wakes for the kernel's events.
struct Commits {
  absl::Time damaged = absl::InfinitePast();
  absl::Time repaired = absl::InfinitePast();
};

absl::StatusOr<Commits> SeeCommits(GenerationListener& listener) {
  const absl::Time deadline = absl::Now() + kPatience;
  Commits commits;
  while (absl::Now() < deadline) {
    pollfd readable = {.fd = listener.fd(), .events = POLLIN, .revents = 0};
    poll(&readable, 1, 100);
    const absl::Time now = absl::Now();
    const absl::StatusOr<std::vector<GenerationChange>> changes = listener.Drain();
    if (!changes.ok()) return changes.status();
    for (const GenerationChange& change : *changes) {
      if (change.process != kDaemonComm) {
        commits.damaged = now;
      } else if (commits.damaged != absl::InfinitePast()) {
        commits.repaired = now;
        return commits;
      }
    }
  }
  return absl::DeadlineExceededError("damage was not repaired");
}

class Rig {
 public:
  Rig(const IncidentOptions& options, int services) : options_(options), services_(services) {}

  absl::StatusOr<Measured> Run() {
    if (absl::Status status = LoadServices(options_.mode, services_); !status.ok()) return status;
    auto daemon = StartDaemon(options_.mode);
    if (!daemon.ok()) return daemon.status();
    daemon_ = *std::move(daemon);
    // After the loading, whose events nobody could keep.
    auto listener = GenerationListener::Create();
    if (!listener.ok()) return listener.status();
    listener_ = *std::move(listener);
    const std::vector<Damage> damages = Damages();
    for (int i = 0; i < options_.count; ++i) {
      const absl::Time next = absl::Now() + kSpacing;
      const Damage& damage = damages[static_cast<size_t>(i) % damages.size()];
      if (absl::Status status = Incident(damage, i + 1); !status.ok()) {
        return absl::Status(status.code(), absl::StrCat(status.message(), "\n", daemon_->Output()));
      }
      absl::SleepFor(next - absl::Now());
    }
    return measured_;
  }

 private:
  absl::Status Incident(const Damage& damage, int number) {
    const absl::StatusOr<std::vector<GenerationChange>> before = listener_->Drain();
    if (!before.ok()) return before.status();
    BackgroundProgram program(DamageCommand(options_.mode, damage));
    if (options_.mode == IptablesMode::kNft) {
      const absl::StatusOr<Commits> commits = SeeCommits(*listener_);
      if (!commits.ok()) return commits.status();
      Note(*commits);
    }
    while (program.Running()) absl::SleepFor(absl::Microseconds(50));
    const absl::Time ended = absl::Now();
    if (const int code = program.Wait(); code != 0) {
      return absl::InternalError(absl::StrCat("the damage failed: ", program.Output()));
    }
    if (!daemon_->Prints(kLogWord, number)) {
      return absl::DeadlineExceededError("an incident was not logged");
    }
    const std::string log = daemon_->Output();
    const size_t last = log.rfind(kLogWord);
    const size_t start = log.rfind('\n', last) + 1;
    const std::optional<LogLine> line =
        ParseLogLine(absl::string_view(log).substr(start, log.find('\n', last) - start));
    if (!line) return absl::InternalError("a log line cannot be read");
    measured_.own.Add(line->total - line->writing);
    measured_.writing.Add(line->writing);
    if (options_.mode == IptablesMode::kLegacy) {
      measured_.outage.Add(Since(TimeOfDay(ended), line->time_of_day));
    }
    return absl::OkStatus();
  }

  void Note(const Commits& commits) {
    if (commits.damaged == commits.repaired) {
      ++measured_.unseen;
    } else {
      measured_.outage.Add(commits.repaired - commits.damaged);
    }
  }

  const IncidentOptions& options_;
  const int services_;
  std::unique_ptr<BackgroundProgram> daemon_;
  std::unique_ptr<GenerationListener> listener_;
  Measured measured_;
};

void Print(const IncidentOptions& options, int services, const Measured& measured) {
  absl::PrintF("%s, %d services, %d incidents; damage to repaired min / median / p99 / max ms: ",
               NameOf(options.mode), services, measured.outage.count());
  absl::PrintF("%s / %s / %s / %s; ", InMilliseconds(measured.outage.Quantile(0)),
               InMilliseconds(measured.outage.Median()),
               InMilliseconds(measured.outage.Quantile(0.99)),
               InMilliseconds(measured.outage.Quantile(1)));
  absl::PrintF("our own share min / median / p95 / p99 us: %s / %s / %s / %s; ",
               InMicroseconds(measured.own.Quantile(0)), InMicroseconds(measured.own.Median()),
               InMicroseconds(measured.own.Quantile(0.95)),
               InMicroseconds(measured.own.Quantile(0.99)));
  absl::PrintF("writing median / p99 ms: %s / %s", InMilliseconds(measured.writing.Median()),
               InMilliseconds(measured.writing.Quantile(0.99)));
  if (measured.unseen > 0) {
    absl::PrintF("; %d more were repaired before this program woke for the damage",
                 measured.unseen);
  }
  absl::PrintF("\n");
  std::fflush(stdout);
}

void Judge(const IncidentOptions& options, int services, const Measured& measured,
           Targets& targets) {
  const bool nft = options.mode == IptablesMode::kNft;
  const double outage = absl::ToDoubleMilliseconds(measured.outage.Quantile(0.99));
  const double own = absl::ToDoubleMilliseconds(measured.own.Quantile(0.99));
  if (nft && services <= 10000) {
    targets.AtMost(absl::StrCat("damage to repaired beside ", services, " services, p99"), outage,
                   services == 0 ? 100 : 500, "ms");
  } else if (!nft && services == 0) {
    targets.AtMost("damage to repaired, legacy, p99", outage, 1000, "ms");
  }
  if (nft) {
    targets.AtMost(absl::StrCat("our own share beside ", services, " services, p99"), own, 1, "ms");
  }
}

}  // namespace

absl::StatusOr<nlohmann::json> MeasureIncidents(const IncidentOptions& options) {
  Targets targets(options.slack);
  nlohmann::json incidents = nlohmann::json::array();
  for (const int services : options.services) {
    absl::StatusOr<Netns> netns = Netns::Create();
    if (!netns.ok()) return netns.status();
    const PrivateRun private_run;
    const InNetns inside(*netns);
    const absl::StatusOr<Measured> measured = Rig(options, services).Run();
    if (!measured.ok()) return measured.status();
    Print(options, services, *measured);
    Judge(options, services, *measured, targets);
    incidents.push_back({{"mode", NameOf(options.mode)},
                         {"services", services},
                         {"outage", measured->outage.Summary()},
                         {"own", measured->own.Summary()},
                         {"writing", measured->writing.Summary()},
                         {"unseen", measured->unseen}});
  }
  return nlohmann::json{
      {"met", targets.all_met()}, {"targets", targets.all()}, {"incidents", incidents}};
}

}  // namespace kipt::testing
