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

// Removes the first one from `bytes`. Nothing where its length does not fit.
std::optional<Attribute> TakeFirst(WireBytes& bytes) {
  nlattr header = {};
  if (bytes.size() < sizeof(header)) return std::nullopt;
  std::memcpy(&header, bytes.data(), sizeof(header));
  if (header.nla_len < sizeof(header) || header.nla_len > bytes.size()) return std::nullopt;
  const Attribute attribute = {
      .type = static_cast<uint16_t>(header.nla_type & NLA_TYPE_MASK),
      .payload = bytes.subspan(sizeof(header), header.nla_len - sizeof(header))};
  // The last one may come without its padding.
  bytes.remove_prefix(std::min<size_t>(NLA_ALIGN(header.nla_len), bytes.size()));
  return attribute;
}

}  // namespace

std::optional<Attributes> Attributes::Parse(WireBytes bytes) {
  Attributes attributes;
  attributes.bytes_ = bytes;
  while (!bytes.empty()) {
    if (!TakeFirst(bytes)) return std::nullopt;
  }
  return attributes;
}

Attributes Attributes::OfMessage(WireBytes message, size_t header) {
  message.remove_prefix(std::min(message.size(), NLMSG_HDRLEN + NLMSG_ALIGN(header)));
  return Parse(message).value_or(Attributes());
}

std::vector<Attribute> Attributes::all() const {
  std::vector<Attribute> all;
  WireBytes rest = bytes_;
  while (const std::optional<Attribute> attribute = TakeFirst(rest)) all.push_back(*attribute);
  return all;
}

bool Attributes::HasOnly(std::initializer_list<uint16_t> types) const {
  WireBytes rest = bytes_;
  while (const std::optional<Attribute> attribute = TakeFirst(rest)) {
    // It is the first of its type.
    if (Bytes(attribute->type)->data() != attribute->payload.data()) return false;
    if (std::find(types.begin(), types.end(), attribute->type) == types.end()) return false;
  }
  return true;
}

std::optional<WireBytes> Attributes::Bytes(uint16_t type) const {
  WireBytes rest = bytes_;
  while (const std::optional<Attribute> attribute = TakeFirst(rest)) {
    if (attribute->type == type) return attribute->payload;
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

void Messages::BeginWith(WireBytes header, uint16_t type, uint16_t flags) {
  const nlmsghdr common = {.nlmsg_len = 0,
                           .nlmsg_type = type,
                           .nlmsg_flags = static_cast<uint16_t>(NLM_F_REQUEST | flags),
                           .nlmsg_seq = first_ + count(),
                           .nlmsg_pid = 0};
  offsets_.push_back(bytes_.size());
  Append(&common, sizeof(common));
  Append(header.data(), header.size());
}

void Messages::Begin(uint16_t type, uint16_t family, uint16_t flags, Texts texts) {
  // A batch's begin and end name the subsystem here.
  const bool is_mark = type == NFNL_MSG_BATCH_BEGIN || type == NFNL_MSG_BATCH_END;
  const nfgenmsg generic = {.nfgen_family = static_cast<uint8_t>(family),
                            .version = NFNETLINK_V0,
                            .res_id = htons(is_mark ? NFNL_SUBSYS_NFTABLES : 0)};
  BeginWith({reinterpret_cast<const uint8_t*>(&generic), sizeof(generic)}, type, flags);
  for (const auto& [attribute, text] : texts) PutText(attribute, text);
}

void Messages::Put(uint16_t type, WireBytes payload) {
  const nlattr header = {.nla_len = static_cast<uint16_t>(sizeof(nlattr) + payload.size()),
                         .nla_type = type};
  Append(&header, sizeof(header));
  Append(payload.data(), payload.size());
}

void Messages::PutU32(uint16_t type, uint32_t value) {
  const uint32_t wire = htonl(value);
  Put(type, {reinterpret_cast<const uint8_t*>(&wire), sizeof(wire)});
}

void Messages::PutU64(uint16_t type, uint64_t value) {
  const uint64_t wire = htobe64(value);
  Put(type, {reinterpret_cast<const uint8_t*>(&wire), sizeof(wire)});
}

void Messages::PutText(uint16_t type, absl::string_view text) {
  std::vector<uint8_t> bytes(text.begin(), text.end());
  bytes.push_back(0);
  Put(type, bytes);
}

void Messages::PutNest(uint16_t type, absl::FunctionRef<void()> content) {
  const size_t start = bytes_.size();
  Put(type | NLA_F_NESTED, {});
  content();
  const auto length = static_cast<uint16_t>(bytes_.size() - start);
  std::memcpy(bytes_.data() + start + offsetof(nlattr, nla_len), &length, sizeof(length));
}

WireBytes Messages::Message(size_t index) const {
  const size_t end = index + 1 < offsets_.size() ? offsets_[index + 1] : bytes_.size();
  return bytes().subspan(offsets_[index], end - offsets_[index]);
}

// Padded, and counted as part of the last message.
void Messages::Append(const void* data, size_t size) {
  const auto* bytes = static_cast<const uint8_t*>(data);
  bytes_.insert(bytes_.end(), bytes, bytes + size);
  bytes_.resize(NLMSG_ALIGN(bytes_.size()), 0);
  const auto length = static_cast<uint32_t>(bytes_.size() - offsets_.back());
  std::memcpy(bytes_.data() + offsets_.back() + offsetof(nlmsghdr, nlmsg_len), &length,
              sizeof(length));
}

}  // namespace kipt::netlink
