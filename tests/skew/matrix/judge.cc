// SPDX-License-Identifier: Apache-2.0
#include "tests/skew/matrix/judge.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <set>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"

namespace kipt::skew {
namespace {

constexpr char kFlushed[] =
    "another program flushed all tables; the agent may take 100 ms for its repair "
    "(tests/bench/report/report.md), plus the time that this machine delayed the harness: at most "
    "250 ms in all";
constexpr char kMovedKubelet[] =
    "kubelet adds the rules of KUBE-POSTROUTING one by one; while the last is missing the mark is "
    "cleared, and the rules of iptables-legacy, which come next, find no mark";

constexpr char kChangedMode[] =
    "kube-proxy removes one mode's rules before it writes the other's: in between, no service "
    "works";

constexpr char kJumpByJump[] =
    "it starts with the chains that a foreign jump has kept: these serve before its jump from "
    "POSTROUTING is back";

constexpr absl::Duration kTablesGo = absl::Milliseconds(25);

// Whether each of so many endpoints got its share.
std::string ImbalanceOf(const Question& question, const ProbeResult& result) {
  if (question.balanced_over == 0) return "";
  const int receivers = static_cast<int>(result.receivers.size());
  if (receivers != question.balanced_over) {
    return absl::StrCat("went to ", receivers, " endpoints, not ", question.balanced_over);
  }
  if (question.balanced_over == 1) return "";
  const double share = 1.0 / question.balanced_over;
  const double mean = result.sent * share;
  const double deviation = std::sqrt(result.sent * share * (1 - share));
  for (const auto& [place, count] : result.receivers) {
    if (std::abs(count - mean) > 5 * deviation) {
      return absl::StrCat(place, " got ", count, " of ", result.sent, " connections");
    }
  }
  return "";
}

uint64_t PacketsIn(absl::Duration time) {
  return static_cast<uint64_t>(absl::ToDoubleSeconds(time) * kPacketsPerSecond);
}

// By what is known of these versions before and after.
void ExplainByFacts(const StreamMoment& moment, const StreamQuestion& question,
                    StreamCheck& check) {
  std::set<Outcome> explained;
  for (const FamilyFacts* facts : {&moment.before, &moment.after}) {
    const Expectation expectation = ExpectStream(*facts, question);
    if (expectation.because.empty() || !explained.insert(expectation.expected).second) continue;
    if (check.because.empty()) check.because = expectation.because;
    check.allowed += PacketsWith(check.count, expectation.expected);
  }
}

// A packet may take nat's first hook by the rules before the step, and its last one by those after.
void ExplainBetweenHooks(const StreamMoment& moment, const StreamQuestion& question,
                         StreamCheck& check) {
  const Expectation before = ExpectStream(moment.before, question);
  const Expectation after = ExpectStream(moment.after, question);
  if (question.about != About::kService || !before.Sound() || after.Sound()) return;
  if (after.expected == Outcome::kServed) return;
  check.allowed += std::min<uint64_t>(check.count.served, 1);
}

// In between there is no kube-proxy: packets are treated as if there were no services.
void ExplainByModeChange(const StreamMoment& moment, const StreamQuestion& question,
                         StreamCheck& check) {
  FamilyFacts without = moment.after;
  without.proxy_nat.reset();
  without.proxy_filter.reset();
  without.proxy_firewall = false;
  without.nftables = false;
  const Expectation expectation = ExpectStream(without, question);
  if (expectation.Sound()) return;
  check.while_proxy_away = {expectation.expected};
  check.allowed = PacketsWith(check.count, expectation.expected);
  check.because = kChangedMode;
  // Measured, also with kubelet: at most one packet, in every tenth stream, when the tables go.
  if (!moment.before.nftables || question.about != About::kService) return;
  check.allowed += std::min(check.count.Silent(), PacketsIn(kTablesGo));
}

// kube-proxy starts over chains that serve as soon as the jumps of OUTPUT and PREROUTING are back;
// POSTROUTING's comes next.
void ExplainByJumps(const StreamMoment& moment, const StreamQuestion& question,
                    StreamCheck& check) {
  if (!moment.before.nat_chains_left || moment.after.nat_chains_left) return;
  if (question.about != About::kService) return;
  check.allowed += std::min(check.count.served, PacketsIn(kRepairAtMost));
  absl::StrAppend(&check.because, "; ", kJumpByJump);
}

// By what happens once, while the step acts.
void ExplainByAct(const StreamMoment& moment, const StreamQuestion& question, StreamCheck& check) {
  if (moment.agent_repaired_flush && question.about == About::kMartian) {
    check.allowed = std::min(check.count.reached_host,
                             MartiansAfterFlush(check.count.late_in_all_milliseconds));
    check.because = kFlushed;
  }
  if (moment.proxy_changed_mode) ExplainByModeChange(moment, question, check);
  if (moment.moved_kubelet.has_value() && question.about == About::kService) {
    FamilyFacts written;
    written.family = moment.after.family;
    KubeletSyncs(*moment.moved_kubelet, written);
    if (!written.mark_masq) return;
    check.allowed = std::min(check.count.served, PacketsIn(kRepairAtMost));
    check.because = kMovedKubelet;
  }
}

constexpr absl::string_view kIpv6 = "ipv6: ";

// The command that failed names the chain too: what counts is what came of it.
bool SaysChainIsMissing(absl::string_view error, const std::string& chain) {
  const size_t exit_code = error.find("exit code ");
  if (exit_code == absl::string_view::npos) return false;
  error.remove_prefix(exit_code);
  return absl::StrContains(error, absl::StrCat("Chain '", chain, "' does not exist")) ||
         absl::StrContains(error, absl::StrCat("Couldn't load target `", chain, "'"));
}

// In the restore of nat, or where the part for IPVS deletes that chain once more.
bool SaysChainIsBusy(absl::string_view error, const std::string& chain) {
  absl::ConsumePrefix(&error, "; ");
  for (const absl::string_view part : absl::StrSplit(error, "; ")) {
    if (absl::StrContains(part, absl::StrCat(": ipvs: -X ", chain, ": exit code "))) continue;
    const bool restore =
        absl::StrContains(part, "tables-restore: line ") && absl::EndsWith(part, " failed");
    if (!absl::StrContains(part, ": nat: exit code ")) return false;
    if (!restore &&
        !absl::EndsWith(part, absl::StrCat("(Device or resource busy): chain ", chain))) {
      return false;
    }
  }
  return true;
}

bool IsThat(const KnownError& known, absl::string_view error) {
  return known.busy_chain.empty() ? SaysChainIsMissing(error, known.missing_chain)
                                  : SaysChainIsBusy(error, known.busy_chain);
}

}  // namespace

Check JudgeCheck(const FamilyFacts& facts, const Question& question, const ProbeResult& result) {
  const Expectation expectation = Expect(facts, question);
  Check check;
  check.probe = question.probe;
  check.result = result;
  check.sound = expectation.sound;
  check.expected = expectation.expected;
  check.because = expectation.because;
  if (result.outcome == expectation.sound) check.complaint = ImbalanceOf(question, result);
  return check;
}

uint64_t PacketsWith(const StreamCount& count, Outcome outcome) {
  switch (outcome) {
    case Outcome::kServed:
      return count.served;
    case Outcome::kServedMasqueraded:
      return count.served_masqueraded;
    case Outcome::kReachedHost:
      return count.reached_host;
    case Outcome::kForwarded:
      return count.forwarded;
    case Outcome::kOther:
      return count.other;
    case Outcome::kDropped:
    case Outcome::kRejected:
    case Outcome::kLost:
      return count.Silent();
  }
  return 0;
}

uint64_t MartiansAfterFlush(uint64_t late_milliseconds) {
  const absl::Duration late = absl::Milliseconds(static_cast<int64_t>(late_milliseconds));
  // In a time of so many packets' distances there may be one packet more.
  return std::min(PacketsIn(kRepairPromise + late) + 1, PacketsIn(kRepairAtMost));
}

StreamCheck JudgeStream(const StreamMoment& moment, const StreamQuestion& question,
                        const StreamCount& count) {
  StreamCheck check;
  check.count = count;
  check.rule = question.rule;
  check.afterwards = moment.afterwards;
  check.sound = ExpectStream(moment.after, question).sound;
  check.bad = count.sent - PacketsWith(count, check.sound);
  ExplainByFacts(moment, question, check);
  if (!moment.afterwards) ExplainBetweenHooks(moment, question, check);
  if (!moment.afterwards) ExplainByJumps(moment, question, check);
  if (check.because.empty() && !moment.afterwards) ExplainByAct(moment, question, check);
  return check;
}

bool Explains(const KnownError& known, const std::string& error) {
  // FamilyNotes: IPv4's part is first, and an error without a family is of IPv4's.
  const absl::string_view all = error;
  size_t ipv6 = absl::StartsWith(all, kIpv6) ? 0 : all.find(absl::StrCat("; ", kIpv6));
  if (ipv6 == absl::string_view::npos) ipv6 = all.size();
  const std::array<absl::string_view, 2> errors = {all.substr(0, ipv6), all.substr(ipv6)};
  for (size_t family = 0; family < errors.size(); ++family) {
    const bool failed = !errors[family].empty();
    if (failed && !known.families[family]) return false;
    if (!failed && known.families[family] && !known.may_succeed) return false;
    if (failed && !IsThat(known, errors[family])) return false;
  }
  return true;
}

}  // namespace kipt::skew
