// SPDX-License-Identifier: Apache-2.0
#include "tests/faults/incidents.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <csignal>
#include <fstream>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "tests/support/run_program.h"

namespace kipt::testing {
namespace {

constexpr char kLockPath[] = "/run/xtables.lock";
// Longer than the daemon's first attempts, shorter than it waits for the lock.
constexpr absl::Duration kLockHeld = absl::Milliseconds(700);
constexpr int kStormSyncs = 3;

std::string Run(std::vector<std::string> argv, const std::string& input = "") {
  const std::string name = argv[0];
  const ProgramResult result = RunProgram(std::move(argv), input);
  if (result.exit_code == 0) return "";
  return absl::StrCat(name, ": exit code ", result.exit_code, ": ", result.err);
}

std::string Nft(const std::string& commands) { return Run({"/usr/sbin/nft", "-f", "-"}, commands); }

std::string RestoreIPv4(const std::string& text) {
  return Restore(IptablesMode::kNft, IpFamily::kIpv4, text);
}

std::string DeleteChain(const Site& /*site*/) {
  return RestoreIPv4(
      "*filter\n-D INPUT -j KUBE-FIREWALL\n-D OUTPUT -j KUBE-FIREWALL\n"
      "-F KUBE-FIREWALL\n-X KUBE-FIREWALL\nCOMMIT\n");
}

std::string DeleteJump(const Site& /*site*/) {
  return RestoreIPv4("*filter\n-D INPUT -j KUBE-FIREWALL\nCOMMIT\n");
}

std::string FlushTable(const Site& /*site*/) { return Nft("flush table ip filter\n"); }

std::string FlushRuleset(const Site& /*site*/) { return Nft("flush ruleset\n"); }

std::string DeleteHint(const Site& /*site*/) {
  return RestoreIPv4("*mangle\n-X KUBE-IPTABLES-HINT\nCOMMIT\n");
}

// What an administrator does who closes the node. Base chains and their policies are not ours.
std::string CloseNode(const Site& /*site*/) {
  return RestoreIPv4(
      "*filter\n:FORWARD DROP [0:0]\n-F OUTPUT\n"
      "-I INPUT 1 -p tcp -m tcp --dport 9 -j FOREIGN\nCOMMIT\n");
}

// kube-proxy 1.27 empties KUBE-FIREWALL on each of its syncs, of which some come together.
std::string ProxySyncs(const Site& /*site*/) {
  std::string problem = RestoreIPv4("*filter\n:KUBE-SERVICES - [0:0]\nCOMMIT\n");
  for (int i = 0; i < kStormSyncs && problem.empty(); ++i) {
    problem = RestoreIPv4(
        "*filter\n:KUBE-FIREWALL - [0:0]\n:KUBE-SERVICES - [0:0]\n"
        "-A KUBE-SERVICES -d 10.96.0.10/32 -p tcp -m tcp --dport 53 -j REJECT\nCOMMIT\n");
  }
  return problem;
}

std::string Reload(const Site& site, const std::string& config) {
  std::string problem = WriteFile(site.config_path, config);
  if (problem.empty() && kill(site.daemon, SIGHUP) != 0) problem = "the daemon is gone";
  return problem;
}

std::string FlipGate(const Site& site) { return Reload(site, ConfigFor(/*cleanup=*/false)); }

// It goes on with what it had, and that is damaged, too.
std::string SpoilConfig(const Site& site) {
  std::string problem = Reload(site, absl::StrCat(ConfigFor(/*cleanup=*/true), "nonsense: [\n"));
  return problem.empty() ? DeleteJump(site) : problem;
}

// Somebody damages legacy rules and keeps the lock for a while. (Damaged with a lock of its own, or
// the daemon might be quicker than we.)
std::string HoldLock(const Site& /*site*/) {
  const int held = open(kLockPath, O_RDONLY | O_CREAT | O_CLOEXEC, 0600);
  if (held < 0 || flock(held, LOCK_EX) != 0) return "the lock cannot be had";
  std::string problem = Run({"/usr/bin/env", "XTABLES_LOCKFILE=/run/another.lock",
                             "/usr/sbin/iptables-legacy-restore", "--noflush"},
                            "*filter\n-D INPUT -j KUBE-FIREWALL\n-F KUBE-FIREWALL\nCOMMIT\n");
  // Whoever closes the lock has used it: that wakes the daemon.
  close(open(kLockPath, O_RDONLY | O_CLOEXEC));
  absl::SleepFor(kLockHeld);
  close(held);
  return problem;
}

}  // namespace

std::string ConfigFor(bool cleanup) {
  return absl::StrCat(
      "apiVersion: kube-iptables-agent/v1alpha1\nkind: KubeIPTablesAgentConfiguration\n"
      "featureGates:\n  IPTablesOwnershipCleanup: ",
      cleanup ? "true" : "false", "\n");
}

std::string WriteFile(const std::string& path, const std::string& text) {
  std::ofstream file(path);
  file << text;
  file.close();
  return file ? "" : absl::StrCat("cannot write ", path);
}

const std::vector<Incident>& Incidents() {
  constexpr IptablesMode kNft = IptablesMode::kNft;
  static const std::vector<Incident> incidents = {
      {"agent-started", "the daemon starts where no rule of ours exists", kNft, true, nullptr},
      {"chain-deleted", "KUBE-FIREWALL and the jumps to it are deleted", kNft, true, DeleteChain},
      {"jump-deleted", "the jump from INPUT is deleted", kNft, false, DeleteJump},
      {"table-flushed", "`nft flush table ip filter`", kNft, false, FlushTable},
      {"ruleset-flushed", "`nft flush ruleset`", kNft, true, FlushRuleset},
      {"hint-deleted", "KUBE-IPTABLES-HINT is deleted", kNft, true, DeleteHint},
      {"node-closed", "OUTPUT is flushed, FORWARD gets the policy DROP, a rule comes before ours",
       kNft, true, CloseNode},
      {"proxy-syncs", "kube-proxy syncs three times, and empties KUBE-FIREWALL each time", kNft,
       true, ProxySyncs},
      {"gate-flipped", "the gate is turned off in the file, SIGHUP", kNft, true, FlipGate},
      {"config-spoilt", "the file becomes nonsense, SIGHUP, and a jump is deleted", kNft, true,
       SpoilConfig},
      {"lock-held", "legacy: rules are deleted, and somebody holds xtables.lock for 0.7 s",
       IptablesMode::kLegacy, true, HoldLock},
  };
  return incidents;
}

}  // namespace kipt::testing
