// SPDX-License-Identifier: Apache-2.0
//
// The monitor of legacy iptables beside the real programs. Each test has a network namespace and a
// /run of its own: the machine's lock is never touched.
#ifndef KIPT_TESTS_KERNEL_IPTABLES_LEGACY_MONITOR_FIXTURE_H_
#define KIPT_TESTS_KERNEL_IPTABLES_LEGACY_MONITOR_FIXTURE_H_

#include <poll.h>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <sstream>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "agent/xtables/iptables_legacy_backend.h"
#include "agent/xtables/iptables_legacy_monitor.h"
#include "netlink/backend.h"
#include "tests/kernel/nft_fixture.h"
#include "tests/support/matchers.h"
#include "tests/support/netns_fixture.h"
#include "tests/support/status_matchers.h"

namespace kipt::testing {

inline constexpr char kLock[] = "/run/xtables.lock";

inline std::string TableNames() {
  std::ostringstream text;
  for (const char* path :
       {"/proc/thread-self/net/ip_tables_names", "/proc/thread-self/net/ip6_tables_names"}) {
    std::ifstream file(path);
    if (file.peek() != std::ifstream::traits_type::eof()) text << file.rdbuf();
    text << "/";
  }
  return text.str();
}

inline ptrdiff_t Descriptors() {
  return std::distance(std::filesystem::directory_iterator("/proc/self/fd"), {});
}

inline bool Wakes(const netlink::Monitor& monitor, absl::Duration within = absl::ZeroDuration()) {
  pollfd polled = {.fd = monitor.fd(), .events = POLLIN, .revents = 0};
  return poll(&polled, 1, static_cast<int>(absl::ToInt64Milliseconds(within))) == 1;
}

inline netlink::RulesetChanges Drain(netlink::Monitor& monitor) {
  const absl::StatusOr<netlink::RulesetChanges> changes = monitor.Drain();
  EXPECT_THAT(changes, IsOk());
  return changes.ok() ? *changes : netlink::RulesetChanges{};
}

// Everything that there is to say 50 ms from now at the latest.
inline uint64_t Seen(netlink::Monitor& monitor) {
  uint64_t count = 0;
  while (Wakes(monitor, absl::Milliseconds(50))) {
    const netlink::RulesetChanges changes = Drain(monitor);
    EXPECT_TRUE(changes.writers.empty());
    EXPECT_EQ(changes.lost, 0U);
    count += changes.count;
  }
  return count;
}

inline std::string RestoreText(const std::string& table, int rules, const std::string& last) {
  std::string text = absl::StrCat("*", table, "\n:MANY - [0:0]\n");
  for (int i = 0; i < rules; ++i) {
    absl::StrAppend(&text, "-A MANY -s 10.", i / 65536, ".", i / 256 % 256, ".", i % 256,
                    "/32 -m comment --comment rule-", i, " -j RETURN\n");
  }
  absl::StrAppend(&text, last, "COMMIT\n");
  return text;
}

class LegacyMonitorTest : public PrivateRunTest {
 protected:
  static std::unique_ptr<netlink::Monitor> Watch(const std::string& lock_path = kLock) {
    auto monitor =
        agent::NewIptablesLegacyMonitor(lock_path, agent::IptablesLegacyOptions().table_names_path);
    EXPECT_THAT(monitor, IsOk());
    return monitor.ok() ? *std::move(monitor) : nullptr;
  }
};
}  // namespace kipt::testing

#endif  // KIPT_TESTS_KERNEL_IPTABLES_LEGACY_MONITOR_FIXTURE_H_
