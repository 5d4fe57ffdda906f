// SPDX-License-Identifier: Apache-2.0
//
// A node with legacy iptables of any version, in a directory of the test's own: programs that are
// never run, a lock file, and the files of /proc that list what exists.
#ifndef KIPT_TESTS_AGENT_XTABLES_IPTABLES_LEGACY_FIXTURE_H_
#define KIPT_TESTS_AGENT_XTABLES_IPTABLES_LEGACY_FIXTURE_H_

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <fstream>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/time/time.h"
#include "agent/xtables/iptables_legacy_backend.h"
#include "tests/support/fake_command_runner.h"
#include "tests/support/status_matchers.h"
#include "tests/support/temporary_tree.h"

namespace kipt::testing {

class LegacyFixture : public ::testing::Test {
 protected:
  void SetUp() override {
    // Abseil makes its table of error messages once, in code that Debian did not instrument:
    // before the backend's threads, which ThreadSanitizer would take for a race.
    absl::ErrnoToStatus(ENOENT, "").IgnoreError();
    std::ofstream(StatusPath()) << "CapEff:\t000001ffffffffff\n";
    std::ofstream(IfInet6Path()) << "";
    std::ofstream(directory_ + "/dev") << "";
  }

  std::string LockPath() const { return directory_ + "/xtables.lock"; }
  std::string StatusPath() const { return directory_ + "/status"; }
  std::string IfInet6Path() const { return directory_ + "/if_inet6"; }
  // `verb` is "save" or "restore".
  std::string Program(const std::string& base, const std::string& verb) const {
    return directory_ + "/" + base + "-legacy-" + verb;
  }

  // A file that can be executed.
  static void Install(const std::string& path) {
    std::ofstream(path) << "never run";
    ASSERT_EQ(chmod(path.c_str(), 0755), 0);
  }

  agent::IptablesLegacyOptions Options(absl::Duration lock_wait = absl::Milliseconds(150)) const {
    return {.directories = {directory_ + "/none", directory_},
            .lock_path = LockPath(),
            .lock_wait = lock_wait,
            .table_names_path = directory_ + "/%s_tables_names",
            .program_names_path = directory_ + "/%s_tables_names",
            .match_names_path = directory_ + "/%s_tables_matches",
            .if_inet6_path = IfInet6Path(),
            .label_names_path = directory_ + "/connlabel.conf",
            .thread_status_path = StatusPath()};
  }

  // With no rules, and writes that succeed.
  std::unique_ptr<netlink::Backend> Open(const std::string& version,
                                         absl::Duration lock_wait = absl::Milliseconds(150)) {
    for (const std::string base : {"iptables", "ip6tables"}) {
      Install(Program(base, "save"));
      Install(Program(base, "restore"));
      runner_.On(Program(base, "restore"), Answers({}));
      runner_.On(Program(base, "restore"), "--version",
                 Answers({.exit_code = 0,
                          .output = base + "-restore v" + version +
                                    (version < "1.8" ? "\n" : " (legacy)\n"),
                          .errors = ""}));
    }
    unlink((directory_ + "/ip_tables_names").c_str());
    unlink((directory_ + "/ip6_tables_names").c_str());
    auto backend = agent::NewIptablesLegacyBackend(&runner_, Options(lock_wait));
    EXPECT_THAT(backend, IsOk());
    return backend.ok() ? *std::move(backend) : nullptr;
  }

  void TableNames(const std::string& family, const std::string& names) const {
    std::ofstream(directory_ + "/" + family + "_tables_names") << names;
  }

  // From now on `text` is the ruleset of the family of `base`.
  void Saves(const std::string& base, const std::string& text) {
    std::string names;
    for (const absl::string_view line : absl::StrSplit(text, '\n')) {
      if (absl::StartsWith(line, "*")) absl::StrAppend(&names, line.substr(1), "\n");
    }
    TableNames(base == "iptables" ? "ip" : "ip6", names.empty() ? "filter\n" : names);
    runner_.On(Program(base, "save"), Answers({.exit_code = 0, .output = text, .errors = ""}));
  }

  static netlink::Snapshot Read(netlink::Backend& backend,
                                const std::vector<netlink::ChainId>& chains) {
    std::vector<netlink::ChainQuery> queries;
    for (const netlink::ChainId& chain : chains) queries.push_back({.chain = chain});
    absl::StatusOr<netlink::Snapshot> snapshot = backend.Read(queries);
    EXPECT_THAT(snapshot, IsOk());
    return snapshot.ok() ? *std::move(snapshot) : netlink::Snapshot{};
  }

  // Based on the current ruleset.
  static netlink::Transaction CreateUser(netlink::Backend& backend) {
    const netlink::ChainId user{netlink::Family::kIPv4, netlink::Table::kFilter, "USER"};
    return {.generation = Read(backend, {user}).generation,
            .operations = {netlink::CreateChain{user}}};
  }

  bool LockIsFree() const {
    const int fd = open(LockPath().c_str(), O_RDONLY | O_CREAT | O_CLOEXEC, 0600);
    const bool free = flock(fd, LOCK_EX | LOCK_NB) == 0;
    close(fd);
    return free;
  }

  // Another program does, as iptables does to read and to write.
  void UseLock() const { close(open(LockPath().c_str(), O_RDONLY | O_CREAT | O_CLOEXEC, 0600)); }

  TemporaryTree tree_;
  const std::string directory_ = tree_.root();
  FakeCommandRunner runner_;
};

// With a backend over iptables 1.8.9, on which most tests agree.
class OpenLegacyFixture : public LegacyFixture {
 protected:
  void SetUp() override {
    LegacyFixture::SetUp();
    backend_ = Open("1.8.9");
    ASSERT_NE(backend_, nullptr);
  }

  std::unique_ptr<netlink::Backend> backend_;
};

// A program that ends with this exit code.
inline auto Exits(int code, std::string errors = "") {
  return Answers({.exit_code = code, .output = "", .errors = std::move(errors)});
}

}  // namespace kipt::testing

#endif  // KIPT_TESTS_AGENT_XTABLES_IPTABLES_LEGACY_FIXTURE_H_
