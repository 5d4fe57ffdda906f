// SPDX-License-Identifier: Apache-2.0
//
// On random states of kubelet's chains, one sync repairs them, a second changes nothing, and no
// foreign rule is touched.
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "agent/loop/reconciler.h"
#include "agent/policy/ownership.h"
#include "agent/policy/rule_forms.h"
#include "tests/support/fake_backend.h"
#include "tests/support/matchers.h"
#include "tests/support/observed.h"
#include "tests/support/status_matchers.h"

namespace kipt::agent {
namespace {

using netlink::ObservedRule;

class RandomState {
 public:
  explicit RandomState(uint32_t seed) : random_(seed) {}

  // Adds rules of all kinds that `chain` can have, in any number and order.
  void Fill(const ChainId& chain, const std::vector<FakeBackend::Content>& kinds,
            FakeBackend& backend) {
    if (Below(8) == 0) return;  // the chain is missing
    backend.AddChain(chain);
    for (uint32_t left = Below(9); left > 0; --left) {
      FakeBackend::Content rule = kinds[Below(static_cast<uint32_t>(kinds.size()))];
      if (auto* opaque = std::get_if<netlink::OpaqueRule>(&rule)) {
        absl::StrAppend(&opaque->text, " #", ++foreign_);
      }
      backend.AppendRule(chain, rule);
    }
  }

  uint32_t Below(uint32_t end) {
    return std::uniform_int_distribution<uint32_t>(0, end - 1)(random_);
  }

 private:
  std::mt19937 random_;
  int foreign_ = 0;
};

void FillKubeletChains(RandomState& random, FakeBackend& backend) {
  const FakeBackend::Content accept = ForeignAccept();
  const FakeBackend::Content log = ForeignLog();
  random.Fill(Nat("KUBE-MARK-MASQ"), {SetBit(14), SetBit(20), accept, log}, backend);
  random.Fill(Nat("KUBE-MARK-DROP"), {SetBit(15), SetBit(5), accept, log}, backend);
  random.Fill(Nat("KUBE-POSTROUTING"),
              {ReturnUnmarked(14), ClearBit(14), MasqueradeAll(0), ReturnUnmarked(20), ClearBit(20),
               MasqueradeMarked(14), MasqueradeAllPlain(0), BareReturn(), accept, log},
              backend);
  random.Fill(Filter("KUBE-FIREWALL"),
              {DropMartians(0), DropMarked(15), DropMarked(3),
               BareDrop("kubernetes firewall for dropping marked packets"), accept, log},
              backend);
  const FakeBackend::Content firewall = JumpTo("KUBE-FIREWALL");
  if (backend.state().Find(Filter("KUBE-FIREWALL")) != nullptr) {
    random.Fill(Filter("INPUT"), {firewall, accept, log}, backend);
  }
  if (random.Below(4) == 0) backend.AddChain(Mangle("KUBE-IPTABLES-HINT"));
}

// The opaque rules of each chain in order, as text.
std::vector<std::string> ForeignRules(const FakeBackend& backend) {
  std::vector<std::string> lines;
  for (const auto& [id, chain] : backend.state().chains) {
    for (const ObservedRule& rule : chain.rules) {
      if (rule.opaque() == nullptr) continue;
      lines.push_back(absl::StrCat(netlink::ToString(id), " ", rule.opaque()->text));
    }
  }
  return lines;
}

// Every rule of `desired` once, in order where that counts, and none that decides before it; in
// table nat none that no packet passes. A bare RETURN is ours to delete only where it does harm.
void ExpectInPlace(const DesiredChain& desired, const FakeBackend& backend) {
  const netlink::ObservedChain* chain = backend.state().Find(desired.id);
  ASSERT_NE(chain, nullptr) << netlink::ToString(desired.id);
  std::vector<std::string> before_foreign;
  std::vector<std::string> all;
  bool foreign = false;
  const bool nat = desired.id.table == netlink::Table::kNat;
  for (const ObservedRule& rule : chain->rules) {
    if (rule.rule() == nullptr || *rule.rule() == BareReturn()) {
      foreign =
          foreign || (nat ? netlink::IsUnconditionalTerminal(rule) : netlink::MayDecide(rule));
      continue;
    }
    all.push_back(netlink::ToString(desired.id.family, rule));
    if (!foreign) before_foreign.push_back(all.back());
  }
  std::vector<std::string> expected;
  for (const DesiredRule& rule : desired.rules) {
    expected.push_back(netlink::ToString(desired.id.family, rule.rule));
  }
  if (desired.ordered) {
    EXPECT_EQ(before_foreign, expected) << netlink::ToString(desired.id);
  } else {
    EXPECT_THAT(before_foreign, UnorderedElementsAreArray(expected));
  }
  EXPECT_EQ(all.size(), expected.size()) << netlink::ToString(desired.id) << " has extra rules";
}

TEST(ConvergenceTest, OneSyncIsEnoughAndTouchesNoForeignRule) {
  const netlink::Family ipv4[] = {netlink::Family::kIPv4};
  const PolicyInput desired = Wanting(Mode::kLegacy, ipv4, {});
  const Clock clock{.now = [] { return SteadyTime(); }, .sleep = [](absl::Duration) {}};
  for (uint32_t seed = 0; seed < 6000; ++seed) {
    const bool kube_proxy_lives = seed % 2 == 1;
    SCOPED_TRACE(absl::StrCat("seed ", seed));
    RandomState random(seed);
    FakeBackend backend;
    FillKubeletChains(random, backend);
    if (kube_proxy_lives) backend.AddChain(Nat("KUBE-SERVICES"));
    const std::string before = ToString(backend);
    const std::vector<std::string> foreign = ForeignRules(backend);

    Reconciler reconciler(&backend, clock);
    const SyncReport report = reconciler.Sync(desired);
    ASSERT_THAT(report.FirstError(), IsOk()) << before;
    EXPECT_EQ(ForeignRules(backend), foreign) << before;
    const absl::StatusOr<Plan> again = reconciler.Check(desired);
    ASSERT_THAT(again, IsOk());
    EXPECT_THAT(again->diff.changes, IsEmpty()) << before << ToString(backend);
    for (const DesiredChain& chain : DesiredRuleset(desired).chains) {
      const netlink::ObservedChain* observed = backend.state().Find(chain.id);
      ASSERT_NE(observed, nullptr);
      for (const Damage& damage : FindDamage(chain.id, observed->rules)) {
        EXPECT_NE(damage.condition, Condition::kDamagedRule) << damage.message << before;
      }
      if (!kube_proxy_lives) ExpectInPlace(chain, backend);
      if (kube_proxy_lives && chain.id.name == "KUBE-POSTROUTING") {
        EXPECT_TRUE(CompleteSetBit(chain.id, observed->rules).has_value()) << ToString(backend);
      }
    }
    if (HasFailure()) return;
  }
}

}  // namespace
}  // namespace kipt::agent
