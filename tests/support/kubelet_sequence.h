// SPDX-License-Identifier: Apache-2.0
//
// The iptables calls of kubelets of several generations, argument for argument: our own result is
// compared with theirs. Nothing here uses the project's own policy.
//
// Sources: pkg/kubelet/kubelet_network_linux.go and pkg/util/iptables/iptables.go of the Kubernetes
// releases named at each form.
#ifndef KIPT_TESTS_SUPPORT_KUBELET_SEQUENCE_H_
#define KIPT_TESTS_SUPPORT_KUBELET_SEQUENCE_H_

#include <string>
#include <vector>

#include "tests/support/run_program.h"

namespace kipt::testing {

enum class IpFamily { kIpv4, kIpv6 };
inline constexpr IpFamily kBothFamilies[] = {IpFamily::kIpv4, IpFamily::kIpv6};
// "ipv4", "ipv6".
const char* NameOf(IpFamily family);

// "filter nat": the tables that iptables-legacy has in the calling thread's network namespace. To
// read any other with its programs would make it. A chroot without /proc shows none.
std::string IptablesLegacyTables(IpFamily family);

// Which of the two kernel interfaces, and of the two programs of an iptables installation.
enum class IptablesMode { kNft, kLegacy };
// "nft" or "legacy", as in the programs' names.
const char* NameOf(IptablesMode mode);

// An iptables installation: this machine's, or that of another Debian release in a chroot.
struct Iptables {
  IpFamily family = IpFamily::kIpv4;
  std::string chroot_dir = {};  // empty: this machine's
  IptablesMode mode = IptablesMode::kNft;

  // `iptables-MODE ARGUMENTS`, or ip6tables-MODE.
  ProgramResult Run(const std::vector<std::string>& arguments) const;
  // `iptables-MODE-save`, or of one table `iptables-MODE-save -t TABLE` (which in legacy makes it).
  ProgramResult Save(const std::string& table = "") const;
  // `iptables-MODE-restore --noflush`, with more arguments before.
  ProgramResult Restore(const std::string& text, const std::vector<std::string>& more = {}) const;
  // `iptables-MODE-restore`: replaces each table that `text` names.
  ProgramResult Replace(const std::string& text) const;

 private:
  std::vector<std::string> Command(const std::string& suffix) const;
};

enum class KubeletForm {
  // 1.17.0 to 1.17.8 and 1.18.0 to 1.18.5, here as 1.17.0, which has no martian rule yet
  // (CVE-2020-8558, #91569): MARK --set-xmark, and one masquerade rule.
  k1_17,
  // 1.19 to 1.23 (#92035; also 1.18.6 and 1.17.9): MARK --or-mark, RETURN / xor / MASQUERADE.
  k1_19,
  // 1.24: the same, and KUBE-IPTABLES-HINT last (#109059).
  k1_24,
  // 1.25 to 1.27 with IPTablesOwnershipCleanup=false: the hint first; IPv6 gets no INPUT and OUTPUT
  // jumps.
  k1_27GateOff,
  // 1.25 to 1.27 with IPTablesOwnershipCleanup=true, and every later kubelet.
  k1_27GateOn,
};

// One call of kubelet's iptables runner.
struct KubeletStep {
  enum class Kind {
    kEnsureChain,    // -N
    kEnsureAppend,   // -C, and -A where that finds nothing
    kEnsurePrepend,  // -C, and -I where that finds nothing
  };
  Kind kind = Kind::kEnsureChain;
  std::string table;
  std::string chain;
  std::vector<std::string> rule;  // empty for kEnsureChain
};

struct KubeletBits {
  int masquerade = 14;
  int drop = 15;
};

// Everything kubelet ensures at its start in one family, in its order, the canaries of its monitor
// last.
std::vector<KubeletStep> KubeletSequence(KubeletForm form, IpFamily family, KubeletBits bits = {});

// With which kubelet and kube-proxy wait for the lock of xtables: `-w 5`, up to 1.33 `-W 100000`
// too.
std::vector<std::string> WaitFlags(bool with_sleep);

// "0\tiptables -w 5 -N CHAIN -t TABLE": the exit code and the call, as the captures have it.
std::string CallText(const Iptables& iptables, const std::vector<std::string>& arguments,
                     int exit_code);

struct KubeletRun {
  int chains_created = 0;
  int rules_added = 0;
  // CallText() of each.
  std::vector<std::string> calls;
  std::string error;  // empty: every call did what kubelet calls success
};

// Carries the steps out as kubelet does, in the calling thread's network namespace. Stops at the
// first failure.
KubeletRun RunKubelet(const Iptables& iptables, const std::vector<KubeletStep>& steps,
                      const std::vector<std::string>& wait = WaitFlags(true));

}  // namespace kipt::testing

#endif  // KIPT_TESTS_SUPPORT_KUBELET_SEQUENCE_H_
