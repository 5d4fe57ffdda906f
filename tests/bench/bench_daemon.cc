// SPDX-License-Identifier: Apache-2.0
#include "tests/bench/bench_daemon.h"

#include "absl/strings/str_cat.h"
#include "tests/support/http_get.h"

namespace kipt::testing {
namespace {

constexpr int kHealthPort = 10270;
// A first look at 10,000 services of legacy iptables takes seconds.
constexpr absl::Duration kUntilReady = absl::Minutes(1);

}  // namespace

absl::StatusOr<std::unique_ptr<BackgroundProgram>> StartDaemon(
    IptablesMode mode, const std::vector<std::string>& more_flags) {
  std::vector<std::string> argv = {KIPT_AGENT_PROGRAM, "run",
                                   absl::StrCat("--iptables-mode=", NameOf(mode)),
                                   "--feature-gates=IPTablesOwnershipCleanup=false"};
  argv.insert(argv.end(), more_flags.begin(), more_flags.end());
  auto daemon = std::make_unique<BackgroundProgram>(argv);
  const auto ready = [&] { return HttpGet(kHealthPort, "/readyz").status == 200; };
  const bool started =
      WaitUntil([&] { return !daemon->Running() || ready(); }, kUntilReady) && daemon->Running();
  if (!started) {
    return absl::DeadlineExceededError(
        absl::StrCat("the daemon does not become ready:\n", daemon->Output()));
  }
  return daemon;
}

}  // namespace kipt::testing
