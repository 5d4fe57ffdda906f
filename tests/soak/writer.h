// SPDX-License-Identifier: Apache-2.0
//
// Those who write to iptables beside the daemon. Each acts at random moments on a thread of its
// own, in the node's namespace.
#ifndef KIPT_TESTS_SOAK_WRITER_H_
#define KIPT_TESTS_SOAK_WRITER_H_

#include <memory>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "tests/soak/node.h"
#include "tests/support/foreign_writer.h"

namespace kipt::soak {

class Writer {
 public:
  virtual ~Writer() = default;
  // "kube-proxy": a row of the summary.
  virtual std::string name() const = 0;
  // Between two of its acts, on average.
  virtual absl::Duration pause() const = 0;
  // It has to put back what is its own, and does not wait; also when all others are to be calm.
  virtual bool Hurries(const Node& /*node*/) const { return false; }
  // Acts once; what it has done, for the log. "" where there was nothing to do.
  virtual std::string Act(Node& node, Random& random) = 0;
};

// Damage to what is kubelet's alone, by iptables and nft: rules, chains and jumps deleted, chains
// emptied, doubled rules.
std::unique_ptr<Writer> NewDamager(int number);
// Damage to whole tables, others' rules included: -F, nft delete table, iptables-restore without
// --noflush, a firewall's reload.
std::unique_ptr<Writer> NewWrecker();
// A policy that is DROP for a moment: nobody else may touch it.
std::unique_ptr<Writer> NewPolicySetter();
// Those who keep a ledger. A CNI plugin that maps ports, rules of an administrator's.
std::unique_ptr<Writer> NewPortMapper();
// Thousands of rules in one transaction, then away with them; or (nft) hundreds of transactions.
std::unique_ptr<Writer> NewStorm();
// Who leads packets to kubelet's chains.
std::unique_ptr<Writer> NewUsers();
std::unique_ptr<Writer> NewKubeProxyWriter();
std::unique_ptr<Writer> NewKubeletWriter();

// What is wrong with `iptables -S FORWARD` while its owner has set the policy DROP; "" where
// nothing is.
std::string PolicyFault(const std::string& listed);

// Puts back what is theirs where somebody has taken it away. False: not yet possible.
bool PutUsersBack(Node& node);

// So many transactions of one chain each, or one more, after which all is as before.
void CommitOften(testing::ForeignWriter& writer, int count);

// Until the node has ended.
void Run(Writer& writer, Node& node);

}  // namespace kipt::soak

#endif  // KIPT_TESTS_SOAK_WRITER_H_
