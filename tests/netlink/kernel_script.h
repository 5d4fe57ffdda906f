// SPDX-License-Identifier: Apache-2.0
//
// Answers of nf_tables written by hand, for a ScriptedKernel to give.
#ifndef KIPT_TESTS_NETLINK_KERNEL_SCRIPT_H_
#define KIPT_TESTS_NETLINK_KERNEL_SCRIPT_H_

#include <netinet/in.h>
// Before linux/netfilter.h, or the two redefine each other.
#include <gtest/gtest.h>
#include <linux/netfilter.h>
#include <linux/netfilter/nf_tables.h>
#include <linux/netfilter/nfnetlink.h>
#include <linux/netlink.h>

#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "netlink/backend.h"
#include "tests/fuzz/scripted_kernel.h"
#include "tests/netlink/wire_bytes.h"
#include "tests/support/status_matchers.h"

namespace kipt::testing {

// ---- messages; a sequence number counts from that of the first request ----

inline Bytes Message(int type, int flags, uint32_t sequence, const Bytes& payload) {
  return Join({HostU32(static_cast<uint32_t>(16 + payload.size())),
               HostU16(static_cast<uint16_t>(type)), HostU16(static_cast<uint16_t>(flags)),
               HostU32(sequence), HostU32(0), payload});
}
inline Bytes NftMessage(int type, int flags, uint32_t sequence, const Bytes& attributes) {
  return Message(NFNL_SUBSYS_NFTABLES << 8 | type, flags, sequence,
                 Join({{NFPROTO_IPV4, 0, 0, 0}, attributes}));
}
inline Bytes Generation(uint32_t generation, uint32_t sequence = 0) {
  return NftMessage(NFT_MSG_NEWGEN, 0, sequence, Attr(NFTA_GEN_ID, generation));
}
inline Bytes TableMessage() {
  return NftMessage(NFT_MSG_NEWTABLE, NLM_F_MULTI, 0, Attr(NFTA_TABLE_NAME, Text("filter")));
}
inline Bytes ChainMessage(const std::string& name, uint32_t sequence = 0, int flags = 0) {
  return NftMessage(
      NFT_MSG_NEWCHAIN, flags, sequence,
      Join({Attr(NFTA_CHAIN_TABLE, Text("filter")), Attr(NFTA_CHAIN_NAME, Text(name))}));
}
// Of handle 7, as part of a dump.
inline Bytes DumpedRule() {
  Bytes message = RuleMessage(netlink::Family::kIPv4, {});
  // The flags are in the host's order of bytes.
  const uint16_t flags = NLM_F_MULTI;
  std::memcpy(&message[6], &flags, sizeof(flags));
  return message;
}
// Its first attribute is longer than the message.
inline Bytes MalformedRule() {
  Bytes message = DumpedRule();
  message[20] = 0xff;
  return message;
}
inline Bytes Refusal(int error_number, uint32_t sequence = 0) {
  return Message(NLMSG_ERROR, 0, sequence,
                 Join({HostU32(static_cast<uint32_t>(-error_number)), Zeros(16)}));
}
inline Bytes Done(int error_number = 0, int flags = 0) {
  return Message(NLMSG_DONE, NLM_F_MULTI | flags, 0, HostU32(static_cast<uint32_t>(-error_number)));
}

inline Frame Comes(Arrival arrival, Bytes bytes = {}) {
  return {.kind = static_cast<uint8_t>(arrival), .bytes = std::move(bytes)};
}
inline Frame FromKernel(Bytes bytes) { return Comes(Arrival::kFromKernel, std::move(bytes)); }
inline Frame FromProcess(Bytes bytes) { return Comes(Arrival::kFromProcess, std::move(bytes)); }
inline Frame CutOff(Bytes bytes) { return Comes(Arrival::kCutOff, std::move(bytes)); }
inline Frame Fails(int error_number) {
  return Comes(Arrival::kError, {static_cast<uint8_t>(error_number)});
}

// One answer of the kernel's: these messages, each in a datagram of its own.
template <typename... Messages>
std::vector<Frame> Sent(const Messages&... messages) {
  return {FromKernel(messages)...};
}

// What comes after each request, one after the other.
inline std::vector<Frame> Script(const std::vector<std::vector<Frame>>& answers) {
  std::vector<Frame> script;
  for (const std::vector<Frame>& answer : answers) {
    if (&answer != &answers.front()) script.push_back(Comes(Arrival::kNoMore));
    script.insert(script.end(), answer.begin(), answer.end());
  }
  return script;
}

inline std::unique_ptr<netlink::Backend> Open() {
  auto backend = netlink::NewNftBackend();
  EXPECT_THAT(backend, IsOk());
  return backend.ok() ? *std::move(backend) : nullptr;
}

}  // namespace kipt::testing

#endif  // KIPT_TESTS_NETLINK_KERNEL_SCRIPT_H_
