// SPDX-License-Identifier: Apache-2.0
#include "netlink/xt_info.h"

// Before linux/netfilter.h, or the two redefine each other.
#include <netinet/in.h>
// Then the kernel's.
#include <linux/netfilter/nf_nat.h>
#include <linux/netfilter/x_tables.h>
#include <linux/netfilter/xt_comment.h>
#include <linux/netfilter/xt_connlabel.h>
#include <linux/netfilter/xt_conntrack.h>
#include <linux/netfilter/xt_mark.h>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <type_traits>

namespace kipt::netlink {
namespace {

static_assert(kCtInvalid == XT_CONNTRACK_STATE_INVALID);
static_assert(kCtEstablished == XT_CONNTRACK_STATE_BIT(IP_CT_ESTABLISHED));
static_assert(kCtRelated == XT_CONNTRACK_STATE_BIT(IP_CT_RELATED));
static_assert(kCtNew == XT_CONNTRACK_STATE_BIT(IP_CT_NEW));
static_assert(kCtSnat == XT_CONNTRACK_STATE_SNAT);
static_assert(kCtDnat == XT_CONNTRACK_STATE_DNAT);
static_assert(kCtUntracked == XT_CONNTRACK_STATE_UNTRACKED);
static_assert(kMostConnLabel == XT_CONNLABEL_MAXBIT);
static_assert(kMaxCommentLength + 1 == XT_MAX_COMMENT_LEN);

// A struct's bytes, all zero. Members are copied into them one by one: a struct on the stack will
// not do, however it was cleared, for an optimiser that keeps its members apart forgets the padding
// between them (g++ 12 at -O2).
template <typename T>
std::vector<uint8_t> ZeroBytes() {
  return std::vector<uint8_t>(XT_ALIGN(sizeof(T)), 0);
}

template <typename Member>
void Put(std::vector<uint8_t>& bytes, size_t offset, std::type_identity_t<Member> value) {
  std::memcpy(bytes.data() + offset, &value, sizeof(value));
}

template <typename T>
std::optional<XtCtState> DecodeMtInfo(XtBytes bytes) {
  const std::optional<T> info = FromXtBytes<T>(bytes);
  if (!info) return std::nullopt;
  const uint16_t flags = info->match_flags;
  if ((flags & ~XT_CONNTRACK_STATE_ALIAS) != XT_CONNTRACK_STATE) return std::nullopt;
  // What is inverted but not matched is not looked at; still, nobody writes it.
  if ((info->invert_flags & ~XT_CONNTRACK_STATE) != 0) return std::nullopt;
  if (!IsKnownCtState(info->state_mask)) return std::nullopt;
  XtCtState state;
  state.match.states = info->state_mask;
  state.match.negated = (info->invert_flags & XT_CONNTRACK_STATE) != 0;
  state.state_alias = (flags & XT_CONNTRACK_STATE_ALIAS) != 0;
  return state;
}

}  // namespace

std::vector<uint8_t> EncodeXtComment(absl::string_view comment) {
  std::vector<uint8_t> bytes = ZeroBytes<xt_comment_info>();
  std::memcpy(bytes.data() + offsetof(xt_comment_info, comment), comment.data(),
              std::min(comment.size(), kMaxCommentLength));
  return bytes;
}

std::optional<std::string> DecodeXtComment(XtBytes bytes) {
  const auto info = FromXtBytes<xt_comment_info>(bytes);
  if (!info) return std::nullopt;
  const size_t length = strnlen(info->comment, sizeof(info->comment));
  if (length == sizeof(info->comment)) return std::nullopt;
  return std::string(info->comment, length);
}

std::vector<uint8_t> EncodeXtMark(const MarkMatch& mark) {
  using Info = xt_mark_mtinfo1;
  std::vector<uint8_t> bytes = ZeroBytes<Info>();
  Put<decltype(Info::mark)>(bytes, offsetof(Info, mark), mark.value);
  Put<decltype(Info::mask)>(bytes, offsetof(Info, mask), mark.mask);
  Put<decltype(Info::invert)>(bytes, offsetof(Info, invert), mark.negated ? 1 : 0);
  return bytes;
}

std::optional<MarkMatch> DecodeXtMark(XtBytes bytes) {
  const auto info = FromXtBytes<xt_mark_mtinfo1>(bytes);
  // `invert` is compared with a truth value, so 2 would mean "always": not ours.
  if (!info || info->invert > 1) return std::nullopt;
  return MarkMatch{.value = info->mark, .mask = info->mask, .negated = info->invert == 1};
}

bool IsKnownCtState(uint16_t states) {
  constexpr unsigned kAll =
      kCtInvalid | kCtEstablished | kCtRelated | kCtNew | kCtSnat | kCtDnat | kCtUntracked;
  return states != 0 && (states & ~kAll) == 0;
}

std::vector<uint8_t> EncodeXtCtState(const CtStateMatch& match) {
  using Info = xt_conntrack_mtinfo3;
  std::vector<uint8_t> bytes = ZeroBytes<Info>();
  Put<decltype(Info::match_flags)>(bytes, offsetof(Info, match_flags), XT_CONNTRACK_STATE);
  Put<decltype(Info::invert_flags)>(bytes, offsetof(Info, invert_flags),
                                    match.negated ? XT_CONNTRACK_STATE : 0);
  Put<decltype(Info::state_mask)>(bytes, offsetof(Info, state_mask), match.states);
  return bytes;
}

std::optional<XtCtState> DecodeXtCtState(uint32_t revision, XtBytes bytes) {
  switch (revision) {
    case 1:
      return DecodeMtInfo<xt_conntrack_mtinfo1>(bytes);
    case 2:
      return DecodeMtInfo<xt_conntrack_mtinfo2>(bytes);
    case 3:
      return DecodeMtInfo<xt_conntrack_mtinfo3>(bytes);
    default:
      return std::nullopt;
  }
}

std::vector<uint8_t> EncodeXtConnLabel(const ConnLabelMatch& match) {
  using Info = xt_connlabel_mtinfo;
  const int options =
      (match.set ? XT_CONNLABEL_OP_SET : 0) | (match.negated ? XT_CONNLABEL_OP_INVERT : 0);
  std::vector<uint8_t> bytes = ZeroBytes<Info>();
  Put<decltype(Info::bit)>(bytes, offsetof(Info, bit), match.label);
  Put<decltype(Info::options)>(bytes, offsetof(Info, options), static_cast<uint16_t>(options));
  return bytes;
}

std::optional<ConnLabelMatch> DecodeXtConnLabel(XtBytes bytes) {
  const auto info = FromXtBytes<xt_connlabel_mtinfo>(bytes);
  constexpr int kOptions = XT_CONNLABEL_OP_SET | XT_CONNLABEL_OP_INVERT;
  if (!info || info->bit > kMostConnLabel || (info->options & ~kOptions) != 0) return std::nullopt;
  return ConnLabelMatch{.label = static_cast<uint8_t>(info->bit),
                        .set = (info->options & XT_CONNLABEL_OP_SET) != 0,
                        .negated = (info->options & XT_CONNLABEL_OP_INVERT) != 0};
}

std::vector<uint8_t> EncodeXtSetMark(const SetMark& mark) {
  using Info = xt_mark_tginfo2;
  std::vector<uint8_t> bytes = ZeroBytes<Info>();
  Put<decltype(Info::mark)>(bytes, offsetof(Info, mark), mark.value);
  Put<decltype(Info::mask)>(bytes, offsetof(Info, mask), mark.mask);
  return bytes;
}

std::optional<SetMark> DecodeXtSetMark(XtBytes bytes) {
  const auto info = FromXtBytes<xt_mark_tginfo2>(bytes);
  if (!info) return std::nullopt;
  return SetMark{.value = info->mark, .mask = info->mask};
}

std::vector<uint8_t> EncodeXtMasquerade(Family family, const Masquerade& masquerade) {
  const unsigned flags = masquerade.random_fully ? NF_NAT_RANGE_PROTO_RANDOM_FULLY : 0;
  if (family == Family::kIPv6) {
    std::vector<uint8_t> bytes = ZeroBytes<nf_nat_range>();
    Put<decltype(nf_nat_range::flags)>(bytes, offsetof(nf_nat_range, flags), flags);
    return bytes;
  }
  using Info = nf_nat_ipv4_multi_range_compat;
  std::vector<uint8_t> bytes = ZeroBytes<Info>();
  Put<decltype(Info::rangesize)>(bytes, offsetof(Info, rangesize), 1);
  Put<decltype(nf_nat_ipv4_range::flags)>(
      bytes, offsetof(Info, range) + offsetof(nf_nat_ipv4_range, flags), flags);
  return bytes;
}

std::optional<Masquerade> DecodeXtMasquerade(Family family, XtBytes bytes) {
  unsigned flags = 0;
  if (family == Family::kIPv6) {
    const auto range = FromXtBytes<nf_nat_range>(bytes);
    if (!range) return std::nullopt;
    flags = range->flags;
  } else {
    const auto ranges = FromXtBytes<nf_nat_ipv4_multi_range_compat>(bytes);
    if (!ranges || ranges->rangesize != 1) return std::nullopt;
    flags = ranges->range[0].flags;
  }
  if ((flags & ~static_cast<unsigned>(NF_NAT_RANGE_PROTO_RANDOM_FULLY)) != 0) return std::nullopt;
  return Masquerade{.random_fully = flags != 0};
}

}  // namespace kipt::netlink
