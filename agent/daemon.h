// SPDX-License-Identifier: Apache-2.0
//
// `kube-iptables-agent run`: the Agent as a program of its own, with logs, signals, endpoints,
// configuration reload, a service manager, and as few privileges as it needs. What it logs is in
// round_log.cc.
#ifndef KIPT_AGENT_DAEMON_H_
#define KIPT_AGENT_DAEMON_H_

#include <map>
#include <string>

#include "agent/commands.h"
#include "agent/config/config.h"
#include "agent/loop/events.h"
#include "agent/loop/plan.h"
#include "agent/loop/round.h"

namespace kipt::agent {

// Runs until SIGTERM or SIGINT, which leave the rules in place and end it with kExitOk. Call it
// before there are other threads, in the network namespace to work in. Drops this process's
// capabilities for good.
//
// kExitFailed: a privilege is missing, or a setting that is fixed at start has changed; a
// supervisor should start it again. Neither a kernel that refuses rules nor an address in use ends
// it.
//
// SIGHUP and a change of the configuration file load it again, `flags` over it. A wrong
// configuration is reported and not used.
ExitCode RunDaemon(const Flags& flags, const Config& config, const std::string& version);

// Warnings; --v=1: the effective configuration; --v=2: gates that are ignored.
void LogConfig(const Config& config);

// One line per incident and per change of state, none per attempt. An incident is a warning; a
// failed family is an error, a degraded one a warning, one that is in place again information.
// --v=1: every change that is made; --v=2: refills and every round.
void LogRound(const Round& round, const AgentState& state);

// Logs what was retired, what failed, and whenever it changes what is kept for which claims.
// `kept_items`, by iptables mode, is what was last logged as kept.
void LogRetirement(const RetireReport& report, std::map<std::string, std::string>& kept_items);

}  // namespace kipt::agent

#endif  // KIPT_AGENT_DAEMON_H_
