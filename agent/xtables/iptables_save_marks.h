// SPDX-License-Identifier: Apache-2.0
//
// File: agent/xtables/iptables_save_marks.h
//
// Which bits of the packet mark the options of a saved rule look at, which they may turn on and
// which they turn off, and which labels they may give to the connection, as in OpaqueRule. Values
// may be spelled as iptables(8) accepts them, not only as iptables-save prints them: files are
// written by hand, too.
#ifndef KIPT_AGENT_XTABLES_IPTABLES_SAVE_MARKS_H_
#define KIPT_AGENT_XTABLES_IPTABLES_SAVE_MARKS_H_

#include <cstdint>
#include <optional>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "netlink/xt_info.h"

namespace kipt::agent {

using netlink::kAllMarks;
using SavedMarks = netlink::Marks;

// "16/0xff" or "020": decimal, hexadecimal or octal, as iptables(8) accepts numbers. All bits
// where there is no mask.
std::optional<netlink::SetMark> ReadMaskedValue(absl::string_view word);

// Of the match `-m NAME`. `words` are those behind the name; its options end at the next -m, -j or
// -g. A match that we do not know may look at every bit, and give every label.
SavedMarks MarksOfMatch(absl::string_view name, absl::Span<const absl::string_view> words);

// Of the target `-j NAME`, which is no chain and no verdict. `words` are those behind the name,
// all. A target that we do not know may do anything with every bit and label.
SavedMarks MarksOfTarget(absl::string_view name, absl::Span<const absl::string_view> words);

}  // namespace kipt::agent

#endif  // KIPT_AGENT_XTABLES_IPTABLES_SAVE_MARKS_H_
