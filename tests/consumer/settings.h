// SPDX-License-Identifier: Apache-2.0
//
// The host's own command line and configuration file, and how they become the library's options.
#ifndef NODE_AGENT_SETTINGS_H_
#define NODE_AGENT_SETTINGS_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "agent/node_agent.h"

namespace node_agent {

// One network namespace to manage: --serve=PATH:MODE.
struct Serving {
  std::string netns;          // "/run/netns/red"
  std::string iptables_mode;  // "nft" or "legacy"
};

// Of the file, which is read again on SIGHUP: lines of `key = value`, `#` begins a comment.
struct NodeSettings {
  // gates: as kubelet's --feature-gates.
  std::string gates;
  // kubernetes: the release of the kubelet to follow; empty is the library's default.
  std::string kubernetes;
};

struct CommandLine {
  std::string settings_file;                        // --settings=FILE
  std::vector<Serving> servings;                    // at least one
  absl::Duration housekeeping = absl::Seconds(10);  // --housekeeping=DURATION
};

// InvalidArgument, NotFound: what a user got wrong.
absl::StatusOr<CommandLine> ParseCommandLine(absl::Span<const char* const> arguments);
absl::StatusOr<NodeSettings> ReadSettings(const std::string& path);

// What the library is to do in the namespace of `serving`. InvalidArgument: what cannot be read.
absl::StatusOr<kipt::agent::NodeAgentOptions> OptionsFor(const Serving& serving,
                                                         const NodeSettings& settings);

}  // namespace node_agent

#endif  // NODE_AGENT_SETTINGS_H_
