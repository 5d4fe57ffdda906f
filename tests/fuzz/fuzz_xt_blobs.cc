// SPDX-License-Identifier: Apache-2.0
//
// The kernel's structs of every xtables match and target that we read, as any bytes. Parsed Rules
// encode to the same bytes, other texts are fit to be shown, and a struct that may set a bit of the
// mark is reported so.
#include <cstdint>
#include <optional>
#include <string>

#include "netlink/xt_display.h"
#include "netlink/xt_info.h"
#include "tests/fuzz/require.h"
#include "tests/fuzz/targets.h"

namespace kipt::testing {
namespace {

using netlink::Family;

// All that netlink/xt_info.h decodes or knows, or netlink/xt_*_display.cc shows.
constexpr absl::string_view kXtMatches[] = {
    "comment",   "mark",   "conntrack", "addrtype", "connmark", "icmp",      "icmp6", "limit",
    "multiport", "nfacct", "physdev",   "recent",   "sctp",     "statistic", "tcp",   "udp",
    "set",       "state",  "rpfilter",  "bpf",      "unknown",  "connlabel"};
constexpr absl::string_view kXtTargets[] = {"MARK",  "MASQUERADE", "CONNMARK", "CT",     "LOG",
                                            "NFLOG", "NOTRACK",    "REJECT",   "TCPMSS", "TPROXY",
                                            "DNAT",  "SNAT",       "REDIRECT", "TRACE",  "NETMAP",
                                            "SET",   "HL",         "TTL",      "unknown"};

// Revisions 0 to 5.
constexpr size_t kXtRevisions = 6;

void CheckText(const std::optional<std::string>& text, absl::string_view option) {
  if (!text) return;
  KIPT_REQUIRE(text->find('\0') == std::string::npos);
  KIPT_REQUIRE(absl::string_view(*text).substr(0, option.size()) == option);
}

void CheckMatch(Family family, absl::string_view name, uint32_t revision, FuzzBytes info) {
  CheckText(netlink::DisplayXtMatch(family, name, revision, info), "-m ");
  const netlink::Marks marks = netlink::MarksOfXtMatch(name, revision, info);
  if (netlink::IsMatchWithoutMark(name)) KIPT_REQUIRE((marks.tested | marks.set) == 0);
}

void CheckTarget(Family family, absl::string_view name, uint32_t revision, FuzzBytes info) {
  CheckText(netlink::DisplayXtTarget(family, name, revision, info), "-j ");
  const netlink::Marks marks = netlink::MarksOfXtTarget(name, revision, info);
  if (netlink::IsTargetWithoutMark(name)) KIPT_REQUIRE(marks == netlink::Marks{});
}

// Each that is understood is one that we write.
void CheckVocabulary(Family family, uint32_t revision, FuzzBytes info) {
  if (const auto comment = netlink::DecodeXtComment(info)) {
    KIPT_REQUIRE(comment->size() <= netlink::kMaxCommentLength);
    KIPT_REQUIRE(netlink::DecodeXtComment(netlink::EncodeXtComment(*comment)) == comment);
  }
  if (const auto mark = netlink::DecodeXtMark(info)) {
    KIPT_REQUIRE(netlink::DecodeXtMark(netlink::EncodeXtMark(*mark)) == mark);
  }
  if (const auto state = netlink::DecodeXtCtState(revision, info)) {
    KIPT_REQUIRE(netlink::IsKnownCtState(state->match.states));
    const auto again =
        netlink::DecodeXtCtState(netlink::kXtConntrack.revision, EncodeXtCtState(state->match));
    KIPT_REQUIRE(again && again->match == state->match && !again->state_alias);
  }
  if (const auto label = netlink::DecodeXtConnLabel(info)) {
    KIPT_REQUIRE(label->label <= netlink::kMostConnLabel);
    KIPT_REQUIRE(netlink::DecodeXtConnLabel(netlink::EncodeXtConnLabel(*label)) == label);
    const netlink::Marks marks =
        netlink::MarksOfXtMatch(netlink::kXtConnLabel.name, netlink::kXtConnLabel.revision, info);
    KIPT_REQUIRE(marks.labels_set.test(label->label) == label->set);
  }
  if (const auto mark = netlink::DecodeXtSetMark(info)) {
    KIPT_REQUIRE(netlink::DecodeXtSetMark(netlink::EncodeXtSetMark(*mark)) == mark);
    const netlink::Marks marks =
        netlink::MarksOfXtTarget("MARK", netlink::kXtSetMark.revision, info);
    // mark = (mark & ~mask) ^ value: a bit of the value may come on.
    KIPT_REQUIRE((mark->value & ~marks.set) == 0);
  }
  if (const auto masquerade = netlink::DecodeXtMasquerade(family, info)) {
    const auto again =
        netlink::DecodeXtMasquerade(family, netlink::EncodeXtMasquerade(family, *masquerade));
    KIPT_REQUIRE(again == masquerade);
  }
}

}  // namespace

// '0' match or '1' target, '0' IPv4 or '1' IPv6, the name's number, the revision, the struct.
void FuzzXtBlobs(FuzzBytes input) {
  const bool is_target = TakeSelector(input, 2) == 1;
  const Family family = TakeSelector(input, 2) == 0 ? Family::kIPv4 : Family::kIPv6;
  const size_t name =
      TakeSelector(input, is_target ? std::size(kXtTargets) : std::size(kXtMatches));
  const auto revision = static_cast<uint32_t>(TakeSelector(input, kXtRevisions));
  if (is_target) {
    CheckTarget(family, kXtTargets[name], revision, input);
  } else {
    CheckMatch(family, kXtMatches[name], revision, input);
  }
  CheckVocabulary(family, revision, input);
}

}  // namespace kipt::testing
