// SPDX-License-Identifier: Apache-2.0
//
// What a Backend is tested in: the backend, its kernel, and another writer there. The fake,
// nf_tables and legacy iptables are such worlds.
#ifndef KIPT_TESTS_KERNEL_BACKEND_WORLD_H_
#define KIPT_TESTS_KERNEL_BACKEND_WORLD_H_

#include <ostream>

#include "tests/kernel/nft_fixture.h"

namespace kipt::testing {

inline const netlink::ChainId kUser{netlink::Family::kIPv4, netlink::Table::kFilter, "USER"};
inline const netlink::ChainId kOther{netlink::Family::kIPv4, netlink::Table::kFilter, "OTHER"};
inline const netlink::ChainId kUser6{netlink::Family::kIPv6, netlink::Table::kFilter, "USER"};
inline const netlink::ChainId kNat{netlink::Family::kIPv4, netlink::Table::kNat, "NATUSER"};
inline const netlink::ChainId kMangle{netlink::Family::kIPv4, netlink::Table::kMangle, "HINT"};
inline const netlink::ChainId kInput{netlink::Family::kIPv4, netlink::Table::kFilter, "INPUT"};
inline const netlink::ChainId kPostrouting{netlink::Family::kIPv4, netlink::Table::kNat,
                                           "POSTROUTING"};

// A backend, and another writer to the same kernel. Calls that jump to OTHER create it if it does
// not exist yet.
class World {
 public:
  virtual ~World() = default;
  virtual netlink::Backend& backend() = 0;
  // A commit that has nothing to do with our chains.
  virtual void Touch() = 0;
  // "-m statistic ... -j OTHER" at the end of ip filter `chain`.
  virtual void AppendOpaqueJump(const std::string& chain) = 0;
  // The text that such a rule is read with.
  virtual std::string OpaqueJumpText() const { return "[xt statistic rev 0] -j OTHER"; }
  // ip filter INPUT as a plain chain. iptables-legacy cannot have such a chain.
  virtual void AddUnhookedInput() = 0;
};

struct Subject {
  std::string name;
  std::function<std::unique_ptr<World>()> make;
};
void PrintTo(const Subject& subject, std::ostream* stream);

// The fake, nf_tables and legacy iptables.
std::vector<Subject> AllSubjects();
// nf_tables and the fake. In legacy iptables a base chain is always hooked, a Monitor cannot
// distinguish our own commits from others', and there are no native tables.
std::vector<Subject> NftSubjects();
std::vector<Subject> LegacySubjects();

class BackendContractTest : public NetnsTest, public ::testing::WithParamInterface<Subject> {
 protected:
  void SetUp() override {
    NetnsTest::SetUp();
    if (HasFatalFailure()) return;
    world_ = GetParam().make();
  }

  World& world() { return *world_; }
  netlink::Backend& backend() { return world_->backend(); }

  netlink::Snapshot Read(const std::vector<netlink::ChainId>& chains = {
                             kUser, kOther, kUser6, kNat, kMangle, kInput, kPostrouting}) {
    std::vector<netlink::ChainQuery> queries;
    for (const netlink::ChainId& chain : chains) {
      queries.push_back(netlink::ChainQuery{.chain = chain});
    }
    absl::StatusOr<netlink::Snapshot> snapshot = backend().Read(queries);
    EXPECT_THAT(snapshot, IsOk());
    return snapshot.ok() ? *std::move(snapshot) : netlink::Snapshot{};
  }

  // Based on the current ruleset.
  absl::Status Apply(std::vector<netlink::Operation> operations) {
    return backend().Apply(netlink::Transaction{.generation = Read({}).generation,
                                                .operations = std::move(operations)});
  }

  // The rules' texts; "absent" where there is no such chain.
  std::vector<std::string> Rules(const netlink::ChainId& chain) {
    const netlink::Snapshot snapshot = Read({chain});
    const netlink::ObservedChain* observed = snapshot.Find(chain);
    if (observed == nullptr) return {"absent"};
    std::vector<std::string> texts;
    for (const netlink::ObservedRule& rule : observed->rules) {
      texts.push_back(ToString(chain.family, rule));
    }
    return texts;
  }

  netlink::RuleHandle HandleOf(const netlink::ChainId& chain, size_t index) {
    const netlink::Snapshot snapshot = Read({chain});
    return snapshot.Find(chain)->rules.at(index).handle;
  }

  static netlink::AddRule Append(const netlink::ChainId& chain, const netlink::Rule& rule) {
    return netlink::AddRule{.chain = chain, .rule = rule, .before = std::nullopt, .number = 0};
  }
  static netlink::AddRule InsertBefore(const netlink::ChainId& chain, netlink::RuleHandle handle,
                                       const netlink::Rule& rule) {
    return netlink::AddRule{.chain = chain, .rule = rule, .before = handle, .number = 1};
  }

  // jump_ needs a chain OTHER.
  const netlink::Rule drop_ = netlink::Rule{.comment = "drop it", .target = netlink::Drop{}};
  const netlink::Rule return_ =
      netlink::Rule{.mark = netlink::MarkMatch{0x8000, 0x8000}, .target = netlink::Return{}};
  const netlink::Rule jump_ = netlink::Rule{.target = netlink::Jump{"OTHER"}};

 private:
  std::unique_ptr<World> world_;
};

}  // namespace kipt::testing

#endif  // KIPT_TESTS_KERNEL_BACKEND_WORLD_H_
