// SPDX-License-Identifier: Apache-2.0
//
// How full connection tracking is, and its heaviest users. A full table drops the node's new
// connections, whatever the rules say. Below 90 % only the kernel's counters are read.
#ifndef KIPT_AGENT_ENDPOINTS_CONNTRACK_H_
#define KIPT_AGENT_ENDPOINTS_CONNTRACK_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "agent/loop/clock.h"
#include "agent/loop/event_loop.h"
#include "netlink/conntrack.h"

namespace kipt::agent {

// Counters of this process' network namespace.
struct ConntrackCounters {
  uint64_t entries = 0;
  uint64_t limit = 0;  // net.netfilter.nf_conntrack_max; 0: none
  // Packets dropped because the table was full, and entries removed early to make room, since the
  // namespace was made. Nothing where the kernel does not report it (CONFIG_NF_CONNTRACK_PROCFS).
  std::optional<uint64_t> dropped = {};
  std::optional<uint64_t> early_dropped = {};

  bool operator==(const ConntrackCounters&) const = default;
};

// Nothing where the kernel tracks no connections.
std::optional<ConntrackCounters> ReadConntrack(const std::string& proc = "/proc");

// The most frequent addresses among very many, in bounded memory (Misra and Gries, 1982). Every
// address with more than one in kKept of them is found. Counts are lower bounds.
class MostFrequent {
 public:
  static constexpr size_t kKept = 512;
  struct Count {
    netlink::IpAddress address;
    uint64_t at_least = 0;

    bool operator==(const Count&) const = default;
  };

  void Add(const netlink::IpAddress& address);
  // The most frequent first: at most `most`, each with at least `from`.
  std::vector<Count> Top(size_t most, uint64_t from) const;

 private:
  absl::flat_hash_map<netlink::IpAddress, uint64_t> counts_;
};

// The entries' sources at a time when the table was nearly full.
struct ConntrackReport {
  absl::Time time;
  uint64_t entries = 0;  // that were read
  uint64_t limit = 0;
  std::vector<MostFrequent::Count> sources;
  std::vector<MostFrequent::Count> destinations;
};
// "connection tracking holds 240000 of 262144 entries (91 %). Most by source: 192.0.2.1 (at least
// 180000), ...; by destination: ..."
std::string ToString(const ConntrackReport& report);

// Reads the counters every ten to twenty seconds. While the table is 90 % full it also reads all
// entries, every ten minutes at most and piece by piece: a repair waits for a few milliseconds at
// most.
//
// Not safe for use by several threads at once. Must be destroyed before its loop.
class ConntrackWatch {
 public:
  static constexpr absl::Duration kEvery = absl::Seconds(10);
  static constexpr absl::Duration kReportEvery = absl::Minutes(10);

  struct Handlers {
    std::function<void(const ConntrackReport&)> report;
    // The entries could not be read; tried again after kReportEvery.
    std::function<void(const absl::Status&)> failure;
  };

  ConntrackWatch(EventLoop& loop, Handlers handlers, std::string proc = "/proc",
                 std::function<SteadyTime()> now = SteadyNow);

  // Reads now, as the timer does.
  void Check();

 private:
  absl::Status BeginDump();
  void ContinueDump();
  void EndDump(const absl::Status& status);

  EventLoop& loop_;
  const Handlers handlers_;
  const std::string proc_;
  const std::function<SteadyTime()> now_;
  const std::unique_ptr<Timer> timer_;
  SteadyTime next_report_ = SteadyTime::InfinitePast();

  // While entries are read.
  struct Reading {
    std::unique_ptr<netlink::ConntrackDump> dump;
    std::unique_ptr<EventSource> readable;
    uint64_t entries = 0;
    MostFrequent sources;
    MostFrequent destinations;
  };
  std::unique_ptr<Reading> reading_;
  uint64_t limit_ = 0;
};

}  // namespace kipt::agent

#endif  // KIPT_AGENT_ENDPOINTS_CONNTRACK_H_
