// SPDX-License-Identifier: Apache-2.0
#include "tests/skew/probes/drop_counters.h"

#include <algorithm>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "tests/skew/probes/packets.h"
#include "tests/support/kubelet_sequence.h"
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
  return absl::StrContains(testing::IptablesLegacyTables(family), "filter");
}

constexpr char kTable[] = "skew-counters";

// Between these priorities are kube-proxy's, of all versions.
struct Hook {
  const char* name;
  int before;
  int after;
};
constexpr Hook kHooks[] = {
    {"prerouting", -111, -109}, {"input", -111, 1}, {"forward", -111, 1}, {"output", -111, 1}};

const char* NftFamily(IpFamily family) { return family == IpFamily::kIpv4 ? "ip" : "ip6"; }

std::string TableText(IpFamily family) {
  const std::string of_table = absl::StrCat(" ", NftFamily(family), " ", kTable, " ");
  std::string text = absl::StrCat("add table", of_table, "\n");
  for (const Hook& hook : kHooks) {
    for (const bool before : {true, false}) {
      const std::string name = absl::StrCat(hook.name, before ? "-before" : "-after");
      absl::StrAppend(&text, "add chain", of_table, name, " { type filter hook ", hook.name,
                      " priority ", before ? hook.before : hook.after, " ; }\nadd rule", of_table,
                      name, " meta length != ", UdpLength(family, kStreamMessageBytes),
                      " counter\n");
    }
  }
  return text;
}

// The numbers of the first "counter packets P bytes B" from `chain` on.
bool CountsOf(absl::string_view listing, const std::string& chain, DropCounter& counter) {
  constexpr absl::string_view kCounter = "counter packets ";
  const size_t begin = listing.find(absl::StrCat("chain ", chain, " {"));
  const size_t at = begin == absl::string_view::npos ? begin : listing.find(kCounter, begin);
  if (at == absl::string_view::npos) return false;
  const absl::string_view rest = listing.substr(at + kCounter.size());
  const std::vector<absl::string_view> words = absl::StrSplit(rest.substr(0, rest.find('\n')), ' ');
  return words.size() == 3 && absl::SimpleAtoi(words[0], &counter.packets) &&
         absl::SimpleAtoi(words[2], &counter.bytes);
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
  // Equal rules are matched in their order.
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

absl::Status MakeHookCounters(const TestNode& node) {
  const InNetns inside(node.At(Place::kNode));
  const testing::ProgramResult made = testing::RunProgram(
      {"nft", "-f", "-"}, TableText(IpFamily::kIpv4) + TableText(IpFamily::kIpv6));
  if (made.exit_code == 0) return absl::OkStatus();
  return absl::InternalError(absl::StrCat("nft: ", made.err));
}

absl::StatusOr<DropCounters> ReadHookCounters(const TestNode& node, IpFamily family) {
  const InNetns inside(node.At(Place::kNode));
  const testing::ProgramResult listed =
      testing::RunProgram({"nft", "list", "table", NftFamily(family), kTable});
  if (listed.exit_code != 0) return absl::InternalError(absl::StrCat("nft: ", listed.err));
  return HookCountersIn(listed.out);
}

DropCounters HookCountersIn(absl::string_view listing) {
  DropCounters counters;
  for (const Hook& hook : kHooks) {
    DropCounter before;
    DropCounter after;
    if (!CountsOf(listing, absl::StrCat(hook.name, "-before"), before) ||
        !CountsOf(listing, absl::StrCat(hook.name, "-after"), after)) {
      continue;
    }
    counters.push_back({absl::StrCat("hook ", hook.name, ", nftables"),
                        before.packets - after.packets, before.bytes - after.bytes});
  }
  return counters;
}

}  // namespace kipt::skew
