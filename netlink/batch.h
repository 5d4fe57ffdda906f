// SPDX-License-Identifier: Apache-2.0
//
// A Transaction as one nf_tables batch, committed whole or not at all. Remembers the operation of
// each message for errors.
#ifndef KIPT_NETLINK_BATCH_H_
#define KIPT_NETLINK_BATCH_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "netlink/attributes.h"
#include "netlink/requests.h"
#include "netlink/socket.h"
#include "netlink/transaction.h"

namespace kipt::netlink {

class Batch {
 public:
  // Messages are numbered from `first_sequence`. `transaction` must outlive the batch.
  // InvalidArgument: an operation that no kernel would take, DeleteChain of a base chain, or a
  // native table whose listing nft(8) could not read. ResourceExhausted: an allocation failed.
  static absl::StatusOr<Batch> Build(const Transaction& transaction, uint32_t first_sequence);

  const Requests& messages() const { return messages_; }

  // OK when `errors` is empty. Aborted when the generation was stale, else the batch's first error,
  // with operation, family, table, chain and rule.
  absl::Status Explain(absl::Span<const BatchError> errors) const;

 private:
  class Builder;
  // What a message is about.
  struct Subject {
    const Operation* operation = nullptr;  // null: begin or end of the batch
    // "putting in place the table ip guard, chain input". Empty: ActionText.
    std::string action = {};
  };

  explicit Batch(uint32_t first_sequence) : messages_(first_sequence) {}

  Requests messages_;
  std::vector<Subject> subjects_;  // of each message
};

// "creating chain ip filter USER": what an operation on iptables' chains was doing.
std::string ActionText(const Operation& operation);

// A refused rule. `message` is the one that `error` is for: the kernel points at the expression.
absl::Status ExplainRule(const AddRule& add, const BatchError& error, WireBytes message);

// The same for a message of a native table or, without `action`, of the batch itself.
absl::Status ExplainNative(const std::string& action, const BatchError& error, WireBytes message);

}  // namespace kipt::netlink

#endif  // KIPT_NETLINK_BATCH_H_
