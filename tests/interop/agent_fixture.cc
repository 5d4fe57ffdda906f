// SPDX-License-Identifier: Apache-2.0
#include "tests/interop/agent_fixture.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <set>

#include "absl/strings/str_join.h"

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
  if (iptables == IptablesMode::kLegacy) flags.push_back("--iptables-mode=legacy");
  return flags;
}

std::string AgentTest::AgentProgram() { return KIPT_AGENT_PROGRAM; }

ProgramResult AgentTest::Agent(const Words& arguments) {
  return RunProgram(Words{AgentProgram()} + arguments);
}

ProgramResult AgentTest::Agent(const std::string& command, const AgentSettings& settings) {
  return Agent(Words{command} + settings.Flags());
}

ProgramResult AgentTest::AgentAsNobody(const Words& arguments) {
  const UserCopy copy(AgentProgram());
  return RunProgram(
      Words{"/usr/bin/setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", copy.path()} +
      arguments);
}

void AgentTest::Change(const Iptables& iptables, const Words& arguments) {
  const ProgramResult result = iptables.Run(arguments);
  ASSERT_EQ(result.exit_code, 0) << result;
}

void AgentTest::Load(const Iptables& iptables, const std::string& text) {
  const ProgramResult result = iptables.Restore(text);
  ASSERT_EQ(result.exit_code, 0) << text << result;
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

std::string AgentTest::TablesAndModules() {
  // The names of the modules only: their use counts move with what others do.
  std::string modules;
  for (absl::string_view line : absl::StrSplit(FileText("/proc/modules"), '\n')) {
    absl::StrAppend(&modules, line.substr(0, line.find(' ')), "\n");
  }
  return absl::StrCat("modules:\n", modules, "ip:\n", IptablesLegacyTables(IpFamily::kIpv4),
                      "\nip6:\n", IptablesLegacyTables(IpFamily::kIpv6), "\nnft:\n",
                      Output({"/usr/sbin/nft", "list", "ruleset"}));
}

UserCopy::UserCopy(const std::string& program) {
  namespace fs = std::filesystem;
  std::error_code error;
  fs::permissions(file_.directory(), fs::perms(0755), error);
  fs::copy_file(program, path_, error);
  EXPECT_FALSE(error) << path_ << ": " << error.message();
}

std::string TestNameOf(IptablesMode mode) { return mode == IptablesMode::kNft ? "Nft" : "Legacy"; }

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
      << chroot << " holds no iptables: `tests/run` makes it (debootstrap) and passes its path "
      << "in KIPT_CHROOT_DIR";
  return chroot.string();
}

FullPipe::FullPipe() {
  EXPECT_EQ(mkfifo(path_.c_str(), 0600), 0);
  fd_ = open(path_.c_str(), O_RDWR | O_NONBLOCK | O_CLOEXEC);
  EXPECT_GE(fd_, 0);
  const std::string page(4096, '.');
  for (ssize_t size = 0; (size = write(fd_, page.data(), page.size())) > 0;) {
    filled_ += static_cast<size_t>(size);
  }
}

FullPipe::~FullPipe() { close(fd_); }

const std::string& FullPipe::Read() {
  std::string buffer(1 << 16, ' ');
  for (ssize_t size = 0; (size = read(fd_, buffer.data(), buffer.size())) > 0;) {
    const auto got = static_cast<size_t>(size);
    const size_t skipped = std::min(filled_, got);
    filled_ -= skipped;
    read_.append(buffer, skipped, got - skipped);
  }
  return read_;
}

std::unique_ptr<InPlaceOf> PutBeforeLegacyPrograms(const TemporaryTree& tree,
                                                   absl::string_view script) {
  constexpr char kProgram[] = "/usr/sbin/xtables-legacy-multi";
  tree.Directory("real");
  std::filesystem::copy_file(kProgram, tree.Path("real/xtables-legacy-multi"));
  for (const char* program : {"iptables", "ip6tables"}) {
    for (const char* suffix : {"", "-save", "-restore"}) {
      tree.Link(absl::StrCat("real/", program, "-legacy", suffix), "xtables-legacy-multi");
    }
  }
  tree.Write("wrapper", absl::StrCat("#!/bin/sh\nname=${0##*/}\ndir=", tree.root(), "\n", script,
                                     "\nexec \"$dir/real/$name\" \"$@\"\n"));
  std::filesystem::permissions(tree.Path("wrapper"), std::filesystem::perms(0755));
  return std::make_unique<InPlaceOf>(tree.Path("wrapper"), kProgram);
}

}  // namespace kipt::testing
