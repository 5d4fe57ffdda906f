// SPDX-License-Identifier: Apache-2.0
#include "agent/loop/agent_state.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

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
  bool ready;
  // Of the first family.
  std::string not_ready_because;
  std::string status_line;
};

const Row kRows[] = {
    {"in place", State({kIpInPlace, kIp6InPlace}), true, "", "in place"},
    {"no attempt has ended", State({{.family = Family::kIPv4}}), false,
     "the first attempt has not ended yet", "ip pending"},
    {"one family failed", State({kIpInPlace, kIp6Failed}), false, "", "ip6 failed: not permitted"},
    {"failed for no reason", State({{.family = Family::kIPv4, .phase = FamilyPhase::kFailed}}),
     false, "failed", "ip failed"},
    {"degraded", State({kIpDegraded}), true, "", "ip degraded: a finding"},
    {"both", State({kIpDegraded, kIp6Failed}), false, "",
     "ip degraded: a finding; ip6 failed: not permitted"},
    {"a restart is due", WithRestart(), false, "", "must restart: --iptables-mode"},
    {"the configuration is not the one on disk", WithConfigProblem(), true, "",
     "configuration not reloaded: config.yaml:3: wrong"},
    {"an address is not served", WithListenProblem(), true, "", "127.0.0.1:10356 is in use"},
    {"a reason of several lines",
     State({{.family = Family::kIPv4, .phase = FamilyPhase::kFailed, .reason = "a\nb\tc"}}), false,
     "a\nb\tc", "ip failed: a\\nb\\tc"},
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
