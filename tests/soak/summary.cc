// SPDX-License-Identifier: Apache-2.0
#include "tests/soak/summary.h"

#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <set>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "tests/soak/floor.h"

namespace kipt::soak {
namespace {

constexpr char kActsOf[] = "acts of ";
// In this order; all else that was counted is not for the report.
constexpr const char* kCounted[] = {"repairs",
                                    "flips",
                                    "retirements",
                                    "reloads",
                                    "reloads of bits",
                                    "reloads of the period",
                                    "invalid configurations",
                                    "kills",
                                    "terminations",
                                    "stops",
                                    "overflows",
                                    "events lost",
                                    "locks held",
                                    "fights",
                                    "requests answered",
                                    "quiet moments"};

std::string Row(const std::vector<std::string>& cells) {
  return absl::StrCat("| ", absl::StrJoin(cells, " | "), " |\n");
}

std::string Rule(size_t cells) {
  std::string text = "|";
  for (size_t i = 0; i < cells; ++i) text += "---|";
  return text + "\n";
}

std::string Head(const std::string& first, const std::vector<NodeSummary>& nodes) {
  std::vector<std::string> cells = {first};
  for (const NodeSummary& node : nodes) cells.push_back(node.name);
  return Row(cells) + Rule(cells.size());
}

std::string Milliseconds(absl::Duration time) {
  return absl::StrFormat("%.1f ms", absl::ToDoubleMilliseconds(time));
}

absl::Duration Quantile(std::vector<absl::Duration> times, double part) {
  if (times.empty()) return absl::ZeroDuration();
  std::sort(times.begin(), times.end());
  const auto last = static_cast<double>(times.size() - 1);
  return times[static_cast<size_t>(last * part + 0.5)];
}

std::string Spread(const std::vector<absl::Duration>& times) {
  return absl::StrCat(times.size(), ": ", Milliseconds(Quantile(times, 0.5)), ", ",
                      Milliseconds(Quantile(times, 0.99)), ", ", Milliseconds(Quantile(times, 1)));
}

std::string Counts(const std::vector<NodeSummary>& nodes) {
  std::set<std::string> writers;
  for (const NodeSummary& node : nodes) {
    for (const auto& [what, count] : node.counts) {
      if (absl::StartsWith(what, kActsOf)) writers.insert(what);
    }
  }
  std::string text = Head("what was done", nodes);
  const auto row = [&](const std::string& what) {
    std::vector<std::string> cells = {what};
    for (const NodeSummary& node : nodes) {
      const auto found = node.counts.find(what);
      cells.push_back(absl::StrCat(found == node.counts.end() ? 0 : found->second));
    }
    text += Row(cells);
  };
  for (const std::string& writer : writers) row(writer);
  for (const char* what : kCounted) row(what);
  return text;
}

std::string Times(const std::vector<NodeSummary>& nodes) {
  std::string text = Head("how many: median, p99, longest", nodes);
  const auto row = [&](const std::string& what, const auto& cell) {
    std::vector<std::string> cells = {what};
    for (const NodeSummary& node : nodes) cells.push_back(cell(node));
    text += Row(cells);
  };
  row("damage to repaired", [](const NodeSummary& node) { return Spread(node.repairs); });
  row("damage to repaired, all together", [](const NodeSummary& node) {
    absl::Duration sum;
    for (const absl::Duration& one : node.repairs) sum += one;
    return Milliseconds(sum);
  });
  row("back (started, continued, lock free) to repaired, longest",
      [](const NodeSummary& node) { return Milliseconds(node.longest_return); });
  row("one read of the rules", [](const NodeSummary& node) { return Spread(node.checks); });
  row("quiet to all in place", [](const NodeSummary& node) { return Spread(node.quiet); });
  return text;
}

std::string Packets(const std::vector<NodeSummary>& nodes, const Options& options) {
  std::string text = Row({"packets", "sent", "right", "wrong, all excused", "lost",
                          "judged: sent while nothing is excused", "floor", "of these lost"}) +
                     Rule(8);
  for (const NodeSummary& node : nodes) {
    for (unsigned i = 0; i < kGuards; ++i) {
      for (const Transport transport : {kUdp, kTcp}) {
        const Guard guard = static_cast<Guard>(i);
        if (!IsSent(transport, guard)) continue;
        const TrafficCount& count = node.traffic[transport][i];
        text += Row({absl::StrCat(node.name, " ", NameOf(transport), " ", NameOf(guard)),
                     absl::StrCat(count.sent), absl::StrCat(count.right), absl::StrCat(count.wrong),
                     absl::StrCat(count.lost), absl::StrCat(count.judged),
                     absl::StrCat(FloorOfPackets(transport, options)),
                     absl::StrCat(count.judged_lost)});
      }
    }
  }
  return text;
}

std::string Sizes(const std::vector<NodeSummary>& nodes) {
  std::string text =
      Row({"of the daemon", "least", "median", "most", "second quarter", "last quarter"}) + Rule(6);
  struct Size {
    const char* name;
    int64_t Sample::*of;
  };
  for (const NodeSummary& node : nodes) {
    for (const Size& size :
         {Size{"RssAnon, KiB", &Sample::anonymous_kib}, Size{"descriptors", &Sample::descriptors},
          Size{"threads", &Sample::threads}, Size{"children", &Sample::children}}) {
      if (node.samples.empty()) continue;
      const auto less = [&](const Sample& a, const Sample& b) { return a.*size.of < b.*size.of; };
      const auto [least, most] =
          std::minmax_element(node.samples.begin(), node.samples.end(), less);
      const auto median = [&](double from, double to) {
        return absl::StrCat(MedianOf(node.samples, node.run, from, to, size.of));
      };
      text += Row({absl::StrCat(node.name, " ", size.name), absl::StrCat(*least.*size.of),
                   median(0, 1), absl::StrCat(*most.*size.of), median(0.25, 0.5), median(0.75, 1)});
    }
  }
  return text;
}

}  // namespace

std::string SummaryText(const std::vector<NodeSummary>& nodes, const Options& options,
                        const Journal& journal) {
  utsname machine = {};
  uname(&machine);
  std::string text = absl::StrCat(
      "# Soak\n\nMade by `tests/soak/run`: ", options.version, ". Seed ", journal.seed(), ", ",
      absl::FormatDuration(options.length), "; kernel ", machine.release, ", ",
      sysconf(_SC_NPROCESSORS_ONLN), " CPUs. Limits: ", absl::FormatDuration(options.limits.repair),
      " for a repair, ", absl::FormatDuration(options.limits.quiet),
      " from quiet to all in place, ", absl::FormatDuration(options.limits.slack),
      " of slack.\n\n");
  const std::vector<Violation> violations = journal.violations();
  absl::StrAppend(&text, violations.empty() ? "Every invariant held.\n" : "", "\n", Counts(nodes),
                  "\n", Times(nodes), "\n", Packets(nodes, options), "\n", Sizes(nodes));
  if (violations.empty()) return text;
  absl::StrAppend(&text, "\n**", violations.size(), " violations:**\n\n");
  for (const Violation& one : violations) {
    absl::StrAppend(&text, "* ", absl::FormatDuration(one.at), ", ", one.node, ", ", one.of,
                    ": seen: ", one.seen, "; expected: ", one.expected, "\n");
  }
  return text;
}

}  // namespace kipt::soak
