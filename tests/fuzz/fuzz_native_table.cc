// SPDX-License-Identifier: Apache-2.0
//
// The decoder of native tables on any messages: a table that it takes for one of ours is one that
// we could write, and what we would write for it is read as the same.
#include <linux/netlink.h>

#include <cstring>

// Before linux/netfilter.h, or the two redefine each other.
#include <netinet/in.h>
// Then the kernel's.
#include <linux/netfilter.h>
#include <linux/netfilter/nf_tables.h>

#include "netlink/native_decoder.h"
#include "netlink/native_encoder.h"
#include "tests/fuzz/require.h"
#include "tests/fuzz/targets.h"
#include "tests/fuzz/wire_messages.h"
#include "tests/support/ruleset_text.h"

namespace kipt::testing {
namespace {

using netlink::Family;
using netlink::NativeTableDecoder;
using netlink::ObservedNativeTable;

constexpr char kName[] = "kube-iptables-agent";

// What the kernel would dump of what we would send.
ObservedNativeTable SentAndDumped(const ObservedNativeTable& observed) {
  const auto messages = netlink::EncodeNative(netlink::PutNativeTable{observed.table});
  KIPT_REQUIRE(messages.ok());
  NativeTableDecoder decoder(observed.table.family, observed.table.name);
  for (const netlink::NativeMessage& message : *messages) {
    nlmsghdr header = {};
    std::memcpy(&header, message.bytes.data(), sizeof header);
    const netlink::WireBytes bytes(message.bytes);
    switch (header.nlmsg_type & 0xff) {
      case NFT_MSG_NEWCHAIN:
        decoder.AddChain(bytes);
        break;
      case NFT_MSG_NEWRULE:
        decoder.AddRule(bytes);
        break;
      default:
        break;
    }
  }
  return std::move(decoder).Finish();
}

// What nft(8) could not take back is not ours, though its bytes say the same: a comment with a
// quote, a chain whose name is no word.
bool CanBeWritten(const netlink::NativeTable& table) {
  return netlink::EncodeNative(netlink::PutNativeTable{table}).ok();
}

}  // namespace

// '0' IPv4 or '1' IPv6; then frames (wire_messages.h): what kind of message, and the message.
void FuzzNativeTable(FuzzBytes input) {
  const Family family = TakeSelector(input, 2) == 0 ? Family::kIPv4 : Family::kIPv6;
  NativeTableDecoder decoder(family, kName);
  for (const Frame& frame : TakeFrames(input)) {
    switch (frame.kind % 8) {
      case 0:
        decoder.AddTable(frame.bytes);
        break;
      case 1:
        decoder.AddChain(frame.bytes);
        break;
      case 7:
        decoder.AddOther();
        break;
      default:
        decoder.AddRule(frame.bytes);
        break;
    }
  }
  const ObservedNativeTable observed = std::move(decoder).Finish();
  KIPT_REQUIRE(observed.table.family == family && observed.table.name == kName);
  KIPT_REQUIRE(!ToString(observed.table).empty());
  if (observed.altered || !CanBeWritten(observed.table)) return;
  const ObservedNativeTable again = SentAndDumped(observed);
  KIPT_REQUIRE(again.table == observed.table);
}

}  // namespace kipt::testing
