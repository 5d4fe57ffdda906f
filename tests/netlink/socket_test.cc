// SPDX-License-Identifier: Apache-2.0
//
// How a netlink socket is set up, how it reads errors, and that it releases memory.
#include "netlink/socket.h"

#include <fcntl.h>
#include <linux/netlink.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <fstream>
#include <functional>
#include <string>
#include <vector>

#include "absl/base/config.h"
#include "absl/strings/match.h"
#include "netlink/kernel_error.h"
#include "tests/fuzz/scripted_kernel.h"
#include "tests/netlink/kernel_script.h"
#include "tests/netlink/wire_bytes.h"
#include "tests/support/failing_call.h"
#include "tests/support/matchers.h"
#include "tests/support/rows.h"
#include "tests/support/status_matchers.h"

namespace kipt::netlink::socket_test {
namespace {

using namespace ::kipt::testing;  // NOLINT(google-build-using-namespace): the wire's vocabulary
using Code = absl::StatusCode;

std::unique_ptr<Socket> OpenSocket() {
  auto socket = Socket::Open();
  EXPECT_THAT(socket, IsOk());
  return socket.ok() ? *std::move(socket) : nullptr;
}

template <typename T>
T Option(const Socket& socket, int level, int option) {
  T value = {};
  socklen_t size = sizeof(value);
  EXPECT_EQ(getsockopt(socket.fd(), level, option, &value, &size), 0) << option;
  return value;
}

int Sysctl(const std::string& name) {
  std::ifstream file("/proc/sys/net/core/" + name);
  int value = 0;
  file >> value;
  return value;
}

TEST(SocketTest, WaitsFiveSecondsAndJoinsNothing) {
  int fd = -1;
  {
    const auto socket = OpenSocket();
    ASSERT_NE(socket, nullptr);
    fd = socket->fd();
    EXPECT_EQ(fcntl(fd, F_GETFD), FD_CLOEXEC);
    const auto timeout = Option<timeval>(*socket, SOL_SOCKET, SO_RCVTIMEO);
    EXPECT_EQ(timeout.tv_sec, 5);
    EXPECT_EQ(timeout.tv_usec, 0);
    EXPECT_EQ(Option<int>(*socket, SOL_NETLINK, NETLINK_EXT_ACK), 1);
    EXPECT_EQ(Option<int>(*socket, SOL_NETLINK, NETLINK_CAP_ACK), 1);
    sockaddr_nl name = {};
    socklen_t size = sizeof(name);
    ASSERT_EQ(getsockname(fd, reinterpret_cast<sockaddr*>(&name), &size), 0);
    EXPECT_EQ(name.nl_groups, 0U);
    EXPECT_EQ(name.nl_pid, socket->port_id());
  }
  EXPECT_EQ(fcntl(fd, F_GETFD), -1) << "it is closed";
}

// The kernel doubles what is asked for.
constexpr int kMebibyte = 1 << 20;

TEST(SocketTest, ItsReceiveBufferHoldsAMebibyteOrWhatIsAllowed) {
  const int allowed = 2 * std::min(kMebibyte, Sysctl("rmem_max"));
  if (geteuid() == 0) {
    EXPECT_EQ(Option<int>(*OpenSocket(), SOL_SOCKET, SO_RCVBUF), 2 * kMebibyte);
  }
  WithFailingCall(
      {.number = SYS_setsockopt, .argument = 2, .value = SO_RCVBUFFORCE, .error = EPERM},
      [&] { EXPECT_EQ(Option<int>(*OpenSocket(), SOL_SOCKET, SO_RCVBUF), allowed); });
}

TEST(SocketTest, EachCallThatFailsIsAnError) {
  struct Row {
    FailingCall call;
    const char* message;
  };
  const Row rows[] = {
    {{.number = SYS_bind, .argument = 2, .value = sizeof(sockaddr_nl), .error = EADDRINUSE},
     "binding a netlink socket"},
    {{.number = SYS_setsockopt, .argument = 2, .value = SO_RCVTIMEO, .error = EINVAL},
     "the receive timeout"},
// A sanitizer maps such memory for itself.
#if !defined(ABSL_HAVE_ADDRESS_SANITIZER) && !defined(ABSL_HAVE_THREAD_SANITIZER)
    {{.number = SYS_mmap, .argument = 1, .value = kMebibyte, .error = ENOMEM},
     "mapping a receive buffer"},
#endif
  };
  for (const Row& row : rows) {
    WithFailingCall(row.call, [&] {
      const auto socket = Socket::Open();
      ASSERT_FALSE(socket.ok()) << row.message;
      EXPECT_THAT(std::string(socket.status().message()), HasSubstr(row.message));
    });
  }
}

Requests Request() {
  Requests request(1);
  request.Begin(NftMessageType(NFT_MSG_GETGEN), NFPROTO_UNSPEC, 0);
  return request;
}

TEST(SocketTest, SendsAgainAfterAnInterruptionAndOnceWithALargerBuffer) {
  struct Row {
    const char* name;
    std::vector<int> errors;
    Code code = Code::kOk;
    bool refused = false;
  };
  const Row rows[] = {
      {"sent", {}},
      {"interrupted", List(EINTR, EINTR)},
      {"too big", List(EMSGSIZE)},
      {"too big for any buffer", List(EMSGSIZE, EMSGSIZE), Code::kInvalidArgument},
      {"not permitted", List(EPERM), Code::kPermissionDenied, true},
      {"no access", List(EACCES), Code::kPermissionDenied, true},
      {"no memory", List(ENOMEM), Code::kResourceExhausted},
  };
  for (const Row& row : rows) {
    const auto ask = [](Socket& socket) { return socket.Ask(Request(), [](const Reply&) {}); };
    const auto send = [](Socket& socket) { return socket.SendBatch(Request()).status(); };
    for (const std::function<absl::Status(Socket&)>& one :
         std::vector<std::function<absl::Status(Socket&)>>{ask, send}) {
      ScriptedKernel kernel(Sent(Generation(7)));
      kernel.FailSends(row.errors);
      const absl::Status status = one(*OpenSocket());
      EXPECT_EQ(status.code(), row.code) << row.name << ": " << status;
      EXPECT_EQ(IsWriteRefused(status), row.refused) << row.name;
      EXPECT_EQ(absl::StrContains(status.message(), kGuardAdvice), row.refused) << row.name;
      EXPECT_THAT(kernel.sent(), SizeIs(status.ok() ? 1 : 0)) << row.name;
    }
  }
}

TEST(SocketTest, ItsSendBufferGrowsToWhatDoesNotFit) {
  Requests large(1);
  for (int i = 0; i < 20; ++i) {
    large.Begin(NftMessageType(NFT_MSG_NEWRULE), NFPROTO_IPV4, 0, {{1, std::string(60000, 'x')}});
  }
  const int size = static_cast<int>(large.bytes().size()) + 4096;
  const auto grown = [&] {
    ScriptedKernel kernel({});
    kernel.FailSends({EMSGSIZE});
    const auto socket = OpenSocket();
    EXPECT_THAT(socket->SendBatch(large), IsOk());
    return Option<int>(*socket, SOL_SOCKET, SO_SNDBUF);
  };
  if (geteuid() == 0) {
    EXPECT_EQ(grown(), 2 * size);
  }
  const int allowed = 2 * std::min(size, Sysctl("wmem_max"));
  WithFailingCall(
      {.number = SYS_setsockopt, .argument = 2, .value = SO_SNDBUFFORCE, .error = EPERM},
      [&] { EXPECT_EQ(grown(), allowed); });
}

constexpr int kTlvs = NLM_F_ACK_TLVS;
constexpr int kCapped = NLM_F_ACK_TLVS | NLM_F_CAPPED;

// The error, followed by the header of the refused message, which has `length`.
Bytes RefusedOf(uint32_t length, const Bytes& more) {
  return Join({HostU32(static_cast<uint32_t>(-ENOENT)), HostU32(length), Zeros(12), more});
}

std::vector<BatchError> ErrorsOf(const Bytes& answer) {
  const ScriptedKernel kernel(Sent(answer));
  auto errors = OpenSocket()->SendBatch(Request());
  EXPECT_THAT(errors, IsOk());
  return errors.ok() ? *std::move(errors) : std::vector<BatchError>();
}

TEST(SocketTest, FindsThePlaceOfARefusedAttribute) {
  const Bytes place = Attr(NLMSGERR_ATTR_OFFS, HostU32(44));
  // A header that is shorter than a header: the kernel puts no attributes after it.
  const Bytes short_header =
      Join({HostU32(static_cast<uint32_t>(-ENOENT)), HostU32(4), HostU16(8),
            HostU16(NLMSGERR_ATTR_OFFS), HostU32(44), HostU16(4), HostU16(9)});
  struct Row {
    const char* name;
    int flags;
    Bytes payload;
    uint32_t offset;
  };
  const Row rows[] = {
      {"capped", kCapped, RefusedOf(400, place), 44},
      {"after the whole request", kTlvs, RefusedOf(24, Join({Zeros(8), place})), 44},
      {"after its padding", kTlvs, RefusedOf(21, Join({Zeros(8), place})), 44},
      {"after a bare header", kTlvs, RefusedOf(16, place), 44},
      {"among others", kCapped, RefusedOf(400, Join({Attr(1, Text("hm")), place})), 44},
      {"without the flag of attributes", NLM_F_CAPPED, RefusedOf(400, place), 0},
      {"of a request that is not there", kTlvs, RefusedOf(400, place), 0},
      {"of a header that is too short", kTlvs, short_header, 0},
      {"no attributes", kCapped, RefusedOf(400, {}), 0},
      {"another attribute", kCapped, RefusedOf(400, Attr(1, HostU32(44))), 0},
      {"a place of two bytes", kCapped, RefusedOf(400, Attr(NLMSGERR_ATTR_OFFS, HostU16(44))), 0},
      {"cut off", kCapped, RefusedOf(400, Bytes(place.begin(), place.end() - 2)), 0},
  };
  for (const Row& row : rows) {
    const std::vector<BatchError> errors =
        ErrorsOf(Message(NLMSG_ERROR, row.flags, 0, row.payload));
    ASSERT_THAT(errors, SizeIs(1)) << row.name;
    EXPECT_EQ(errors[0].error_number, ENOENT) << row.name;
    EXPECT_EQ(errors[0].attribute_offset, row.offset) << row.name;
  }
}

TEST(SocketTest, AnErrorNumberIsOneThatTheKernelHas) {
  struct Row {
    int wire;
    int error_number;
  };
  for (const Row& row : {Row{1, 1}, Row{4095, 4095}, Row{4096, EBADMSG}, Row{-1, EBADMSG}}) {
    const std::vector<BatchError> errors = ErrorsOf(Refusal(row.wire));
    ASSERT_THAT(errors, SizeIs(1)) << row.wire;
    EXPECT_EQ(errors[0].error_number, row.error_number) << row.wire;
  }
  EXPECT_THAT(ErrorsOf(Refusal(0)), IsEmpty());
  EXPECT_THAT(ErrorsOf(Generation(7)), IsEmpty()) << "no error at all";
}

struct Handled {
  absl::Status status;
  std::vector<int> errors = {};
  std::vector<int> types = {};
};
Handled Asked(Socket& socket) {
  Handled handled;
  Requests request(socket.ReserveSequences(1));
  request.Begin(NftMessageType(NFT_MSG_GETGEN), NFPROTO_UNSPEC, 0);
  handled.status = socket.Ask(request, [&](const Reply& reply) {
    if (reply.message == nullptr) handled.errors.push_back(reply.error_number);
    if (reply.message != nullptr) handled.types.push_back(reply.message->nlmsg_type);
  });
  return handled;
}

TEST(SocketTest, OnlyAnAnswerAndAnErrorAreReplies) {
  struct Row {
    const char* name;
    std::vector<Frame> frames;
    std::vector<int> errors = {};
    std::vector<int> types = {};
  };
  const Row rows[] = {
      {"an acknowledgement", Sent(Refusal(0))},
      {"an error", Sent(Refusal(ENOENT)), List(ENOENT)},
      {"the end of a dump", Sent(Done())},
      {"the end of a dump that failed", Sent(Done(ENOMEM)), List(ENOMEM)},
      {"an end without a number", Sent(Message(NLMSG_DONE, NLM_F_MULTI, 0, {}))},
      {"an end with a number that is no error", Sent(Done(-5))},
      {"the last of the control messages and the first of the others",
       Sent(Message(NLMSG_MIN_TYPE - 1, 0, 0, Zeros(4)), Message(NLMSG_MIN_TYPE, 0, 0, Zeros(4))),
       {},
       List(NLMSG_MIN_TYPE)},
  };
  for (const Row& row : rows) {
    std::vector<Frame> frames = {FromKernel(Refusal(EPERM)), Comes(Arrival::kNoMore)};
    frames.insert(frames.end(), row.frames.begin(), row.frames.end());
    const ScriptedKernel kernel(frames);
    const auto socket = OpenSocket();
    // What is left of it in the buffer is no part of the next answer.
    EXPECT_EQ(Asked(*socket).errors, std::vector<int>{EPERM});
    const Handled handled = Asked(*socket);
    EXPECT_THAT(handled.status, IsOk()) << row.name;
    EXPECT_EQ(handled.errors, row.errors) << row.name;
    EXPECT_EQ(handled.types, row.types) << row.name;
  }
}

bool IsResident(const void* address) {
  const auto page = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
  unsigned char resident = 0;
  EXPECT_EQ(mincore(reinterpret_cast<void*>(reinterpret_cast<uintptr_t>(address) / page * page), 1,
                    &resident),
            0);
  return (resident & 1) != 0;
}

TEST(SocketTest, GivesTheMemoryOfALargeAnswerBack) {
  constexpr size_t kUsual = size_t{128} << 10;
  for (const size_t total : {size_t{1000}, kUsual, kUsual + 4}) {
    std::vector<Frame> frames;
    const Bytes end = Done();
    for (size_t left = total - end.size(); left > 0;) {
      const size_t size = std::min(left, size_t{60000});
      frames.push_back(FromKernel(
          Message(NFNL_SUBSYS_NFTABLES << 8 | NFT_MSG_NEWRULE, NLM_F_MULTI, 0, Zeros(size - 16))));
      left -= size;
    }
    frames.push_back(FromKernel(end));
    const ScriptedKernel kernel(frames);
    const auto socket = OpenSocket();
    const nlmsghdr* last = nullptr;
    Requests request(socket->ReserveSequences(1));
    request.Begin(NftMessageType(NFT_MSG_GETRULE), NFPROTO_IPV4, NLM_F_DUMP);
    ASSERT_THAT(socket->Ask(request, [&](const Reply& reply) { last = reply.message; }), IsOk());
    ASSERT_NE(last, nullptr);
    EXPECT_EQ(IsResident(last), total <= kUsual) << total;
  }
}

TEST(SocketTest, LeavesNoMemoryMappedWhenItIsGone) {
  const auto mapped = [] {
    std::ifstream file("/proc/self/statm");
    size_t pages = 0;
    file >> pages;
    return pages * static_cast<size_t>(sysconf(_SC_PAGESIZE));
  };
  const size_t before = mapped();
  for (int i = 0; i < 64; ++i) ASSERT_THAT(Receiver::Make(size_t{64} << 10), IsOk());
  EXPECT_LT(mapped(), before + (size_t{16} << 20)) << "each has one mebibyte";
}

}  // namespace
}  // namespace kipt::netlink::socket_test
