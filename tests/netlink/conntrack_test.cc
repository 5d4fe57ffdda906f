// SPDX-License-Identifier: Apache-2.0
//
// What is asked of ctnetlink, and what is made of its entries and its errors.
#include "netlink/conntrack.h"

#include <linux/netlink.h>
#include <sys/syscall.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/fuzz/scripted_kernel.h"
#include "tests/netlink/kernel_script.h"
#include "tests/netlink/wire_bytes.h"
#include "tests/support/failing_call.h"
#include "tests/support/matchers.h"
#include "tests/support/status_matchers.h"

namespace kipt::netlink::conntrack_test {
namespace {

using namespace ::kipt::testing;  // NOLINT(google-build-using-namespace): the wire's vocabulary

// Of linux/netfilter/nfnetlink.h and nfnetlink_conntrack.h.
constexpr int kCtnetlink = 1 << 8;
constexpr uint16_t kOriginal = 1;
constexpr uint16_t kReply = 2;
constexpr uint16_t kAddresses = 1;
constexpr uint16_t kProtocol = 2;
constexpr uint16_t kSourceV4 = 1;
constexpr uint16_t kDestinationV4 = 2;
constexpr uint16_t kSourceV6 = 3;
constexpr uint16_t kDestinationV6 = 4;

Bytes Nest(uint16_t type, const Bytes& payload) { return Attr(type | NLA_F_NESTED, payload); }

// An entry of the dump: its first packet's addresses, and those of the answers to it.
Bytes Entry(const std::vector<Bytes>& original) {
  const Bytes reply = Join({Attr(kSourceV4, {9, 9, 9, 9}), Attr(kDestinationV4, {8, 8, 8, 8})});
  const Bytes port = Nest(kProtocol, Attr(1, Bytes{6}));
  return Message(kCtnetlink, NLM_F_MULTI, 0,
                 Join({{0, 0, 0, 0},
                       Nest(kReply, Join({Nest(kAddresses, reply), port})),
                       Nest(kOriginal, Join({port, Nest(kAddresses, Join(original))}))}));
}
Bytes OfV4(uint8_t source, uint8_t destination) {
  return Entry(
      {Attr(kSourceV4, {192, 0, 2, source}), Attr(kDestinationV4, {10, 0, 0, destination})});
}
Bytes V6(uint8_t last) { return Join({{0x20, 0x01, 0x0d, 0xb8}, Zeros(11), {last}}); }

struct Taken {
  absl::StatusOr<bool> ended;
  std::vector<std::string> entries;
};
Taken Take(ConntrackDump& dump) {
  Taken taken;
  taken.ended = dump.Take([&](const Connection& connection) {
    taken.entries.push_back(
        absl::StrCat(ToString(connection.source), " > ", ToString(connection.destination)));
  });
  return taken;
}

TEST(ConntrackDumpTest, HandsOverWhatIsWellFormed) {
  struct Row {
    const char* name;
    Bytes entry;
    std::vector<std::string> entries = {};
  };
  const Row rows[] = {
      {"IPv4", OfV4(1, 2), {"192.0.2.1 > 10.0.0.2"}},
      {"IPv6",
       Entry({Attr(kDestinationV6, V6(4)), Attr(kSourceV6, V6(3))}),
       {"2001:db8::3 > 2001:db8::4"}},
      {"no addresses", Entry({})},
      {"no source", Entry({Attr(kDestinationV4, {10, 0, 0, 2})})},
      {"no destination", Entry({Attr(kSourceV4, {10, 0, 0, 2})})},
      {"an IPv4 address that is too short",
       Entry({Attr(kSourceV4, {192, 0, 2}), Attr(kDestinationV4, {10, 0, 0, 2})})},
      {"an IPv4 address that is too long",
       Entry({Attr(kSourceV4, V6(3)), Attr(kDestinationV4, {10, 0, 0, 2})})},
      {"an IPv6 address that is too short",
       Entry({Attr(kSourceV6, V6(3)), Attr(kDestinationV6, {10, 0, 0, 2})})},
  };
  for (const Row& row : rows) {
    const ScriptedKernel kernel(
        {FromKernel(row.entry), FromKernel(OfV4(7, 8)), FromKernel(Done())});
    const auto dump = ConntrackDump::Start();
    ASSERT_THAT(dump, IsOk());
    const Taken taken = Take(**dump);
    ASSERT_THAT(taken.ended, IsOk()) << row.name;
    EXPECT_TRUE(*taken.ended) << row.name;
    std::vector<std::string> expected = row.entries;
    expected.push_back("192.0.2.7 > 10.0.0.8");
    EXPECT_EQ(taken.entries, expected) << row.name;
  }
}

TEST(ConntrackDumpTest, ComesInPiecesUntilItsEnd) {
  const ScriptedKernel kernel({FromKernel(OfV4(1, 2)), Fails(EAGAIN), Fails(EAGAIN),
                               FromKernel(OfV4(3, 4)), FromKernel(Done())});
  const auto dump = ConntrackDump::Start();
  ASSERT_THAT(dump, IsOk());
  const Taken first = Take(**dump);
  ASSERT_THAT(first.ended, IsOk());
  EXPECT_FALSE(*first.ended);
  EXPECT_THAT(first.entries, ElementsAre("192.0.2.1 > 10.0.0.2"));
  const Taken nothing_yet = Take(**dump);
  ASSERT_THAT(nothing_yet.ended, IsOk());
  EXPECT_FALSE(*nothing_yet.ended);
  const Taken last = Take(**dump);
  ASSERT_THAT(last.ended, IsOk());
  EXPECT_TRUE(*last.ended);
  EXPECT_THAT(last.entries, ElementsAre("192.0.2.3 > 10.0.0.4"));
}

TEST(ConntrackDumpTest, AsksOnceForTheEntriesOfBothFamilies) {
  const ScriptedKernel kernel({});
  ASSERT_THAT(ConntrackDump::Start(), IsOk());
  ASSERT_THAT(kernel.sent(), SizeIs(1));
  Bytes sent = kernel.sent()[0];
  ASSERT_EQ(sent.size(), 20U);
  // Its sequence number is any.
  std::fill(sent.begin() + 8, sent.begin() + 12, 0);
  // IPCTNL_MSG_CT_GET, AF_UNSPEC.
  EXPECT_EQ(ToHex(sent),
            ToHex(Message(kCtnetlink | 1, NLM_F_REQUEST | NLM_F_DUMP, 0, {0, 0, 0, 0})));
}

TEST(ConntrackDumpTest, AnErrorOfTheKernelIsTheDumpsAndNamesWhatIsMissing) {
  struct Row {
    const char* name;
    Frame end;
    absl::StatusCode code;
    const char* message;
  };
  const Row rows[] = {
      {"no ctnetlink", FromKernel(Refusal(EINVAL)), absl::StatusCode::kInvalidArgument,
       "(the kernel has no ctnetlink: module nf_conntrack_netlink)"},
      {"not permitted", FromKernel(Refusal(EPERM)), absl::StatusCode::kPermissionDenied,
       "(needs CAP_NET_ADMIN"},
      {"the dump failed", FromKernel(Done(ENOMEM)), absl::StatusCode::kResourceExhausted,
       "reading the entries of connection tracking: "},
      {"the call failed", Fails(ENOBUFS), absl::StatusCode::kResourceExhausted,
       "receiving over netlink"},
  };
  for (const Row& row : rows) {
    const ScriptedKernel kernel({row.end});
    const auto dump = ConntrackDump::Start();
    ASSERT_THAT(dump, IsOk());
    EXPECT_THAT(Take(**dump).ended, StatusIs(row.code, HasSubstr(row.message))) << row.name;
  }
}

TEST(ConntrackDumpTest, ThereIsNoneWhereNothingCanBeAsked) {
  {
    ScriptedKernel kernel({});
    kernel.FailSends({EPERM});
    EXPECT_THAT(ConntrackDump::Start().status(), StatusIs(absl::StatusCode::kPermissionDenied));
  }
  WithFailingCall(
      {.number = SYS_socket, .argument = 2, .value = NETLINK_NETFILTER, .error = EPROTONOSUPPORT},
      [&] {
        EXPECT_THAT(ConntrackDump::Start().status(), StatusIs(absl::StatusCode::kUnavailable));
      });
}

}  // namespace
}  // namespace kipt::netlink::conntrack_test
