// SPDX-License-Identifier: Apache-2.0
#include "agent/endpoints/conntrack.h"

#include <algorithm>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "absl/time/clock.h"
#include "agent/process/files.h"

namespace kipt::agent {
namespace {

using absl::string_view;

constexpr uint64_t kFullPercent = 90;
// At most this many addresses are named, each with a hundredth of all entries or more.
constexpr size_t kNamed = 5;
constexpr uint64_t kNamedFrom = 100;

std::optional<uint64_t> ReadNumber(const std::string& path) {
  uint64_t number = 0;
  const absl::StatusOr<std::string> text = ReadFile(path);
  if (!text.ok() || !absl::SimpleAtoi(*text, &number)) return std::nullopt;
  return number;
}

// The sum of a column: below its name, one hexadecimal number for each CPU.
std::optional<uint64_t> SumOfColumn(string_view table, string_view name) {
  const std::vector<string_view> lines = absl::StrSplit(table, '\n', absl::SkipEmpty());
  if (lines.size() < 2) return std::nullopt;
  const std::vector<string_view> names = absl::StrSplit(lines[0], ' ', absl::SkipEmpty());
  const auto column = static_cast<size_t>(absl::c_find(names, name) - names.begin());
  uint64_t sum = 0;
  for (const string_view line : absl::MakeConstSpan(lines).subspan(1)) {
    const std::vector<string_view> cells = absl::StrSplit(line, ' ', absl::SkipEmpty());
    uint64_t cell = 0;
    if (column >= cells.size() || !absl::SimpleHexAtoi(cells[column], &cell)) return std::nullopt;
    sum += cell;
  }
  return sum;
}

std::string ToString(const std::vector<MostFrequent::Count>& counts) {
  if (counts.empty()) return "none has 1 %";
  return absl::StrJoin(counts, ", ", [](std::string* out, const MostFrequent::Count& count) {
    absl::StrAppend(out, netlink::ToString(count.address), " (at least ", count.at_least, ")");
  });
}

bool IsNearlyFull(const ConntrackCounters& counters) {
  return counters.limit > 0 && counters.entries * 100 >= counters.limit * kFullPercent;
}

}  // namespace

std::optional<ConntrackCounters> ReadConntrack(const std::string& proc) {
  const std::string sysctl = absl::StrCat(proc, "/sys/net/netfilter/nf_conntrack_");
  const std::optional<uint64_t> entries = ReadNumber(absl::StrCat(sysctl, "count"));
  const std::optional<uint64_t> limit = ReadNumber(absl::StrCat(sysctl, "max"));
  if (!entries || !limit) return std::nullopt;
  const std::string table = ReadFile(absl::StrCat(proc, "/net/stat/nf_conntrack")).value_or("");
  return ConntrackCounters{.entries = *entries,
                           .limit = *limit,
                           .dropped = SumOfColumn(table, "drop"),
                           .early_dropped = SumOfColumn(table, "early_drop")};
}

void MostFrequent::Add(const netlink::IpAddress& address) {
  const auto found = counts_.find(address);
  if (found != counts_.end()) {
    ++found->second;
  } else if (counts_.size() < kKept) {
    counts_.emplace(address, 1);
  } else {
    // Every count loses one, and so does the new address: to one in kKept of them at most.
    absl::erase_if(counts_, [](auto& count) { return --count.second == 0; });
  }
}

std::vector<MostFrequent::Count> MostFrequent::Top(size_t most, uint64_t from) const {
  std::vector<Count> top;
  for (const auto& [address, count] : counts_) {
    if (count >= from) top.push_back({address, count});
  }
  absl::c_sort(top, [](const Count& a, const Count& b) {
    return a.at_least != b.at_least ? a.at_least > b.at_least : a.address < b.address;
  });
  top.resize(std::min(top.size(), most));
  return top;
}

std::string ToString(const ConntrackReport& report) {
  return absl::StrCat("connection tracking holds ", report.entries, " of ", report.limit,
                      " entries (", report.entries * 100 / std::max<uint64_t>(report.limit, 1),
                      " %). Most by source: ", ToString(report.sources),
                      "; by destination: ", ToString(report.destinations));
}

ConntrackWatch::ConntrackWatch(EventLoop& loop, Handlers handlers, std::string proc,
                               std::function<SteadyTime()> now)
    : loop_(loop),
      handlers_(std::move(handlers)),
      proc_(std::move(proc)),
      now_(std::move(now)),
      timer_(loop.AddTimer([this] { Check(); }, /*tolerance=*/kEvery)) {
  timer_->FireAfter(absl::ZeroDuration());
}

void ConntrackWatch::Check() {
  const std::optional<ConntrackCounters> counters = ReadConntrack(proc_);
  if (counters && IsNearlyFull(*counters) && now_() >= next_report_) {
    next_report_ = now_() + kReportEvery;
    limit_ = counters->limit;
    if (absl::Status status = BeginDump(); !status.ok()) EndDump(status);
  }
  timer_->FireAfter(kEvery);
}

absl::Status ConntrackWatch::BeginDump() {
  reading_ = std::make_unique<Reading>();
  auto dump = netlink::ConntrackDump::Start();
  if (!dump.ok()) return dump.status();
  reading_->dump = *std::move(dump);
  auto readable = loop_.AddReadable(reading_->dump->fd(), [this] { ContinueDump(); });
  if (!readable.ok()) return readable.status();
  reading_->readable = *std::move(readable);
  return absl::OkStatus();
}

void ConntrackWatch::ContinueDump() {
  const absl::StatusOr<bool> ended =
      reading_->dump->Take([this](const netlink::Connection& connection) {
        ++reading_->entries;
        reading_->sources.Add(connection.source);
        reading_->destinations.Add(connection.destination);
      });
  if (!ended.ok() || *ended) EndDump(ended.status());
}

void ConntrackWatch::EndDump(const absl::Status& status) {
  const std::unique_ptr<Reading> read = std::exchange(reading_, nullptr);
  if (!status.ok()) return handlers_.failure(status);
  const uint64_t from = read->entries / kNamedFrom;
  handlers_.report({.time = absl::Now(),
                    .entries = read->entries,
                    .limit = limit_,
                    .sources = read->sources.Top(kNamed, from),
                    .destinations = read->destinations.Top(kNamed, from)});
}

}  // namespace kipt::agent
