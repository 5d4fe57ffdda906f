// SPDX-License-Identifier: Apache-2.0
//
// The comparison of native tables on any messages: a table that is not altered holds, rule for
// rule, what we would have written.
#include <linux/netlink.h>

#include <cstring>

// Before linux/netfilter.h, or the two redefine each other.
#include <netinet/in.h>
// Then the kernel's.
#include <linux/netfilter.h>
#include <linux/netfilter/nf_tables.h>

#include "agent/policy/rule_forms.h"
#include "netlink/batch.h"
#include "netlink/nft_requests.h"
#include "tests/fuzz/require.h"
#include "tests/fuzz/targets.h"
#include "tests/fuzz/wire_messages.h"

namespace kipt::testing {
namespace {

using netlink::Batch;
using netlink::NativeTable;

// What the kernel would dump of what we would send.
bool IsAlteredWhenWritten(const NativeTable& table, FuzzBytes table_message) {
  const netlink::Transaction transaction = {.operations = {netlink::PutNativeTable{table}}};
  const auto batch = Batch::Build(transaction, /*first_sequence=*/0);
  KIPT_REQUIRE(batch.ok());
  netlink::NativeComparison comparison(table);
  comparison.AddTable(table_message);
  for (uint32_t i = 0; i < batch->messages().count(); ++i) {
    const netlink::WireBytes message = batch->messages().Message(i);
    nlmsghdr header = {};
    std::memcpy(&header, message.data(), sizeof header);
    if ((header.nlmsg_type & 0xff) == NFT_MSG_NEWCHAIN) comparison.AddChain(message);
    if ((header.nlmsg_type & 0xff) == NFT_MSG_NEWRULE) comparison.AddRule(message);
  }
  return comparison.Finish()->altered;
}

}  // namespace

// '0' IPv4 or '1' IPv6; then frames (wire_messages.h): what kind of message, and the message.
void FuzzNativeTable(FuzzBytes input) {
  NativeTable table = agent::NativeMartians();
  if (TakeSelector(input, 2) != 0) table.chains.clear();
  netlink::NativeComparison comparison(table);
  FuzzBytes table_message;
  for (const Frame& frame : TakeFrames(input)) {
    switch (frame.kind % 8) {
      case 0:
        table_message = frame.bytes;
        comparison.AddTable(frame.bytes);
        break;
      case 1:
        comparison.AddChain(frame.bytes);
        break;
      default:
        comparison.AddRule(frame.bytes);
        break;
    }
  }
  if (!comparison.Finish()->altered && !table_message.empty()) {
    KIPT_REQUIRE(!IsAlteredWhenWritten(table, table_message));
  }
}

}  // namespace kipt::testing
