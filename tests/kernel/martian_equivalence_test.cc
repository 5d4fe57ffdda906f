// SPDX-License-Identifier: Apache-2.0
//
// The native martian rules drop exactly what the rule of KUBE-FIREWALL drops: packets of every kind
// to 127.0.0.0/8 from elsewhere, through the one and through the other.
#include <netinet/in.h>
#include <sched.h>

#include <algorithm>
#include <functional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "agent/policy/rule_forms.h"
#include "netlink/backend.h"
#include "tests/kernel/martian_world.h"
#include "tests/support/matchers.h"
#include "tests/support/netns_fixture.h"
#include "tests/support/status_matchers.h"

namespace kipt::testing {
namespace {

using namespace ::kipt::netlink;  // NOLINT(google-build-using-namespace): the model's vocabulary

// As kubelet writes it.
void AddXtRule() {
  MustRun({"iptables-nft", "-N", "KUBE-FIREWALL"});
  MustRun({"iptables-nft", "-A", "KUBE-FIREWALL", "-m", "comment", "--comment",
           "block incoming localnet connections", "--dst", "127.0.0.0/8", "!", "--src",
           "127.0.0.0/8", "-m", "conntrack", "!", "--ctstate", "RELATED,ESTABLISHED,DNAT", "-j",
           "DROP"});
  MustRun({"iptables-nft", "-I", "OUTPUT", "-j", "KUBE-FIREWALL"});
  MustRun({"iptables-nft", "-I", "INPUT", "-j", "KUBE-FIREWALL"});
}

void PutNativeTable(Backend& backend) {
  const absl::StatusOr<Snapshot> now = backend.Read({});
  ASSERT_THAT(now, IsOk());
  EXPECT_THAT(backend.Apply({.generation = now->generation,
                             .operations = {netlink::PutNativeTable{agent::NativeMartians()}}}),
              IsOk());
}

// How many packets it has dropped, by its own counters.
uint64_t XtDropped(Backend& backend) {
  const ChainId chain{Family::kIPv4, Table::kFilter, "KUBE-FIREWALL"};
  const absl::StatusOr<Snapshot> snapshot = backend.Read({ChainQuery{.chain = chain}});
  EXPECT_THAT(snapshot, IsOk());
  if (!snapshot.ok() || snapshot->Find(chain) == nullptr) return 0;
  EXPECT_EQ(snapshot->Find(chain)->rules.size(), 1U);
  return snapshot->Find(chain)->rules.at(0).counters.packets;
}

uint64_t NativeDropped(Backend& backend) {
  const auto snapshot = backend.Read({}, &agent::NativeMartians());
  EXPECT_THAT(snapshot, IsOk());
  if (!snapshot.ok() || !snapshot->native) return 0;
  EXPECT_FALSE(snapshot->native->altered);
  return snapshot->native->counters.packets;
}

struct Protection {
  std::function<void(Backend&)> put;
  std::function<uint64_t(Backend&)> dropped;
};
const Protection kNone = {[](Backend&) {}, [](Backend&) { return uint64_t{0}; }};
const Protection kXt = {[](Backend&) { AddXtRule(); }, &XtDropped};
const Protection kNative = {&PutNativeTable, &NativeDropped};

struct Outcome {
  Fate fate;
  uint64_t dropped = 0;

  bool operator==(const Outcome&) const = default;
};
void PrintTo(const Outcome& outcome, std::ostream* stream) {
  PrintTo(outcome.fate, stream);
  *stream << ", dropped " << outcome.dropped;
}

Outcome SendThrough(const MartianCase& row, const Protection& protection) {
  MartianWorld world(row);
  world.MakeConnection();
  const InNetns inside(world.node());
  const auto backend = netlink::NewNftBackend();
  EXPECT_THAT(backend, IsOk());
  if (!backend.ok()) return {};
  protection.put(**backend);
  Outcome outcome;
  outcome.fate = world.SendPacket();
  outcome.dropped = protection.dropped(**backend);
  return outcome;
}

// What a packet is seen as at the hook that it is about, where nothing drops it.
struct Met {
  Meeting meeting;
  std::string name;
  std::vector<std::string> classes;
};
const std::vector<Met>& Meetings() {
  static const auto* const kMeetings =
      new std::vector<Met>{{Meeting::kNew, "New", {"new"}},
                           {Meeting::kEstablished, "Established", {"established"}},
                           {Meeting::kAnswer, "Answer", {"established"}},
                           {Meeting::kRelated, "Related", {"related"}},
                           {Meeting::kDnat, "Dnat", {"dnat", "new"}},
                           {Meeting::kInvalid, "Invalid", {"invalid"}},
                           {Meeting::kUntracked, "Untracked", {"untracked"}}};
  return *kMeetings;
}

std::vector<MartianCase> AllCases() {
  const std::pair<int, const char*> protocols[] = {
      {IPPROTO_TCP, "Tcp"}, {IPPROTO_UDP, "Udp"}, {IPPROTO_ICMP, "Icmp"}};
  std::vector<MartianCase> cases;
  for (const bool martian : {true, false}) {
    for (const Way way : {Way::kIn, Way::kOut}) {
      for (const auto& [meeting, meeting_name, classes] : Meetings()) {
        // A packet that is forwarded to 127.0.0.1 is a martian there.
        if (!martian && meeting == Meeting::kDnat) continue;
        for (const auto& [protocol, name] : protocols) {
          cases.push_back({.name = absl::StrCat(martian ? "" : "NoMartian", meeting_name, name,
                                                way == Way::kIn ? "In" : "Out"),
                           .meeting = meeting,
                           .way = way,
                           .protocol = protocol,
                           .martian = martian});
        }
      }
    }
  }
  return cases;
}

class MartianTest : public ::testing::Test {
 protected:
  // Packets that one CPU sends are processed in order.
  void SetUp() override {
    ASSERT_EQ(sched_getaffinity(0, sizeof(before_), &before_), 0);
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(static_cast<size_t>(sched_getcpu()), &one);
    ASSERT_EQ(sched_setaffinity(0, sizeof(one), &one), 0);
  }
  void TearDown() override { sched_setaffinity(0, sizeof(before_), &before_); }

 private:
  cpu_set_t before_ = {};
};

class MartianEquivalenceTest : public MartianTest,
                               public ::testing::WithParamInterface<MartianCase> {};

// What KUBE-FIREWALL's rule drops of them: all but RELATED, ESTABLISHED and DNAT.
bool IsToBeDropped(const MartianCase& row) {
  return row.martian && (row.meeting == Meeting::kNew || row.meeting == Meeting::kInvalid ||
                         row.meeting == Meeting::kUntracked);
}

void ExpectRightFate(const MartianCase& row, const Outcome& outcome) {
  EXPECT_EQ(outcome.dropped, IsToBeDropped(row) ? 1U : 0U);
  EXPECT_EQ(outcome.fate.received, IsToBeDropped(row) ? 0 : 1);
  const auto& meetings = Meetings();
  const auto met = std::find_if(meetings.begin(), meetings.end(),
                                [&](const Met& each) { return each.meeting == row.meeting; });
  for (const std::string& expected : met->classes) {
    const std::string hook = row.way == Way::kIn ? "in_" : "out_";
    EXPECT_EQ(outcome.fate.counters.count(hook + expected), 1U)
        << "not what it should be: " << ::testing::PrintToString(outcome);
  }
}

TEST_P(MartianEquivalenceTest, HasTheSameFateInTheNativeTableAsInKubeFirewall) {
  const Outcome free = SendThrough(GetParam(), kNone);
  EXPECT_EQ(free.fate.received, 1) << "it does not come through without rules either";
  const Outcome xt = SendThrough(GetParam(), kXt);
  ExpectRightFate(GetParam(), xt);
  if (!IsToBeDropped(GetParam())) {
    EXPECT_EQ(xt, free);
  }
  EXPECT_EQ(SendThrough(GetParam(), kNative), xt);
}

INSTANTIATE_TEST_SUITE_P(Packets, MartianEquivalenceTest, ::testing::ValuesIn(AllCases()),
                         [](const auto& param_info) { return param_info.param.name; });

// A suite of its own, which also runs on kernels without xtables (tests/other-kernel).
class NativeMartianTest : public MartianEquivalenceTest {};

TEST_P(NativeMartianTest, DropsWhatIsToBeDropped) {
  ExpectRightFate(GetParam(), SendThrough(GetParam(), kNative));
}

INSTANTIATE_TEST_SUITE_P(Packets, NativeMartianTest, ::testing::ValuesIn(AllCases()),
                         [](const auto& param_info) { return param_info.param.name; });

// A connection is tracked only where some rule asks for it, and the others here do.
TEST_F(MartianTest, HasConnectionsTrackedByTheNativeTableAlone) {
  const MartianCase answer = {"Answer", Meeting::kAnswer, Way::kIn, IPPROTO_UDP};
  const MartianCase fresh = {"New", Meeting::kNew, Way::kIn, IPPROTO_UDP};
  for (const MartianCase& row : {answer, fresh}) {
    SCOPED_TRACE(row.name);
    MartianWorld world(row, /*with_probes=*/false);
    const InNetns inside(world.node());
    const auto backend = netlink::NewNftBackend();
    ASSERT_THAT(backend, IsOk());
    PutNativeTable(**backend);
    world.MakeConnection();
    const bool passes = row.meeting == Meeting::kAnswer;
    EXPECT_EQ(world.SendPacket().received, passes ? 1 : 0);
    EXPECT_EQ(NativeDropped(**backend), passes ? 0U : 1U);
  }
}

}  // namespace
}  // namespace kipt::testing
