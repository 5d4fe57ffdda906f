// SPDX-License-Identifier: Apache-2.0
#include "agent/loop/reconciler.h"

#include <array>
#include <iterator>
#include <optional>
#include <string>
#include <utility>
#include <variant>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "agent/policy/ownership.h"
#include "agent/policy/rule_forms.h"
#include "netlink/kernel_error.h"

namespace kipt::agent {
namespace {

using netlink::Family;
using netlink::Table;

// Whether a part of what was refused may succeed. Not where a match is missing: all tables lack it,
// and a bare chain of another table, the hint, would say that iptables can be used.
bool IsRefusal(const absl::Status& status) {
  return !status.ok() && !absl::IsDeadlineExceeded(status) &&
         !netlink::MissingExtension(status).has_value();
}

bool AddsRules(const Diff& diff) {
  return absl::c_any_of(diff.changes, [](const Change& change) {
    return std::holds_alternative<netlink::AddRule>(change.operation);
  });
}

// When others have kept the ruleset from being read at one generation for so long, what is missing
// is added without waiting for one.
constexpr absl::Duration kPatienceForAdditions = absl::Milliseconds(50);

// The tables of `family` that `changes` concern.
std::vector<Table> ChangedTables(absl::Span<const Change> changes, Family family) {
  // What drops a packet is put in place before what marks it.
  constexpr std::array kOrder = {Table::kFilter, Table::kNat, Table::kMangle};
  std::vector<Table> tables;
  absl::c_copy_if(kOrder, std::back_inserter(tables), [&](Table table) {
    return absl::c_any_of(changes, [&](const Change& change) {
      const netlink::ChainId& chain = netlink::ChainOf(change.operation);
      return chain.family == family && chain.table == table;
    });
  });
  return tables;
}

std::string TableNames(Family family, absl::Span<const Table> tables) {
  return absl::StrJoin(tables, ", ", [family](std::string* out, Table table) {
    absl::StrAppend(out, netlink::FamilyName(family), " ", netlink::TableName(table));
  });
}

// Adds the check of one family alone to that of the other.
void Merge(Family family_read, const Plan& family, Plan& all) {
  const auto append = [](const auto& more, auto& items) {
    items.insert(items.end(), more.begin(), more.end());
  };
  const bool ipv4 = family_read == Family::kIPv4;
  all.generation = family.generation;
  all.torn |= family.torn;
  append(family.families, all.families);
  if (ipv4) all.martians = family.martians;
  all.diff.support_disproved |= family.diff.support_disproved;
  append(family.diff.changes, all.diff.changes);
  append(family.diff.in_place, all.diff.in_place);
  // Each check finds the native table, which is IPv4's.
  append(ipv4 ? family.diff.stale : WithoutNative(family.diff.stale), all.diff.stale);
  append(family.diff.of_kube_proxy, all.diff.of_kube_proxy);
  append(family.diff.findings, all.diff.findings);
  append(family.claimed_by_kube_proxy, all.claimed_by_kube_proxy);
  append(family.with_services, all.with_services);
  append(family.in_cleanup, all.in_cleanup);
  append(family.foreign_jumps, all.foreign_jumps);
}

// The result in which a rule about connection labels was refused because its match is missing.
const FamilyResult* LabelsRefused(const SyncReport& report) {
  const auto refused = absl::c_find_if(report.families, [](const FamilyResult& result) {
    return netlink::MissingExtension(result.status) == netlink::kConnLabelExtension;
  });
  return refused == report.families.end() ? nullptr : &*refused;
}

// `report`, preceded by `earlier`.
SyncReport After(const SyncReport& earlier, SyncReport report) {
  report.applied.insert(report.applied.begin(), earlier.applied.begin(), earlier.applied.end());
  report.checks += earlier.checks;
  report.applying += earlier.applying;
  return report;
}

// Adds a finding for each family that must not be written.
void ReportWriteRefused(const PolicyInput& input, SyncReport& report) {
  for (const Family family : input.families) {
    const FamilyResult result = report.ResultOf(family);
    if (!netlink::IsWriteRefused(result.status)) continue;
    const std::vector<Change> pending = report.PendingOf(family);
    const auto refused = absl::c_find_if(pending, [&](const Change& change) {
      return result.refused.empty() ||
             absl::c_linear_search(result.refused, netlink::ChainOf(change.operation).table);
    });
    // If no chain can be read either, report the finding on the hint chain.
    const netlink::ChainId hint = {family, Table::kMangle, std::string(kHintChain)};
    report.plan.diff.findings.push_back(
        {.condition = Condition::kWriteRefused,
         .chain = refused == pending.end() ? hint : netlink::ChainOf(refused->operation),
         .message = std::string(result.status.message())});
  }
}

// One attempt at what `input` desires, on a node that can hold `support`.
struct Attempt {
  netlink::Backend& backend;
  const Clock& clock;
  // When clock.patience began.
  SteadyTime start;
  // May be null, as the reconciler's.
  SupportSource* source;
  RuleSupport support;
  const PolicyInput& input;
  const Restraint& restraint;
  const RoundObserver& observer;
  LastComparison& last;
  SyncReport report = {};

  // Again while others change the rules.
  absl::StatusOr<Plan> CheckSettled() {
    absl::StatusOr<Plan> plan;
    const absl::Status status = RetryAborted(clock, start, [&] {
      plan = Check(input);
      return plan.status();
    });
    if (!status.ok()) return status;
    return plan;
  }

  // All at once, or, where that cannot be, in parts.
  SyncReport Sync() {
    const std::vector<Family>& families = input.families;
    const absl::Status together = Repair(input, families, restraint);
    if (!report.status.ok()) {
      if (families.size() > 1) RepairEachAlone();
    } else if (IsRefusal(together)) {
      RepairEachFamily(together);
    } else {
      // Only families with changes can have failed; where nothing could be planned, all have.
      const Diff& diff = report.plan.diff;
      for (const Family family : families) {
        const bool failed = diff.empty() || Changes(diff, family);
        report.families.push_back({family, failed ? together : absl::OkStatus()});
      }
    }
    return std::move(report);
  }

  // Reads and compares, once. `part`: input, or that of one family alone. Where rules are to be
  // added, asks what the node can hold.
  absl::StatusOr<Plan> Check(const PolicyInput& part, bool torn = false) {
    const bool all = part.families.size() == input.families.size();
    const auto once = [&]() -> absl::StatusOr<Plan> {
      const auto queries = all ? ChainsToRead(DesiredRuleset(part, support))
                               : ChainsToRead({&part.families.front(), 1});
      const auto observed = torn ? backend.ReadTorn(queries, &NativeMartians())
                                 : backend.Read(queries, &NativeMartians());
      if (!observed.ok()) return observed.status();
      Plan plan = last.Compare(part, support, *observed);
      if (observer && !torn) observer(*observed, plan);
      return plan;
    };
    absl::StatusOr<Plan> plan = once();
    if (!plan.ok() || source == nullptr || !AddsRules(plan->diff) ||
        !source->ReadOnce(backend.kind(), part.labels.has_value())) {
      return plan;
    }
    support = source->known();
    return once();
  }

  // Checks `part` and makes the changes that `allow` allows in `families`.
  absl::Status Repair(const PolicyInput& part, absl::Span<const Family> families,
                      const Restraint& allow) {
    const size_t applied_before = report.applied.size();
    absl::Status refused;
    return RetryAborted(clock, start, [&] {
      absl::Status status = RepairOnce(part, families, allow);
      const bool long_enough = clock.now() - start >= kPatienceForAdditions;
      // Once, because a fight is damped between calls.
      const bool once = report.applied.size() == applied_before;
      if (!absl::IsAborted(status) || !long_enough || !once) return status;
      const absl::Status added = AddMissing(part, families, allow);
      // At the first time it may be because of what others removed meanwhile.
      const bool again = std::exchange(refused, added) == added;
      return added.ok() || (again && !absl::IsAborted(added)) ? added : status;
    });
  }

  absl::Status RepairOnce(const PolicyInput& part, absl::Span<const Family> families,
                          const Restraint& allow) {
    ++report.checks;
    absl::StatusOr<Plan> plan = Check(part);
    if (!plan.ok()) {
      // A failed check says nothing about either family.
      if (!absl::IsAborted(plan.status())) report.status = plan.status();
      return plan.status();
    }
    report.plan = *std::move(plan);
    return Make(allow(report.plan), report.plan.generation, families);
  }

  // Others commit faster than the ruleset can be read. Success: nothing is left to be done, which
  // ends the call, because the next damage is found by the next one. Aborted: something is.
  absl::Status AddMissing(const PolicyInput& part, absl::Span<const Family> families,
                          const Restraint& allow) {
    absl::Status left = absl::AbortedError("something is left to be done");
    ++report.checks;
    absl::StatusOr<Plan> plan = Check(part, /*torn=*/true);
    if (!plan.ok()) return left;
    if (backend.kind() == netlink::BackendKind::kNft) {
      const absl::StatusOr<netlink::Snapshot> now = backend.Read({});
      if (!now.ok()) return left;
      plan->generation = now->generation;
      plan->torn = true;
    }
    std::vector<Change> allowed = allow(*plan);
    std::erase_if(allowed, [&](const Change& change) {
      return !absl::c_linear_search(families, netlink::ChainOf(change.operation).family);
    });
    const std::vector<Change> additions = Additions(allowed);
    // Nothing to make succeeds.
    absl::Status made = Make(additions, plan->generation, families, /*despite_changes=*/true);
    if (absl::IsAborted(made) || (made.ok() && additions.size() != allowed.size())) return left;
    report.plan = *std::move(plan);
    return made;
  }

  absl::Status Make(absl::Span<const Change> changes, uint32_t generation,
                    absl::Span<const Family> families, bool despite_changes = false) {
    netlink::Transaction transaction = ToTransaction(changes, generation, families);
    transaction.only_of_snapshot = true;
    transaction.despite_changes = despite_changes;
    if (transaction.empty()) return absl::OkStatus();
    const SteadyTime begin = clock.now();
    absl::Status applied = backend.Apply(transaction);
    report.applying += clock.now() - begin;
    if (applied.ok()) NoteApplied(changes, families);
    return applied;
  }

  void NoteApplied(absl::Span<const Change> changes, absl::Span<const Family> in) {
    absl::c_copy_if(changes, std::back_inserter(report.applied), [&](const Change& change) {
      return absl::c_linear_search(in, netlink::ChainOf(change.operation).family);
    });
  }

  // The same for a part of `tried`, which was refused.
  absl::Status RepairPart(Family family, std::vector<Change> tried, const Restraint& allow) {
    const size_t applied_before = report.applied.size();
    absl::Status status = Repair(input, {family}, allow);
    if (!status.ok() || report.applied.size() != applied_before || backend.spans_families()) {
      return status;
    }
    // What is no longer missing was done in spite of the refusal.
    std::erase_if(tried, [&](const Change& change) {
      return absl::c_linear_search(report.plan.diff.changes, change);
    });
    NoteApplied(tried, {family});
    return status;
  }

  // The families could not be read together.
  void RepairEachAlone() {
    const absl::Status together = std::exchange(report.status, absl::OkStatus());
    std::vector<FamilyResult> results;
    Plan plan;
    for (const Family family : input.families) {
      report.status = absl::OkStatus();
      report.plan = {};
      PolicyInput of_family = input;
      of_family.families = {family};
      results.push_back({family, Repair(of_family, of_family.families, restraint)});
      if (report.status.ok()) Merge(family, report.plan, plan);
    }
    const bool none_was_read = plan.families.empty();
    report.status = none_was_read ? together : absl::OkStatus();
    if (none_was_read) return;
    report.plan = std::move(plan);
    report.families = std::move(results);
  }

  // The transaction that report.plan led to was refused; `together` is why.
  void RepairEachFamily(const absl::Status& together) {
    const Diff tried = report.plan.diff;
    const bool one_family = !Changes(tried, Family::kIPv4) || !Changes(tried, Family::kIPv6);
    for (const Family family : input.families) {
      FamilyResult result = {family, absl::OkStatus()};
      if (Changes(tried, family)) {
        result.status = one_family ? together : RepairPart(family, tried.changes, restraint);
      }
      if (report.status.ok() && IsRefusal(result.status)) {
        result = RepairEachTable(family, result.status, tried.changes);
      }
      if (!report.status.ok()) return;
      report.families.push_back(std::move(result));
    }
  }

  // The same for what `tried` changes in one family; `alone` is why.
  FamilyResult RepairEachTable(Family family, const absl::Status& alone,
                               const std::vector<Change>& tried) {
    const Ruleset desired = DesiredRuleset(input, support);
    const std::vector<Table> tables = ChangedTables(tried, family);
    if (tables.size() < 2) return {family, alone, tables};
    // The changes of one table that wait for the other tables, or those that do not.
    const auto repair = [&](Table table, bool waiting) {
      const auto part = [&](std::vector<Change> changes) {
        std::erase_if(changes, [&](const Change& change) {
          return netlink::ChainOf(change.operation).table != table ||
                 WaitsForOtherTables(desired, change) != waiting;
        });
        return changes;
      };
      return RepairPart(family, part(tried),
                        [&](const Plan& plan) { return part(restraint(plan)); });
    };
    FamilyResult result = {.family = family, .status = absl::OkStatus(), .refused = {}};
    std::vector<Table> done;
    for (const Table table : tables) {
      absl::Status status = repair(table, /*waiting=*/false);
      if (!report.status.ok() || netlink::MissingExtension(status)) return {family, status};
      (status.ok() ? done : result.refused).push_back(table);
      // A table that others were too busy with says less.
      if (!IsRefusal(result.status) && !status.ok()) result.status = std::move(status);
    }
    for (const Table table : tables) {
      if (result.status.ok()) result.status.Update(repair(table, /*waiting=*/true));
    }
    if (done.empty() || result.refused.empty()) return result;
    const absl::Status first = std::exchange(
        result.status, absl::Status(result.status.code(),
                                    absl::StrCat(result.status.message(),
                                                 "; refused: ", TableNames(family, result.refused),
                                                 "; done: ", TableNames(family, done))));
    if (netlink::IsWriteRefused(first)) netlink::SetWriteRefused(result.status);
    return result;
  }
};

}  // namespace

absl::Status SyncReport::FirstError() const {
  absl::Status first = status;
  for (const FamilyResult& result : families) first.Update(result.status);
  return first;
}

bool SyncReport::LacksExtension() const {
  return absl::c_any_of(families, [](const FamilyResult& result) {
    const std::optional<std::string> missing = netlink::MissingExtension(result.status);
    return missing && *missing != netlink::kConnLabelExtension;
  });
}

FamilyResult SyncReport::ResultOf(Family family) const {
  const auto result = absl::c_find_if(
      families, [family](const FamilyResult& each) { return each.family == family; });
  if (result != families.end()) return *result;
  return {family, status};
}

std::vector<Change> SyncReport::PendingOf(Family family) const {
  std::vector<Change> pending;
  absl::c_copy_if(plan.diff.changes, std::back_inserter(pending), [&](const Change& change) {
    return netlink::ChainOf(change.operation).family == family &&
           !absl::c_linear_search(applied, change);
  });
  return pending;
}

bool WaitsForOtherTables(const Ruleset& desired, const Change& change) {
  const auto* remove = std::get_if<netlink::DeleteRule>(&change.operation);
  if (remove == nullptr) return false;
  const std::string& name = remove->chain.name;
  const bool sets =
      remove->chain.table == Table::kNat && (name == kMarkDropChain || name == kLabelDropChain);
  const bool drops =
      IsFirewallChain(remove->chain) && (remove->rule.mark || remove->rule.conn_label);
  if (!sets && !drops) return false;
  // A duplicate, or a rule that only moves, stays desired.
  return absl::c_none_of(desired.chains, [&](const DesiredChain& chain) {
    return chain.id == remove->chain && absl::c_any_of(chain.rules, [&](const DesiredRule& rule) {
             return rule.rule == remove->rule;
           });
  });
}

absl::StatusOr<Plan> Reconciler::Check(const PolicyInput& input) {
  return Attempt{*backend_, clock_, clock_.now(), support_, KnownSupport(support_),
                 input,     {},     observer_,    last_}
      .CheckSettled();
}

SyncReport Reconciler::Sync(const PolicyInput& input, const Restraint& restraint) {
  const SteadyTime start = clock_.now();
  const auto attempt = [&](const RuleSupport& support) {
    SyncReport report =
        Attempt{*backend_, clock_, start, support_, support, input, restraint, observer_, last_}
            .Sync();
    ReportWriteRefused(input, report);
    return report;
  };
  // By what is known of the node, and once more without labels, where they were refused.
  const auto sync = [&] {
    SyncReport report = attempt(KnownSupport(support_));
    const FamilyResult* refused = LabelsRefused(report);
    if (refused == nullptr || !input.labels || !KnownSupport(support_).conn_labels) return report;
    SyncReport without = After(
        report, attempt(WithoutConnLabels(KnownSupport(support_), refused->status.message())));
    // Where it fails without labels too, they were not the reason: the next round tries them again.
    if (without.ResultOf(refused->family).status.ok()) without.labels_refused = refused->status;
    return without;
  };
  SyncReport report = sync();
  if (support_ == nullptr) return report;
  const netlink::BackendKind kind = backend_->kind();
  const bool labels = input.labels.has_value();
  if (report.plan.diff.support_disproved) support_->NoteDisproof(kind, labels);
  if (report.LacksExtension() && !KnownSupport(support_).refused &&
      support_->NoteRefusal(kind, labels)) {
    report = After(report, sync());
  }
  if (!report.labels_refused.ok()) {
    support_->NoteConnLabelRefusal(kind, report.labels_refused.message());
  }
  return report;
}

}  // namespace kipt::agent
