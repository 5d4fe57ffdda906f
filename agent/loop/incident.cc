// SPDX-License-Identifier: Apache-2.0
#include "agent/loop/incident.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "agent/policy/known_owners.h"
#include "agent/text/printable.h"

namespace kipt::agent {
namespace {

// Names enough for a log line; the rest is counted.
constexpr size_t kMaxShown = 12;

template <typename Items, typename Format>
std::string JoinShown(const Items& items, Format format) {
  std::vector<std::string> shown;
  for (const auto& item : items) {
    if (shown.size() == kMaxShown) break;
    shown.push_back(format(item));
  }
  if (items.size() > kMaxShown) {
    shown.push_back(absl::StrCat("and ", items.size() - kMaxShown, " more"));
  }
  return absl::StrJoin(shown, ", ");
}

std::string JumpText(const ForeignJump& jump) {
  const auto& [family, table, name] = jump.base_chain;
  const Owner owner = OwnerOfChain({.family = std::string(netlink::FamilyName(family)),
                                    .name = std::string(netlink::TableName(table))},
                                   jump.target);
  return absl::StrCat(netlink::ToString(jump.base_chain), " -> ", jump.target,
                      owner == Owner::kUnknown ? "" : absl::StrCat(" (", OwnerName(owner), ")"));
}

}  // namespace

std::string ToString(const Writer& writer) {
  std::vector<std::string> known;
  if (writer.pid != 0) {
    known.push_back(absl::StrCat("PID ", writer.pid));
    if (!writer.command_line.empty()) {
      absl::StrAppend(&known[0], ": ", GoQuote(writer.command_line));
    }
  }
  if (!writer.unit.empty()) known.push_back(absl::StrCat("in ", writer.unit));
  if (writer.parent_pid != 0) {
    known.push_back(absl::StrCat("started by ", writer.parent_command,
                                 writer.parent_command.empty() ? "" : ", ", "PID ",
                                 writer.parent_pid));
  }
  if (known.empty()) return writer.command;
  return absl::StrCat(writer.command, " (", absl::StrJoin(known, "; "), ")");
}

std::string ToString(const Suspected& suspected) {
  if (suspected.writers.empty()) return "a process that was not seen";
  return absl::StrCat(
      suspected.writers.size() == 1 ? "" : "one of ",
      absl::StrJoin(suspected.writers, ", ",
                    [](std::string* out, const Writer& writer) { *out += ToString(writer); }),
      suspected.others ? ", or another process that was not seen" : "");
}

absl::string_view DamageKindName(DamageKind kind) {
  constexpr absl::string_view kNames[] = {"chain_missing",  "jump_missing",  "rule_missing",
                                          "rule_misplaced", "rule_unwanted", "table_dormant"};
  return kNames[static_cast<size_t>(kind)];
}

std::string ToString(const Incident& incident) {
  std::string text = absl::StrCat(
      "Repaired in ", absl::ToInt64Microseconds(incident.latency), " us (writing ",
      absl::ToInt64Microseconds(incident.applying), " us) damage by ", ToString(incident.by), ": ",
      JoinShown(incident.damage, [](const DamagedItem& item) {
        return absl::StrCat(netlink::FamilyName(item.chain.family), " ",
                            netlink::TableName(item.chain.table), " ", DamageKindName(item.kind),
                            " ", GoQuote(item.text));
      }));
  if (!incident.lost_jumps.empty()) {
    absl::StrAppend(&text, "; removed with it, and missing until their owners restore them: ",
                    JoinShown(incident.lost_jumps, JumpText));
  }
  return Printable(text);
}

std::string ToString(const LostProxyJumps& lost) {
  return Printable(absl::StrCat("Jumps of kube-proxy were deleted by ", ToString(lost.by), ": ",
                                JoinShown(lost.jumps, JumpText),
                                "; only kube-proxy makes them again: "
                                "restart it"));
}

absl::string_view ForeignRuleKindName(ForeignRuleKind kind) {
  constexpr absl::string_view kNames[] = {"drop", "reject", "dnat", "mark", "redirect"};
  return kNames[static_cast<size_t>(kind)];
}

std::string ToString(const NewForeignRules& news) {
  uint64_t all = 0;
  for (const auto& [kind, count] : news.counts) all += count;
  std::vector<std::string> shown;
  for (const ForeignRule& rule : news.rules) {
    if (shown.size() == kMaxShown) break;
    const netlink::ChainId& chain = rule.base_chain;
    shown.push_back(absl::StrCat(netlink::FamilyName(chain.family), " ",
                                 netlink::TableName(chain.table), "/", chain.name, " ", rule.text));
  }
  if (all > shown.size()) shown.push_back(absl::StrCat(all - shown.size(), " more"));
  return Printable(absl::StrCat("New rules of another program, by ", ToString(news.by), ": ",
                                absl::StrJoin(shown, "; ")));
}

std::string ToString(const Blocker& blocker) {
  return Printable(absl::StrCat(ConditionName(blocker.finding.condition), ": ",
                                blocker.finding.message, "; written by ", ToString(blocker.by)));
}

Suspected WithoutCommandLines(Suspected suspected) {
  for (Writer& writer : suspected.writers) writer.command_line.clear();
  return suspected;
}

}  // namespace kipt::agent
