// SPDX-License-Identifier: Apache-2.0
//
// The command line of kube-iptables-skew, described for its completions and its manual page.
#ifndef KIPT_TESTS_SKEW_COMPLETION_H_
#define KIPT_TESTS_SKEW_COMPLETION_H_

#include "agent/config/completion.h"

namespace CLI {
class App;
}

namespace kipt::skew {

// Of `app` and its commands, as CLI11 knows them: from type names ("file", "directory,...") and
// accepted values follows what is offered.
agent::CompletionSpec DescribeCommandLine(const CLI::App& app, const char* default_command);

// Of kube-iptables-skew itself (options.cc).
agent::CompletionSpec SkewCompletion();

}  // namespace kipt::skew

#endif  // KIPT_TESTS_SKEW_COMPLETION_H_
