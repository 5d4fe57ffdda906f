// SPDX-License-Identifier: Apache-2.0
//
// File: netlink/xt_marks.h
//
// What xtables matches and targets do with the packet, its mark and its connection's labels:
// OpaqueRule::marks_tested, marks_set, marks_cleared and labels_set. Whatever may look at the mark,
// turn a bit on or give a label, but does not say which, gets all.
#ifndef KIPT_NETLINK_XT_MARKS_H_
#define KIPT_NETLINK_XT_MARKS_H_

#include <cstdint>

#include "absl/strings/string_view.h"
#include "netlink/ruleset.h"
#include "netlink/xt_info.h"

namespace kipt::netlink {

inline constexpr uint32_t kAllMarks = 0xffffffff;

struct XtMarks {
  uint32_t tested = 0;
  uint32_t set = 0;
  uint32_t cleared = 0;
  ConnLabelSet labels_set = {};

  bool operator==(const XtMarks&) const = default;
};

// Whether every match, or target, of that name neither looks at the mark nor changes it, whatever
// its options. But for the match connlabel they leave labels alone, too.
bool IsMatchWithoutMark(absl::string_view name);
bool IsTargetWithoutMark(absl::string_view name);

// What targets outside our vocabulary do to a packet: as OpaqueRule::decides and ::terminal. A name
// that is not known may do anything.
struct TargetEffect {
  bool decides = true;
  bool terminal = false;
};
TargetEffect EffectOfTarget(absl::string_view name);

// `info` may be any bytes.
XtMarks MarksOfXtMatch(absl::string_view name, uint32_t revision, XtBytes info);
// What a match, or target, of an unknown name may do.
XtMarks MarksOfUnknownMatch();
XtMarks MarksOfUnknownTarget();
XtMarks MarksOfXtTarget(absl::string_view name, uint32_t revision, XtBytes info);

}  // namespace kipt::netlink

#endif  // KIPT_NETLINK_XT_MARKS_H_
