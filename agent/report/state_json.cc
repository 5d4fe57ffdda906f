// SPDX-License-Identifier: Apache-2.0
//
// The agent's state and its events as JSON.
#include <algorithm>
#include <cstddef>
#include <utility>

#include "agent/report/json_parts.h"
#include "agent/report/report.h"
#include "featuregates/feature.h"

namespace kipt::agent {
namespace {

// At first; FittingLine reduces it step by step.
constexpr size_t kMostListed = 64;

// Nothing is null.
Json TimeJson(absl::Time time) {
  if (time == absl::InfinitePast()) return nullptr;
  return absl::FormatTime("%Y-%m-%dT%H:%M:%E3SZ", time, absl::UTCTimeZone());
}

template <typename T>
std::vector<T> First(const std::vector<T>& items, size_t most) {
  return {items.begin(), items.begin() + static_cast<ptrdiff_t>(std::min(most, items.size()))};
}

// {"writers": [...], "otherWriters": ...}, with `rest` after it.
Json ByJson(const Suspected& by, size_t most, const Json& rest) {
  const auto writer_json = [](const Writer& writer) {
    return Json{{"pid", writer.pid},
                {"command", writer.command},
                {"unit", writer.unit},
                {"parentPid", writer.parent_pid},
                {"parentCommand", writer.parent_command}};
  };
  Json json = {{"writers", List(First(by.writers, most), writer_json)},
               {"otherWriters", by.others || by.writers.size() > most}};
  json.update(rest);
  return json;
}

Json FamilyStateJson(const FamilyState& family) {
  return {{"family", netlink::FamilyName(family.family)},
          {"phase", RowOf(family.phase).id},
          {"since", TimeJson(family.since)},
          {"reason", family.reason},
          {"pendingChanges", family.pending_changes}};
}

Json FightJson(const Fight& fight, size_t most) {
  return AboutChain(fight.chain,
                    ByJson(fight.by, most,
                           {{"text", fight.item},
                            {"missing", fight.missing},
                            {"rounds", fight.rounds},
                            {"since", TimeJson(fight.since)},
                            {"waitMilliseconds", absl::ToInt64Milliseconds(fight.wait)}}));
}

Json FightsJson(const std::vector<Fight>& fights, size_t most) {
  return List(First(fights, most), [most](const Fight& fight) { return FightJson(fight, most); });
}

Json JumpJson(const ForeignJump& jump) {
  return AboutChain(jump.base_chain, {{"target", jump.target}});
}

Json NewForeignRulesJson(const NewForeignRules& news, size_t most) {
  NewForeignRules shown = news;
  shown.rules.resize(std::min(most, shown.rules.size()));
  shown.by = WithoutCommandLines(std::move(shown.by));
  const auto rule_json = [](const ForeignRule& rule) {
    return AboutChain(rule.base_chain,
                      {{"kind", ForeignRuleKindName(rule.kind)}, {"text", rule.text}});
  };
  const auto count_json = [](const auto& entry) {
    const auto& [where, count] = entry;
    return AboutChain(where.first, {{"kind", ForeignRuleKindName(where.second)}, {"count", count}});
  };
  return ByJson(
      shown.by, most,
      {{"rules", List(shown.rules, rule_json)}, {"counts", List(news.counts, count_json)}});
}

Json LostProxyJumpsJson(const LostProxyJumps& lost, size_t most) {
  return ByJson(lost.by, most, {{"jumps", List(First(lost.jumps, most), JumpJson)}});
}

Json NewBlockersJson(const std::vector<Blocker>& blockers, size_t most) {
  return List(First(blockers, most), [most](const Blocker& blocker) {
    return ByJson(blocker.by, most, FindingsJson({blocker.finding})[0]);
  });
}

Json Document(absl::string_view kind) {
  return {{"apiVersion", kReportApiVersion}, {"kind", kind}};
}

}  // namespace

std::string Line(const Json& json) {
  return json.dump(-1, ' ', /*ensure_ascii=*/true, Json::error_handler_t::replace);
}

std::string FittingLine(size_t most_bytes, absl::FunctionRef<Json(size_t most)> make) {
  for (size_t most = kMostListed;; most /= 2) {
    std::string line = Line(make(most));
    if (line.size() <= most_bytes || most == 0) return line;
  }
}

Json IncidentJson(absl::Time time, const Incident& incident, size_t most) {
  Incident shown = incident;
  shown.damage = First(incident.damage, most);
  shown.lost_jumps = First(incident.lost_jumps, most);
  shown.by = WithoutCommandLines(std::move(shown.by));
  shown.by.writers = First(shown.by.writers, most);
  const auto damage_json = [](const DamagedItem& item) {
    return AboutChain(item.chain, {{"kind", DamageKindName(item.kind)}, {"text", item.text}});
  };
  Json json = {{"time", TimeJson(time)},
               {"repairMicroseconds", absl::ToInt64Microseconds(incident.latency)}};
  json.update(ByJson(incident.by, most,
                     {{"damage", List(shown.damage, damage_json)},
                      {"damageCount", incident.damage.size()},
                      {"lostJumps", List(shown.lost_jumps, JumpJson)},
                      // Repeats the lists.
                      {"text", ToString(shown)}}));
  return json;
}

std::string DaemonStateJson(const DaemonState& state) {
  constexpr size_t kAll = static_cast<size_t>(-1);
  const auto family_json = [](const FamilyState& family) {
    Json json = FamilyStateJson(family);
    json["notReadyBecause"] = NotReadyBecause(family);
    return json;
  };
  const auto reference_json = [](const auto& entry) {
    return AboutChain(entry.first, {{"count", entry.second}});
  };
  Json json = Document("State");
  json.update({{"ready", IsReady(state)},
               {"reason", StatusLine(state)},
               {"started", TimeJson(state.started)},
               {"emulatedVersion", featuregates::ToString(state.emulated_version)},
               {"mode", ModeName(state.mode)},
               {"observing", state.observing},
               {"iptablesMode", state.iptables_mode},
               {"watching", state.watching},
               {"families", List(state.families, family_json)},
               {"findings", FindingsJson(state.findings)},
               {"inPlace", ExistingJson(state.in_place)},
               {"stale", ExistingJson(state.stale)},
               {"ofKubeProxy", ExistingJson(state.of_kube_proxy)},
               {"kept", List(state.claimed, KeptJson)},
               {"foreignReferences", List(state.foreign_references, reference_json)},
               {"fights", FightsJson(state.fights, kAll)},
               {"martians", MartiansJson(state.martian_protection, state.martians_dropped,
                                         state.martians_dropped_elsewhere, state.route_localnet)},
               {"lastCheck", TimeJson(state.last_check)},
               {"lastSuccess", TimeJson(state.last_success)},
               {"heartbeat", TimeJson(state.heartbeat)},
               {"checks", state.checks},
               {"incidentCount", state.incidents},
               {"recentIncidents", state.recent.incidents},
               {"foreignRuleCount", state.foreign_rules},
               {"recentForeignRules", state.recent.foreign_rules},
               {"recentBlockers", state.recent.blockers},
               {"configProblem", state.config_problem},
               {"listenProblem", state.listen_problem},
               {"conntrackReport", state.conntrack_report},
               {"mustRestart", state.must_restart}});
  return Line(json);
}

std::string EventJson(absl::Time time, const Event& event, size_t most_bytes) {
  return FittingLine(most_bytes, [&](size_t most) {
    Json json = Document("Event");
    json.update({{"time", TimeJson(time)},
                 {"trigger", TriggerName(event.trigger)},
                 {"durationMicroseconds", absl::ToInt64Microseconds(event.duration)},
                 {"incident", nullptr},
                 {"lostProxyJumps", nullptr},
                 {"refills", event.refills},
                 {"fightsBegun", FightsJson(event.fights_begun, most)},
                 {"fightsEnded", FightsJson(event.fights_ended, most)},
                 {"newForeignRules", nullptr},
                 {"newBlockers", NewBlockersJson(event.new_blockers, most)},
                 {"changedFamilies", List(event.changed_families, FamilyStateJson)}});
    if (event.incident) json["incident"] = IncidentJson(time, *event.incident, most);
    if (event.lost_proxy_jumps) {
      json["lostProxyJumps"] = LostProxyJumpsJson(*event.lost_proxy_jumps, most);
    }
    if (event.foreign_rules) {
      json["newForeignRules"] = NewForeignRulesJson(*event.foreign_rules, most);
    }
    return json;
  });
}

}  // namespace kipt::agent
