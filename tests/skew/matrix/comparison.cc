// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstdint>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "tests/skew/matrix/cell.h"
#include "tests/skew/matrix/judge.h"

namespace kipt::skew {
namespace {

constexpr int kWorst = 3;

// What became of the packets. Silence is sound where they are to be stopped; elsewhere it is loss.
std::vector<std::pair<Outcome, uint64_t>> FatesOf(const StreamCheck& stream) {
  std::vector<std::pair<Outcome, uint64_t>> fates = {
      {IsStopped(stream.sound) ? stream.sound : Outcome::kLost, stream.count.Silent()}};
  for (const Outcome outcome : {Outcome::kServed, Outcome::kServedMasqueraded,
                                Outcome::kReachedHost, Outcome::kForwarded, Outcome::kOther}) {
    fates.emplace_back(outcome, PacketsWith(stream.count, outcome));
  }
  return fates;
}

// Packets that fared at least this badly.
uint64_t PacketsAtLeast(const StreamCheck& stream, int badness) {
  uint64_t packets = 0;
  const std::vector<Outcome>& away = stream.while_proxy_away;
  for (const auto& [outcome, count] : FatesOf(stream)) {
    if (std::find(away.begin(), away.end(), outcome) != away.end()) continue;
    if (Badness(stream.sound, outcome) >= badness) packets += count;
  }
  return packets;
}

double ShareAtLeast(const StreamCheck* stream, int badness) {
  if (stream == nullptr || stream->count.sent == 0) return 0;
  return static_cast<double>(PacketsAtLeast(*stream, badness)) /
         static_cast<double>(stream->count.sent);
}

const Check* Find(const std::vector<Check>& checks, const std::string& name) {
  const auto found = std::find_if(checks.begin(), checks.end(),
                                  [&](const Check& check) { return check.probe.name == name; });
  return found == checks.end() ? nullptr : &*found;
}

const StreamCheck* Find(const StepReport* step, const std::string& probe, bool afterwards) {
  if (step == nullptr) return nullptr;
  const auto found =
      std::find_if(step->streams.begin(), step->streams.end(), [&](const StreamCheck& stream) {
        return stream.count.probe == probe && stream.afterwards == afterwards;
      });
  return found == step->streams.end() ? nullptr : &*found;
}

// One cell of side B, and side A's.
class Twins {
 public:
  Twins(const CellReport& b, const CellReport& a, Comparison& result)
      : b_(b), a_(a), result_(result) {}

  void Compare() {
    ++result_.compared.cells;
    if (b_.steps.size() != a_.steps.size()) {
      return Add("", absl::StrCat("it has ", b_.steps.size(), " steps, with ", a_.actor, " ",
                                  a_.steps.size()));
    }
    for (size_t step = 0; step < b_.steps.size(); ++step) {
      CompareChecks(step);
      CompareStreams(step);
    }
  }

 private:
  void Add(const std::string& step, const std::string& what) {
    result_.worse.push_back(absl::StrCat(b_.actor, " is worse than ", a_.actor, " in ", b_.id,
                                         step.empty() ? "" : ", after \"", step,
                                         step.empty() ? "" : "\"", ": ", what));
  }

  void CompareChecks(size_t at) {
    const StepReport& ours = b_.steps[at];
    const StepReport& theirs = a_.steps[at];
    if (ours.checks.size() != theirs.checks.size()) {
      Add(ours.name,
          absl::StrCat(ours.checks.size(), " checks, with ", a_.actor, " ", theirs.checks.size()));
    }
    for (const Check& our : ours.checks) {
      const Check* their = Find(theirs.checks, our.probe.name);
      if (their == nullptr) {
        Add(ours.name, absl::StrCat(our.probe.name, " was not asked with ", a_.actor));
        continue;
      }
      ++result_.compared.checks;
      if (Badness(our.sound, our.result.outcome) <= Badness(their->sound, their->result.outcome)) {
        continue;
      }
      Add(ours.name, absl::StrCat(our.probe.name, " ", NameOf(our.result.outcome), ", with ",
                                  a_.actor, " ", NameOf(their->result.outcome)));
    }
  }

  void CompareStreams(size_t at) {
    const StepReport& ours = b_.steps[at];
    if (ours.streams.size() != a_.steps[at].streams.size()) {
      Add(ours.name, absl::StrCat(ours.streams.size(), " streams, with ", a_.actor, " ",
                                  a_.steps[at].streams.size()));
    }
    for (const StreamCheck& our : ours.streams) {
      const StreamCheck* their = Find(&a_.steps[at], our.count.probe, our.afterwards);
      if (their == nullptr) {
        Add(ours.name, absl::StrCat(NameOf(our), " was not sent with ", a_.actor));
        continue;
      }
      ++result_.compared.streams;
      for (int badness = kWorst; badness > 0; --badness) {
        if (!IsWorse(at, our, *their, badness)) continue;
        Add(ours.name,
            absl::StrCat(NameOf(our), " ", PacketsAtLeast(our, badness), " of ", our.count.sent,
                         " packets ", FateAtLeast(our, badness), ", with ", a_.actor, " ",
                         PacketsAtLeast(*their, badness), " of ", their->count.sent));
        break;
      }
    }
  }

  bool IsWorse(size_t at, const StreamCheck& our, const StreamCheck& their, int badness) const {
    if (our.afterwards) {
      return ShareAtLeast(&our, badness) > ShareAtLeast(&their, badness) + kShareTolerance;
    }
    const StepReport* before = at == 0 ? nullptr : &a_.steps[at - 1];
    const std::string& probe = their.count.probe;
    for (const StepReport* step : {before, &a_.steps[at]}) {
      if (ShareAtLeast(Find(step, probe, true), badness) > kShareTolerance) return false;
    }
    const uint64_t late = std::max(our.count.late_milliseconds, their.count.late_milliseconds);
    const absl::Duration longer = kTimeTolerance + absl::Milliseconds(static_cast<int64_t>(late));
    return static_cast<double>(PacketsAtLeast(our, badness)) >
           static_cast<double>(PacketsAtLeast(their, badness)) +
               absl::ToDoubleSeconds(longer) * kPacketsPerSecond;
  }

  // Of those packets: "reached the host", "served or lost".
  static std::string FateAtLeast(const StreamCheck& stream, int badness) {
    std::vector<std::string> names;
    for (const auto& [outcome, count] : FatesOf(stream)) {
      if (count > 0 && Badness(stream.sound, outcome) >= badness)
        names.emplace_back(NameOf(outcome));
    }
    return absl::StrJoin(names, " or ");
  }

  const CellReport& b_;
  const CellReport& a_;
  Comparison& result_;
};

}  // namespace

Comparison CompareSides(const std::vector<CellReport>& cells) {
  // Without the side's name.
  const auto place = [](const CellReport& cell) { return cell.id.substr(0, cell.id.rfind('/')); };
  std::map<std::string, const CellReport*> of_a;
  for (const CellReport& cell : cells) {
    if (cell.side == "a") of_a[place(cell)] = &cell;
  }
  Comparison result;
  for (const CellReport& cell : cells) {
    if (cell.side != "b") continue;
    const auto twin = of_a.find(place(cell));
    if (twin == of_a.end()) continue;
    // A broken cell is reported in any case.
    if (!cell.problem.empty() || !twin->second->problem.empty()) continue;
    Twins(cell, *twin->second, result).Compare();
  }
  return result;
}

}  // namespace kipt::skew
