// SPDX-License-Identifier: Apache-2.0
//
// Messages that are sent in one datagram, each built in its place by libmnl or libnftnl.
#ifndef KIPT_NETLINK_REQUESTS_H_
#define KIPT_NETLINK_REQUESTS_H_

#include <linux/netlink.h>

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"
#include "netlink/attributes.h"

namespace kipt::netlink {

// Numbered in their order. What a function returns is valid until the next message is begun.
class Requests {
 public:
  // Attributes that are texts without a NUL, {type, value}.
  using Texts = std::initializer_list<std::pair<uint16_t, absl::string_view>>;

  // More than any message of nf_tables that we send, with its header. The longest, a rule with two
  // addresses and a chain, a comment and a jump of 255 bytes each, has fewer than 2,000 bytes.
  static constexpr size_t kMostBytes = 4096;

  // `first` is the first one's sequence number.
  explicit Requests(uint32_t first) : first_(first) {}

  // Where a function of libmnl or libnftnl is to write the next message: `bytes` of zeros.
  struct Place {
    char* memory;
    uint32_t sequence;
  };
  Place Next(size_t bytes = kMostBytes);

  // For mnl_attr_put*(), unless it has texts. `type` is an NftMessageType or another subsystem's,
  // `family` an NFPROTO_*, `flags` are NLM_F_* in addition to NLM_F_REQUEST.
  nlmsghdr* Begin(uint16_t type, uint16_t family, uint16_t flags, Texts texts = {});
  // A message of another protocol, with its own header.
  nlmsghdr* BeginWith(WireBytes header, uint16_t type, uint16_t flags, size_t bytes = kMostBytes);

  WireBytes bytes() const { return WireBytes(bytes_).first(size()); }
  uint32_t first() const { return first_; }
  uint32_t count() const { return static_cast<uint32_t>(offsets_.size()); }
  // Message number `index`, from 0.
  WireBytes Message(size_t index) const;

 private:
  // Without what the last message left of its place.
  size_t size() const;

  uint32_t first_;
  std::vector<uint8_t> bytes_;
  std::vector<size_t> offsets_;  // of each message
};

}  // namespace kipt::netlink

#endif  // KIPT_NETLINK_REQUESTS_H_
