// SPDX-License-Identifier: Apache-2.0
//
// `kube-iptables-agent run`: an Agent as a program of its own, with logs, signals, endpoints,
// configuration reload, a service manager, and as few privileges as it needs.
#ifndef KIPT_AGENT_DAEMON_H_
#define KIPT_AGENT_DAEMON_H_

#include "agent/commands.h"
#include "agent/config/config.h"
#include "agent/endpoints/metrics.h"

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
ExitCode RunDaemon(const Flags& flags, const Config& config, MetricsOfProgram program);

}  // namespace kipt::agent

#endif  // KIPT_AGENT_DAEMON_H_
