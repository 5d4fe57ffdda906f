// SPDX-License-Identifier: Apache-2.0
//
// Between rules and the bytes of netlink.
#include <benchmark/benchmark.h>
#include <linux/netfilter/nf_tables.h>
#include <linux/netlink.h>

#include <array>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "netlink/batch.h"
#include "netlink/rule_codec.h"
#include "tests/bench/micro_rulesets.h"

namespace kipt::testing {
namespace {

void EncodeAColdSync(benchmark::State& state) {
  const netlink::Transaction cold = ColdTransaction();
  size_t bytes = 0;
  for (auto _ : state) {
    const absl::StatusOr<netlink::Batch> batch = netlink::Batch::Build(cold, 1);
    if (!batch.ok()) return state.SkipWithError(batch.status().ToString().c_str());
    bytes += batch->messages().bytes().size();
  }
  state.SetItemsProcessed(state.iterations() * static_cast<int64_t>(cold.operations.size()));
  state.SetBytesProcessed(static_cast<int64_t>(bytes));
}
BENCHMARK(EncodeAColdSync)->Name("encode a cold sync (16 chains, 19 rules)");

// What the kernel tells of a rule and is not told.
void AddHandle(std::vector<uint8_t>& message) {
  struct {
    nlattr header = {.nla_len = sizeof(nlattr) + sizeof(uint64_t), .nla_type = NFTA_RULE_HANDLE};
    std::array<uint8_t, sizeof(uint64_t)> handle = {0, 0, 0, 0, 0, 0, 0, 1};
  } attribute;
  const auto* bytes = reinterpret_cast<const uint8_t*>(&attribute);
  message.insert(message.end(), bytes, bytes + sizeof(attribute));
  const auto length = static_cast<uint32_t>(message.size());
  std::memcpy(message.data(), &length, sizeof(length));
}

// Each rule as in the kernel's answer to NFT_MSG_GETRULE.
std::vector<std::vector<uint8_t>> RuleMessages() {
  const netlink::Transaction cold = ColdTransaction();
  const absl::StatusOr<netlink::Batch> batch = netlink::Batch::Build(cold, 1);
  std::vector<std::vector<uint8_t>> messages;
  if (!batch.ok()) return messages;
  absl::Span<const uint8_t> rest = batch->messages().bytes();
  while (rest.size() >= sizeof(nlmsghdr)) {
    nlmsghdr header = {};
    std::memcpy(&header, rest.data(), sizeof(header));
    if ((header.nlmsg_type & 0xff) == NFT_MSG_NEWRULE) {
      messages.emplace_back(rest.begin(), rest.begin() + NLMSG_ALIGN(header.nlmsg_len));
      AddHandle(messages.back());
    }
    rest.remove_prefix(NLMSG_ALIGN(header.nlmsg_len));
  }
  return messages;
}

void DecodeTheRules(benchmark::State& state) {
  const std::vector<std::vector<uint8_t>> messages = RuleMessages();
  if (messages.empty()) return state.SkipWithError("there are no messages");
  int64_t bytes = 0;
  for (auto _ : state) {
    for (const std::vector<uint8_t>& message : messages) {
      const absl::StatusOr<netlink::ObservedRule> rule = netlink::DecodeRule(message);
      if (!rule.ok()) return state.SkipWithError(rule.status().ToString().c_str());
      bytes += static_cast<int64_t>(message.size());
    }
  }
  state.SetItemsProcessed(state.iterations() * static_cast<int64_t>(messages.size()));
  state.SetBytesProcessed(bytes);
}
BENCHMARK(DecodeTheRules)->Name("decode the 19 rules");

}  // namespace
}  // namespace kipt::testing
