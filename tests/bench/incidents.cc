// SPDX-License-Identifier: Apache-2.0
#include "tests/bench/incidents.h"

#include <cstdio>
#include <memory>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "tests/bench/bench_daemon.h"
#include "tests/bench/figures.h"
#include "tests/bench/incident_rig.h"
#include "tests/bench/service_rules.h"
#include "tests/support/netns.h"
#include "tests/support/private_run.h"

namespace kipt::testing {
namespace {

// Beyond the second within which the agent takes repeated damage for a fight.
constexpr absl::Duration kSpacing = absl::Milliseconds(1100);

struct Measured {
  Figures outage;   // from damage to repaired
  Figures own;      // the daemon's own part of it, by its log
  Figures writing;  // the kernel's part, or that of iptables-restore
  int unseen = 0;   // where both commits were seen in one wake-up of ours
};

absl::StatusOr<Measured> Measure(const IncidentOptions& options, int services) {
  if (absl::Status status = LoadServices(options.mode, services); !status.ok()) return status;
  const auto daemon = StartDaemon(options.mode);
  if (!daemon.ok()) return daemon.status();
  const auto rig = IncidentRig::Create(options.mode, **daemon);
  if (!rig.ok()) return rig.status();
  Measured measured;
  for (int i = 0; i < options.count; ++i) {
    const absl::Time next = absl::Now() + kSpacing;
    const absl::StatusOr<Incident> incident = (*rig)->Next();
    if (!incident.ok()) return incident.status();
    measured.own.Add(incident->own);
    measured.writing.Add(incident->writing);
    if (incident->outage) {
      measured.outage.Add(*incident->outage);
    } else {
      ++measured.unseen;
    }
    absl::SleepFor(next - absl::Now());
  }
  return measured;
}

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
    const absl::StatusOr<Measured> measured = Measure(options, services);
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
