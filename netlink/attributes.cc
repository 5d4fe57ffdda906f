// SPDX-License-Identifier: Apache-2.0
#include "netlink/attributes.h"

#include <linux/netfilter/nfnetlink.h>
#include <linux/netlink.h>

#include <algorithm>
#include <cstddef>
#include <cstring>

namespace kipt::netlink {
namespace {

template <typename T>
std::optional<T> BigEndian(std::optional<WireBytes> bytes) {
  if (!bytes || bytes->size() != sizeof(T)) return std::nullopt;
  T value = 0;
  for (const uint8_t byte : *bytes) value = static_cast<T>((value << 8) | byte);
  return value;
}

}  // namespace

std::optional<Attributes> Attributes::Parse(WireBytes bytes) {
  Attributes attributes;
  while (!bytes.empty()) {
    nlattr header = {};
    if (bytes.size() < sizeof(header)) return std::nullopt;
    std::memcpy(&header, bytes.data(), sizeof(header));
    if (header.nla_len < sizeof(header) || header.nla_len > bytes.size()) return std::nullopt;
    attributes.all_.push_back(
        Attribute{.type = static_cast<uint16_t>(header.nla_type & NLA_TYPE_MASK),
                  .payload = bytes.subspan(sizeof(header), header.nla_len - sizeof(header))});
    // The last one may come without its padding.
    bytes.remove_prefix(std::min<size_t>(NLA_ALIGN(header.nla_len), bytes.size()));
  }
  return attributes;
}

std::optional<Attributes> Attributes::OfMessage(WireBytes message) {
  constexpr size_t kHeaders = NLMSG_HDRLEN + sizeof(nfgenmsg);
  return message.size() < kHeaders ? std::nullopt : Parse(message.subspan(kHeaders));
}

bool Attributes::HasOnly(std::initializer_list<uint16_t> types) const {
  return std::all_of(all_.begin(), all_.end(), [&](const Attribute& attribute) {
    const auto same_type = [&](const Attribute& other) { return other.type == attribute.type; };
    return std::find(types.begin(), types.end(), attribute.type) != types.end() &&
           std::count_if(all_.begin(), all_.end(), same_type) == 1;
  });
}

std::optional<WireBytes> Attributes::Bytes(uint16_t type) const {
  for (const Attribute& attribute : all_) {
    if (attribute.type == type) return attribute.payload;
  }
  return std::nullopt;
}

std::optional<uint16_t> Attributes::U16(uint16_t type) const {
  return BigEndian<uint16_t>(Bytes(type));
}

std::optional<uint32_t> Attributes::U32(uint16_t type) const {
  return BigEndian<uint32_t>(Bytes(type));
}

std::optional<uint64_t> Attributes::U64(uint16_t type) const {
  return BigEndian<uint64_t>(Bytes(type));
}

std::optional<std::string> Attributes::Text(uint16_t type) const {
  const std::optional<WireBytes> bytes = Bytes(type);
  if (!bytes) return std::nullopt;
  return std::string(bytes->begin(), std::find(bytes->begin(), bytes->end(), 0));
}

std::optional<Attributes> Attributes::Nest(uint16_t type) const {
  const std::optional<WireBytes> bytes = Bytes(type);
  return bytes ? Parse(*bytes) : std::nullopt;
}

}  // namespace kipt::netlink
