// SPDX-License-Identifier: Apache-2.0
//
// File: netlink/native_encoder.h
//
// Native tables on their way to nf_tables: in one form, which nft(8) prints and takes back.
#ifndef KIPT_NETLINK_NATIVE_ENCODER_H_
#define KIPT_NETLINK_NATIVE_ENCODER_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "netlink/native_table.h"
#include "netlink/transaction.h"

namespace kipt::netlink {

// One message of a batch.
struct NativeMessage {
  // From its nlmsghdr on. The sequence number is 0 and is to be set.
  std::vector<uint8_t> bytes;
  // What it does, for errors: "putting the table ip guard in place, chain input".
  std::string action;
};

// The messages of a PutNativeTable or DeleteNativeTable.
// InvalidArgument: the wire cannot say it, or nft(8) could not take its own listing of it back (a
// comment of more than 127 bytes, or with a quote or a control character), or the chains are not in
// the order of their names.
absl::StatusOr<std::vector<NativeMessage>> EncodeNative(const Operation& operation);

}  // namespace kipt::netlink

#endif  // KIPT_NETLINK_NATIVE_ENCODER_H_
