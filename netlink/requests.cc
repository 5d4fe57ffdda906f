// SPDX-License-Identifier: Apache-2.0
#include "netlink/requests.h"

#include <libmnl/libmnl.h>

#include <cstring>
#include <string>

#include "netlink/nf_tables.h"

namespace kipt::netlink {

Requests::Place Requests::Next(size_t bytes) {
  const size_t offset = size();
  // Zeros, not the previous message's bytes past its end.
  bytes_.resize(offset);
  bytes_.resize(offset + bytes);
  offsets_.push_back(offset);
  return {reinterpret_cast<char*>(bytes_.data() + offset), first_ + count() - 1};
}

nlmsghdr* Requests::BeginWith(WireBytes header, uint16_t type, uint16_t flags, size_t bytes) {
  const auto [memory, sequence] = Next(bytes);
  nlmsghdr* message = mnl_nlmsg_put_header(memory);
  message->nlmsg_type = type;
  message->nlmsg_flags = static_cast<uint16_t>(NLM_F_REQUEST | flags);
  message->nlmsg_seq = sequence;
  std::memcpy(mnl_nlmsg_put_extra_header(message, header.size()), header.data(), header.size());
  return message;
}

nlmsghdr* Requests::Begin(uint16_t type, uint16_t family, uint16_t flags, Texts texts) {
  const nfgenmsg generic = {
      .nfgen_family = static_cast<uint8_t>(family), .version = NFNETLINK_V0, .res_id = 0};
  size_t bytes = MNL_NLMSG_HDRLEN + MNL_ALIGN(sizeof(generic));
  for (const auto& [attribute, text] : texts) bytes += MNL_ATTR_HDRLEN + MNL_ALIGN(text.size() + 1);
  if (texts.size() == 0) bytes = kMostBytes;
  nlmsghdr* message =
      BeginWith({reinterpret_cast<const uint8_t*>(&generic), sizeof(generic)}, type, flags, bytes);
  for (const auto& [attribute, text] : texts) {
    mnl_attr_put_strz(message, attribute, std::string(text).c_str());
  }
  return message;
}

WireBytes Requests::Message(size_t index) const {
  const size_t end = index + 1 < offsets_.size() ? offsets_[index + 1] : size();
  return bytes().subspan(offsets_[index], end - offsets_[index]);
}

size_t Requests::size() const {
  if (offsets_.empty()) return 0;
  nlmsghdr last = {};
  std::memcpy(&last, bytes_.data() + offsets_.back(), sizeof(last));
  return offsets_.back() + NLMSG_ALIGN(last.nlmsg_len);
}

}  // namespace kipt::netlink
