// SPDX-License-Identifier: Apache-2.0
//
// File: netlink/xt_bytes.h
//
// The kernel's structs of xtables matches and targets, taken from bytes that may be anything.
#ifndef KIPT_NETLINK_XT_BYTES_H_
#define KIPT_NETLINK_XT_BYTES_H_

#include <cstdint>
#include <cstring>
#include <optional>

#include "absl/types/span.h"

namespace kipt::netlink {

using XtBytes = absl::Span<const uint8_t>;

// XT_ALIGN of linux/netfilter/x_tables.h, on the 64-bit machines that we run on.
constexpr size_t AlignXt(size_t size) { return (size + 7) & ~size_t{7}; }

// Nothing where `bytes` has another size than T. The kernel takes sizes that are equal once
// aligned, and dumps the aligned one.
template <typename T>
std::optional<T> FromXtBytes(XtBytes bytes) {
  if (bytes.size() < sizeof(T) || bytes.size() > AlignXt(sizeof(T))) return std::nullopt;
  T value;
  std::memcpy(&value, bytes.data(), sizeof(T));
  return value;
}

}  // namespace kipt::netlink

#endif  // KIPT_NETLINK_XT_BYTES_H_
