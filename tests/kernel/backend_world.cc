// SPDX-License-Identifier: Apache-2.0
#include "tests/kernel/backend_world.h"

#include <cstdlib>

#include "agent/process/command.h"
#include "agent/xtables/iptables_legacy_backend.h"
#include "tests/support/fake_backend.h"

namespace kipt::testing {
namespace {

using namespace ::kipt::netlink;  // NOLINT(google-build-using-namespace): the model's vocabulary

class FakeWorld : public World {
 public:
  explicit FakeWorld(netlink::BackendKind kind = netlink::BackendKind::kNft) : backend_(kind) {}
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

// Of real programs: "iptables-nft" or "iptables-legacy".
class ProgramWorld : public World {
 public:
  explicit ProgramWorld(std::string program) : program_(std::move(program)) {}
  Backend& backend() override { return *backend_; }
  void AppendOpaqueJump(const std::string& chain) override {
    RunProgram({program_, "-N", "OTHER"});
    MustRun({program_, "-A", chain, "-m", "statistic", "--mode", "nth", "--every", "2", "--packet",
             "0", "-j", "OTHER"});
  }
  std::string OpaqueJumpText() const override {
    return "-m statistic --mode nth --every 2 --packet 0 -j OTHER";
  }

 protected:
  void Use(absl::StatusOr<std::unique_ptr<Backend>> backend) {
    EXPECT_THAT(backend, IsOk());
    if (backend.ok()) backend_ = *std::move(backend);
  }
  std::string NextName() { return absl::StrCat("touched", ++names_); }

  // Before the backend that uses it.
  const std::unique_ptr<agent::CommandRunner> runner_ = agent::NewCommandRunner();

 private:
  const std::string program_;
  std::unique_ptr<Backend> backend_;
  int names_ = 0;
};

class NftWorld : public ProgramWorld {
 public:
  NftWorld() : ProgramWorld("iptables-nft") { Use(netlink::NewNftBackend()); }
  void Touch() override { MustRun({"nft", "add", "table", "netdev", NextName()}); }
  void AddUnhookedInput() override {
    MustRun({"nft", "add table ip filter; add chain ip filter INPUT"});
  }
};

class LegacyWorld : public ProgramWorld {
 public:
  LegacyWorld() : ProgramWorld("iptables-legacy") {
    // Neither the machine's lock nor that of a test that runs at the same time, because a monitor
    // would report the other's uses.
    const std::string lock = tree_.Path("xtables.lock");
    EXPECT_EQ(setenv("XTABLES_LOCKFILE", lock.c_str(), 1), 0);
    Use(agent::NewIptablesLegacyBackend(runner_.get(), {.lock_path = lock}));
  }
  ~LegacyWorld() override { unsetenv("XTABLES_LOCKFILE"); }
  void Touch() override { MustRun({"iptables-legacy", "-N", NextName()}); }
  void AddUnhookedInput() override { ADD_FAILURE() << "legacy iptables has no unhooked INPUT"; }

 private:
  TemporaryTree tree_;
};

}  // namespace

void PrintTo(const Subject& subject, std::ostream* stream) { *stream << subject.name; }

std::vector<Subject> NftSubjects() {
  return {Subject{"Fake", [] { return std::make_unique<FakeWorld>(); }},
          Subject{"Nft", [] { return std::make_unique<NftWorld>(); }}};
}

std::vector<Subject> AllSubjects() {
  std::vector<Subject> subjects = NftSubjects();
  subjects.push_back(Subject{"Legacy", [] { return std::make_unique<LegacyWorld>(); }});
  return subjects;
}

std::vector<Subject> LegacySubjects() {
  return {
      Subject{"FakeLegacy",
              [] { return std::make_unique<FakeWorld>(netlink::BackendKind::kIptablesLegacy); }},
      Subject{"Legacy", [] { return std::make_unique<LegacyWorld>(); }}};
}

}  // namespace kipt::testing
