// SPDX-License-Identifier: Apache-2.0
//
// Requests to ctnetlink, and how its entries and errors are read.
#include "netlink/conntrack.h"

#include <linux/netlink.h>
#include <sys/syscall.h>

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

// "192.0.2.1 > 10.0.0.2. More." or "End." after what was handed over; or the error.
std::string Take(ConntrackDump& dump) {
  std::string text;
  const absl::StatusOr<bool> ended = dump.Take([&](const Connection& connection) {
    absl::StrAppend(&text, ToString(connection.source), " > ", ToString(connection.destination),
                    ". ");
  });
  return ended.ok() ? text + (*ended ? "End." : "More.") : ended.status().ToString();
}

// The whole of what these frames hand over.
std::string TakeFrom(const std::vector<Frame>& frames) {
  const ScriptedKernel kernel(frames);
  const auto dump = ConntrackDump::Start();
  EXPECT_THAT(dump, IsOk());
  return dump.ok() ? Take(**dump) : "";
}

TEST(ConntrackDumpTest, HandsOverWhatIsWellFormed) {
  struct Row {
    const char* name;
    Bytes entry;
    std::string taken = {};
  };
  const Bytes v4 = Attr(kDestinationV4, {10, 0, 0, 2});
  const Row rows[] = {
      {"IPv4", OfV4(1, 2), "192.0.2.1 > 10.0.0.2. "},
      {"IPv6", Entry({Attr(kDestinationV6, V6(4)), Attr(kSourceV6, V6(3))}),
       "2001:db8::3 > 2001:db8::4. "},
      {"no addresses", Entry({})},
      {"no source", Entry({v4})},
      {"no destination", Entry({Attr(kSourceV4, {10, 0, 0, 2})})},
      {"an IPv4 address that is too short", Entry({Attr(kSourceV4, {192, 0, 2}), v4})},
      {"an IPv4 address that is too long", Entry({Attr(kSourceV4, V6(3)), v4})},
      {"an IPv6 address that is too short",
       Entry({Attr(kSourceV6, V6(3)), Attr(kDestinationV6, {10, 0, 0, 2})})},
  };
  for (const Row& row : rows) {
    EXPECT_EQ(TakeFrom(Sent(row.entry, OfV4(7, 8), Done())),
              row.taken + "192.0.2.7 > 10.0.0.8. End.")
        << row.name;
  }
}

TEST(ConntrackDumpTest, ComesInPiecesUntilItsEnd) {
  const ScriptedKernel kernel({FromKernel(OfV4(1, 2)), Fails(EAGAIN), Fails(EAGAIN),
                               FromKernel(OfV4(3, 4)), FromKernel(Done())});
  const auto dump = ConntrackDump::Start();
  ASSERT_THAT(dump, IsOk());
  EXPECT_EQ(Take(**dump), "192.0.2.1 > 10.0.0.2. More.");
  EXPECT_EQ(Take(**dump), "More.");
  EXPECT_EQ(Take(**dump), "192.0.2.3 > 10.0.0.4. End.");
}

TEST(ConntrackDumpTest, AnErrorOfTheKernelIsTheDumpsAndNamesWhatIsMissing) {
  EXPECT_THAT(TakeFrom(Sent(Refusal(EINVAL))),
              AllOf(StartsWith("INVALID_ARGUMENT: "),
                    HasSubstr("(the kernel has no ctnetlink: module nf_conntrack_netlink)")));
  EXPECT_THAT(TakeFrom(Sent(Refusal(EPERM))),
              AllOf(StartsWith("PERMISSION_DENIED: "), HasSubstr("(needs CAP_NET_ADMIN")));
  EXPECT_THAT(TakeFrom(Sent(Done(ENOMEM))),
              StartsWith("RESOURCE_EXHAUSTED: reading the entries of connection tracking: "));
  EXPECT_THAT(TakeFrom({Fails(ENOBUFS)}),
              AllOf(StartsWith("RESOURCE_EXHAUSTED: "), HasSubstr("receiving over netlink")));
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
