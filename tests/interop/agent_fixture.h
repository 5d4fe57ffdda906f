// SPDX-License-Identifier: Apache-2.0
//
// Runs the built kube-iptables-agent in a network namespace and with a /run of the test's own.
#ifndef KIPT_TESTS_INTEROP_AGENT_FIXTURE_H_
#define KIPT_TESTS_INTEROP_AGENT_FIXTURE_H_

// What most tests here use.
#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "tests/support/background_program.h"
#include "tests/support/in_place_of.h"
#include "tests/support/kubelet_sequence.h"
#include "tests/support/matchers.h"
#include "tests/support/netns_fixture.h"
#include "tests/support/run_program.h"
#include "tests/support/saved_rules.h"
#include "tests/support/status_matchers.h"
#include "tests/support/temporary_tree.h"

namespace kipt::testing {

// Exit codes of the program.
inline constexpr int kExitOk = 0;
inline constexpr int kExitFailed = 1;
inline constexpr int kExitDifferences = 2;
inline constexpr int kExitUsage = 64;

inline constexpr IptablesMode kBothModes[] = {IptablesMode::kNft, IptablesMode::kLegacy};
// A configuration file of our own kind begins with this.
inline constexpr char kConfigHead[] =
    "apiVersion: kube-iptables-agent/v1alpha1\nkind: KubeIPTablesAgentConfiguration\n";
inline constexpr const char* kIptablesTables[] = {"mangle", "nat", "filter"};

// A command line, or a part of one.
using Words = std::vector<std::string>;
inline Words operator+(Words first, const Words& more) {
  first.insert(first.end(), more.begin(), more.end());
  return first;
}

// What chooses the mode, as flags.
struct AgentSettings {
  bool ownership_cleanup = true;  // the default of 1.27
  KubeletBits bits = {};
  // kNft is not spelled: it is what a fresh node gets.
  IptablesMode iptables = IptablesMode::kNft;
  std::vector<std::string> Flags() const;
};

class AgentTest : public PrivateRunTest {
 protected:
  static std::string AgentProgram();
  static ProgramResult Agent(const Words& arguments);
  // `kube-iptables-agent COMMAND` with the flags of `settings`.
  static ProgramResult Agent(const std::string& command, const AgentSettings& settings);
  // As an ordinary user.
  static ProgramResult AgentAsNobody(const Words& arguments);
  // A command of iptables, or input of its restore --noflush, that must succeed.
  static void Change(const Iptables& iptables, const Words& arguments);
  static void Load(const Iptables& iptables, const std::string& text);
  // `sync` that must succeed.
  static void Sync(const AgentSettings& settings);
  // `plan` must find nothing to do.
  static void ExpectNothingPlanned(const AgentSettings& settings);

  // kubelet's commands, all of which must succeed.
  static KubeletRun Kubelet(KubeletForm form, const Iptables& iptables, KubeletBits bits = {});

  // A program that must succeed; what it printed.
  static std::string Output(std::vector<std::string> argv);

  // What reading must not change: the loaded modules, the iptables-legacy tables and all of nft.
  static std::string TablesAndModules();
};

// "Nft" or "Legacy": part of the names of tests.
std::string TestNameOf(IptablesMode mode);

// The chroot with another Debian release's iptables ("bullseye" or "trixie") that tests/run made.
std::string ChrootDir(const std::string& release);

// A file in a fresh directory that is removed with this object.
class TemporaryFile {
 public:
  explicit TemporaryFile(const std::string& content) { tree_.Write("config.yaml", content); }

  const std::string& path() const { return path_; }
  const std::string& directory() const { return directory_; }

 private:
  TemporaryTree tree_;
  const std::string directory_ = tree_.root();
  const std::string path_ = tree_.Path("config.yaml");
};

// A copy of the program that an ordinary user can run, even if the build tree is closed to that
// user.
class UserCopy {
 public:
  explicit UserCopy(const std::string& program);
  const std::string& path() const { return path_; }

 private:
  TemporaryFile file_{""};
  const std::string path_ = file_.directory() + "/kube-iptables-agent";
};

// A named pipe that is full until it is read.
class FullPipe {
 public:
  FullPipe();
  ~FullPipe();
  FullPipe(const FullPipe&) = delete;
  FullPipe& operator=(const FullPipe&) = delete;
  const std::string& path() const { return path_; }
  // All that programs have written so far.
  const std::string& Read();

 private:
  TemporaryFile file_{""};
  const std::string path_ = file_.directory() + "/pipe";
  int fd_ = -1;
  size_t filled_ = 0;
  std::string read_;
};

// Puts `script` in front of every program of iptables-legacy, in the mount namespace that the test
// has for itself: the program is "$dir/real/$name" then, and $dir the root of `tree`.
[[nodiscard]] std::unique_ptr<InPlaceOf> PutBeforeLegacyPrograms(const TemporaryTree& tree,
                                                                 absl::string_view script);

}  // namespace kipt::testing

#endif  // KIPT_TESTS_INTEROP_AGENT_FIXTURE_H_
