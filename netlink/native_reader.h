// SPDX-License-Identifier: Apache-2.0
//
// File: netlink/native_reader.h
//
// A native table, as it stands in the kernel.
#ifndef KIPT_NETLINK_NATIVE_READER_H_
#define KIPT_NETLINK_NATIVE_READER_H_

#include <string>

#include "absl/status/statusor.h"
#include "netlink/backend.h"
#include "netlink/socket.h"

namespace kipt::netlink {

// Backend::ReadNativeTable over `socket`, in whose network namespace it reads. As long as the table
// is what its rules say, the cost does not grow with other tables.
absl::StatusOr<NativeReading> ReadNativeTable(Socket& socket, Family family,
                                              const std::string& name);

}  // namespace kipt::netlink

#endif  // KIPT_NETLINK_NATIVE_READER_H_
