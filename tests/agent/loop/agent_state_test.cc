// SPDX-License-Identifier: Apache-2.0
#include <string>
#include <vector>

#include "agent/loop/events.h"
#include "tests/support/matchers.h"

namespace kipt::agent {
namespace {

using netlink::Family;

AgentState State(std::vector<FamilyState> families) {
  AgentState state;
  state.families = std::move(families);
  return state;
}

const FamilyState kIpInPlace = {.family = Family::kIPv4, .phase = FamilyPhase::kInPlace};
const FamilyState kIpDegraded = {
    .family = Family::kIPv4, .phase = FamilyPhase::kDegraded, .reason = "a finding"};
const FamilyState kIp6InPlace = {.family = Family::kIPv6, .phase = FamilyPhase::kInPlace};
const FamilyState kIp6Failed = {
    .family = Family::kIPv6, .phase = FamilyPhase::kFailed, .reason = "not permitted"};

AgentState WithRestart() {
  AgentState state = State({kIpInPlace});
  state.must_restart = "--iptables-mode";
  return state;
}

AgentState WithConfigProblem() {
  AgentState state = State({kIpInPlace});
  state.config_problem = "config.yaml:3: wrong";
  return state;
}

AgentState WithListenProblem() {
  AgentState state = State({kIpInPlace});
  state.listen_problem = "127.0.0.1:10356 is in use";
  return state;
}

struct Row {
  std::string name;
  AgentState state;
  std::string status_line;
  bool ready = false;
  // Of the first family.
  std::string not_ready_because = {};
};

const Row kRows[] = {
    {"in place", State({kIpInPlace, kIp6InPlace}), "in place", true},
    {"no attempt has ended", State({{.family = Family::kIPv4}}), "ip pending", false,
     "the first attempt has not ended yet"},
    {"one family failed", State({kIpInPlace, kIp6Failed}), "ip6 failed: not permitted"},
    {"failed for no reason", State({{.family = Family::kIPv4, .phase = FamilyPhase::kFailed}}),
     "ip failed", false, "failed"},
    {"degraded", State({kIpDegraded}), "ip degraded: a finding", true},
    {"both", State({kIpDegraded, kIp6Failed}), "ip degraded: a finding; ip6 failed: not permitted"},
    {"a restart is due", WithRestart(), "must restart: --iptables-mode"},
    {"the configuration is not the one on disk", WithConfigProblem(),
     "configuration not reloaded: config.yaml:3: wrong", true},
    {"an address is not served", WithListenProblem(), "127.0.0.1:10356 is in use", true},
    {"a reason of several lines",
     State({{.family = Family::kIPv4, .phase = FamilyPhase::kFailed, .reason = "a\nb\tc"}}),
     "ip failed: a\\nb\\tc", false, "a\nb\tc"},
};

TEST(AgentStateTest, ReadyAndWhyNot) {
  for (const Row& row : kRows) {
    SCOPED_TRACE(row.name);
    EXPECT_EQ(IsReady(row.state), row.ready);
    EXPECT_EQ(NotReadyBecause(row.state.families.front()), row.not_ready_because);
    EXPECT_EQ(StatusLine(row.state), row.status_line);
  }
}

TEST(AgentStateTest, IsNotReadyBeforeAnyFamilyIsKnown) { EXPECT_FALSE(IsReady(AgentState())); }

}  // namespace
}  // namespace kipt::agent
