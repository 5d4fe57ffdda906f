// SPDX-License-Identifier: Apache-2.0
//
// Other programs' xtables matches and targets as iptables-save prints them: those of service
// proxies, network plugins, container engines and firewalls. Any unknown flag, mode or value: no
// text.
#ifndef KIPT_NETLINK_XT_DISPLAY_H_
#define KIPT_NETLINK_XT_DISPLAY_H_

#include <cstdint>
#include <optional>
#include <string>
#include <type_traits>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "netlink/attributes.h"
#include "netlink/ruleset.h"
#include "netlink/xt_info.h"

namespace kipt::netlink {

// "-m multiport --dports 80,443". `info` may be any bytes.
std::optional<std::string> DisplayXtMatch(Family family, absl::string_view name, uint32_t revision,
                                          XtBytes info);

// "-j DNAT --to-destination 10.0.0.1:80".
std::optional<std::string> DisplayXtTarget(Family family, absl::string_view name, uint32_t revision,
                                           XtBytes info);

// An expression of nf_tables' own that iptables-nft writes instead of an xtables extension:
// "-m limit --limit 5/min", "-j NFLOG --nflog-group 3". Else empty.
std::string DisplayNative(absl::string_view name, const Attributes& data);

// ---- words that several of them use ----

// Nothing: there are bits that are not known here.
using Spelling = std::optional<std::string>;

// Shows the bytes of an Info, by a function that takes one or that and the family.
template <typename Info, auto kShow>
Spelling Of(Family family, XtBytes bytes) {
  const std::optional<Info> info = FromXtBytes<Info>(bytes);
  if (!info) return std::nullopt;
  if constexpr (std::is_invocable_v<decltype(kShow), Family, const Info&>) {
    return kShow(family, *info);
  } else {
    return kShow(*info);
  }
}

// " --dport 80", " ! --dport 80".
std::string OptionWords(absl::string_view option, absl::string_view value, bool negated = false);

// The options of one match or target. There is no text if no call asks for a bit of `flags`, or if
// `inverted` has a bit that `flags` does not have.
class OptionList {
 public:
  // `name` is "-m tcp" or "-j LOG".
  explicit OptionList(absl::string_view name, uint32_t flags = 0, uint32_t inverted = 0)
      : text_(std::string(name)), flags_(flags), inverted_(inverted), unknown_(flags) {}

  // Whether `flags` has `bit`.
  bool Has(uint32_t bit) {
    unknown_ &= ~bit;
    return (flags_ & bit) != 0;
  }

  // Without a value there is no text at all.
  void Add(absl::string_view option, const Spelling& value = "", bool negated = false) {
    text_ = text_ && value ? Spelling(*text_ + OptionWords(option, *value, negated)) : std::nullopt;
  }
  // Where it is `present`; what is not there cannot be negated.
  void AddIf(bool present, absl::string_view option, const Spelling& value = "",
             bool negated = false) {
    if (present || negated) Add(option, present ? value : std::nullopt, negated);
  }
  // Where `flags` has `bit`, and negated where `inverted` has it.
  void AddFlag(uint32_t bit, absl::string_view option, const Spelling& value = "") {
    if (Has(bit)) Add(option, value, (inverted_ & bit) != 0);
  }

  Spelling text() const {
    return unknown_ == 0 && (inverted_ & ~flags_) == 0 ? text_ : std::nullopt;
  }

 private:
  Spelling text_;
  uint32_t flags_;
  uint32_t inverted_;
  uint32_t unknown_;
};

struct XtDisplay {
  absl::string_view name;
  uint32_t revision;
  Spelling (*display)(Family, XtBytes);
};
// By the row of `name` and `revision`. Nothing where there is none.
Spelling Display(absl::Span<const XtDisplay> rows, Family family, absl::string_view name,
                 uint32_t revision, XtBytes info);

// "80", or "80:90".
std::string PortsText(uint16_t first, uint16_t last);

// "0x1/0xff"; "0x1" where the mask has all bits.
std::string MarkText(uint32_t value, uint32_t mask);

// The names of the bits that are set, from the lowest: "UNICAST,LOCAL". Nothing where one has none.
Spelling BitNames(absl::Span<const char* const> names, uint32_t bits);

// "SYN,ACK SYN": of the flags `mask`, those. Nothing where a bit is none that iptables can name.
Spelling TcpFlagsText(uint8_t mask, uint8_t flags);

// "-m limit --limit 5/min --limit-burst 7": one packet in `period` ten thousandths of a second.
// Nothing for a period that libxt_limit cannot print.
Spelling LimitText(uint64_t period, uint32_t burst);

// NFLOG, as a target or as nf_tables' own. `copy_bytes` 0: what the listener asks for.
std::string NflogText(absl::string_view prefix, uint16_t group, uint32_t copy_bytes,
                      uint16_t threshold);

// The address as text, without a prefix.
std::string AddressText(Family family, const void* address);

}  // namespace kipt::netlink

#endif  // KIPT_NETLINK_XT_DISPLAY_H_
