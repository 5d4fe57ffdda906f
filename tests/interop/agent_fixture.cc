// SPDX-License-Identifier: Apache-2.0
#include "tests/interop/agent_fixture.h"

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <utility>

#include "absl/strings/str_cat.h"

namespace kipt::testing {

std::vector<std::string> AgentSettings::Flags() const {
  std::vector<std::string> flags = {absl::StrCat("--feature-gates=IPTablesOwnershipCleanup=",
                                                 ownership_cleanup ? "true" : "false")};
  const KubeletBits defaults;
  // A bit that is only the default is not spelled: cleanup mode warns of the flags.
  if (bits.masquerade != defaults.masquerade || bits.drop != defaults.drop) {
    flags.push_back(absl::StrCat("--iptables-masquerade-bit=", bits.masquerade));
    flags.push_back(absl::StrCat("--iptables-drop-bit=", bits.drop));
  }
  return flags;
}

std::string AgentTest::AgentProgram() { return KIPT_AGENT_PROGRAM; }

ProgramResult AgentTest::Agent(std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), AgentProgram());
  return RunProgram(std::move(arguments));
}

ProgramResult AgentTest::Agent(const std::string& command, const AgentSettings& settings) {
  std::vector<std::string> arguments = settings.Flags();
  arguments.insert(arguments.begin(), command);
  return Agent(std::move(arguments));
}

ProgramResult AgentTest::AgentAsNobody(std::vector<std::string> arguments) {
  namespace fs = std::filesystem;
  const TemporaryFile beside("");
  const fs::path copy = fs::path(beside.directory()) / "kube-iptables-agent";
  std::error_code error;
  fs::permissions(beside.directory(), fs::perms(0755), error);
  fs::copy_file(AgentProgram(), copy, error);
  EXPECT_FALSE(error) << copy << ": " << error.message();
  arguments.insert(arguments.begin(), {"/usr/bin/setpriv", "--reuid=65534", "--regid=65534",
                                       "--clear-groups", copy.string()});
  return RunProgram(std::move(arguments));
}

void AgentTest::Sync(const AgentSettings& settings) {
  const ProgramResult result = Agent("sync", settings);
  EXPECT_EQ(result.exit_code, kExitOk) << result;
}

void AgentTest::ExpectNothingPlanned(const AgentSettings& settings) {
  const ProgramResult result = Agent("plan", settings);
  EXPECT_EQ(result.exit_code, kExitOk) << result;
}

KubeletRun AgentTest::Kubelet(KubeletForm form, const Iptables& iptables, KubeletBits bits) {
  KubeletRun run = RunKubelet(iptables, KubeletSequence(form, iptables.family, bits));
  EXPECT_EQ(run.error, "");
  return run;
}

std::string AgentTest::Output(std::vector<std::string> argv) {
  const ProgramResult result = RunProgram(std::move(argv));
  EXPECT_EQ(result.exit_code, 0) << result;
  return result.out;
}

std::string ChrootDir(const std::string& release) {
  namespace fs = std::filesystem;
  fs::path cache;
  if (const char* given = std::getenv("KIPT_CHROOT_DIR"); given != nullptr) {
    cache = given;
  } else if (const char* home = std::getenv("HOME"); home != nullptr) {
    cache = fs::path(home) / ".cache/kube-iptables-agent";
  }
  const fs::path chroot = cache / release;
  EXPECT_TRUE(fs::exists(chroot / "usr/sbin/xtables-nft-multi"))
      << chroot
      << " holds no iptables: `tests/run` makes it (debootstrap) and tells the tests where "
      << "by KIPT_CHROOT_DIR";
  return chroot.string();
}

TemporaryFile::TemporaryFile(const std::string& content) {
  std::string directory = (std::filesystem::temp_directory_path() / "kipt-XXXXXX").string();
  EXPECT_NE(mkdtemp(directory.data()), nullptr);
  directory_ = directory;
  path_ = directory + "/config.yaml";
  std::ofstream file(path_, std::ios::binary);
  file << content;
  file.close();
  EXPECT_TRUE(file.good()) << path_;
}

TemporaryFile::~TemporaryFile() {
  std::error_code ignored;
  std::filesystem::remove_all(directory_, ignored);
}

}  // namespace kipt::testing
