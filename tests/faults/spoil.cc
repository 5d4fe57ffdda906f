// SPDX-License-Identifier: Apache-2.0
#include "tests/faults/spoil.h"

// Before linux/netfilter.h, or the two redefine each other.
#include <netinet/in.h>
// Then the kernel's.
#include <linux/netfilter/nfnetlink.h>

#include <cstring>

namespace kipt::testing {
namespace {

// Attributes follow the header and nfgenmsg.
constexpr size_t kAttributesAt = NLMSG_HDRLEN + NLMSG_ALIGN(sizeof(nfgenmsg));

// The kernel's answer to a request that it refuses, in the place of any other. One that is longer
// keeps its length: the rest is what an error echoes of the request.
void BecomeError(nlmsghdr* message, size_t size, int error_number) {
  if (size < NLMSG_LENGTH(sizeof(nlmsgerr))) {
    message->nlmsg_type = NLMSG_DONE;
    const int error = -error_number;
    if (size >= NLMSG_LENGTH(sizeof(error))) {
      std::memcpy(NLMSG_DATA(message), &error, sizeof(error));
    }
    return;
  }
  nlmsgerr error = {};
  error.error = -error_number;
  error.msg = *message;
  error.msg.nlmsg_len = message->nlmsg_len - NLMSG_HDRLEN;
  message->nlmsg_type = NLMSG_ERROR;
  message->nlmsg_flags = NLM_F_CAPPED;
  std::memcpy(NLMSG_DATA(message), &error, sizeof(error));
}

void SpoilFirstAttribute(Kind kind, nlmsghdr* message) {
  auto* attribute = reinterpret_cast<nlattr*>(reinterpret_cast<char*>(message) + kAttributesAt);
  if (kind == Kind::kAttributeLong) attribute->nla_len = 0x7ff0;
  if (kind == Kind::kAttributeZero) attribute->nla_len = 0;
  if (kind == Kind::kAttributeType) attribute->nla_type = 0x3ffe;
}

}  // namespace

bool IsPartOfADump(const nlmsghdr* message) {
  return (message->nlmsg_flags & NLM_F_MULTI) != 0 && message->nlmsg_type != NLMSG_DONE;
}

bool HasAttributes(const nlmsghdr* message, size_t size) {
  return message->nlmsg_type >= NLMSG_MIN_TYPE && size >= kAttributesAt + sizeof(nlattr);
}

void SpoilMessage(const FaultRow& row, nlmsghdr* message, size_t size) {
  switch (row.kind) {
    case Kind::kInterrupted:
      message->nlmsg_flags |= NLM_F_DUMP_INTR;
      return;
    case Kind::kRefused:
      return BecomeError(message, size, row.number);
    case Kind::kWrongType:
      message->nlmsg_type = (NFNL_SUBSYS_NFTABLES << 8) | 0xee;
      return;
    case Kind::kWrongSequence:
      message->nlmsg_seq ^= 0x40000000;
      return;
    case Kind::kWrongPort:
      message->nlmsg_pid ^= 0x40000000;
      return;
    case Kind::kLengthLong:
      message->nlmsg_len += 0x10000;
      return;
    case Kind::kLengthShort:
      message->nlmsg_len -= 4;
      return;
    case Kind::kLengthZero:
      message->nlmsg_len = 0;
      return;
    default:
      return SpoilFirstAttribute(row.kind, message);
  }
}

}  // namespace kipt::testing
