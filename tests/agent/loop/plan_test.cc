// SPDX-License-Identifier: Apache-2.0
//
// `kube-proxy --cleanup`, as a check finds it.
#include "agent/loop/plan.h"

#include <functional>
#include <string>
#include <vector>

#include "agent/policy/rule_forms.h"
#include "tests/support/matchers.h"
#include "tests/support/observed.h"

namespace kipt::agent {
namespace {

// kube-proxy --cleanup of any version names neither KUBE-MARK-DROP nor what is in other tables.
TEST(CompareTest, ACleanupIsWhereNatLacksTheJumpToKubePostroutingAndOnlyWhatKubeProxyDeletes) {
  const struct {
    std::string name;
    std::function<void(Observed&)> prepare;
    std::vector<Family> in_cleanup;
  } rows[] = {
      {"the jump is missing",
       [](Observed& node) { node.Chain(Nat("POSTROUTING")); },
       {Family::kIPv4}},
      {"nothing is missing", [](Observed&) {}, {}},
      {"the chain is missing too",
       [](Observed& node) { node.Remove(Nat("KUBE-POSTROUTING")).Chain(Nat("POSTROUTING")); },
       {Family::kIPv4}},
      {"from 1.34 on KUBE-MARK-MASQ is missing too",
       [](Observed& node) {
         node.Remove(Nat("KUBE-POSTROUTING"))
             .Remove(Nat("KUBE-MARK-MASQ"))
             .Remove(Nat("KUBE-SERVICES"))
             .Chain(Nat("POSTROUTING"));
       },
       {Family::kIPv4}},
      {"only KUBE-MARK-MASQ is missing",
       [](Observed& node) { node.Remove(Nat("KUBE-MARK-MASQ")); },
       {}},
      {"another rule is missing", [](Observed& node) { node.Chain(Nat("KUBE-MARK-DROP")); }, {}},
      {"another rule is missing too, as after a flush",
       [](Observed& node) { node.Chain(Nat("POSTROUTING")).Chain(Nat("KUBE-MARK-DROP")); },
       {}},
      {"a duplicate is to be deleted",
       [](Observed& node) {
         node.Chain(Nat("KUBE-MARK-DROP"), {SetBit(15), SetBit(15)});
       },
       {}},
      {"another table's jump is missing too",
       [](Observed& node) { node.Chain(Nat("POSTROUTING")).Chain(Filter("INPUT")); },
       {Family::kIPv4}},
      {"another table's jump is missing", [](Observed& node) { node.Chain(Filter("INPUT")); }, {}},
      {"the other family's jump is missing",
       [](Observed& node) { node.Chain(Nat("POSTROUTING", Family::kIPv6)); },
       {Family::kIPv6}},
      {"both families' jumps are missing",
       [](Observed& node) {
         node.Chain(Nat("POSTROUTING")).Chain(Nat("POSTROUTING", Family::kIPv6));
       },
       {Family::kIPv4, Family::kIPv6}},
      {"kube-proxy stays",
       [](Observed& node) {
         node.Chain(Nat("POSTROUTING")).Chain(Nat("PREROUTING"), {JumpTo("KUBE-SERVICES")});
       },
       {}},
  };
  const PolicyInput input = Wanting(Mode::kLegacy, netlink::kFamilies, {});
  for (const auto& row : rows) {
    Observed node = Made(input);
    node.Chain(Nat("KUBE-SERVICES"));
    row.prepare(node);
    const Plan plan = Compare(input, {}, node.snapshot());
    EXPECT_EQ(plan.in_cleanup, row.in_cleanup) << row.name;
    const bool services = node.snapshot().Find(Nat("KUBE-SERVICES")) != nullptr;
    EXPECT_EQ(plan.with_services,
              services ? std::vector<Family>{Family::kIPv4} : std::vector<Family>())
        << row.name;
  }
}

}  // namespace
}  // namespace kipt::agent
