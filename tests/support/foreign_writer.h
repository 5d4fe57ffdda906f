// SPDX-License-Identifier: Apache-2.0
//
// Another program that writes to nf_tables, much and often: what a daemon that listens must bear.
#ifndef KIPT_TESTS_SUPPORT_FOREIGN_WRITER_H_
#define KIPT_TESTS_SUPPORT_FOREIGN_WRITER_H_

#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "netlink/backend.h"
#include "netlink/socket.h"
#include "netlink/transaction.h"

namespace kipt::testing {

// Stays in the network namespace in which it was created.
class ForeignWriter {
 public:
  static absl::StatusOr<std::unique_ptr<ForeignWriter>> Create();

  // Retries until the commit succeeds on the current ruleset. Returns the kernel's time for that
  // commit, without building the messages.
  absl::StatusOr<absl::Duration> Commit(std::vector<netlink::Operation> operations);

  // `count` rules in one transaction, in a chain of filter that nothing jumps to.
  absl::StatusOr<absl::Duration> CommitRules(int count);
  // Takes those rules away again, by iptables-nft, in one transaction.
  absl::Status RemoveRules();

  // One commit that makes, or takes away, an empty chain.
  absl::StatusOr<absl::Duration> CommitChain();

 private:
  ForeignWriter(std::unique_ptr<netlink::Backend> backend, std::unique_ptr<netlink::Socket> socket);

  std::unique_ptr<netlink::Backend> backend_;
  std::unique_ptr<netlink::Socket> socket_;
  bool chain_exists_ = false;
};

}  // namespace kipt::testing

#endif  // KIPT_TESTS_SUPPORT_FOREIGN_WRITER_H_
