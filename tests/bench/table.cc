// SPDX-License-Identifier: Apache-2.0
#include "tests/bench/table.h"

#include <cstdio>
#include <memory>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "tests/bench/call_trace.h"
#include "tests/bench/cost.h"
#include "tests/bench/kernel_floor.h"
#include "tests/bench/operations.h"
#include "tests/bench/world.h"

namespace kipt::testing {
namespace {

using nlohmann::json;

struct Measured {
  Operation operation;
  std::vector<double> wall = {};
  std::vector<double> cpu = {};
  std::vector<double> commits = {};
  absl::Duration spent = absl::ZeroDuration();
};

absl::Status Named(const Operation& operation, const absl::Status& status) {
  if (status.ok()) return status;
  return absl::Status(status.code(), absl::StrCat(operation.name, " (", operation.contender,
                                                  "): ", status.message()));
}

class Bench {
 public:
  Bench(const TableOptions& options, IptablesMode mode, int services)
      : options_(options), mode_(mode), services_(services) {}

  absl::Status Run(json& cells, json& left_out) {
    Say("loading");
    absl::StatusOr<std::unique_ptr<World>> world = World::Create(mode_, services_);
    if (!world.ok()) return world.status();
    world_ = *std::move(world);
    std::unique_ptr<KernelFloor> floor;
    if (mode_ == IptablesMode::kNft) {
      absl::StatusOr<std::unique_ptr<KernelFloor>> created = KernelFloor::Create();
      if (!created.ok()) return created.status();
      floor = *std::move(created);
    }
    for (Operation& operation : Operations(*world_, floor.get())) {
      if (!options_.only.empty() && operation.name != options_.only) continue;
      measured_.push_back({std::move(operation)});
    }
    if (absl::Status status = Rounds(); !status.ok()) return status;
    Say("counting");
    for (Measured& measured : measured_) {
      absl::StatusOr<json> cell = Cell(measured);
      if (!cell.ok()) return Named(measured.operation, cell.status());
      cells.push_back(*std::move(cell));
    }
    for (const std::string& sentence : LeftOut(*world_)) left_out.push_back(sentence);
    return absl::OkStatus();
  }

 private:
  void Say(absl::string_view what) const {
    const std::string now = absl::FormatTime("%H:%M:%S", absl::Now(), absl::LocalTimeZone());
    std::fputs(
        absl::StrFormat("%s  %s, %d services: %s\n", now, NameOf(mode_), services_, what).c_str(),
        stderr);
  }

  absl::Status Rounds() {
    for (int round = 1; round <= options_.repeats; ++round) {
      Say(absl::StrCat("round ", round, " of ", options_.repeats));
      for (Measured& measured : measured_) {
        if (measured.spent >= options_.budget) continue;
        const absl::Time start = absl::Now();
        for (int i = 0; i < measured.operation.samples; ++i) {
          absl::Status status = Named(measured.operation, Sample(measured));
          if (!status.ok()) return status;
        }
        measured.spent += absl::Now() - start;
      }
    }
    return absl::OkStatus();
  }

  absl::Status Sample(Measured& measured) {
    const Operation& operation = measured.operation;
    if (absl::Status status = operation.prepare(); !status.ok()) return status;
    const absl::StatusOr<int64_t> before = world_->Generation();
    if (!before.ok()) return before.status();
    const CostOrError cost = CostOf(operation.run, operation.times);
    if (!cost.status.ok()) return cost.status;
    const absl::StatusOr<int64_t> after = world_->Generation();
    if (!after.ok()) return after.status();
    measured.wall.push_back(cost.cost.wall);
    measured.cpu.push_back(cost.cost.cpu);
    measured.commits.push_back(static_cast<double>(*after - *before));
    return absl::OkStatus();
  }

  absl::StatusOr<json> Cell(const Measured& measured) {
    const Operation& operation = measured.operation;
    json cell = {{"mode", NameOf(mode_)},
                 {"services", services_},
                 {"operation", operation.name},
                 {"contender", operation.contender},
                 {"wall", Summary(measured.wall)},
                 {"cpu", Summary(measured.cpu)},
                 {"commits", nullptr}};
    if (mode_ == IptablesMode::kNft) cell["commits"] = Summary(measured.commits)["median"];
    for (const char* name :
         {"system_calls", "programs", "netlink_sent", "netlink_received", "xtables_bytes",
          "program_peak_kib", "allocations", "allocated_bytes"}) {
      cell[name] = nullptr;
    }
    if (cell["wall"]["min"].get<double>() > kMostToCount) return cell;
    absl::Status status = Count(operation, cell);
    if (!status.ok()) return status;
    return cell;
  }

  absl::Status Count(const Operation& operation, json& cell) {
    if (absl::Status status = operation.prepare(); !status.ok()) return status;
    const absl::StatusOr<CallCounts> calls = TraceCalls(operation.run, operation.counted);
    world_->Forget();
    if (!calls.ok()) return calls.status();
    cell["system_calls"] = calls->system_calls;
    cell["programs"] = calls->programs;
    cell["netlink_sent"] = calls->netlink_sent;
    cell["netlink_received"] = calls->netlink_received;
    cell["xtables_bytes"] = calls->xtables_bytes;
    if (calls->program_peak_kib > 0) cell["program_peak_kib"] = calls->program_peak_kib;
    if (absl::Status status = operation.prepare(); !status.ok()) return status;
    const absl::StatusOr<AllocationCounts> allocations =
        CountAllocations(operation.run, operation.counted);
    world_->Forget();
    if (!allocations.ok()) return allocations.status();
    cell["allocations"] = allocations->count;
    cell["allocated_bytes"] = allocations->bytes;
    return absl::OkStatus();
  }

  const TableOptions& options_;
  const IptablesMode mode_;
  const int services_;
  std::unique_ptr<World> world_;
  std::vector<Measured> measured_;
};

}  // namespace

absl::StatusOr<json> MeasureTable(const TableOptions& options) {
  json table = {{"repeats", options.repeats},
                {"budget_seconds", absl::ToDoubleSeconds(options.budget)},
                {"cells", json::array()},
                {"left_out", json::array()}};
  for (const IptablesMode mode : options.modes) {
    for (const int services : options.services) {
      if (mode == IptablesMode::kLegacy && services > options.legacy_most) {
        table["left_out"].push_back(absl::StrCat("legacy, ", services, " services: more than ",
                                                 options.legacy_most,
                                                 " are measured only where --legacy-most says so"));
        continue;
      }
      const absl::Time start = absl::Now();
      absl::Status status = Bench(options, mode, services).Run(table["cells"], table["left_out"]);
      if (!status.ok()) return status;
      std::fputs(absl::StrCat(
                     "          ",
                     absl::FormatDuration(absl::Trunc(absl::Now() - start, absl::Seconds(1))), "\n")
                     .c_str(),
                 stderr);
    }
  }
  return table;
}

}  // namespace kipt::testing
