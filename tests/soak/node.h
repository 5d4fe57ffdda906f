// SPDX-License-Identifier: Apache-2.0
//
// A node that is soaked: its namespaces, what is wanted of it, who may act now.
#ifndef KIPT_TESTS_SOAK_NODE_H_
#define KIPT_TESTS_SOAK_NODE_H_

#include <atomic>
#include <memory>
#include <mutex>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "tests/skew/actors/actors.h"
#include "tests/skew/node/test_node.h"
#include "tests/soak/agent_settings.h"
#include "tests/soak/gate.h"
#include "tests/soak/journal.h"
#include "tests/soak/ledger.h"
#include "tests/soak/options.h"
#include "tests/soak/windows.h"
#include "tests/support/kubelet_sequence.h"
#include "tests/support/netns.h"
#include "tests/support/scratch_directory.h"

namespace kipt::soak {

inline constexpr const char* kTables[] = {"mangle", "nat", "filter"};

// Ports of the streams.
inline constexpr int kMasqPort = 9101;
inline constexpr int kDropPort = 9100;
inline constexpr int kMartianPort = 9105;

// Each writer and each other actor has one of its own, so that what one does depends on the seed
// and not on the others.
using Random = std::mt19937_64;
// 0 to `below` - 1.
inline int Draw(Random& random, int below) {
  return static_cast<int>(random() % static_cast<uint64_t>(below));
}

// Of KUBE-MARK-MASQ, and of KUBE-MARK-DROP.
struct UserSet {
  bool masq = true;
  bool drop = true;
  std::string Text() const {
    return absl::StrCat("users:", masq ? " masq" : "", drop ? " drop" : "");
  }
};

class Node {
 public:
  static absl::StatusOr<std::unique_ptr<Node>> Create(testing::IptablesMode mode,
                                                      const Options& options, Journal& journal);

  const std::string& name() const { return name_; }
  testing::IptablesMode mode() const { return mode_; }
  bool nft() const { return mode_ == testing::IptablesMode::kNft; }
  const Options& options() const { return options_; }
  const skew::TestNode& place() const { return *place_; }
  const testing::Netns& netns() const { return place_->At(skew::Place::kNode); }
  testing::Iptables Of(testing::IpFamily family) const { return {family, "", mode_}; }
  skew::IptablesChoice Choice() const { return {mode_, ""}; }
  Random RandomOf(const std::string& actor) const;
  // A kube-proxy for this node, or none.
  std::optional<skew::Version> DrawProxy(Random& random) const;
  std::string ConfigPath() const { return files_.Path("config.yaml"); }
  std::string CniDirectory() const { return files_.Path("cni"); }
  // Everything has existed once: from now on the node is soaked.
  void BeginSoak();
  // For how long; 0 before.
  absl::Duration Soaked() const;

  // Those who act by what the daemon is told to do share it; who tells the daemon has it alone.
  Gate settings_gate;
  // Those who only add to the ledger and take away what they have added share it; who takes away
  // what is others' has it alone. To be taken after settings_gate.
  Gate foreign_gate;
  // Who makes the daemon unable to act, or looks at what it has done.
  std::mutex daemon_turn;

  Journal& journal;
  Ledger ledger;
  Windows windows;

  // Guarded by settings_gate.
  AgentSettings settings;
  // Where it is not set there is no kube-proxy. Guarded by foreign_gate.
  std::optional<skew::Version> proxy;
  // Services of this set. Guarded by foreign_gate.
  int services = 0;
  // Whose rules lead packets to kubelet's chains. Guarded by foreign_gate.
  UserSet users;
  // Somebody has taken away what is theirs: it comes back at their next turn.
  std::atomic<bool> users_are_due = true;
  std::atomic<bool> proxy_is_due = true;
  // Nobody begins anything but those who put back what is theirs.
  std::atomic<bool> calm = false;
  std::atomic<bool> ended = false;

 private:
  Node(testing::IptablesMode mode, const Options& options, Journal& journal);

  const std::string name_;
  const testing::IptablesMode mode_;
  const Options& options_;
  std::unique_ptr<skew::TestNode> place_;
  const testing::ScratchDirectory files_;
  mutable std::mutex soak_mutex_;
  absl::Time soak_begun_ = absl::InfiniteFuture();
};

// Of a kube-proxy: those of both sets have other services.
std::vector<skew::ServicePort> ServicesOf(int set, testing::IpFamily family);
std::unique_ptr<skew::ServiceProxy> NewProxy(const skew::IptablesChoice& iptables,
                                             skew::Version version);
// The rules that lead the streams' packets to kubelet's chains, of both families.
skew::Act PutUsers(const skew::IptablesChoice& iptables, const UserSet& users);
// Of those that `users` has not.
void TakeUsersAway(const skew::IptablesChoice& iptables, const UserSet& users);
// IPv4 takes packets for 127.0.0.0/8 from neighbours, in the calling thread's network namespace.
void LetMartiansIn();

}  // namespace kipt::soak

#endif  // KIPT_TESTS_SOAK_NODE_H_
