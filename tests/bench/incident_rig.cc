// SPDX-License-Identifier: Apache-2.0
#include "tests/bench/incident_rig.h"

#include <poll.h>

#include <array>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"

namespace kipt::testing {
namespace {

// The daemon's comm: 15 characters of its name.
constexpr char kDaemonComm[] = "kube-iptables-a";
constexpr char kLogWord[] = "Repaired in ";

struct Damage {
  IpFamily family;
  std::vector<std::string> arguments;
};

std::array<Damage, IncidentRig::kDamages> Damages() {
  return {{{IpFamily::kIpv4, {"-t", "mangle", "-X", "KUBE-IPTABLES-HINT"}},
           {IpFamily::kIpv4, {"-D", "INPUT", "-j", "KUBE-FIREWALL"}},
           {IpFamily::kIpv4, {"-F", "KUBE-FIREWALL"}},
           {IpFamily::kIpv4, {"-t", "nat", "-F", "KUBE-POSTROUTING"}},
           {IpFamily::kIpv6, {"-t", "mangle", "-X", "KUBE-IPTABLES-HINT"}},
           {IpFamily::kIpv6, {"-t", "nat", "-F", "KUBE-POSTROUTING"}}}};
}

std::vector<std::string> DamageCommand(IptablesMode mode, const Damage& damage) {
  std::vector<std::string> argv = {
      absl::StrCat(damage.family == IpFamily::kIpv4 ? "iptables-" : "ip6tables-", NameOf(mode)),
      "-w", "60"};
  // iptables-nft knows the option and has no lock.
  argv.insert(argv.end(), damage.arguments.begin(), damage.arguments.end());
  return argv;
}

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

}  // namespace

absl::StatusOr<std::unique_ptr<IncidentRig>> IncidentRig::Create(IptablesMode mode,
                                                                 const BackgroundProgram& daemon) {
  auto listener = GenerationListener::Create();
  if (!listener.ok()) return listener.status();
  return std::unique_ptr<IncidentRig>(new IncidentRig(mode, daemon, *std::move(listener)));
}

absl::StatusOr<Incident> IncidentRig::Next() {
  absl::StatusOr<Incident> incident = DamageOnce();
  if (incident.ok()) return incident;
  return absl::Status(incident.status().code(),
                      absl::StrCat(incident.status().message(), "\n", daemon_.Output()));
}

absl::StatusOr<Incident> IncidentRig::DamageOnce() {
  const Damage damage = Damages().at(static_cast<size_t>(done_++ % kDamages));
  const absl::StatusOr<std::vector<GenerationChange>> before = listener_->Drain();
  if (!before.ok()) return before.status();
  BackgroundProgram program(DamageCommand(mode_, damage));
  Incident incident;
  if (mode_ == IptablesMode::kNft) {
    const absl::StatusOr<Commits> commits = SeeCommits(*listener_);
    if (!commits.ok()) return commits.status();
    if (commits->damaged != commits->repaired) {
      incident.outage = commits->repaired - commits->damaged;
    }
  }
  while (program.Running()) absl::SleepFor(absl::Microseconds(50));
  const absl::Time ended = absl::Now();
  if (const int code = program.Wait(); code != 0) {
    return absl::InternalError(absl::StrCat("the damage failed: ", program.Output()));
  }
  if (!daemon_.Prints(kLogWord, done_)) {
    return absl::DeadlineExceededError("an incident was not logged");
  }
  const std::string log = daemon_.Output();
  const size_t last = log.rfind(kLogWord);
  const size_t start = log.rfind('\n', last) + 1;
  const std::optional<LogLine> line =
      ParseLogLine(absl::string_view(log).substr(start, log.find('\n', last) - start));
  if (!line) return absl::InternalError("a log line cannot be read");
  incident.own = line->total - line->writing;
  incident.writing = line->writing;
  if (mode_ == IptablesMode::kLegacy) incident.outage = Since(TimeOfDay(ended), line->time_of_day);
  return incident;
}

}  // namespace kipt::testing
