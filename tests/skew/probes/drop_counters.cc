// SPDX-License-Identifier: Apache-2.0
#include "tests/skew/probes/drop_counters.h"

#include <algorithm>
#include <map>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "tests/support/legacy_tables.h"
#include "tests/support/run_program.h"

namespace kipt::skew {
namespace {

using testing::InNetns;
using testing::IpFamily;
using testing::IptablesMode;

// "[12:345]".
bool ParseCounts(absl::string_view text, DropCounter& counter) {
  const std::pair<absl::string_view, absl::string_view> numbers = absl::StrSplit(text, ':');
  absl::string_view packets = numbers.first;
  absl::string_view bytes = numbers.second;
  return absl::ConsumePrefix(&packets, "[") && absl::ConsumeSuffix(&bytes, "]") &&
         absl::SimpleAtoi(packets, &counter.packets) && absl::SimpleAtoi(bytes, &counter.bytes);
}

// Of legacy: saving a table makes it.
bool HasLegacyFilter(IpFamily family) {
  const std::vector<std::string> tables = testing::IptablesLegacyTables(family);
  return std::find(tables.begin(), tables.end(), "filter") != tables.end();
}

}  // namespace

DropCounters DropCountersIn(absl::string_view save) {
  DropCounters counters;
  for (const absl::string_view line : absl::StrSplit(save, '\n')) {
    DropCounter counter;
    if (absl::StartsWith(line, "[") && absl::EndsWith(line, " -j DROP")) {
      const std::pair<absl::string_view, absl::string_view> parts =
          absl::StrSplit(line, absl::MaxSplits(' ', 1));
      counter.rule = std::string(parts.second);
      if (ParseCounts(parts.first, counter)) counters.push_back(counter);
    } else if (absl::StartsWith(line, ":") && absl::StrContains(line, " DROP [")) {
      const size_t end = line.rfind(' ');
      counter.rule = std::string(line.substr(0, end));
      if (ParseCounts(line.substr(end + 1), counter)) counters.push_back(counter);
    }
  }
  return counters;
}

absl::StatusOr<DropCounters> ReadDropCounters(const TestNode& node, IptablesMode mode,
                                              IpFamily family) {
  const InNetns inside(node.At(Place::kNode));
  if (mode == IptablesMode::kLegacy && !HasLegacyFilter(family)) return DropCounters();
  const std::string program =
      absl::StrCat(family == IpFamily::kIpv6 ? "ip6tables-" : "iptables-", NameOf(mode), "-save");
  const testing::ProgramResult save = testing::RunProgram({program, "-c", "-t", "filter"});
  if (save.exit_code == 0) return DropCountersIn(save.out);
  return absl::InternalError(absl::StrCat(program, ": ", save.err));
}

std::string RuleThatCounted(const DropCounters& before, const DropCounters& after, uint64_t packets,
                            size_t length, size_t stream_length) {
  // A rule may stand there more than once: the nth is the nth.
  std::map<std::string, std::vector<const DropCounter*>> earlier;
  for (const DropCounter& counter : before) earlier[counter.rule].push_back(&counter);
  std::map<std::string, size_t> seen;
  for (const DropCounter& counter : after) {
    const std::vector<const DropCounter*>& same = earlier[counter.rule];
    const size_t nth = seen[counter.rule]++;
    const auto more_packets =
        static_cast<int64_t>(counter.packets - (nth < same.size() ? same[nth]->packets : 0));
    const auto more_bytes =
        static_cast<int64_t>(counter.bytes - (nth < same.size() ? same[nth]->bytes : 0));
    // ours * length + (more_packets - ours) * stream_length = more_bytes
    const int64_t difference = static_cast<int64_t>(length) - static_cast<int64_t>(stream_length);
    const int64_t beyond_streams = more_bytes - more_packets * static_cast<int64_t>(stream_length);
    if (difference == 0 || beyond_streams % difference != 0) continue;
    const int64_t ours = beyond_streams / difference;
    if (ours >= static_cast<int64_t>(packets) && ours <= more_packets) return counter.rule;
  }
  return "";
}

}  // namespace kipt::skew
