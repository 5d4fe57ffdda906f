// SPDX-License-Identifier: Apache-2.0
//
// File: netlink/xt_display.h
//
// Other people's xtables matches and targets in the words of iptables-save: those that service
// proxies, network plugins, container engines and firewalls write. Only shown, never written. Each
// says all that its bytes say, or nothing: one flag, mode or value beyond what is known here, and
// there is no text.
#ifndef KIPT_NETLINK_XT_DISPLAY_H_
#define KIPT_NETLINK_XT_DISPLAY_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

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

// An expression of nf_tables' own that iptables-nft writes in place of an xtables extension: "-m
// limit
// --limit 5/min", "-j NFLOG --nflog-group 3". Empty where the expression is another, or says
// anything beyond what is known here.
std::string DisplayNative(absl::string_view name, const Attributes& data);

// ---- words that several of them use ----

// " --dport 80", " ! --dport 80": what is added behind "-m NAME".
std::string OptionWords(absl::string_view option, absl::string_view value, bool negated = false);

// "80", or "80:90".
std::string PortsText(uint16_t first, uint16_t last);

// "0x1/0xff"; "0x1" where the mask has all bits.
std::string MarkText(uint32_t value, uint32_t mask);

// The names of the bits that are set, from the lowest: "UNICAST,LOCAL". Nothing where one has none.
std::optional<std::string> BitNames(absl::Span<const char* const> names, uint32_t bits);

// "FIN,SYN"; "NONE". Nothing where a bit of `flags` is none that iptables can name.
std::optional<std::string> TcpFlagsText(uint8_t flags);

// "-m limit --limit 5/min --limit-burst 7": one packet in `period` ten thousandths of a second, as
// libxt_limit counts. Nothing for a period that it cannot print.
std::optional<std::string> LimitText(uint64_t period, uint32_t burst);

// What NFLOG is told, as a target or as nf_tables' own.
struct NflogOptions {
  std::string prefix = {};
  uint16_t group = 0;
  uint32_t copy_bytes = 0;  // 0: what the listener asks for
  uint16_t threshold = 0;
};
std::string NflogText(const NflogOptions& options);

// ---- conntrack, whose options are many ----

std::optional<std::string> DisplayConntrack(Family family, uint32_t revision, XtBytes info);

// The address as text, without a prefix.
std::string AddressText(Family family, const void* address);

}  // namespace kipt::netlink

#endif  // KIPT_NETLINK_XT_DISPLAY_H_
