// SPDX-License-Identifier: Apache-2.0
//
// What Reconciler::Sync does where all could not be done at once: each family for itself, and each
// table of one that was refused.
#include <algorithm>
#include <array>
#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "agent/loop/reconciler.h"
#include "agent/policy/diff.h"
#include "agent/policy/rule_forms.h"
#include "netlink/kernel_error.h"

namespace kipt::agent {
namespace {

using netlink::Family;

// Notes as applied what `tried` changes and is no longer to be done: what was refused did it all
// the same, where transactions are done in parts.
void AppendGone(Diff tried, absl::Span<const Family> families, SyncReport& report) {
  const std::vector<Change>& left = report.plan.diff.changes;
  std::erase_if(tried.changes, [&](const Change& change) {
    return std::find(left.begin(), left.end(), change) != left.end();
  });
  report.NoteApplied(tried, families);
}

// What `diff` changes in one table, without what waits for the others, or only that.
Diff OfTable(const Ruleset& desired, Diff diff, netlink::Table table, bool waiting) {
  std::erase_if(diff.changes, [&](const Change& change) {
    return netlink::ChainOf(change.operation).table != table ||
           WaitsForOtherTables(desired, change) != waiting;
  });
  return diff;
}

// Of `family`, those in which `diff` changes something.
std::vector<netlink::Table> ChangedTables(const Diff& diff, Family family) {
  // What drops a packet stands before what marks it.
  constexpr std::array kOrder = {netlink::Table::kFilter, netlink::Table::kNat,
                                 netlink::Table::kMangle};
  std::vector<netlink::Table> tables;
  for (const netlink::Table table : kOrder) {
    const bool changed =
        std::any_of(diff.changes.begin(), diff.changes.end(), [&](const Change& change) {
          const netlink::ChainId& chain = netlink::ChainOf(change.operation);
          return chain.family == family && chain.table == table;
        });
    if (changed) tables.push_back(table);
  }
  return tables;
}

std::string TableNames(Family family, absl::Span<const netlink::Table> tables) {
  return absl::StrJoin(tables, ", ", [family](std::string* out, netlink::Table table) {
    absl::StrAppend(out, netlink::FamilyName(family), " ", netlink::TableName(table));
  });
}

template <typename T>
void Append(const std::vector<T>& more, std::vector<T>& all) {
  all.insert(all.end(), more.begin(), more.end());
}

// What was seen of one family joins what was seen of another.
void Merge(Family family_read, const Plan& family, Plan& all) {
  all.generation = family.generation;
  Append(family.families, all.families);
  if (family_read == Family::kIPv4) all.martians = family.martians;
  all.support_disproved |= family.support_disproved;
  Append(family.diff.changes, all.diff.changes);
  Append(family.diff.in_place, all.diff.in_place);
  // The native table is IPv4's, and is seen by each look.
  Append(family_read == Family::kIPv4 ? family.diff.stale : WithoutNative(family.diff.stale),
         all.diff.stale);
  Append(family.diff.findings, all.diff.findings);
  Append(family.claimed_by_kube_proxy, all.claimed_by_kube_proxy);
  Append(family.foreign_jumps, all.foreign_jumps);
}

}  // namespace

bool WaitsForOtherTables(const Ruleset& desired, const Change& change) {
  const auto* remove = std::get_if<netlink::DeleteRule>(&change.operation);
  if (remove == nullptr) return false;
  const std::string& name = remove->chain.name;
  const bool sets = remove->chain.table == netlink::Table::kNat &&
                    (name == kMarkDropChain || name == kLabelDropChain);
  const bool drops = remove->chain.table == netlink::Table::kFilter &&
                     (name == kFirewallChain || name == kLabelFirewallChain) &&
                     (remove->rule.mark || remove->rule.conn_label);
  if (!sets && !drops) return false;
  // A duplicate, or one that only moves.
  return std::none_of(desired.chains.begin(), desired.chains.end(), [&](const auto& chain) {
    return chain.id == remove->chain &&
           std::any_of(chain.rules.begin(), chain.rules.end(),
                       [&](const DesiredRule& rule) { return rule.rule == remove->rule; });
  });
}

bool Reconciler::IsRefusal(const absl::Status& status) {
  return !status.ok() && !absl::IsDeadlineExceeded(status) &&
         !netlink::MissingExtension(status).has_value();
}

void Reconciler::SyncEachFamily(const Goal& goal, const absl::Status& both,
                                const Restraint& restraint, SyncReport& report) {
  const Diff tried = report.plan.diff;
  const auto queries = ChainsToRead(DesiredRuleset(goal.input, goal.support));
  const bool one_family = !Changes(tried, Family::kIPv4) || !Changes(tried, Family::kIPv6);
  for (const Family family : goal.input.families) {
    const size_t applied_before = report.applied.size();
    absl::Status alone;
    if (Changes(tried, family)) {
      alone = one_family ? both : SyncFamilies(goal, queries, {&family, 1}, restraint, report);
    }
    if (!report.status.ok()) return;
    const bool nothing_left = alone.ok() && report.applied.size() == applied_before;
    if (nothing_left && !backend_->spans_families()) AppendGone(tried, {&family, 1}, report);
    FamilyResult result = {family, std::move(alone)};
    if (IsRefusal(result.status)) {
      result = SyncEachTable(goal, family, result.status, tried, restraint, report);
    }
    if (!report.status.ok()) return;
    report.families.push_back(std::move(result));
  }
}

FamilyResult Reconciler::SyncEachTable(const Goal& goal, Family family, const absl::Status& alone,
                                       const Diff& tried, const Restraint& restraint,
                                       SyncReport& report) {
  const Ruleset desired = DesiredRuleset(goal.input, goal.support);
  const std::vector<netlink::Table> tables = ChangedTables(tried, family);
  if (tables.size() < 2) return {family, alone, tables};
  FamilyResult result = {.family = family, .status = absl::OkStatus(), .refused = {}};
  std::vector<netlink::Table> done;
  absl::Status first;
  const auto sync = [&](netlink::Table table, bool waiting) {
    const size_t applied_before = report.applied.size();
    absl::Status status = SyncFamilies(
        goal, ChainsToRead(desired), {&family, 1},
        [&](const Plan& plan) {
          return OfTable(desired, restraint ? restraint(plan) : plan.diff, table, waiting);
        },
        report);
    const bool nothing_left = status.ok() && report.applied.size() == applied_before;
    if (nothing_left && !backend_->spans_families()) {
      AppendGone(OfTable(desired, tried, table, waiting), {&family, 1}, report);
    }
    return status;
  };
  for (const netlink::Table table : tables) {
    absl::Status status = sync(table, /*waiting=*/false);
    if (!report.status.ok() || netlink::MissingExtension(status)) return {family, status};
    (status.ok() ? done : result.refused).push_back(table);
    first.Update(status);
  }
  for (const netlink::Table table : tables) {
    if (first.ok()) first.Update(sync(table, /*waiting=*/true));
  }
  result.status = first;
  if (done.empty() || result.refused.empty()) return result;
  result.status = absl::Status(
      first.code(), absl::StrCat(first.message(), "; refused: ", TableNames(family, result.refused),
                                 "; done: ", TableNames(family, done)));
  return result;
}

void Reconciler::LookAtEachFamily(const Goal& goal, const Restraint& restraint,
                                  SyncReport& report) {
  const absl::Status together = report.status;
  std::vector<FamilyResult> results;
  bool any_was_read = false;
  Plan plan;
  for (const Family family : goal.input.families) {
    report.status = absl::OkStatus();
    Goal of_family = goal;
    of_family.input.families = {family};
    absl::Status alone =
        SyncFamilies(of_family, ChainsToRead({&family, 1}), {&family, 1}, restraint, report);
    if (report.status.ok()) {
      any_was_read = true;
      Merge(family, report.plan, plan);
    }
    results.push_back({family, std::move(alone)});
  }
  report.status = any_was_read ? absl::OkStatus() : together;
  if (!any_was_read) return;
  report.plan = std::move(plan);
  report.families = std::move(results);
}

}  // namespace kipt::agent
