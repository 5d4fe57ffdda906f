// SPDX-License-Identifier: Apache-2.0
#include "agent/audit/mark_map.h"

#include <algorithm>
#include <map>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "agent/audit/audit.h"
#include "agent/audit/chain_meaning.h"
#include "agent/audit/finding.h"
#include "agent/audit/kube_proxy_facts.h"

namespace kipt::agent {
namespace {

using netlink::kAllMarks;
using netlink::Marks;

constexpr absl::string_view kKnownMarksCsv =
#include "known_marks.inc"
    ;

absl::StatusOr<KnownMark> ParseKnownMark(absl::string_view line) {
  const std::vector<absl::string_view> fields = absl::StrSplit(line, ',');
  KnownMark mark;
  if (fields.size() != 5 || !absl::SimpleHexAtoi(fields[2], &mark.bits) ||
      !absl::SimpleHexAtoi(fields[3], &mark.mask) || (mark.bits & ~mark.mask) != 0) {
    return absl::InvalidArgumentError(
        "expected SOFTWARE,USE,BITS,MASK,SOURCE with hexadecimal bits within the mask");
  }
  mark.software = std::string(fields[0]);
  mark.use = std::string(fields[1]);
  mark.source = std::string(fields[4]);
  return mark;
}

void Note(MarkUser& user, const Marks& marks, std::string example) {
  ++user.count;
  if (user.examples.size() < kMostExamples) user.examples.push_back(std::move(example));
  // What can do anything, such as a BPF program, might not touch the mark.
  const bool anything = marks.set == kAllMarks && marks.tested == kAllMarks;
  user.overwrites = user.overwrites || (!anything && (marks.set | marks.cleared) == kAllMarks);
  // If a rule may set any bit, the bits that it sets are unknown.
  Marks known = marks;
  if (marks.set == kAllMarks) known.set = 0;
  user.may_set_any = user.may_set_any || known.set != marks.set;
  user.marks |= known;
}

// In the order in which they are first seen.
class Users {
 public:
  MarkUser& At(const std::string& who) {
    const auto [place, added] = places_.try_emplace(who, users.size());
    if (added) users.push_back({.who = who});
    return users[place->second];
  }

  std::vector<MarkUser> users;

 private:
  std::map<std::string, size_t> places_;
};

// As OwnerOfRule, except for the chains that kube-proxy alone keeps.
Owner KeeperOfRule(const netlink::Survey& survey, const std::vector<KubeProxyFacts>& proxies,
                   const netlink::TableId& table, const std::string& chain, bool base,
                   const netlink::SurveyRule& rule) {
  const Owner owner = OwnerOfRule(table, chain, base, rule);
  if (owner != Owner::kKubelet) return owner;
  const KubeProxyFacts& proxy = proxies[table.family == "ip6" ? 1 : 0];
  return KeeperOfChain(FamilyChains(survey, proxy.family), proxy, table.name,
                       base ? std::string(JumpOf(rule)) : chain, /*base=*/false);
}

void NoteRules(const netlink::Survey& survey, Users& users) {
  const std::vector<KubeProxyFacts> proxies = FindKubeProxy(survey);
  for (const auto& [table, chains] : survey.tables) {
    const std::string where = absl::StrCat(survey.mode, " ", netlink::ToString(table), ": ");
    for (const auto& [name, chain] : chains) {
      for (const netlink::SurveyRule& rule : chain.rules) {
        const Marks marks = netlink::MarksOf(rule);
        if ((marks.set | marks.tested | marks.cleared) == 0) continue;
        const Owner owner = KeeperOfRule(survey, proxies, table, name, chain.base, rule);
        const bool named = owner != Owner::kUnknown && owner != Owner::kBaseChain;
        MarkUser& user =
            users.At(absl::StrCat(where, named ? OwnerName(owner) : "rules of others"));
        user.kubernetes = IsKubernetes(owner) || owner == Owner::kThisAgent;
        Note(user, marks, absl::StrCat("-A ", name, " ", ToString(table, rule)));
      }
    }
  }
}

MarkVerdict VerdictOn(int bit, absl::string_view use, const std::vector<MarkUser>& users,
                      const AuditReport& report) {
  MarkVerdict verdict = {.bit = bit, .use = use};
  for (const MarkUser& user : users) {
    if (user.kubernetes) continue;
    const bool uses = ((user.marks.set | user.marks.tested) >> bit & 1U) != 0;
    if (uses || user.may_set_any) verdict.used_by.push_back(user.who);
    if ((user.marks.cleared >> bit & 1U) != 0) verdict.cleared_by.push_back(user.who);
  }
  for (const AuditFinding& finding : report.findings) {
    if ((finding.mark_bits >> bit & 1U) == 0) continue;
    verdict.severity = std::max(verdict.severity, finding.severity);
    AuditFinding& shown = verdict.findings.emplace_back(finding);
    shown.details.resize(std::min(shown.details.size(), kMostExamples));
  }
  return verdict;
}

}  // namespace

absl::StatusOr<std::vector<KnownMark>> ParseKnownMarks(absl::string_view csv) {
  std::vector<KnownMark> marks;
  size_t number = 0;
  bool heading = true;
  for (const absl::string_view line : absl::StrSplit(csv, '\n')) {
    ++number;
    if (absl::StripAsciiWhitespace(line).empty() || line.front() == '#') continue;
    if (std::exchange(heading, false)) continue;
    absl::StatusOr<KnownMark> mark = ParseKnownMark(line);
    if (!mark.ok()) {
      return absl::InvalidArgumentError(
          absl::StrCat("line ", number, ": ", mark.status().message()));
    }
    marks.push_back(*std::move(mark));
  }
  return marks;
}

const std::vector<KnownMark>& KnownMarks() {
  static const auto* const marks = new std::vector<KnownMark>(
      ParseKnownMarks(kKnownMarksCsv).value_or(std::vector<KnownMark>()));
  return *marks;
}

MarkMap MapMarks(const NodeView& view, const AuditOptions& options) {
  Users users;
  for (const netlink::Survey& survey : view.surveys) NoteRules(survey, users);
  for (const FwmarkRule& rule : view.ip_rules) {
    const bool ipv4 = rule.family == netlink::Family::kIPv4;
    Note(users.At(absl::StrCat("ip rule (IPv", ipv4 ? 4 : 6, ")")), {.tested = rule.mask},
         rule.text);
  }
  for (const DeviceMark& device : view.device_marks) {
    Note(users.At(device.place), device.marks, device.text);
  }
  const AuditReport report = Audit({&view, 1}, options);
  std::vector<MarkVerdict> verdicts = {
      VerdictOn(options.bits.masquerade, "masquerade", users.users, report),
      VerdictOn(options.bits.drop, "drop", users.users, report)};
  return {
      .users = std::move(users.users), .verdicts = std::move(verdicts), .problems = view.problems};
}

bool MarksNeedAttention(const MarkMap& map) {
  return !map.problems.empty() || absl::c_any_of(map.verdicts, [](const MarkVerdict& verdict) {
    return verdict.severity != AuditSeverity::kInfo;
  });
}

}  // namespace kipt::agent
