// SPDX-License-Identifier: Apache-2.0
#include "netlink/xt_info.h"

// Before linux/netfilter.h, or the two redefine each other.
#include <netinet/in.h>
// Then the kernel's.
#include <linux/netfilter.h>
#include <linux/netfilter/ipset/ip_set.h>
#include <linux/netfilter/nf_nat.h>
#include <linux/netfilter/x_tables.h>
#include <linux/netfilter/xt_CONNMARK.h>
#include <linux/netfilter/xt_NFQUEUE.h>
#include <linux/netfilter/xt_TPROXY.h>
#include <linux/netfilter/xt_comment.h>
#include <linux/netfilter/xt_connlabel.h>
#include <linux/netfilter/xt_conntrack.h>
#include <linux/netfilter/xt_mark.h>
#include <linux/netfilter/xt_recent.h>
#include <linux/netfilter/xt_rpfilter.h>
#include <linux/netfilter/xt_set.h>
#include <linux/netfilter/xt_socket.h>

#include "absl/algorithm/container.h"
#include "absl/functional/function_ref.h"
#include "absl/strings/str_join.h"

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

// The bytes of a T whose members `fill` sets. Zero before, on the heap: of a struct on the stack,
// however it was cleared, an optimiser forgets the padding (g++ 12 at -O2).
template <typename T>
std::vector<uint8_t> Encode(absl::FunctionRef<void(T&)> fill) {
  std::vector<uint8_t> bytes(AlignXt(sizeof(T)), 0);
  fill(*reinterpret_cast<T*>(bytes.data()));
  return bytes;
}

template <typename T>
std::optional<XtCtState> DecodeMtInfo(XtBytes bytes) {
  const std::optional<T> info = FromXtBytes<T>(bytes);
  if (!info) return std::nullopt;
  const uint16_t flags = info->match_flags;
  if ((flags & ~XT_CONNTRACK_STATE_ALIAS) != XT_CONNTRACK_STATE) return std::nullopt;
  // The kernel ignores what is inverted but not matched; no program writes it.
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
  return Encode<xt_comment_info>(
      [&](auto& info) { comment.copy(info.comment, kMaxCommentLength); });
}

std::optional<std::string> DecodeXtComment(XtBytes bytes) {
  const auto info = FromXtBytes<xt_comment_info>(bytes);
  if (!info) return std::nullopt;
  const size_t length = strnlen(info->comment, sizeof(info->comment));
  if (length == sizeof(info->comment)) return std::nullopt;
  return std::string(info->comment, length);
}

std::vector<uint8_t> EncodeXtMark(const MarkMatch& mark) {
  return Encode<xt_mark_mtinfo1>([&](auto& info) {
    info.mark = mark.value;
    info.mask = mark.mask;
    info.invert = mark.negated ? 1 : 0;
  });
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
  return Encode<xt_conntrack_mtinfo3>([&](auto& info) {
    info.match_flags = XT_CONNTRACK_STATE;
    info.invert_flags = match.negated ? XT_CONNTRACK_STATE : 0;
    info.state_mask = match.states;
  });
}

std::optional<XtCtState> DecodeXtCtState(uint32_t revision, XtBytes bytes) {
  if (revision == 1) return DecodeMtInfo<xt_conntrack_mtinfo1>(bytes);
  if (revision == 2) return DecodeMtInfo<xt_conntrack_mtinfo2>(bytes);
  return revision == 3 ? DecodeMtInfo<xt_conntrack_mtinfo3>(bytes) : std::nullopt;
}

std::vector<uint8_t> EncodeXtConnLabel(const ConnLabelMatch& match) {
  return Encode<xt_connlabel_mtinfo>([&](auto& info) {
    info.bit = match.label;
    info.options = static_cast<uint16_t>((match.set ? XT_CONNLABEL_OP_SET : 0) |
                                         (match.negated ? XT_CONNLABEL_OP_INVERT : 0));
  });
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
  return Encode<xt_mark_tginfo2>([&](auto& info) {
    info.mark = mark.value;
    info.mask = mark.mask;
  });
}

std::optional<SetMark> DecodeXtSetMark(XtBytes bytes) {
  const auto info = FromXtBytes<xt_mark_tginfo2>(bytes);
  if (!info) return std::nullopt;
  return SetMark{.value = info->mark, .mask = info->mask};
}

std::vector<uint8_t> EncodeXtMasquerade(Family family, const Masquerade& masquerade) {
  const unsigned flags = masquerade.random_fully ? NF_NAT_RANGE_PROTO_RANDOM_FULLY : 0;
  if (family == Family::kIPv6) {
    return Encode<nf_nat_range>([&](auto& info) { info.flags = flags; });
  }
  return Encode<nf_nat_ipv4_multi_range_compat>([&](auto& info) {
    info.rangesize = 1;
    info.range[0].flags = flags;
  });
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

// ---- what they do with the packet, its mark and its connection's labels ----

namespace {

// Matches that have nothing to do with the mark. (A set of type hash:ip,mark tests it, but the rule
// does not hold its set's type.) Not here: bpf, whose program may read anything. Of these and the
// targets below, connlabel alone gives labels.
constexpr absl::string_view kMatches[] = {
    "addrtype",  "ah",        "cgroup",    "cluster", "comment", "connbytes", "connlabel",
    "connlimit", "connmark",  "conntrack", "cpu",     "dccp",    "devgroup",  "dscp",
    "dst",       "ecn",       "esp",       "eui64",   "frag",    "hashlimit", "hbh",
    "helper",    "hl",        "icmp",      "icmp6",   "ipcomp",  "iprange",   "ipv6header",
    "ipvs",      "l2tp",      "length",    "limit",   "mac",     "mh",        "multiport",
    "nfacct",    "osf",       "owner",     "physdev", "pkttype", "policy",    "quota",
    "rateest",   "realm",     "recent",    "rt",      "sctp",    "set",       "srh",
    "state",     "statistic", "string",    "tcp",     "tcpmss",  "time",      "tos",
    "ttl",       "u32",       "udp",       "udplite"};

// Not here: NFQUEUE, whose program may set the mark and the connection's labels (NFQA_CT) with its
// verdict, and HMARK, which sets the mark.
constexpr absl::string_view kTargets[] = {
    "AUDIT",      "CHECKSUM", "CLASSIFY", "CLUSTERIP", "CONNSECMARK", "CT",          "DNAT",
    "DNPT",       "DSCP",     "ECN",      "HL",        "IDLETIMER",   "LED",         "LOG",
    "MASQUERADE", "NETMAP",   "NFLOG",    "NOTRACK",   "RATEEST",     "REDIRECT",    "REJECT",
    "SECMARK",    "SNAT",     "SNPT",     "SYNPROXY",  "TCPMSS",      "TCPOPTSTRIP", "TEE",
    "TOS",        "TRACE",    "TTL",      "ULOG"};

Marks OfSocket(uint32_t revision, XtBytes bytes) {
  // Revision 0 has no struct, the others one byte of flags.
  if (revision == 0) return {};
  const auto info = FromXtBytes<xt_socket_mtinfo3>(bytes);
  const bool known = info && revision <= 3 && (info->flags & ~XT_SOCKET_FLAGS_V3) == 0;
  const bool restores = !known || (info->flags & XT_SOCKET_RESTORESKMARK) != 0;
  // The socket's mark replaces the packet's.
  return {.set = restores ? kAllMarks : 0, .cleared = known && restores ? kAllMarks : 0};
}

Marks OfRpfilter(XtBytes bytes) {
  const auto info = FromXtBytes<xt_rpfilter_info>(bytes);
  const bool asks = !info || (info->flags & XT_RPFILTER_VALID_MARK) != 0;
  return {.tested = asks ? kAllMarks : 0};
}

// Saving tests mark & nfmask, and setting does not touch the packet. `info` of either revision,
// `shifted` its mask of the connection's mark as the bits that reach the packet.
Marks OfConnmark(const auto& info, uint32_t shifted) {
  if (!info || info->mode > XT_CONNMARK_RESTORE) return MarksOfUnknownTarget();
  if (info->mode == XT_CONNMARK_RESTORE) return MarksOfRestore(info->nfmask, shifted);
  return {.tested = info->mode == XT_CONNMARK_SAVE ? info->nfmask : 0};
}

Marks OfConnmark(uint32_t revision, XtBytes bytes) {
  if (revision == 1) {
    const auto info = FromXtBytes<xt_connmark_tginfo1>(bytes);
    return OfConnmark(info, info ? info->ctmask : 0);
  }
  const auto info = FromXtBytes<xt_connmark_tginfo2>(bytes);
  if (revision != 2 || !info || info->shift_bits > 31) return MarksOfUnknownTarget();
  return OfConnmark(info, info->shift_dir == D_SHIFT_RIGHT ? info->ctmask >> info->shift_bits
                                                           : info->ctmask << info->shift_bits);
}

// `info` of either revision.
Marks OfTproxy(const auto& info) {
  if (!info) return MarksOfUnknownTarget();
  return MarksOf(Rule{.target = SetMark{.value = info->mark_value, .mask = info->mark_mask}});
}

Marks OfSet(uint32_t revision, XtBytes bytes) {
  // Revisions before 3 add to and delete from sets, and no more.
  if (revision < 3) return {};
  const auto info = FromXtBytes<xt_set_info_target_v3>(bytes);
  const bool maps = !info || revision > 3 || (info->flags & IPSET_FLAG_MAP_SKBMARK) != 0;
  return {.set = maps ? kAllMarks : 0};
}

Marks OfConnLabel(uint32_t revision, XtBytes bytes) {
  const auto match = DecodeXtConnLabel(bytes);
  if (!match || revision != kXtConnLabel.revision) return {.labels_set = AllConnLabels()};
  return MarksOf(Rule{.conn_label = match});
}

}  // namespace

Marks MarksOfRestore(uint32_t nfmask, uint32_t ctmask) {
  return {.set = ctmask, .cleared = nfmask | ctmask};
}

Marks MarksOfUnknownMatch() { return {.tested = kAllMarks, .labels_set = AllConnLabels()}; }

Marks MarksOfUnknownTarget() {
  return {.tested = kAllMarks, .set = kAllMarks, .labels_set = AllConnLabels()};
}

std::string XtSetDirections(uint32_t revision, XtBytes bytes) {
  // Since revision 1 each begins with this struct; its flags have one bit for each dimension.
  const size_t size = sizeof(xt_set_info);
  if (revision == 0 || revision > 4 || bytes.size() < size) return "";
  const auto info = FromXtBytes<xt_set_info>(bytes.first(AlignXt(size)));
  if (!info || info->dim > IPSET_DIM_MAX || (info->flags & IPSET_INV_MATCH) != 0) return "";
  std::vector<absl::string_view> directions;
  for (unsigned i = 1; i <= info->dim; ++i) {
    directions.emplace_back((info->flags & (1U << i)) != 0 ? "src" : "dst");
  }
  return absl::StrJoin(directions, ",");
}

bool IsMatchWithoutMark(absl::string_view name) { return absl::c_linear_search(kMatches, name); }

bool IsTargetWithoutMark(absl::string_view name) { return absl::c_linear_search(kTargets, name); }

TargetEffect EffectOfTarget(absl::string_view name) {
  constexpr absl::string_view kPassOn[] = {"LOG", "NFLOG", "TRACE"};
  // A queue's program decides; with --queue-bypass and without a program the packet is accepted.
  // TPROXY accepts for a socket, and drops.
  constexpr absl::string_view kTerminal[] = {"DNAT",     "MASQUERADE", "NETMAP", "NFQUEUE", "QUEUE",
                                             "REDIRECT", "REJECT",     "SNAT",   "TPROXY"};
  // These two answer or drop some packets. The other targets that are known change the packet, its
  // mark or its connection, and pass it on.
  constexpr absl::string_view kSometimes[] = {"CLUSTERIP", "SYNPROXY"};
  constexpr absl::string_view kMarks[] = {"CONNMARK", "HMARK", "MARK", "SET"};
  const bool terminal = absl::c_linear_search(kTerminal, name);
  const bool known = IsTargetWithoutMark(name) || absl::c_linear_search(kMarks, name);
  return {.decides = !absl::c_linear_search(kPassOn, name),
          .terminal = terminal,
          .perhaps_terminal = !terminal && (!known || absl::c_linear_search(kSometimes, name))};
}

bool QueuesWithoutBypass(absl::string_view target, uint32_t revision, XtBytes info) {
  if (target != "NFQUEUE") return target == "QUEUE";
  // Revision 2 has a flag there, 3 several of which it is the first; older ones cannot bypass.
  const auto queue = FromXtBytes<xt_NFQ_info_v3>(info);
  return revision < 2 || !queue || (queue->flags & NFQ_FLAG_BYPASS) == 0;
}

bool Selects(absl::string_view match) {
  constexpr absl::string_view kAlwaysTrue[] = {"comment", "nfacct"};
  constexpr absl::string_view kOfTheMark[] = {"mark", "rpfilter", "socket"};
  return (IsMatchWithoutMark(match) && !absl::c_linear_search(kAlwaysTrue, match)) ||
         absl::c_linear_search(kOfTheMark, match);
}

bool Selects(absl::string_view match, XtBytes info) {
  const size_t size = AlignXt(sizeof(xt_recent_mtinfo));  // later revisions begin alike
  if (match != "recent" || info.size() < size) return Selects(match);
  // `-m recent --set` remembers every packet.
  const auto recent = FromXtBytes<xt_recent_mtinfo>(info.first(size));
  return !recent || (recent->check_set & XT_RECENT_SET) == 0 || recent->invert != 0;
}

Marks MarksOfXtMatch(absl::string_view name, uint32_t revision, XtBytes info) {
  if (name == kXtConnLabel.name) return OfConnLabel(revision, info);
  if (IsMatchWithoutMark(name)) return {};
  if (name == "mark") {
    const auto mark = FromXtBytes<xt_mark_mtinfo1>(info);
    return {.tested = mark && revision == 1 ? mark->mask : kAllMarks};
  }
  if (name == "socket") return OfSocket(revision, info);
  if (name == "rpfilter") return OfRpfilter(info);
  if (name == "bpf") return {.tested = kAllMarks};
  return MarksOfUnknownMatch();
}

Marks MarksOfXtTarget(absl::string_view name, uint32_t revision, XtBytes info) {
  if (IsTargetWithoutMark(name)) return {};
  if (name == "MARK") {
    const std::optional<SetMark> mark = DecodeXtSetMark(info);
    if (!mark || revision != kXtSetMark.revision) return {.set = kAllMarks};
    return MarksOf(Rule{.target = *mark});
  }
  if (name == "CONNMARK") return OfConnmark(revision, info);
  if (name == "TPROXY" && revision == 0) return OfTproxy(FromXtBytes<xt_tproxy_target_info>(info));
  if (name == "TPROXY" && revision == 1) {
    return OfTproxy(FromXtBytes<xt_tproxy_target_info_v1>(info));
  }
  if (name == "SET") return OfSet(revision, info);
  if (name == "HMARK") return {.set = kAllMarks, .cleared = kAllMarks};
  return MarksOfUnknownTarget();
}

}  // namespace kipt::netlink
