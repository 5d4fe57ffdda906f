// SPDX-License-Identifier: Apache-2.0
#include "agent/endpoints/endpoints.h"

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "agent/config/settings.h"
#include "agent/config/value_texts.h"
#include "agent/endpoints/conntrack.h"
#include "agent/endpoints/metrics.h"
#include "agent/report/report.h"
#include "agent/text/printable.h"

namespace kipt::agent {
namespace {

// How late the event loop may be before the process counts as hung. At rest it turns every
// --iptables-sync-period.
constexpr absl::Duration kHeartbeatLimit = absl::Minutes(2);

constexpr absl::Duration kListenAgainAfter = absl::Seconds(5);

constexpr absl::string_view kForPeople =
    "For people who search for a fault. Not for programs: any release may change it.\n\n";

// "2026-01-31T23:59:58Z"; "never" for the infinite past.
std::string TimeText(absl::Time time) {
  if (time == absl::InfinitePast()) return "never";
  return absl::FormatTime("%Y-%m-%dT%H:%M:%SZ", time, absl::UTCTimeZone());
}

struct Check {
  absl::string_view name;
  std::string failure = {};
  // Printed where the check passes.
  std::string note = {};
};

HttpReply NoSuchPath() { return {.status = 404, .body = "no such path; / lists the paths\n"}; }

// As components of Kubernetes answer: all checks, without those of ?exclude=NAME, or one check, as
// in /readyz/ip.
HttpReply ChecksReply(absl::string_view endpoint, const HttpRequest& request,
                      std::vector<Check> checks, int failure) {
  absl::string_view name = request.path;
  if (absl::ConsumePrefix(&name, absl::StrCat("/", endpoint, "/"))) {
    std::erase_if(checks, [name](const Check& check) { return check.name != name; });
    if (checks.empty()) return NoSuchPath();
  }
  HttpReply reply;
  for (const Check& check : checks) {
    if (absl::c_linear_search(request.excluded, check.name)) {
      AppendLine(reply.body, "[+]", check.name, " excluded: ok");
      continue;
    }
    const bool failed = !check.failure.empty();
    if (failed) reply.status = failure;
    AppendLine(reply.body, failed ? "[-]" : "[+]", check.name, failed ? " failed: " : " ok",
               check.failure, failed || check.note.empty() ? "" : ": ", failed ? "" : check.note);
  }
  for (const std::string& excluded : request.excluded) {
    if (absl::c_any_of(checks, [&](const Check& check) { return check.name == excluded; }))
      continue;
    AppendLine(reply.body, "warn: some health checks cannot be excluded: no matches for ",
               QuoteForMessage(excluded));
  }
  const bool passed = reply.status == 200;
  if (passed && !request.verbose) return {.body = "ok"};
  absl::StrAppend(&reply.body, endpoint, " check ", passed ? "passed" : "failed", "\n");
  return reply;
}

// "readyz" of "/readyz" and of "/readyz/ip".
absl::string_view EndpointOf(absl::string_view path) {
  absl::ConsumePrefix(&path, "/");
  return path.substr(0, path.find('/'));
}

// Empty where `text` is.
std::string Prefixed(absl::string_view prefix, absl::string_view text) {
  return text.empty() ? "" : absl::StrCat(prefix, text);
}

Check LoopCheck(absl::Duration silence, absl::Duration limit) {
  if (silence <= limit) return {.name = "loop"};
  const bool never = silence == absl::InfiniteDuration();
  return {.name = "loop",
          .failure = never ? "the event loop has not run yet"
                           : absl::StrCat("the event loop has not run for ",
                                          absl::ToInt64Seconds(silence), " s")};
}

Check FamilyCheck(const FamilyState& family) {
  const std::string since = absl::StrCat("since ", TimeText(family.since), ", ");
  Check check = {.name = netlink::FamilyName(family.family),
                 .failure = Prefixed(since, NotReadyBecause(family))};
  if (family.phase != FamilyPhase::kInPlace) {
    check.note = absl::StrCat(FamilyPhaseName(family.phase), " ", since, family.reason);
  }
  return check;
}

std::string UpText(absl::Duration up) {
  const int64_t seconds = std::max<int64_t>(0, absl::ToInt64Seconds(up));
  return absl::StrFormat("%d hr %02d min %02d sec", seconds / 3600, seconds / 60 % 60,
                         seconds % 60);
}

void AppendFamilies(const AgentState& state, std::string& out) {
  out += "\nFamilies:\n";
  for (const FamilyState& family : state.families) {
    AppendLine(out, "  ", netlink::FamilyName(family.family), ": ", FamilyPhaseName(family.phase),
               " since ", TimeText(family.since), family.reason.empty() ? "" : ", ", family.reason);
  }
}

void AppendFindings(const DaemonState& state, std::string& out) {
  absl::StrAppend(&out, "\nFindings: ", state.findings.size(), "\n");
  for (const Finding& finding : state.findings) {
    AppendLine(out, "  [", SeverityName(SeverityOf(finding.condition)), "] ",
               ConditionName(finding.condition), " in ", netlink::ToString(finding.chain),
               finding.repaired ? " (repaired): " : ": ", finding.message);
  }
  if (!state.recent.blockers.empty())
    out += "Who wrote the last of other programs' rules among them:\n";
  for (const std::string& blocker : state.recent.blockers) AppendLine(out, "  ", blocker);
}

void AppendFights(const AgentState& state, std::string& out) {
  absl::StrAppend(&out, "\nFights: ", state.fights.size(), "\n");
  for (const Fight& fight : state.fights) {
    AppendLine(out, "  ", netlink::ToString(fight.chain), ": ", fight.item, " undone ",
               fight.rounds, " times since ", TimeText(fight.since), ", next repair after ",
               absl::FormatDuration(fight.wait), "; by ", ToString(fight.by));
  }
}

std::string MartianText(const AgentState& state) {
  const std::string exposed = ExposedBecause(state);
  if (!exposed.empty()) return absl::StrCat("EXPOSED: ", exposed);
  return absl::StrCat(
      state.martian_protection ? "a rule drops them"
      : state.martians_dropped_elsewhere.empty()
          ? "no rule, none is needed"
          : absl::StrCat("no rule of kubelet's; dropped by ", state.martians_dropped_elsewhere),
      ", ", state.martians_dropped, " dropped since the start",
      state.route_localnet.empty() ? "" : absl::StrCat(", ", ToString(state.route_localnet)));
}

// What no program uses is not here: it was retired, or retiring is off.
void AppendStale(const AgentState& state, std::string& out) {
  absl::StrAppend(&out, "\nStale, and kept: ", state.stale.size(),
                  state.stale.empty() ? "\n" : " (kube-iptables-agent status lists them)\n");
  for (const Claimed& claimed : state.claimed) {
    if (claimed.of_kube_proxy) continue;
    AppendLine(out, "  ", netlink::ToString(claimed.item.chain), ": ", claimed.item.text, ": ",
               ToString(claimed.claims));
  }
  if (state.of_kube_proxy.empty()) return;
  absl::StrAppend(&out, "\nkube-proxy's, and not stale: ", state.of_kube_proxy.size(),
                  " (kube-iptables-agent status lists them)\n");
}

void AppendConntrack(const DaemonState& state, const std::optional<ConntrackCounters>& counters,
                     std::string& out) {
  if (!counters) return;
  absl::StrAppend(&out, "\nConnection tracking: ", counters->entries, " of ", counters->limit,
                  " entries\n");
  if (!state.conntrack_report.empty()) AppendLine(out, "  ", state.conntrack_report);
}

std::string StatuszText(const DaemonState& state, absl::string_view version, absl::Time now,
                        const std::optional<ConntrackCounters>& conntrack) {
  std::string out = absl::StrCat(
      "kube-iptables-agent statusz\n", kForPeople, "Started: ", TimeText(state.started),
      "\nUp: ", UpText(now - state.started), "\nVersion: ", version,
      "\nEmulated version: ", featuregates::ToString(state.emulated_version),
      "\nMode: ", ModeName(state.mode),
      state.observing ? ", observed only: nothing is written" : "",
      "\niptables mode: ", state.iptables_mode.empty() ? "not known yet" : state.iptables_mode,
      "\nWatching: ", state.watching.empty() ? "not yet" : Printable(state.watching),
      "\nReady: ", IsReady(state) ? "yes" : "no", "\nLast check: ", TimeText(state.last_check),
      "\nLast success: ", TimeText(state.last_success), "\nChecks: ", state.checks,
      "\nMartian packets: ", Printable(MartianText(state)), "\nConfiguration: ",
      state.config_problem.empty()
          ? "as on disk"
          : absl::StrCat("not as on disk: ", Printable(state.config_problem)),
      "\n");
  if (!state.must_restart.empty()) AppendLine(out, "Must restart: ", state.must_restart);
  AppendFamilies(state, out);
  AppendFindings(state, out);
  AppendFights(state, out);
  AppendStale(state, out);
  AppendConntrack(state, conntrack, out);
  absl::StrAppend(&out, "\nUnexpected rules of other programs: ",
                  state.foreign_rules ? absl::StrCat(*state.foreign_rules) : "not reported", "\n");
  for (const std::string& news : state.recent.foreign_rules) AppendLine(out, "  ", news);
  absl::StrAppend(&out, "\nIncidents: ", state.incidents, "\n");
  for (const std::string& incident : state.recent.incidents) AppendLine(out, "  ", incident);
  return out;
}

std::string FlagzText(const Flags& flags) {
  std::string out = absl::StrCat("kube-iptables-agent flags\n", kForPeople);
  for (const Setting* setting : SettingsByFlag()) {
    if (!setting->only_for.empty()) continue;
    AppendLine(out, setting->flag, "=", FlagText(*setting, flags));
  }
  return out;
}

HttpReply ReadyzReply(const HttpRequest& request, const DaemonState& state, absl::Duration silence,
                      absl::Duration limit) {
  std::vector<Check> checks = {LoopCheck(silence, limit),
                               // The agent keeps the configuration that it had.
                               {.name = "config",
                                .failure = Prefixed("must restart: ", state.must_restart),
                                .note = Prefixed("not reloaded: ", state.config_problem)}};
  for (const FamilyState& family : state.families) checks.push_back(FamilyCheck(family));
  checks.push_back({.name = "martians", .failure = ExposedBecause(state)});
  // Rules are kept all the same.
  if (!state.listen_problem.empty()) {
    checks.push_back({.name = "listening", .note = state.listen_problem});
  }
  if (state.families.empty()) {
    checks.push_back({.name = "families", .failure = "none is known"});
  }
  return ChecksReply("readyz", request, std::move(checks), 503);
}

}  // namespace

Endpoints::Endpoints(Setup setup, DaemonState state) : setup_(std::move(setup)) {
  Publish(std::move(state));
}

void Endpoints::Publish(DaemonState state) {
  // Every local user can read it over TCP, and /proc may hide other users' arguments (hidepid).
  for (Fight& fight : state.fights) fight.by = WithoutCommandLines(std::move(fight.by));
  const absl::Duration age = std::max(absl::ZeroDuration(), setup_.now() - state.heartbeat);
  const std::lock_guard<std::mutex> lock(mutex_);
  // The age of an earlier one is wrong once the clock was set.
  if (state.heartbeat != state_.heartbeat) heartbeat_ = setup_.steady_now() - age;
  state_ = std::move(state);
}

void Endpoints::SetConfig(Config config) {
  const std::lock_guard<std::mutex> lock(mutex_);
  setup_.config = std::move(config);
}

void Endpoints::PublishAudit(std::shared_ptr<const NodeAudit> audit) {
  const std::lock_guard<std::mutex> lock(mutex_);
  audit_ = std::move(audit);
}

HttpReply Endpoints::IndexOr404(const HttpRequest& request) const {
  if (request.path != "/") return NoSuchPath();
  const auto shown = [](const std::string& address) {
    return address.empty() ? "switched off" : address;
  };
  return {.body = absl::StrCat("health (", shown(setup_.config.healthz_bind_address),
                               "):\n  /healthz\n  /livez\n  /readyz\nmetrics (",
                               shown(setup_.config.metrics_bind_address),
                               "):\n  /auditz\n  /configz\n  /flagz\n  /metrics\n  /statusz\n")};
}

HttpReply Endpoints::Health(const HttpRequest& request) const {
  const std::lock_guard<std::mutex> lock(mutex_);
  const absl::Duration silence = setup_.steady_now() - heartbeat_;
  const absl::Duration limit = setup_.config.iptables_sync_period + kHeartbeatLimit;
  const absl::string_view endpoint = EndpointOf(request.path);
  if (endpoint == "readyz") return ReadyzReply(request, state_, silence, limit);
  if (endpoint == "livez" || endpoint == "healthz") {
    return ChecksReply(endpoint, request, {LoopCheck(silence, limit)}, 500);
  }
  return IndexOr404(request);
}

HttpReply Endpoints::Inspect(const HttpRequest& request) const {
  if (request.path == "/metrics") {
    return {.content_type = kMetricsContentType, .body = setup_.metrics()};
  }
  std::unique_lock<std::mutex> lock(mutex_);
  if (request.path == "/statusz") {
    // A copy, so that Publish need not wait while it is formatted.
    const DaemonState state = state_;
    lock.unlock();
    return {.body = StatuszText(state, setup_.version, setup_.now(), setup_.conntrack())};
  }
  if (request.path == "/auditz") {
    const std::shared_ptr<const NodeAudit> audit = audit_;
    const bool off = setup_.config.audit_period == absl::ZeroDuration();
    lock.unlock();
    const NodeAudit none;
    if (request.json) {
      return {.content_type = "application/json", .body = NodeAuditJson(audit ? *audit : none)};
    }
    return {.body = absl::StrCat(
                "kube-iptables-agent auditz\n", kForPeople,
                off ? "Off: --audit-period is 0.\n" : NodeAuditText(audit ? *audit : none))};
  }
  if (request.path == "/flagz") return {.body = FlagzText(setup_.flags)};
  if (request.path == "/configz") {
    return {.content_type = "application/json", .body = ConfigJson(setup_.config)};
  }
  return IndexOr404(request);
}

ServedAddresses::ServedAddresses(EventLoop& loop, std::vector<Endpoint> endpoints,
                                 Handlers handlers)
    : loop_(loop), handlers_(std::move(handlers)) {
  for (Endpoint& endpoint : endpoints) slots_.push_back({.endpoint = std::move(endpoint)});
}

void ServedAddresses::Listen(std::vector<OwnedFd> passed) {
  for (OwnedFd& fd : passed) Adopt(std::move(fd));
  for (Slot& slot : slots_) {
    if (slot.server != nullptr) continue;
    absl::StatusOr<std::unique_ptr<HttpServer>> server = HttpServer::Bind(slot.endpoint.address);
    if (server.ok()) {
      slot.server = *std::move(server);
    } else {
      Fail(slot, server.status());
    }
  }
}

void ServedAddresses::Warn(const std::string& sentence) const {
  handlers_.notice(absl::LogSeverity::kWarning, sentence);
}

void ServedAddresses::Adopt(OwnedFd fd) {
  absl::StatusOr<std::unique_ptr<HttpServer>> adopted = HttpServer::Adopt(std::move(fd));
  if (!adopted.ok()) {
    return Warn(
        absl::StrCat("A socket that systemd passed is not used: ", adopted.status().message()));
  }
  const std::string& address = (*adopted)->address();
  for (Slot& slot : slots_) {
    if (ToString(ParseBindAddress(slot.endpoint.address).value_or(BindAddress())) == address) {
      slot.server = *std::move(adopted);
      return;
    }
  }
  Warn(absl::StrCat("The socket ", address,
                    ", which systemd passed, is not used: no such address is configured; change "
                    "ListenStream= of the .socket unit"));
}

void ServedAddresses::Serve() {
  for (Slot& slot : slots_) {
    if (slot.server == nullptr || slot.serves) continue;
    if (absl::Status status = slot.server->Serve(slot.endpoint.handler); !status.ok()) {
      slot.server.reset();
      Fail(slot, status);
      continue;
    }
    slot.serves = true;
    slot.failure = absl::OkStatus();
    handlers_.notice(absl::LogSeverity::kInfo,
                     absl::StrCat("Listening on http://", slot.server->address()));
  }
  if (problem().empty()) return;
  // Not again, as its own handler comes here.
  if (timer_ == nullptr) {
    timer_ = loop_.AddTimer([this] {
      const std::string before = problem();
      Listen({});
      Serve();
      if (problem() != before) handlers_.changed();
    });
  }
  timer_->FireAfter(kListenAgainAfter);
}

std::string ServedAddresses::problem() const {
  std::vector<absl::string_view> problems;
  for (const Slot& slot : slots_) {
    if (!slot.failure.ok()) problems.push_back(slot.failure.message());
  }
  return absl::StrJoin(problems, "; ");
}

void ServedAddresses::Fail(Slot& slot, const absl::Status& status) {
  if (status == slot.failure) return;
  slot.failure = status;
  Warn(absl::StrCat(status.message(),
                    "; rules are kept in place without this address, which is retried every ",
                    absl::FormatDuration(kListenAgainAfter)));
}

}  // namespace kipt::agent
