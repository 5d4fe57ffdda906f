// SPDX-License-Identifier: Apache-2.0
#include "tests/skew/probes/hook_counters.h"

#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "tests/skew/probes/frame.h"
#include "tests/skew/probes/message.h"
#include "tests/support/run_program.h"

namespace kipt::skew {
namespace {

using testing::InNetns;
using testing::IpFamily;

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
