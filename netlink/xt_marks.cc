// SPDX-License-Identifier: Apache-2.0
#include "netlink/xt_info.h"

// Before linux/netfilter.h, or the two redefine each other.
#include <netinet/in.h>
// Then the kernel's.
#include <linux/netfilter.h>
#include <linux/netfilter/ipset/ip_set.h>
#include <linux/netfilter/xt_CONNMARK.h>
#include <linux/netfilter/xt_TPROXY.h>
#include <linux/netfilter/xt_mark.h>
#include <linux/netfilter/xt_rpfilter.h>
#include <linux/netfilter/xt_set.h>
#include <linux/netfilter/xt_socket.h>

#include <algorithm>
#include <iterator>
#include <optional>

#include "absl/algorithm/container.h"

namespace kipt::netlink {
namespace {

// Matches that have nothing to do with the mark. (A set of type hash:ip,mark looks at it, but a
// rule does not tell the type of its set.) Not here: bpf, whose program may read anything. Of all
// of them, and of those below, connlabel alone gives labels.
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
static_assert(std::is_sorted(std::begin(kMatches), std::end(kMatches)));

// The same of targets. Not here: NFQUEUE, whose program may set the mark with its verdict, and the
// connection's labels (NFQA_CT), and HMARK, which sets the mark.
constexpr absl::string_view kTargets[] = {
    "AUDIT",      "CHECKSUM", "CLASSIFY", "CLUSTERIP", "CONNSECMARK", "CT",          "DNAT",
    "DNPT",       "DSCP",     "ECN",      "HL",        "IDLETIMER",   "LED",         "LOG",
    "MASQUERADE", "NETMAP",   "NFLOG",    "NOTRACK",   "RATEEST",     "REDIRECT",    "REJECT",
    "SECMARK",    "SNAT",     "SNPT",     "SYNPROXY",  "TCPMSS",      "TCPOPTSTRIP", "TEE",
    "TOS",        "TRACE",    "TTL",      "ULOG"};
static_assert(std::is_sorted(std::begin(kTargets), std::end(kTargets)));

Marks OfSocket(uint32_t revision, XtBytes bytes) {
  // Revision 0 has no struct, the others one byte of flags.
  if (revision == 0) return {};
  const auto info = FromXtBytes<xt_socket_mtinfo3>(bytes);
  const bool known = info && revision <= 3 && (info->flags & ~XT_SOCKET_FLAGS_V3) == 0;
  const bool restores = !known || (info->flags & XT_SOCKET_RESTORESKMARK) != 0;
  return {.set = restores ? kAllMarks : 0};
}

Marks OfRpfilter(XtBytes bytes) {
  const auto info = FromXtBytes<xt_rpfilter_info>(bytes);
  const bool asks = !info || (info->flags & XT_RPFILTER_VALID_MARK) != 0;
  return {.tested = asks ? kAllMarks : 0};
}

// net/netfilter/xt_connmark.c: restoring is mark = (mark & ~nfmask) ^ (ctmark & ctmask), saving
// looks at mark & nfmask, and setting does not touch the packet.
Marks OfConnmark(uint8_t mode, uint32_t ctmask, uint32_t nfmask, bool shifts) {
  switch (mode) {
    case XT_CONNMARK_SET:
      return {};
    case XT_CONNMARK_SAVE:
      return {.tested = nfmask};
    case XT_CONNMARK_RESTORE:
      return {.set = shifts ? kAllMarks : ctmask};
    default:
      return MarksOfUnknownTarget();
  }
}

Marks OfConnmark(uint32_t revision, XtBytes bytes) {
  if (revision == 1) {
    const auto info = FromXtBytes<xt_connmark_tginfo1>(bytes);
    return info ? OfConnmark(info->mode, info->ctmask, info->nfmask, false)
                : MarksOfUnknownTarget();
  }
  const auto info = FromXtBytes<xt_connmark_tginfo2>(bytes);
  if (revision != 2 || !info) return MarksOfUnknownTarget();
  return OfConnmark(info->mode, info->ctmask, info->nfmask, info->shift_bits != 0);
}

Marks OfTproxy(uint32_t revision, XtBytes bytes) {
  if (revision == 0) {
    const auto info = FromXtBytes<xt_tproxy_target_info>(bytes);
    return info ? Marks{.set = info->mark_value} : MarksOfUnknownTarget();
  }
  const auto info = FromXtBytes<xt_tproxy_target_info_v1>(bytes);
  return info && revision == 1 ? Marks{.set = info->mark_value} : MarksOfUnknownTarget();
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
  if (!match || revision != kXtConnLabelRevision) return {.labels_set = AllConnLabels()};
  return MarksOf(Rule{.conn_label = *match});
}

}  // namespace

Marks MarksOfUnknownMatch() { return {.tested = kAllMarks, .labels_set = AllConnLabels()}; }

Marks MarksOfUnknownTarget() {
  return {.tested = kAllMarks, .set = kAllMarks, .labels_set = AllConnLabels()};
}

bool IsMatchWithoutMark(absl::string_view name) {
  return std::binary_search(std::begin(kMatches), std::end(kMatches), name);
}

bool IsTargetWithoutMark(absl::string_view name) {
  return std::binary_search(std::begin(kTargets), std::end(kTargets), name);
}

TargetEffect EffectOfTarget(absl::string_view name) {
  constexpr absl::string_view kPassOn[] = {"LOG", "NFLOG", "TRACE"};
  constexpr absl::string_view kTerminal[] = {"REJECT",     "DNAT",     "SNAT",
                                             "MASQUERADE", "REDIRECT", "NETMAP"};
  return {.decides = !absl::c_linear_search(kPassOn, name),
          .terminal = absl::c_linear_search(kTerminal, name)};
}

Marks MarksOfXtMatch(absl::string_view name, uint32_t revision, XtBytes info) {
  if (name == kXtConnLabel) return OfConnLabel(revision, info);
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
    const auto mark = FromXtBytes<xt_mark_tginfo2>(info);
    if (!mark || revision != 2) return {.set = kAllMarks};
    return MarksOf(Rule{.target = SetMark{.value = mark->mark, .mask = mark->mask}});
  }
  if (name == "CONNMARK") return OfConnmark(revision, info);
  if (name == "TPROXY") return OfTproxy(revision, info);
  if (name == "SET") return OfSet(revision, info);
  if (name == "HMARK") return {.tested = kAllMarks, .set = kAllMarks};
  return MarksOfUnknownTarget();
}

}  // namespace kipt::netlink
