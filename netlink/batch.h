// SPDX-License-Identifier: Apache-2.0
//
// File: netlink/batch.h
//
// A Transaction as one nf_tables batch: all of it is committed, or nothing. Remembers which message
// came from which operation, so that an error can name everything it is about.
#ifndef KIPT_NETLINK_BATCH_H_
#define KIPT_NETLINK_BATCH_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "netlink/native_encoder.h"
#include "netlink/socket.h"
#include "netlink/transaction.h"

namespace kipt::netlink {

class Batch {
 public:
  // More sequence numbers than the batch of `transaction` needs.
  static uint32_t MaxMessages(const Transaction& transaction);

  // Messages are numbered from `first_sequence`. `transaction` must outlive the batch.
  // InvalidArgument: an operation that no kernel would take, or DeleteChain of a base chain.
  static absl::StatusOr<Batch> Build(const Transaction& transaction, uint32_t first_sequence);

  absl::Span<const uint8_t> bytes() const { return bytes_; }
  uint32_t message_count() const { return static_cast<uint32_t>(messages_.size()); }

  // OK when `errors` is empty. Aborted when the generation was stale, else the first error of the
  // batch, with operation, family, table, chain and rule.
  absl::Status Explain(absl::Span<const BatchError> errors) const;

 private:
  struct Message {
    const Operation* operation = nullptr;  // null: begin or end of the batch
    bool is_table = false;                 // NEWTABLE on behalf of a CreateChain
    size_t offset = 0;                     // in bytes_
    std::string native_action = {};        // of a native table's: NativeMessage::action
  };

  explicit Batch(uint32_t first_sequence) : first_sequence_(first_sequence) {}

  // Appends the message that `build` writes (to zeroed memory that any message fits) and returns.
  void Append(Message message, const std::function<struct nlmsghdr*(char*, uint32_t)>& build);
  void AppendBegin(uint32_t generation);
  absl::Status AppendNative(const Operation& operation);
  void AppendTable(const Operation& operation);
  absl::Status AppendOperation(const Operation& operation);
  void AppendNewChain(const Operation& operation, const ChainId& chain);
  absl::Status AppendNewRule(const Operation& operation, const AddRule& add);
  void AppendDeleteRule(const Operation& operation, const DeleteRule& remove);
  absl::Status AppendDeleteChain(const Operation& operation, const ChainId& chain);
  void AppendWake(const Operation& operation, const WakeTable& wake);

  uint32_t first_sequence_;
  std::vector<uint8_t> bytes_;
  std::vector<Message> messages_;
};

}  // namespace kipt::netlink

#endif  // KIPT_NETLINK_BATCH_H_
