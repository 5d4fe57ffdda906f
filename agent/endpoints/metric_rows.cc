// SPDX-License-Identifier: Apache-2.0
#include "agent/endpoints/metric_rows.h"

#include <functional>
#include <initializer_list>
#include <type_traits>
#include <variant>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "agent/policy/chain_diff.h"
#include "agent/policy/policy.h"
#include "agent/policy/rule_forms.h"

namespace kipt::agent {
namespace {

using Facts = MetricFacts;
using Labels = std::map<std::string, std::string>;
using Series = MetricSeries;
using enum MetricKind;
using enum MetricMoment;

constexpr absl::string_view kDeprecatedFlags[] = {"iptables-masquerade-bit", "iptables-drop-bit"};

// The one series of a metric without labels.
template <typename T>
void Set(Series& series, const T& value) {
  if constexpr (std::is_same_v<T, absl::Duration>) {
    series[{}] = absl::ToDoubleSeconds(value);
  } else if constexpr (std::is_same_v<T, absl::Time>) {
    Set(series, value == absl::InfinitePast() ? absl::ZeroDuration() : value - absl::UnixEpoch());
  } else if constexpr (std::is_arithmetic_v<T>) {
    series[{}] = static_cast<double>(value);
  } else if constexpr (std::is_same_v<T, std::optional<uint64_t>>) {
    if (value) Set(series, *value);
  } else {
    series[{}] = static_cast<double>(value.size());
  }
}
void Zero(Series& series) { Set(series, 0); }

// One member of one of the facts, or a function of it.
template <auto Facts::*Fact, auto Member>
void Field(const Facts& facts, Series& series) {
  if (facts.*Fact != nullptr) Set(series, std::invoke(Member, *(facts.*Fact)));
}

Labels With(Labels labels, const char* name, absl::string_view value) {
  labels[name] = std::string(value);
  return labels;
}

Labels Of(netlink::Family family) { return With({}, "family", netlink::FamilyName(family)); }

Labels Of(const netlink::ChainId& chain) {
  return With(With(Of(chain.family), "table", netlink::TableName(chain.table)), "chain",
              chain.name);
}

Labels Of(absl::StatusCode code) {
  return With({}, "reason", absl::AsciiStrToLower(absl::StatusCodeToString(code)));
}

Labels DriftOf(const netlink::ChainId& chain, DamageKind kind) {
  return With(Of(chain), "kind", DamageKindName(kind));
}

// The first series by their labels, and one for what the others count, so that a node has no more
// than 400 of all metrics, whatever exists on it.
Series Bounded(const Series& all) {
  constexpr size_t kMost = 12;
  if (all.size() <= kMost) return all;
  Series some;
  double others = 0;
  Labels other;
  for (const auto& [labels, value] : all) {
    if (some.size() < kMost - 1) {
      some[labels] = value;
      continue;
    }
    others += value;
    for (const auto& [name, text] : labels) other[name] = name == "chain" ? "Other" : "";
  }
  some[other] = others;
  return some;
}

// How many items of a member of the state are counted, in both families.
template <auto AgentState::*Items, auto IsCounted>
void CountByFamily(const Facts& facts, Series& series) {
  for (const netlink::Family family : netlink::kFamilies) series[Of(family)] = 0;
  for (const auto& item : facts.state->*Items) {
    series[Of(item.chain.family)] += IsCounted(item) ? 1 : 0;
  }
}

void EveryErrorCode(Series& series) {
  for (int code = 1; code <= static_cast<int>(absl::StatusCode::kUnauthenticated); ++code) {
    series[Of(static_cast<absl::StatusCode>(code))] = 0;
  }
}

// Everything that can be damaged: every chain that some kubelet makes, rules in those that have
// any, and the jumps from base chains. The KEP alone defines this set.
void EveryDrift(Series& series) {
  const auto add = [&](const netlink::ChainId& chain, std::initializer_list<DamageKind> kinds) {
    for (const DamageKind kind : kinds) series[DriftOf(chain, kind)] = 0;
  };
  for (const netlink::Family family : netlink::kFamilies) {
    for (const DesiredChain& chain : EveryKubeletChain(family)) {
      add(chain.id, {DamageKind::kChainMissing});
      if (chain.rules.empty()) continue;
      add(chain.id,
          {DamageKind::kRuleMissing, DamageKind::kRuleMisplaced, DamageKind::kRuleUnwanted});
    }
    for (const DesiredJump& jump : EveryKubeletJump(family)) {
      add(jump.base_chain,
          {DamageKind::kJumpMissing, DamageKind::kRuleUnwanted, DamageKind::kTableDormant});
    }
  }
}

void Drift(const Facts& facts, Series& series) {
  if (!facts.round->incident) return;
  for (const DamagedItem& item : facts.round->incident->damage) {
    ++series[DriftOf(item.chain, item.kind)];
  }
}

Labels ForeignRuleOf(const netlink::ChainId& chain, ForeignRuleKind kind) {
  return With(Of(chain), "kind", ForeignRuleKindName(kind));
}

// Every base chain that is read.
void EveryForeignRule(Series& series) {
  for (const netlink::ChainQuery& query : ChainsToRead()) {
    const netlink::ChainId& chain = query.chain;
    if (!netlink::IsBaseChain(chain)) continue;
    for (const ForeignRuleKind kind :
         {ForeignRuleKind::kDrop, ForeignRuleKind::kReject, ForeignRuleKind::kMark}) {
      series[ForeignRuleOf(chain, kind)] = 0;
    }
    // The kernel refuses these in other tables.
    if (chain.table != netlink::Table::kNat) continue;
    series[ForeignRuleOf(chain, ForeignRuleKind::kDnat)] = 0;
    series[ForeignRuleOf(chain, ForeignRuleKind::kRedirect)] = 0;
  }
}

void NewForeignRulesOf(const Facts& facts, Series& series) {
  if (!facts.round->foreign_rules) return;
  for (const auto& [rule, count] : facts.round->foreign_rules->counts) {
    series[ForeignRuleOf(rule.first, rule.second)] = static_cast<double>(count);
  }
}

void EveryRetirable(Series& series) {
  Series every_drift;
  EveryDrift(every_drift);
  for (const auto& [drift, zero] : every_drift) {
    Labels labels = drift;
    labels.erase("kind");
    series[labels] = zero;
  }
}

void Retired(const Facts& facts, Series& series) {
  if (!facts.round->retirement || !facts.round->retirement->applied) return;
  for (const Change& change : facts.round->retirement->plan.changes) {
    ++series[Of(netlink::ChainOf(change.operation))];
  }
}

auto DuplicatesRemoved(const Round& round) {
  return absl::c_count_if(round.report.applied, [](const Change& change) {
    return std::holds_alternative<netlink::DeleteRule>(change.operation) &&
           change.reason == "duplicate";
  });
}

constexpr auto kIsChain = [](const ExistingItem& one) { return one.text == ChainText(one.chain); };

void StaleClaims(const Facts& facts, Series& series) {
  for (const Claimed& claimed : facts.state->claimed) {
    if (claimed.of_kube_proxy) continue;
    for (const Claim& claim : claimed.claims) {
      series[With(Of(claimed.item.chain), "claim", ClaimKindName(claim.kind))] = 1;
    }
  }
  series = Bounded(series);
}

void ForeignReferences(const Facts& facts, Series& series) {
  for (const auto& [chain, count] : facts.state->foreign_references) {
    series[Of(chain)] = static_cast<double>(count);
  }
  series = Bounded(series);
}

// Whether mangle/KUBE-IPTABLES-HINT is present after the round: found, or just made.
void HintPresent(const Facts& facts, Series& series) {
  const AgentState& state = *facts.state;
  const std::vector<Change>& applied = facts.round->report.applied;
  if (state.iptables_mode.empty()) return;
  for (const FamilyState& one : state.families) {
    const netlink::ChainId hint = {one.family, netlink::Table::kMangle, std::string(kHintChain)};
    const auto found = [&](const ExistingItem& item) {
      return item.chain == hint && item.text == ChainText(hint);
    };
    const auto made = [&](const Change& change) {
      const auto* created = std::get_if<netlink::CreateChain>(&change.operation);
      return created != nullptr && created->chain == hint;
    };
    series[With(Of(one.family), "mode", state.iptables_mode)] =
        absl::c_any_of(state.in_place, found) || absl::c_any_of(applied, made);
  }
}

// What the agent does not repair automatically.
void Findings(const Facts& facts, Series& series) {
  for (const netlink::Family family : netlink::kFamilies) {
    for (const ConditionRow& row : Conditions()) {
      series[With(Of(family), "condition", row.name)] = 0;
    }
  }
  for (const Finding& one : facts.state->findings) {
    if (one.repaired) continue;
    ++series[With(Of(one.chain.family), "condition", ConditionName(one.condition))];
  }
}

void EveryAuditEnd(Series& series) {
  for (const char* result : {"done", "torn", "failed"}) series[With({}, "result", result)] = 0;
}

void AuditEnd(const Facts& facts, Series& series) {
  series[With({}, "result",
              facts.audited.ok()               ? "done"
              : absl::IsAborted(facts.audited) ? "torn"
                                               : "failed")] = 1;
}

void ModeInfo(const Facts& facts, Series& series) {
  const AgentState& state = *facts.state;
  series[{{"mode", std::string(ModeName(state.mode))},
          {"emulated_version", featuregates::ToString(state.emulated_version)},
          {"iptables_mode", state.iptables_mode.empty() ? "unknown" : state.iptables_mode}}] = 1;
}

void DeprecatedFlags(const Facts& facts, Series& series) {
  for (const absl::string_view flag : kDeprecatedFlags) {
    const std::string warning = absl::StrCat("Flag --", flag, " has been deprecated");
    series[With({}, "flag", flag)] =
        absl::c_any_of(facts.config->warnings,
                       [&](const std::string& one) { return absl::StartsWith(one, warning); });
  }
}

void FeatureGates(const Facts& facts, Series& series) {
  for (const featuregates::GateState& gate : facts.config->gates.States()) {
    series[With({{"name", gate.name}}, "stage", featuregates::StageLabel(gate.stage))] =
        gate.enabled;
  }
}

constexpr MetricRow kRows[] = {
    {"build_info", "The program's version, as a label; always 1.", kGauge, kStart,
     [](const Facts& facts, Series& series) { series[With({}, "version", facts.version)] = 1; }},
    {"mode_info", "The modes in use, as labels; always 1.", kGauge, kRound, ModeInfo},

    // Rounds.
    {"syncs_total", "Rounds, successful or not.", kCounter, kRound,
     [](const Facts& /*facts*/, Series& series) { Set(series, 1); }, Zero},
    {"sync_duration_seconds", "Time of one round, from its check to the end of its repair.",
     kHistogram, kRound, Field<&Facts::round, &Round::duration>},
    {"sync_errors_total", "Rounds that ended with an error, by the code of the first error.",
     kCounter, kRound,
     [](const Facts& facts, Series& series) {
       series[Of(facts.round->report.FirstError().code())] = 1;
     },
     EveryErrorCode},
    {"last_success_timestamp_seconds",
     "When a round last ended without an error, since the epoch; 0 before the first.", kGauge,
     kRound, Field<&Facts::state, &AgentState::last_success>, Zero},
    {"events_overrun_total", "Events that the kernel could not deliver; a check followed each.",
     kCounter, kRound, Field<&Facts::round, &Round::lost_events>, Zero},
    {"external_changes_total", "Commits of other programs that the agent noticed.", kCounter,
     kRound, Field<&Facts::round, &Round::external_changes>, Zero},
    {"lock_wait_seconds", "Time spent waiting for the lock of iptables-legacy.", kHistogram,
     kLockWait, [](const Facts& facts, Series& series) { Set(series, facts.lock_wait); }},
    {"family_ready", "Whether the family is ready.", kGauge, kRound,
     [](const Facts& facts, Series& series) {
       for (const FamilyState& one : facts.state->families) {
         series[Of(one.family)] = RowOf(one.phase).ready;
       }
     }},

    // Damage and its repair.
    {"drift_detected_total",
     "Damage by other programs to what was in place, by chain and kind, without refills.", kCounter,
     kRound, Drift, EveryDrift},
    {"repair_latency_seconds", "Time from the notice of damage to the commit of its repair.",
     kHistogram, kRound,
     [](const Facts& facts, Series& series) {
       if (facts.round->incident) Set(series, facts.round->incident->latency);
     }},
    {"refills_total", "Rules put back into KUBE-FIREWALL after kube-proxy emptied it on a sync.",
     kCounter, kRound, Field<&Facts::round, &Round::refills>, Zero},
    {"duplicates_removed_total", "Duplicate rules and jumps that the agent removed.", kCounter,
     kRound, Field<&Facts::round, DuplicatesRemoved>, Zero},
    {"ownership_fights_total", "Fights that began: another program undoes repairs again and again.",
     kCounter, kRound, Field<&Facts::round, &Round::fights_begun>, Zero},
    {"ownership_fights",
     "Rules and chains that another program keeps undoing now, by chain. At most 12 series; the "
     "rest is chain Other.",
     kGauge, kRound,
     [](const Facts& facts, Series& series) {
       for (const Fight& fight : facts.state->fights) ++series[Of(fight.chain)];
       series = Bounded(series);
     }},
    {"pending_changes",
     "Changes that the last check found necessary and did not make, because of --observe or a "
     "fight.",
     kGauge, kRound,
     [](const Facts& facts, Series& series) {
       for (const auto& one : facts.state->families) series[Of(one.family)] = one.pending_changes;
     }},

    // What is present in the kernel.
    {"findings", "Findings of the last check, by condition, without those that the agent repairs.",
     kGauge, kRound, Findings},
    {"shadowed_jumps", "Jumps without effect, because they are below a rule that no packet passes.",
     kGauge, kCheckDone,
     CountByFamily<&AgentState::findings,
                   [](const Finding& one) {
                     return !one.repaired && one.condition == Condition::kShadowedJump;
                   }>},
    {"hint_present", "Whether mangle/KUBE-IPTABLES-HINT exists in the iptables mode in use.",
     kGauge, kCheckDone, HintPresent},
    {"martian_rule_present",
     "Whether the rule that keeps neighbours from 127.0.0.1 exists (CVE-2020-8558).", kGauge,
     kCheckDone, Field<&Facts::state, &AgentState::martian_protection>, Zero},
    {"martian_dropped_packets_total",
     "Packets that the martian rule dropped, as of each check of this process. A removed rule "
     "loses those since the last check.",
     kTotal, kRound, Field<&Facts::state, &AgentState::martians_dropped>, Zero},
    {"route_localnet_exposed",
     "Whether the kernel accepts packets for 127.0.0.0/8 from neighbours (route_localnet) and no "
     "rule drops them.",
     kGauge, kRound,
     Field<&Facts::state, [](const AgentState& state) { return !ExposedBecause(state).empty(); }>,
     Zero},

    {"foreign_rules_total",
     "New rules of other programs in base chains that drop, reject or redirect packets or set the "
     "whole mark, without those of --expected-rules.",
     kCounter, kRound, NewForeignRulesOf, EveryForeignRule},

    // What is stale.
    {"stale_chains", "Kubelet's chains that are not desired, and that are kept.", kGauge,
     kCheckDone,
     // The rules in them and jumps to them are not counted.
     CountByFamily<&AgentState::stale, kIsChain>},
    {"kube_proxy_chains",
     "Kubelet's chains that are not desired, and that kube-proxy uses as its own.", kGauge,
     kCheckDone, CountByFamily<&AgentState::of_kube_proxy, kIsChain>},
    {"stale_claims",
     "Claims on stale chains, by chain and kind: why they are kept. At most 12 series; the rest is "
     "chain Other. Only with --stale-chains=retire.",
     kGauge, kRound, StaleClaims},
    {"foreign_references",
     "Rules of other programs, except kube-proxy, that jump to kubelet's chains, at the last "
     "reading of all rules. At most 12 series; the rest is chain Other. Only with "
     "--stale-chains=retire.",
     kGauge, kRound, ForeignReferences},
    {"retired_total", "Kubelet's chains, rules and jumps that were stale, unused, and removed.",
     kCounter, kRound, Retired, EveryRetirable},

    // Audits in the background.
    {"audit_findings",
     "Errors and warnings of the last audit, by the change that they are about, their kind, the "
     "chain and the rules' owner. At most 12 series, errors first; the rest is kind Other.",
     kGauge, kAudit, [](const Facts& facts, Series& series) { series = facts.audit->series; }},
    {"audit_last_success_timestamp_seconds",
     "When an audit last ended, since the epoch; 0 before the first, and where they are off.",
     kGauge, kAudit, Field<&Facts::audit, &NodeAudit::time>, Zero},
    {"audits_total",
     "Audits, by how they ended: done; torn, because other programs kept changing the rules; or "
     "failed.",
     kCounter, kAuditEnd, AuditEnd, EveryAuditEnd},
    {"audit_period_seconds", "The time between two audits (--audit-period); 0: there are none.",
     kGauge, kConfig, Field<&Facts::config, &Config::audit_period>, Zero},

    // The configuration.
    {"observing", "Whether the agent only checks and plans, and writes nothing (--observe).",
     kGauge, kConfig, Field<&Facts::config, &Config::observe>, Zero},
    {"sync_period_seconds", "The longest time between two checks (--iptables-sync-period).", kGauge,
     kConfig, Field<&Facts::config, &Config::iptables_sync_period>, Zero},
    {"config_last_reload_successful",
     "Whether the running configuration is the one that was last read.", kGauge, kReload,
     [](const Facts& facts, Series& series) { Set(series, facts.config != nullptr); }, Zero},
    {"deprecated_flag_in_use", "Whether the flag is given and has no effect.", kGauge, kConfig,
     DeprecatedFlags},
    {"kubernetes_feature_enabled", "Whether a feature gate is enabled, by its name and stage.",
     kGauge, kConfig, FeatureGates},

    // Connection tracking.
    {"conntrack_entries", "Entries of connection tracking in the network namespace.", kGauge,
     kScrape, Field<&Facts::conntrack, &ConntrackCounters::entries>},
    {"conntrack_limit", "The most entries that there can be (nf_conntrack_max).", kGauge, kScrape,
     Field<&Facts::conntrack, &ConntrackCounters::limit>},
    {"conntrack_dropped_total",
     "Packets that the kernel dropped because connection tracking was full or out of memory.",
     kTotal, kScrape, Field<&Facts::conntrack, &ConntrackCounters::dropped>},
    {"conntrack_early_dropped_total",
     "Entries that the kernel removed before their time, because connection tracking was full.",
     kTotal, kScrape, Field<&Facts::conntrack, &ConntrackCounters::early_dropped>},

    // The process.
    {"log_lines_dropped_total",
     "Log lines that the reader of standard error did not read within 10 ms.", kTotal, kScrape,
     [](const Facts& facts, Series& series) { Set(series, facts.log_lines_dropped); }, Zero},
    {"process_start_time_seconds", "Start time of the process since the epoch in seconds.", kGauge,
     kScrape, Field<&Facts::usage, &ProcessUsage::start_time_seconds>},
    {"process_cpu_seconds_total", "User and system CPU time spent, in seconds.", kTotal, kScrape,
     Field<&Facts::usage, &ProcessUsage::cpu_seconds>},
    {"process_resident_memory_bytes", "Resident memory, in bytes.", kGauge, kScrape,
     Field<&Facts::usage, &ProcessUsage::resident_bytes>},
    {"process_open_fds", "Number of open file descriptors.", kGauge, kScrape,
     Field<&Facts::usage, &ProcessUsage::open_fds>},
};

}  // namespace

constinit const absl::Span<const MetricRow> kMetricRows = kRows;

}  // namespace kipt::agent
