// SPDX-License-Identifier: Apache-2.0
//
// Alone in its source, because every commit compiles it again.
#include "agent/build.h"

#include "absl/strings/str_split.h"
#include "generated/commit.h"

namespace kipt::agent {

// deploy/release searches for this text in programs that it cannot run. The compiler splits the
// texts below.
[[gnu::used]] constexpr char kCommit[] = "commit " KIPT_GIT_COMMIT " " KIPT_GIT_TREE_STATE;

Build ThisBuild() {
  return {.version = KIPT_VERSION,
          .git_commit = KIPT_GIT_COMMIT,
          .git_tree_state = KIPT_GIT_TREE_STATE,
          .platform = "linux/" KIPT_MACHINE,
          .compiler = KIPT_COMPILER,
          .build_type = KIPT_BUILD_TYPE,
          .hardening = absl::StrSplit(KIPT_HARDENING, ' ', absl::SkipEmpty())};
}

}  // namespace kipt::agent
