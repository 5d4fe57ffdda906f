// SPDX-License-Identifier: Apache-2.0
//
// Other programs that write to iptables while the daemon runs. Each acts at random moments on a
// thread of its own.
#ifndef KIPT_TESTS_SOAK_WRITERS_H_
#define KIPT_TESTS_SOAK_WRITERS_H_

#include <algorithm>
#include <atomic>
#include <functional>
#include <map>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "tests/support/kubelet_sequence.h"
#include "tests/support/run_program.h"

namespace kipt::testing {

using Random = std::mt19937;
// From 0 to `below` - 1.
inline int Draw(Random& random, int below) {
  return std::uniform_int_distribution<int>(0, below - 1)(random);
}

// One thing that a writer does, and what it is called in the summary.
struct Act {
  std::string name;
  std::function<void(Random&)> act;
  // Between two of them, on average.
  absl::Duration pause;
};

// Acts until it is destroyed.
class Writer {
 public:
  Writer(Act act, uint32_t seed)
      : act_(std::move(act)), thread_([this, seed] {
          Random random(seed);
          while (!stopped_) {
            act_.act(random);
            ++acts_;
            absl::SleepFor(act_.pause * Draw(random, 200) / 100);
          }
        }) {}

  ~Writer() {
    stopped_ = true;
    thread_.join();
  }
  Writer(const Writer&) = delete;
  Writer& operator=(const Writer&) = delete;

  const std::string& name() const { return act_.name; }
  int acts() const { return acts_; }

 private:
  const Act act_;
  std::atomic<bool> stopped_ = false;
  std::atomic<int> acts_ = 0;
  std::thread thread_;
};

inline constexpr char kPortChain[] = "PORT-MAPPER";
inline constexpr int kMostPorts = 20;
inline constexpr int kStormRules = 2000;

struct DamageRow {
  const char* table;
  const char* arguments;
  // Cleanup mode keeps it, too.
  bool in_cleanup = false;
};
inline constexpr DamageRow kDamages[] = {
    {"mangle", "-X KUBE-IPTABLES-HINT", true},
    {"mangle", "-X KUBE-KUBELET-CANARY"},
    {"filter", "-X KUBE-KUBELET-CANARY"},
    {"filter", "-D INPUT -j KUBE-FIREWALL", true},
    {"filter", "-D OUTPUT -j KUBE-FIREWALL", true},
    {"filter", "-I INPUT -j KUBE-FIREWALL", true},
    {"filter", "-D KUBE-FIREWALL 1"},
    {"filter", "-F KUBE-FIREWALL"},
    {"nat", "-X KUBE-KUBELET-CANARY"},
    {"nat",
     "-D POSTROUTING -m comment --comment kubernetes\tpostrouting\trules -j KUBE-POSTROUTING"},
    {"nat", "-D KUBE-POSTROUTING 1"},
    {"nat", "-D KUBE-POSTROUTING 3"},
    {"nat", "-F KUBE-POSTROUTING"},
    {"nat", "-F KUBE-MARK-MASQ"},
    {"nat", "-F KUBE-MARK-DROP"},
};

inline IpFamily DrawFamily(Random& random) { return kBothFamilies[Draw(random, 2)]; }

// A tab is a space within an argument.
inline std::vector<std::string> Arguments(const std::string& table, absl::string_view text) {
  std::vector<std::string> arguments = {"-w", "-t", table};
  for (absl::string_view word : absl::StrSplit(text, ' ')) {
    std::string argument(word);
    std::replace(argument.begin(), argument.end(), '\t', ' ');
    arguments.push_back(std::move(argument));
  }
  return arguments;
}

// What iptables-restore makes of a table in which no program has written.
inline std::string EmptyTable(const std::string& table) {
  std::string text = absl::StrCat("*", table, "\n:INPUT ACCEPT [0:0]\n:OUTPUT ACCEPT [0:0]\n");
  for (const char* chain : {"PREROUTING", "FORWARD", "POSTROUTING"}) {
    const bool is_forward = absl::string_view(chain) == "FORWARD";
    if (table == "mangle" || is_forward == (table == "filter")) {
      absl::StrAppend(&text, ":", chain, " ACCEPT [0:0]\n");
    }
  }
  return text + "COMMIT\n";
}

inline std::string RulesText(const std::string& table, const std::string& chain, int count) {
  std::string text = absl::StrCat("*", table, "\n:", chain, " - [0:0]\n");
  for (int i = 0; i < count; ++i) {
    absl::StrAppend(&text, "-A ", chain, " -p tcp -m tcp --dport ", 1 + i, " -j RETURN\n");
  }
  return text + "COMMIT\n";
}

// Damage to what the daemon keeps in `table` ("nat", "filter", "mangle"): chains, rules and jumps
// deleted, chains emptied, rules doubled; by iptables and nft, in either family.
inline Act DamageTo(const std::string& table, IptablesMode mode, bool cleanup) {
  std::vector<std::string> rows;
  for (const DamageRow& row : kDamages) {
    if (table == row.table && (row.in_cleanup || !cleanup)) rows.emplace_back(row.arguments);
  }
  const auto act = [=](Random& random) {
    // In cleanup mode the daemon keeps nothing but the hint in IPv6.
    const IpFamily family = cleanup && table != "mangle" ? IpFamily::kIpv4 : DrawFamily(random);
    const std::string& row = rows[static_cast<size_t>(Draw(random, static_cast<int>(rows.size())))];
    // What it names may be missing: then it is damaged already.
    Iptables{.family = family, .mode = mode}.Run(Arguments(table, row));
  };
  return {absl::StrCat("damage to ", table), act, absl::Milliseconds(400)};
}
// Damage to all of `table`, other programs' rules included: -F, iptables-restore of an empty table,
// nft delete table.
inline Act WreckageOf(const std::string& table, IptablesMode mode) {
  const auto act = [=](Random& random) {
    const IpFamily family = DrawFamily(random);
    const Iptables iptables = {.family = family, .mode = mode};
    switch (Draw(random, mode == IptablesMode::kNft ? 3 : 2)) {
      case 0:
        iptables.Run({"-w", "-t", table, "-F"});
        return;
      case 1:
        iptables.Replace(EmptyTable(table));
        return;
      default:
        RunProgram({"nft", "delete", "table", family == IpFamily::kIpv4 ? "ip" : "ip6", table});
    }
  };
  return {absl::StrCat("wreckage of ", table), act, absl::Seconds(2)};
}

// The rules of another program, in a chain of its own. It writes and reads nothing else.
class PortMapper {
 public:
  PortMapper(IptablesMode mode, std::string table) : mode_(mode), table_(std::move(table)) {}

  Act Acts() {
    const auto act = [this](Random& random) {
      const IpFamily family = DrawFamily(random);
      const Iptables iptables = {.family = family, .mode = mode_};
      std::vector<int>& ports = ports_[family];
      const bool removes =
          static_cast<int>(ports.size()) >= kMostPorts || (!ports.empty() && Draw(random, 3) == 0);
      const int port = removes ? ports.front() : 1 + Draw(random, 60000);
      iptables.Run({"-w", "-t", table_, "-N", kPortChain});
      const ProgramResult result =
          iptables.Run({"-w", "-t", table_, removes ? "-D" : "-A", kPortChain, "-p", "tcp",
                        "--dport", absl::StrCat(port), "-j", "RETURN"});
      if (result.exit_code != 0) return;
      if (removes) {
        ports.erase(ports.begin());
      } else {
        ports.push_back(port);
      }
    };
    return {"port mapper", act, absl::Milliseconds(150)};
  }
  // What is missing or too many in its chains; "" where all is as it was written. Removes them.
  std::string Fault() {
    for (const auto& [family, ports] : ports_) {
      const Iptables iptables = {.family = family, .mode = mode_};
      std::string expected = absl::StrCat("-N ", kPortChain, "\n");
      for (const int port : ports) {
        absl::StrAppend(&expected, "-A ", kPortChain, " -p tcp -m tcp --dport ", port,
                        " -j RETURN\n");
      }
      const std::string listed = iptables.Run({"-w", "-t", table_, "-S", kPortChain}).out;
      if (listed != expected) {
        return absl::StrCat(NameOf(family), " ", table_, " has\n", listed, "but was written as\n",
                            expected);
      }
      iptables.Run({"-w", "-t", table_, "-F", kPortChain});
      iptables.Run({"-w", "-t", table_, "-X", kPortChain});
    }
    ports_.clear();
    return "";
  }

 private:
  const IptablesMode mode_;
  const std::string table_;
  // By the family: its ports, in the order of its rules.
  std::map<IpFamily, std::vector<int>> ports_;
};

// Thousands of rules in one transaction, then their removal.
inline Act Storm(IptablesMode mode) {
  const auto act = [=](Random& random) {
    const Iptables iptables = {.family = DrawFamily(random), .mode = mode};
    iptables.Restore(RulesText("filter", "STORM", kStormRules), {"-w"});
    iptables.Run({"-w", "-F", "STORM"});
    iptables.Run({"-w", "-X", "STORM"});
  };
  return {"storm", act, absl::Seconds(1)};
}
// Sets a policy that is not the daemon's, which must stay unchanged for a moment; `changed` is set
// if it did not.
inline Act Policy(IptablesMode mode, std::atomic<bool>& changed) {
  const auto act = [mode, &changed](Random& random) {
    // No packet of the streams passes FORWARD of IPv6.
    const Iptables iptables = {.family = IpFamily::kIpv6, .mode = mode};
    if (iptables.Run({"-w", "-P", "FORWARD", "DROP"}).exit_code != 0) return;
    absl::SleepFor(absl::Milliseconds(Draw(random, 300)));
    const std::string listed = iptables.Run({"-w", "-S", "FORWARD"}).out;
    if (!absl::StartsWith(listed, "-P FORWARD DROP\n")) changed = true;
    iptables.Run({"-w", "-P", "FORWARD", "ACCEPT"});
  };
  return {"policy", act, absl::Seconds(1)};
}

}  // namespace kipt::testing

#endif  // KIPT_TESTS_SOAK_WRITERS_H_
