// SPDX-License-Identifier: Apache-2.0
#include "tests/kernel/backend_world.h"

#include "netlink/nft_backend.h"
#include "tests/support/fake_backend.h"
#include "tests/support/run_program.h"

namespace kipt::testing {
namespace {

using netlink::Backend;
using netlink::ChainId;
using netlink::Family;
using netlink::OpaqueRule;
using netlink::Table;

class FakeWorld : public World {
 public:
  Backend& backend() override { return backend_; }
  void Touch() override { backend_.Touch(); }
  void AppendOpaqueJump(const std::string& chain) override {
    if (backend_.state().Find(kOther) == nullptr) backend_.AddChain(kOther);
    backend_.AppendRule(ChainId{Family::kIPv4, Table::kFilter, chain},
                        OpaqueRule{.text = "[xt statistic rev 0] -j OTHER", .jump = "OTHER"});
  }
  void AddUnhookedInput() override { backend_.AddChain(kInput, /*hooked=*/false); }

 private:
  FakeBackend backend_;
};

class NftWorld : public World {
 public:
  NftWorld() {
    auto backend = netlink::NewNftBackend();
    EXPECT_THAT(backend, IsOk());
    if (backend.ok()) backend_ = *std::move(backend);
  }
  Backend& backend() override { return *backend_; }
  void Touch() override { MustRun({"nft", "add", "table", "netdev", NextName()}); }
  void AppendOpaqueJump(const std::string& chain) override {
    RunProgram({"iptables-nft", "-N", "OTHER"});
    MustRun({"iptables-nft", "-A", chain, "-m", "statistic", "--mode", "nth", "--every", "2",
             "--packet", "0", "-j", "OTHER"});
  }
  void AddUnhookedInput() override {
    MustRun({"nft", "add", "table", "ip", "filter"});
    MustRun({"nft", "add", "chain", "ip", "filter", "INPUT"});
  }

 private:
  static void MustRun(const std::vector<std::string>& argv) {
    const ProgramResult result = RunProgram(argv);
    EXPECT_EQ(result.exit_code, 0) << result;
  }
  std::string NextName() { return "touched" + std::to_string(++names_); }

  std::unique_ptr<Backend> backend_;
  int names_ = 0;
};

}  // namespace

void PrintTo(const Subject& subject, std::ostream* stream) { *stream << subject.name; }

std::vector<Subject> AllSubjects() {
  return {Subject{"Fake", [] { return std::make_unique<FakeWorld>(); }},
          Subject{"Nft", [] { return std::make_unique<NftWorld>(); }}};
}

}  // namespace kipt::testing
