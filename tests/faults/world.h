// SPDX-License-Identifier: Apache-2.0
//
// The kernel that a fault happens before: its rules, ours and others', as they are prepared and as
// iptables-save and nft, which know nothing of our program, say that they stand.
#ifndef KIPT_TESTS_FAULTS_WORLD_H_
#define KIPT_TESTS_FAULTS_WORLD_H_

#include <map>
#include <string>
#include <vector>

#include "tests/faults/control.h"
#include "tests/support/background_program.h"
#include "tests/support/kubelet_sequence.h"

namespace kipt::testing {

// By "ip filter" (one table of one family) and "nft" (all that nft lists): its chains sorted, the
// rules of each in their order, without counters.
struct KernelText {
  std::map<std::string, std::string> parts;
  // A program that could not say it.
  std::string problem;

  bool operator==(const KernelText&) const = default;
};

inline constexpr char kNftPart[] = "nft";

// Of the calling thread's network namespace. Of nft mode, both iptables-nft-save and nft are asked.
KernelText ReadKernel(IptablesMode mode);
// kNftPart only, which one program prints.
KernelText ReadNftables();

// How much of a change may be done where it ends in an error.
enum class Atomicity { kWhole, kFamily, kTable };

// Empty where each part (all, a family, a table) is as in `before` or as in `wanted`; else what is
// neither.
std::string HalfDone(const KernelText& now, const KernelText& before, const KernelText& wanted,
                     Atomicity atomicity);

// Where two differ, for people.
std::string Difference(const KernelText& a, const KernelText& b);

enum class StartState { kCold, kWarm, kDamaged };

// What a `sync` finds, and what it is to do.
struct Scene {
  IptablesMode iptables = IptablesMode::kNft;
  bool cleanup = true;
  StartState state = StartState::kCold;
};
// "nft, cleanup, cold".
std::string NameOf(const Scene& scene);

struct Programs {
  std::string agent;
  std::string layer;
  std::string stand_in;
};
// As built.
Programs BuiltPrograms();
// Copies with the same file names, so that a build cannot replace them during a run.
Programs ProgramsIn(const std::string& directory);

// The flags that ask for `scene`. Where rules stand, which iptables it is the program has to find
// out.
std::vector<std::string> FlagsOf(const Scene& scene);

// A shared page, all zero at first, that lives as long as this.
class ControlPage {
 public:
  explicit ControlPage(const Programs& programs);
  ~ControlPage();
  ControlPage(const ControlPage&) = delete;
  ControlPage& operator=(const ControlPage&) = delete;

  Control& operator*() { return *control_; }
  Control* operator->() { return control_; }
  // For BackgroundProgram: so that the layer is loaded and finds this page.
  const std::vector<std::string>& environment() const { return environment_; }

 private:
  int fd_;
  Control* control_;
  std::vector<std::string> environment_;
};

// Moves the calling thread to a fresh network namespace and makes it what `scene` begins with.
// Empty, or what went wrong.
std::string Prepare(const Scene& scene, const Programs& programs);
// Only the rules of others.
std::string PutForeignRules(IptablesMode mode);

// Runs `iptables-MODE-restore --noflush`; empty, or what went wrong.
std::string Restore(IptablesMode mode, IpFamily family, const std::string& text);

}  // namespace kipt::testing

#endif  // KIPT_TESTS_FAULTS_WORLD_H_
