// SPDX-License-Identifier: Apache-2.0
#include "netlink/rule_builder.h"

#include <linux/netfilter/nf_tables.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>
#include <memory>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/types/span.h"

namespace kipt::netlink {
namespace {

// Of a comment in the user data (enum nftnl_udata_rule_types).
constexpr uint8_t kCommentType = 0;

// Offsets of saddr in struct iphdr and struct ipv6hdr; daddr follows.
uint32_t SourceOffset(Family family) { return family == Family::kIPv4 ? 12 : 8; }
uint32_t AddressSize(Family family) { return family == Family::kIPv4 ? 4 : 16; }

}  // namespace

void RuleBuilder::Source(Family family, const PrefixMatch& match) {
  Address(SourceOffset(family), AddressSize(family), match);
}

void RuleBuilder::Destination(Family family, const PrefixMatch& match) {
  Address(SourceOffset(family) + AddressSize(family), AddressSize(family), match);
}

void RuleBuilder::Address(uint32_t offset, uint32_t size, const PrefixMatch& match) {
  nftnl_expr* load = Add("payload");
  if (load == nullptr) return;
  nftnl_expr_set_u32(load, NFTNL_EXPR_PAYLOAD_DREG, NFT_REG_1);
  nftnl_expr_set_u32(load, NFTNL_EXPR_PAYLOAD_BASE, NFT_PAYLOAD_NETWORK_HEADER);
  nftnl_expr_set_u32(load, NFTNL_EXPR_PAYLOAD_OFFSET, offset);
  nftnl_expr_set_u32(load, NFTNL_EXPR_PAYLOAD_LEN, size);
  if (match.prefix.length != size * 8) {
    std::array<uint8_t, 16> ones{};
    for (unsigned bit = 0; bit < match.prefix.length; ++bit) {
      ones[bit / 8] = static_cast<uint8_t>(ones[bit / 8] | (0x80U >> (bit % 8)));
    }
    Mask(absl::MakeConstSpan(ones).subspan(0, size));
  }
  Compare(match.negated ? NFT_CMP_NEQ : NFT_CMP_EQ,
          absl::MakeConstSpan(match.prefix.address).subspan(0, size));
}

void RuleBuilder::ConnectionBits(uint32_t key, uint32_t bits, bool any) {
  nftnl_expr* load = Add("ct");
  if (load == nullptr) return;
  nftnl_expr_set_u32(load, NFTNL_EXPR_CT_DREG, NFT_REG_1);
  nftnl_expr_set_u32(load, NFTNL_EXPR_CT_KEY, key);
  // A number in a register is in the machine's own order.
  std::array<uint8_t, sizeof(bits)> mask{};
  std::memcpy(mask.data(), &bits, sizeof(bits));
  Mask(mask);
  const std::array<uint8_t, sizeof(bits)> zeros{};
  Compare(any ? NFT_CMP_NEQ : NFT_CMP_EQ, zeros);
}

void RuleBuilder::Match(const char* name, uint32_t revision, const std::vector<uint8_t>& info) {
  if (nftnl_expr* match = Add("match")) {
    nftnl_expr_set_str(match, NFTNL_EXPR_MT_NAME, name);
    nftnl_expr_set_u32(match, NFTNL_EXPR_MT_REV, revision);
    SetInfo(match, NFTNL_EXPR_MT_INFO, info);
  }
}

void RuleBuilder::Target(const char* name, uint32_t revision, const std::vector<uint8_t>& info) {
  if (nftnl_expr* target = Add("target")) {
    nftnl_expr_set_str(target, NFTNL_EXPR_TG_NAME, name);
    nftnl_expr_set_u32(target, NFTNL_EXPR_TG_REV, revision);
    SetInfo(target, NFTNL_EXPR_TG_INFO, info);
  }
}

void RuleBuilder::Counter() {
  if (nftnl_expr* counter = Add("counter")) {
    nftnl_expr_set_u64(counter, NFTNL_EXPR_CTR_PACKETS, 0);
    nftnl_expr_set_u64(counter, NFTNL_EXPR_CTR_BYTES, 0);
  }
}

void RuleBuilder::Verdict(int32_t code, const char* chain) {
  if (nftnl_expr* verdict = Add("immediate")) {
    nftnl_expr_set_u32(verdict, NFTNL_EXPR_IMM_DREG, NFT_REG_VERDICT);
    nftnl_expr_set_u32(verdict, NFTNL_EXPR_IMM_VERDICT, static_cast<uint32_t>(code));
    if (chain != nullptr) nftnl_expr_set_str(verdict, NFTNL_EXPR_IMM_CHAIN, chain);
  }
}

void RuleBuilder::UserDataComment(absl::string_view text) {
  std::vector<uint8_t> bytes = {kCommentType, static_cast<uint8_t>(text.size() + 1)};
  bytes.insert(bytes.end(), text.begin(), text.end());
  bytes.push_back(0);
  ok_ = ok_ && nftnl_rule_set_data(rule_, NFTNL_RULE_USERDATA, bytes.data(),
                                   static_cast<uint32_t>(bytes.size())) == 0;
}

nftnl_expr* RuleBuilder::Add(const char* name) {
  nftnl_expr* expression = nftnl_expr_alloc(name);
  if (expression == nullptr) {
    ok_ = false;
  } else {
    nftnl_rule_add_expr(rule_, expression);
  }
  return expression;
}

void RuleBuilder::Mask(WireBytes mask) {
  nftnl_expr* bitwise = Add("bitwise");
  if (bitwise == nullptr) return;
  const auto size = static_cast<uint32_t>(mask.size());
  const std::array<uint8_t, 16> zeros{};
  nftnl_expr_set_u32(bitwise, NFTNL_EXPR_BITWISE_SREG, NFT_REG_1);
  nftnl_expr_set_u32(bitwise, NFTNL_EXPR_BITWISE_DREG, NFT_REG_1);
  nftnl_expr_set_u32(bitwise, NFTNL_EXPR_BITWISE_LEN, size);
  nftnl_expr_set(bitwise, NFTNL_EXPR_BITWISE_MASK, mask.data(), size);
  nftnl_expr_set(bitwise, NFTNL_EXPR_BITWISE_XOR, zeros.data(), size);
}

void RuleBuilder::Compare(uint32_t operation, WireBytes data) {
  nftnl_expr* compare = Add("cmp");
  if (compare == nullptr) return;
  nftnl_expr_set_u32(compare, NFTNL_EXPR_CMP_SREG, NFT_REG_1);
  nftnl_expr_set_u32(compare, NFTNL_EXPR_CMP_OP, operation);
  nftnl_expr_set(compare, NFTNL_EXPR_CMP_DATA, data.data(), static_cast<uint32_t>(data.size()));
}

void RuleBuilder::SetInfo(nftnl_expr* expression, uint16_t attribute,
                          const std::vector<uint8_t>& info) {
  // libnftnl keeps this pointer and gives it to free().
  std::unique_ptr<void, NftnlDeleter<&std::free>> copy(std::malloc(info.size()));
  ok_ = ok_ && copy != nullptr;
  if (copy == nullptr) return;
  std::memcpy(copy.get(), info.data(), info.size());
  nftnl_expr_set(expression, attribute, copy.release(), static_cast<uint32_t>(info.size()));
}  // NOLINT(clang-analyzer-unix.Malloc): the analyzer does not see libnftnl keep it

std::vector<std::string> UserDataComments(WireBytes bytes) {
  std::vector<std::string> comments;
  while (bytes.size() >= 2) {
    const uint8_t type = bytes[0];
    const size_t length = bytes[1];
    bytes.remove_prefix(2);
    if (length > bytes.size()) break;
    if (type == kCommentType && length > 0 && bytes[0] != 0) {
      const WireBytes text = bytes.subspan(0, length);
      comments.emplace_back(text.begin(), std::find(text.begin(), text.end(), 0));
    }
    bytes.remove_prefix(length);
  }
  return comments;
}

absl::Status CheckPrefix(Family family, const std::optional<PrefixMatch>& match) {
  if (!match) return absl::OkStatus();
  const int bits = family == Family::kIPv4 ? 32 : 128;
  const Prefix& prefix = match->prefix;
  if (prefix.length > bits) {
    return absl::InvalidArgumentError(absl::StrCat("an ", FamilyName(family), " prefix of ",
                                                   static_cast<int>(prefix.length), " bits"));
  }
  const absl::StatusOr<Prefix> normal = ParsePrefix(family, ToString(family, prefix));
  if (!normal.ok() || *normal != prefix) {
    return absl::InvalidArgumentError(
        absl::StrCat("the prefix ", ToString(family, prefix), " has bits behind its length"));
  }
  return absl::OkStatus();
}

}  // namespace kipt::netlink
