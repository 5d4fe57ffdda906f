// SPDX-License-Identifier: Apache-2.0
//
// Is this upgrade safe for a node's iptables rules, in which order, and why.
#ifndef KIPT_TESTS_SKEW_ADVISE_ADVISE_H_
#define KIPT_TESTS_SKEW_ADVISE_ADVISE_H_

#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "tests/skew/versions/versions.h"

namespace kipt::skew {

// What is on the node now, as far as advice depends on it.
struct LiveNode {
  // kube-proxy by what it has written; not set: none, or not to be told.
  std::optional<std::string> proxy_generation = {};
  // Sentences for the report: "nat/KUBE-MARK-DROP is empty", "CNI configuration ... names
  // KUBE-MARK-MASQ", each with what it means for the upgrade.
  struct Fact {
    std::string what;
    std::string means;
    // The upgrade breaks something unless this is dealt with.
    bool blocking = false;
  };
  std::vector<Fact> facts = {};
};

struct UpgradePlan {
  // kubelet's versions. A downgrade is one too.
  KubeletVersion from;
  KubeletVersion to;
  // kube-proxy's, which goes the same way where it is not given.
  std::optional<ProxyVersion> proxy_from = {};
  std::optional<ProxyVersion> proxy_to = {};
};

struct Advice {
  enum class Kind { kSafe, kSafeInOrder, kUnsafe };
  Kind kind = Kind::kSafe;
  // One sentence that answers.
  std::string answer;
  // What to do, in this order.
  std::vector<std::string> steps = {};
  // Why, each with its fact, and the cells of the matrix that show it ("upgrade/kubelet-1.25/...").
  struct Reason {
    std::string text;
    std::vector<std::string> cells = {};
  };
  std::vector<Reason> reasons = {};
};

Advice Advise(const UpgradePlan& plan, const std::optional<LiveNode>& live);

// As --host-root and --cni-conf-dir of kube-iptables-agent.
struct LiveSources {
  std::optional<std::string> host_root = {};
  std::vector<std::string> cni_conf_dirs = {};
};

// As the node of the calling thread's network namespace is now, by the agent's own audit: creates,
// changes and loads nothing. PermissionDenied, Unavailable: the rules cannot be read.
absl::StatusOr<LiveNode> LookAtNode(const UpgradePlan& plan, const LiveSources& where = {});

std::string AdviceText(const Advice& advice, const std::optional<LiveNode>& live);
std::string AdviceJson(const Advice& advice, const std::optional<LiveNode>& live);

}  // namespace kipt::skew

#endif  // KIPT_TESTS_SKEW_ADVISE_ADVISE_H_
