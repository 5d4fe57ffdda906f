// SPDX-License-Identifier: Apache-2.0
//
// Who writes iptables rules on the test node. An actor acts when it is told to: what a real one
// does once a minute it does when that minute is said to be over. All act in the calling thread's
// network namespace, which is the node's.
#ifndef KIPT_TESTS_SKEW_ACTORS_ACTOR_H_
#define KIPT_TESTS_SKEW_ACTORS_ACTOR_H_

#include <string>
#include <vector>

#include "tests/skew/kube_proxy/services.h"

namespace kipt::skew {

// What one act came to.
struct Act {
  // The actor itself would call it a success.
  bool ok = true;
  // What failed: the command, its exit code, what it printed. Empty where ok.
  std::string error = {};
  // What was done, for the report: "12 commands", "1 restore of 63 lines".
  std::vector<std::string> done = {};
  // Of a kubelet and a kube-proxy: every iptables call (testing::CallText()), in their order.
  std::vector<std::string> calls = {};
};

// Who keeps kubelet's chains: a kubelet, or our agent in its place.
class NodeAgent {
 public:
  virtual ~NodeAgent() = default;
  // "kubelet 1.24", "kube-iptables-agent as 1.24".
  virtual std::string name() const = 0;
  // From its start until its first sync is over, whether or not that went well.
  virtual Act Start() = 0;
  // A minute is over.
  virtual Act Tick() = 0;
  // Waits until it has reacted to what others did since: nothing, for one that does not watch.
  virtual Act Settle() = 0;
  // Its gate ConnLabelMarking is turned on or off while it runs, and it has done what follows. No
  // kubelet has such a gate: an Act that is not ok.
  virtual Act SetConnLabels(bool on) = 0;
  // It ends, as an upgrade makes it; its rules stay.
  virtual Act Stop() = 0;
};

class ServiceProxy {
 public:
  virtual ~ServiceProxy() = default;
  virtual std::string name() const = 0;
  // Its first sync, which is a full one, over whatever stands.
  virtual Act Start(const std::vector<ServicePort>& ipv4, const std::vector<ServicePort>& ipv6) = 0;
  // Objects have changed (or not: a sync with nothing new).
  virtual Act Sync(const std::vector<ServicePort>& ipv4, const std::vector<ServicePort>& ipv6) = 0;
  // A sync period is over: the canary is looked at, and a failed sync is retried.
  virtual Act Tick() = 0;
  // More than an hour after its last full sync it syncs, with nothing new.
  virtual Act SyncAfterAnHour() = 0;
};

}  // namespace kipt::skew

#endif  // KIPT_TESTS_SKEW_ACTORS_ACTOR_H_
