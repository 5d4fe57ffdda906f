// SPDX-License-Identifier: Apache-2.0
#include "tests/fuzz/wire_messages.h"

// Before linux/netfilter.h, or the two redefine each other.
#include <netinet/in.h>
// Then the kernel's.
#include <libmnl/libmnl.h>
#include <linux/netfilter.h>
#include <linux/netfilter/nf_tables.h>
#include <linux/netfilter/nfnetlink.h>

#include <algorithm>
#include <utility>

#include "absl/status/statusor.h"
#include "netlink/batch.h"
#include "netlink/socket.h"
#include "netlink/transaction.h"

namespace kipt::testing {
namespace {

constexpr size_t kFrameHeader = 3;
constexpr uint16_t kNewRule = (NFNL_SUBSYS_NFTABLES << 8) | NFT_MSG_NEWRULE;

}  // namespace

std::vector<Frame> TakeFrames(FuzzBytes input) {
  std::vector<Frame> frames;
  while (input.size() >= kFrameHeader) {
    Frame frame{.kind = input[0], .bytes = {}};
    const size_t length = std::min<size_t>(static_cast<size_t>(input[1]) | size_t{input[2]} << 8,
                                           input.size() - kFrameHeader);
    input.remove_prefix(kFrameHeader);
    frame.bytes.assign(input.begin(), input.begin() + static_cast<ptrdiff_t>(length));
    input.remove_prefix(length);
    frames.push_back(std::move(frame));
  }
  return frames;
}

std::optional<std::vector<uint8_t>> RuleOnTheWire(const netlink::ChainId& chain,
                                                  const netlink::Rule& rule) {
  const netlink::Transaction transaction{
      .operations = {netlink::AddRule{.chain = chain, .rule = rule}}};
  const absl::StatusOr<netlink::Batch> batch = netlink::Batch::Build(transaction, 1);
  if (!batch.ok()) return std::nullopt;
  // The rule is the one message between the batch's begin and end.
  std::vector<uint32_t> aligned((batch->messages().bytes().size() + 3) / 4);
  std::copy(batch->messages().bytes().begin(), batch->messages().bytes().end(),
            reinterpret_cast<uint8_t*>(aligned.data()));
  const auto* message = reinterpret_cast<const nlmsghdr*>(aligned.data());
  int rest = static_cast<int>(batch->messages().bytes().size());
  for (; mnl_nlmsg_ok(message, rest); message = mnl_nlmsg_next(message, &rest)) {
    if (message->nlmsg_type != kNewRule) continue;
    const FuzzBytes bytes = netlink::MessageBytes(message);
    std::vector<uint32_t> room((bytes.size() + 3) / 4 + 3);  // and the handle's 12 bytes
    std::copy(bytes.begin(), bytes.end(), reinterpret_cast<uint8_t*>(room.data()));
    auto* dumped = reinterpret_cast<nlmsghdr*>(room.data());
    mnl_attr_put_u64(dumped, NFTA_RULE_HANDLE, htobe64(1));
    const FuzzBytes whole = netlink::MessageBytes(dumped);
    return std::vector<uint8_t>(whole.begin(), whole.end());
  }
  return std::nullopt;
}

}  // namespace kipt::testing
