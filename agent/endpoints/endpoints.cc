// SPDX-License-Identifier: Apache-2.0
#include "agent/endpoints/endpoints.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "agent/endpoints/metrics.h"
#include "agent/endpoints/statusz.h"
#include "agent/loop/clock.h"
#include "agent/report/report.h"
#include "featuregates/printable.h"

namespace kipt::agent {
namespace {

constexpr absl::string_view kHealthPaths[] = {"/healthz", "/livez", "/readyz"};
constexpr absl::string_view kInspectPaths[] = {"/configz", "/flagz", "/metrics", "/statusz"};

struct Check {
  absl::string_view name;
  bool passed = true;
  // Why not; or what there is to say all the same.
  std::string reason = {};
};

HttpReply ChecksReply(absl::string_view endpoint, const HttpRequest& request,
                      const std::vector<Check>& checks, int failure) {
  const bool passed =
      std::all_of(checks.begin(), checks.end(), [](const Check& check) { return check.passed; });
  if (passed && !request.verbose) return {.body = "ok"};
  HttpReply reply = {.status = passed ? 200 : failure, .body = ""};
  for (const Check& check : checks) {
    featuregates::AppendLine(reply.body, check.passed ? "[+]" : "[-]", check.name,
                             check.passed ? " ok" : " failed", check.reason.empty() ? "" : ": ",
                             check.reason);
  }
  absl::StrAppend(&reply.body, endpoint, " check ", passed ? "passed" : "failed", "\n");
  return reply;
}

Check LoopCheck(absl::Duration silence, absl::Duration limit) {
  if (silence <= limit) return {.name = "loop"};
  return {.name = "loop",
          .passed = false,
          .reason = silence == absl::InfiniteDuration()
                        ? "the event loop has not turned yet"
                        : absl::StrCat("the event loop has not turned for ",
                                       absl::ToInt64Seconds(silence), " s")};
}

Check FamilyCheck(const AgentState& state, const FamilyState& family) {
  const std::string why = NotReadyBecause(state, family);
  const std::string since = absl::StrCat("since ", TimeText(family.since), ", ");
  Check check = {.name = netlink::FamilyName(family.family), .passed = why.empty()};
  if (!why.empty()) {
    check.reason = absl::StrCat(since, why);
  } else if (family.phase != FamilyPhase::kInPlace) {
    check.reason = absl::StrCat(FamilyPhaseName(family.phase), " ", since, family.reason);
  }
  return check;
}

Check ConfigCheck(const AgentState& state) {
  if (!state.must_restart.empty()) {
    return {.name = "config",
            .passed = false,
            .reason = absl::StrCat("must restart: ", state.must_restart)};
  }
  // The agent goes on with the configuration it had.
  return {.name = "config",
          .reason = state.config_problem.empty()
                        ? ""
                        : absl::StrCat("not reloaded: ", state.config_problem)};
}

Check MartianCheck(const AgentState& state) {
  std::string exposed = ExposedBecause(state);
  const bool passed = exposed.empty();
  return {.name = "martians", .passed = passed, .reason = std::move(exposed)};
}

HttpReply NotFound() { return {.status = 404, .body = "no such path; / lists those there are\n"}; }

void AppendPaths(absl::string_view title, const std::string& address,
                 absl::Span<const absl::string_view> paths, std::string& out) {
  absl::StrAppend(&out, title, " (", address.empty() ? "switched off" : address, "):\n");
  for (const absl::string_view path : paths) absl::StrAppend(&out, "  ", path, "\n");
}

}  // namespace

EndpointClock SystemEndpointClock() {
  return {.now = [] { return absl::Now(); }, .steady = SteadyNow};
}

HttpReply LivezReply(const HttpRequest& request, absl::Duration silence, absl::Duration limit) {
  return ChecksReply(request.path == "/healthz" ? "healthz" : "livez", request,
                     {LoopCheck(silence, limit)}, 500);
}

HttpReply ReadyzReply(const HttpRequest& request, const AgentState& state, absl::Duration silence,
                      absl::Duration limit) {
  std::vector<Check> checks = {LoopCheck(silence, limit), ConfigCheck(state)};
  for (const FamilyState& family : state.families) checks.push_back(FamilyCheck(state, family));
  checks.push_back(MartianCheck(state));
  // The rules do not depend on it.
  if (!state.listen_problem.empty()) {
    checks.push_back({.name = "listening", .reason = state.listen_problem});
  }
  if (state.families.empty()) {
    checks.push_back({.name = "families", .passed = false, .reason = "none is known"});
  }
  return ChecksReply("readyz", request, checks, 503);
}

Endpoints::Endpoints(Setup setup, AgentState state)
    : version_(std::move(setup.version)),
      flags_(std::move(setup.flags)),
      metrics_(std::move(setup.metrics)),
      heartbeat_limit_(setup.heartbeat_limit),
      clock_(std::move(setup.clock)),
      shown_(MakeShown(std::move(state))),
      config_(std::make_shared<const Config>(std::move(setup.config))) {}

std::shared_ptr<const Endpoints::Shown> Endpoints::MakeShown(AgentState state) const {
  // Every local user can read it over TCP, and /proc may hide other users' arguments (hidepid).
  for (Fight& fight : state.fights) {
    fight.by = WithoutCommandLines(std::move(fight.by));
  }
  const absl::Duration age = std::max(absl::ZeroDuration(), clock_.now() - state.heartbeat);
  const SteadyTime steady_heartbeat = clock_.steady() - age;
  return std::make_shared<const Shown>(Shown{std::move(state), steady_heartbeat});
}

void Endpoints::Publish(AgentState state) {
  std::shared_ptr<const Shown> next = MakeShown(std::move(state));
  const std::lock_guard<std::mutex> lock(mutex_);
  shown_.swap(next);
}

void Endpoints::SetConfig(Config config) {
  auto next = std::make_shared<const Config>(std::move(config));
  const std::lock_guard<std::mutex> lock(mutex_);
  config_.swap(next);
}

std::shared_ptr<const Endpoints::Shown> Endpoints::shown() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return shown_;
}

std::shared_ptr<const Config> Endpoints::config() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return config_;
}

HttpReply Endpoints::Index() const {
  const std::shared_ptr<const Config> now = config();
  HttpReply reply;
  AppendPaths("health", now->healthz_bind_address, kHealthPaths, reply.body);
  AppendPaths("metrics", now->metrics_bind_address, kInspectPaths, reply.body);
  return reply;
}

HttpReply Endpoints::Health(const HttpRequest& request) const {
  const std::shared_ptr<const Shown> now = shown();
  const absl::Duration silence = clock_.steady() - now->steady_heartbeat;
  const absl::Duration limit = config()->iptables_sync_period + heartbeat_limit_;
  if (request.path == "/readyz") return ReadyzReply(request, now->state, silence, limit);
  if (request.path == "/livez" || request.path == "/healthz") {
    return LivezReply(request, silence, limit);
  }
  return request.path == "/" ? Index() : NotFound();
}

HttpReply Endpoints::Inspect(const HttpRequest& request) const {
  if (request.path == "/metrics") {
    return {.content_type = kMetricsContentType, .body = metrics_()};
  }
  if (request.path == "/statusz") {
    return {.body = StatuszText(shown()->state, version_, clock_.now())};
  }
  if (request.path == "/flagz") return {.body = FlagzText(flags_)};
  if (request.path == "/configz") {
    return {.content_type = "application/json", .body = ConfigJson(*config())};
  }
  return request.path == "/" ? Index() : NotFound();
}

}  // namespace kipt::agent
