// SPDX-License-Identifier: Apache-2.0
//
// File: netlink/native_reader.h
//
// The current state of a native table, compared with what we would have written.
#ifndef KIPT_NETLINK_NATIVE_READER_H_
#define KIPT_NETLINK_NATIVE_READER_H_

#include <cstddef>
#include <map>
#include <string>

#include "absl/status/statusor.h"
#include "netlink/attributes.h"
#include "netlink/backend.h"
#include "netlink/socket.h"

namespace kipt::netlink {

// Takes the kernel's messages about a table, in any order except that of the rules of one chain.
// What is not exactly as we write it, whatever the bytes, makes the table altered.
class NativeComparison {
 public:
  // `table` must outlive the comparison.
  explicit NativeComparison(const NativeTable& table) : table_(table) {}

  // NFT_MSG_NEWTABLE, NEWCHAIN and NEWRULE of this table, their nlmsghdr included.
  void AddTable(WireBytes message);
  void AddChain(WireBytes message);
  void AddRule(WireBytes message);

  // Once all are added.
  ObservedNativeTable Finish() const;

 private:
  const NativeChain* FindChain(const std::optional<std::string>& name) const;

  const NativeTable& table_;
  ObservedNativeTable observed_;
  struct Added {
    bool chain = false;
    size_t rules = 0;
  };
  std::map<std::string, Added> added_;  // by the chain's name
};

// Backend::ReadNativeTable over `socket`, in whose network namespace it reads. The cost does not
// grow with other tables.
absl::StatusOr<NativeReading> ReadNativeTable(Socket& socket, const NativeTable& table);

}  // namespace kipt::netlink

#endif  // KIPT_NETLINK_NATIVE_READER_H_
