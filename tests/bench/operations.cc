// SPDX-License-Identifier: Apache-2.0
#include "tests/bench/operations.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "tests/bench/contenders.h"

namespace kipt::testing {
namespace {

using netlink::ChainId;
using netlink::Family;
using netlink::Table;

// Long enough for the caches to be others'.
constexpr absl::Duration kNap = absl::Milliseconds(60);
// Beyond these, one pass of kubelet's sequence in legacy iptables takes seconds, and any write
// does.
constexpr int kMostForLegacyKubeletRepairs = 1000;
constexpr int kMostForLegacyRepairs = 10000;

constexpr char kStart[] = "start a program";

struct RepairRow {
  const char* name;
  ChainId chain;
};

std::vector<RepairRow> RepairRows() {
  return {
      {"repair mangle/KUBE-IPTABLES-HINT", {Family::kIPv4, Table::kMangle, "KUBE-IPTABLES-HINT"}},
      {"repair filter/KUBE-FIREWALL", {Family::kIPv4, Table::kFilter, "KUBE-FIREWALL"}},
      {"repair nat/KUBE-MARK-DROP", {Family::kIPv4, Table::kNat, "KUBE-MARK-DROP"}},
      {"repair nat/KUBE-POSTROUTING", {Family::kIPv4, Table::kNat, "KUBE-POSTROUTING"}},
      {"repair nat/KUBE-KUBELET-CANARY", {Family::kIPv4, Table::kNat, "KUBE-KUBELET-CANARY"}}};
}

class RowList {
 public:
  RowList(World& world, KernelFloor* floor) : world_(world), floor_(floor) {}

  std::vector<Operation> All() && {
    Floor();
    Cold();
    Warm();
    Repairs();
    return std::move(operations_);
  }

 private:
  using Step = std::function<absl::Status()>;

  void Add(std::string name, std::string contender, Step prepare, Step run, int times = 1,
           int samples = 1) {
    const bool in_process = contender == "agent" || (contender == "kernel" && name != kStart);
    operations_.push_back({.name = std::move(name),
                           .contender = std::move(contender),
                           .prepare = std::move(prepare),
                           .run = std::move(run),
                           .counted = in_process ? Counted::kAll : Counted::kProgramsOnly,
                           .times = times,
                           .samples = samples});
  }

  bool nft() const { return world_.mode() == IptablesMode::kNft; }
  Step Nothing() const {
    return [] { return absl::OkStatus(); };
  }
  Step InPlace() const {
    return [&world = world_] { return world.PutInPlace(); };
  }
  // Others leave the world in a state that only they know of.
  Step CleanFor() const {
    return [&world = world_] {
      absl::Status status = world.Clean();
      world.Forget();
      return status;
    };
  }
  Step Kubelet(Expected expected) const {
    return [mode = world_.mode(), expected] { return RunKubeletInBothFamilies(mode, expected); };
  }
  Step Program() const {
    return [mode = world_.mode()] { return RunAgentSync(mode); };
  }

  void Floor() {
    Add(kStart, "kernel", Nothing(), RunTrue, 1, 3);
    if (floor_ == nullptr) return;
    KernelFloor& floor = *floor_;
    Add(
        "ask the generation", "kernel", Nothing(), [&floor] { return floor.AskGeneration(); },
        5000);
    Add(
        "commit nothing", "kernel", Nothing(), [&floor] { return floor.CommitNothing(); }, 5000);
    Add(
        "commit a chain", "kernel", [&floor] { return floor.PrepareChain(); },
        [&floor] { return floor.Commit(); }, 1, 10);
    Add(
        "commit a rule in nat", "kernel", [&floor] { return floor.PrepareRule(); },
        [&floor] { return floor.Commit(); }, 1, 5);
  }

  void Cold() {
    Add("cold", "kubelet", CleanFor(), Kubelet(Expected::kSomethingToDo));
    // What kubelet has just made, our agent must take for complete.
    Add("check what kubelet made", "agent", Nothing(), [&world = world_] { return world.Check(); });
    Add("cold", "agent", CleanFor(), [&world = world_] { return world.Repair(); });
    Add("warm", "kubelet", InPlace(), Kubelet(Expected::kNothingToDo));
    Add("cold", "agent program", CleanFor(), Program());
    Add("cold", "restore", CleanFor(),
        [&world = world_] { return RestoreInBothFamilies(world.mode()); });
    if (nft()) Add("cold", "nft", CleanFor(), NftInBothFamilies);
  }

  void Warm() {
    Add(
        "tick", "kubelet",
        [&world = world_] {
          // Of nft's rules, which iptables cannot read.
          if (world.mode() == IptablesMode::kNft) {
            if (absl::Status status = world.Clean(); !status.ok()) return status;
          }
          return world.PutInPlace();
        },
        [mode = world_.mode()] { return TickInBothFamilies(mode); });
    Add("warm", "agent program", InPlace(), Program());
    if (!nft()) {
      Add("check", "agent", InPlace(), [&world = world_] { return world.Check(); });
      return;
    }
    Add(
        "unchanged", "agent", InPlace(),
        [&world = world_] { return world.backend().Read({}).status(); }, 5000);
    Add(
        "check", "agent", InPlace(), [&world = world_] { return world.Check(); }, 100);
    Add(
        "check", "kernel", InPlace(), [&floor = *floor_] { return floor.AskForEverything(); }, 100);
    Add(
        "check after a commit", "agent", Changed(absl::ZeroDuration()),
        [&world = world_] { return world.Check(); }, 1, 10);
    Add("warm after a commit", "kubelet", Changed(absl::ZeroDuration()),
        Kubelet(Expected::kNothingToDo));
    Add(
        "check after a commit", "kernel", Changed(absl::ZeroDuration()),
        [&floor = *floor_] { return floor.AskForEverything(); }, 1, 10);
    Add(
        "check after a commit and 60 ms", "agent", Changed(kNap),
        [&world = world_] { return world.Check(); }, 1, 5);
  }

  Step Changed(absl::Duration nap) const {
    return [&world = world_, nap] {
      if (absl::Status status = world.PutInPlace(); !status.ok()) return status;
      absl::Status status = world.somebody_else().CommitChain().status();
      absl::SleepFor(nap);
      return status;
    };
  }

  void Repairs() {
    if (!nft() && world_.services() > kMostForLegacyRepairs) return;
    for (const RepairRow& row : RepairRows()) {
      const Step damage = [&world = world_, chain = row.chain] {
        absl::Status status = world.Damage(chain);
        world.Settle();
        return status;
      };
      Add(row.name, "agent", damage, [&world = world_] { return world.Repair(); });
      if (nft() || world_.services() <= kMostForLegacyKubeletRepairs) {
        Add(row.name, "kubelet", damage, [mode = world_.mode()] {
          return RunKubeletIn(IpFamily::kIpv4, mode, Expected::kSomethingToDo);
        });
      }
      if (nft()) {
        Add(
            absl::StrCat(row.name, ", at once"), "agent",
            [&world = world_, chain = row.chain] { return world.Damage(chain); },
            [&world = world_] { return world.Repair(); });
      }
    }
  }

  World& world_;
  KernelFloor* const floor_;
  std::vector<Operation> operations_;
};

}  // namespace

std::vector<Operation> Operations(World& world, KernelFloor* floor) {
  return RowList(world, floor).All();
}

std::vector<std::string> LeftOut(const World& world) {
  std::vector<std::string> sentences;
  if (world.mode() == IptablesMode::kNft) return sentences;
  if (world.services() > kMostForLegacyRepairs) {
    sentences.push_back(absl::StrCat("legacy, ", world.services(),
                                     " services: repairs (each write swaps the whole table and "
                                     "takes seconds, whoever makes it; `cold` is the same work)"));
  } else if (world.services() > kMostForLegacyKubeletRepairs) {
    sentences.push_back(absl::StrCat("legacy, ", world.services(),
                                     " services: repairs by kubelet's sequence (each takes half of "
                                     "its `warm` at least)"));
  }
  return sentences;
}

}  // namespace kipt::testing
