// SPDX-License-Identifier: Apache-2.0
#include "netlink/attributes.h"

#include <arpa/inet.h>
#include <endian.h>
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

// Of the first attribute. No bytes at all are one of length 0, which does not fit.
nlattr FirstHeader(WireBytes bytes) {
  nlattr header = {};
  if (bytes.size() >= sizeof(header)) std::memcpy(&header, bytes.data(), sizeof(header));
  return header;
}

bool Fits(const nlattr& header, WireBytes bytes) {
  return header.nla_len >= sizeof(header) && header.nla_len <= bytes.size();
}

void RemoveFirst(const nlattr& header, WireBytes& bytes) {
  // The last one may come without its padding.
  bytes.remove_prefix(std::min<size_t>(NLA_ALIGN(header.nla_len), bytes.size()));
}

// Removes the first one from `bytes`, whose lengths fit.
Attribute TakeFirst(WireBytes& bytes) {
  const nlattr header = FirstHeader(bytes);
  const Attribute attribute = {.type = static_cast<uint16_t>(header.nla_type & NLA_TYPE_MASK),
                               .payload = bytes.first(header.nla_len).subspan(sizeof(header))};
  RemoveFirst(header, bytes);
  return attribute;
}

}  // namespace

std::optional<Attributes> Attributes::Parse(WireBytes bytes) {
  Attributes attributes;
  attributes.bytes_ = bytes;
  while (!bytes.empty()) {
    const nlattr header = FirstHeader(bytes);
    if (!Fits(header, bytes)) return std::nullopt;
    RemoveFirst(header, bytes);
  }
  return attributes;
}

Attributes Attributes::OfMessage(WireBytes message, size_t header) {
  message.remove_prefix(std::min(message.size(), NLMSG_HDRLEN + NLMSG_ALIGN(header)));
  return Parse(message).value_or(Attributes());
}

std::vector<Attribute> Attributes::all() const {
  std::vector<Attribute> all;
  for (WireBytes rest = bytes_; !rest.empty();) all.push_back(TakeFirst(rest));
  return all;
}

bool Attributes::HasOnly(std::initializer_list<uint16_t> types) const {
  for (WireBytes rest = bytes_; !rest.empty();) {
    const Attribute attribute = TakeFirst(rest);
    // It is the first of its type.
    if (Bytes(attribute.type)->data() != attribute.payload.data()) return false;
    if (std::find(types.begin(), types.end(), attribute.type) == types.end()) return false;
  }
  return true;
}

std::optional<WireBytes> Attributes::Bytes(uint16_t type) const {
  for (WireBytes rest = bytes_; !rest.empty();) {
    const Attribute attribute = TakeFirst(rest);
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

Attributes Attributes::Nest(uint16_t type) const {
  return Parse(Bytes(type).value_or(WireBytes())).value_or(Attributes());
}

uint8_t FamilyOf(WireBytes message) {
  return message[NLMSG_HDRLEN + offsetof(nfgenmsg, nfgen_family)];
}

uint16_t NftMessageType(uint16_t type) {
  return static_cast<uint16_t>(NFNL_SUBSYS_NFTABLES << 8 | type);
}

}  // namespace kipt::netlink
