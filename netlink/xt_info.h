// SPDX-License-Identifier: Apache-2.0
//
// The xtables matches and targets of our vocabulary as the kernel's structs (NFTA_MATCH_INFO,
// NFTA_TARGET_INFO). Those that are only shown are in xt_display.h.
//
// Encoders return all bytes that the kernel will dump, with zero padding: `iptables -C` compares
// whole blobs. Decoders take any bytes. They read what the kernel reads (no padding, no field that
// no flag enables), and return nothing if the blob means more than our vocabulary can express.
#ifndef KIPT_NETLINK_XT_INFO_H_
#define KIPT_NETLINK_XT_INFO_H_

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "netlink/ruleset.h"

namespace kipt::netlink {

// The kernel's structs, taken from bytes that may be anything.
using XtBytes = absl::Span<const uint8_t>;

// XT_ALIGN of linux/netfilter/x_tables.h, on the 64-bit machines that we run on. (The macro itself
// needs typeof, which C++20 has not, in some versions of the header.)
constexpr size_t AlignXt(size_t size) { return (size + 7) & ~size_t{7}; }

// Nothing where `bytes` has another size than T, or T aligned: the kernel takes both.
template <typename T>
std::optional<T> FromXtBytes(XtBytes bytes) {
  if (bytes.size() < sizeof(T) || bytes.size() > AlignXt(sizeof(T))) return std::nullopt;
  T value;
  std::memcpy(&value, bytes.data(), sizeof(T));
  return value;
}

// Names and revisions as encoded.
struct XtName {
  const char* name;
  uint32_t revision;
};
inline constexpr XtName kXtComment = {"comment", 0};
inline constexpr XtName kXtMark = {"mark", 1};
inline constexpr XtName kXtConntrack = {"conntrack", 3};
inline constexpr XtName kXtConnLabel = {"connlabel", 0};
inline constexpr XtName kXtSetMark = {"MARK", 2};
inline constexpr XtName kXtMasquerade = {"MASQUERADE", 0};

// XT_MAX_COMMENT_LEN without the NUL.
inline constexpr size_t kMaxCommentLength = 255;

// Cut off after kMaxCommentLength bytes.
std::vector<uint8_t> EncodeXtComment(absl::string_view comment);
std::optional<std::string> DecodeXtComment(XtBytes info);

std::vector<uint8_t> EncodeXtMark(const MarkMatch& mark);
std::optional<MarkMatch> DecodeXtMark(XtBytes info);

// At least one state, and a name for each.
bool IsKnownCtState(uint16_t states);

struct XtCtState {
  CtStateMatch match;
  // Written as `-m state --state`, an older name.
  bool state_alias = false;
};
std::vector<uint8_t> EncodeXtCtState(const CtStateMatch& match);
// Revisions 1, 2 and 3 differ in how wide the state is.
std::optional<XtCtState> DecodeXtCtState(uint32_t revision, XtBytes info);

std::vector<uint8_t> EncodeXtConnLabel(const ConnLabelMatch& match);
std::optional<ConnLabelMatch> DecodeXtConnLabel(XtBytes info);

std::vector<uint8_t> EncodeXtSetMark(const SetMark& mark);
std::optional<SetMark> DecodeXtSetMark(XtBytes info);

// The families have different structs.
std::vector<uint8_t> EncodeXtMasquerade(Family family, const Masquerade& masquerade);
std::optional<Masquerade> DecodeXtMasquerade(Family family, XtBytes info);

// ---- what xtables matches and targets do with the packet, its mark and its connection's labels

// Whether no match, or target, of that name tests or changes the mark, whatever its options. Except
// the match connlabel they leave labels alone, too.
bool IsMatchWithoutMark(absl::string_view name);
bool IsTargetWithoutMark(absl::string_view name);

// As in OpaqueRule. A name that is not known may do anything.
struct TargetEffect {
  bool decides = true;
  bool terminal = false;
  bool perhaps_terminal = false;
};
TargetEffect EffectOfTarget(absl::string_view name);
// As OpaqueRule::queues.
bool QueuesWithoutBypass(absl::string_view target, uint32_t revision, XtBytes info);
// Whether a match is known to send some packets past the rule. The others match every packet, as
// `-m comment` does, or may: a match that only counts, a BPF program.
bool Selects(absl::string_view match, XtBytes info);
// The same of a match without its options.
bool Selects(absl::string_view match);

// `info` may be any bytes. All bits and labels if it does not show which.
Marks MarksOfXtMatch(absl::string_view name, uint32_t revision, XtBytes info);
Marks MarksOfXtTarget(absl::string_view name, uint32_t revision, XtBytes info);
// The match "set"'s OpaqueRule::set_directions. Empty where `info` does not have them.
std::string XtSetDirections(uint32_t revision, XtBytes info);
// net/netfilter/xt_connmark.c: `--restore-mark` is mark = (mark & ~nfmask) ^ (ctmark & ctmask).
Marks MarksOfRestore(uint32_t nfmask, uint32_t ctmask);
Marks MarksOfUnknownMatch();
Marks MarksOfUnknownTarget();

}  // namespace kipt::netlink

#endif  // KIPT_NETLINK_XT_INFO_H_
