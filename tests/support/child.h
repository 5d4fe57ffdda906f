// SPDX-License-Identifier: Apache-2.0
//
// Child processes of a test. None outlives the test, even one that is killed.
#ifndef KIPT_TESTS_SUPPORT_CHILD_H_
#define KIPT_TESTS_SUPPORT_CHILD_H_

#include <sys/types.h>

#include <array>

namespace kipt::testing {

// To be called first in a new child; `parent` is the process that made it. From then on the kernel
// kills this process when the parent's thread ends that made it. A change of user ends that, and
// what this process starts is not included: commands for both have a flag, `setpriv
// --pdeathsig=keep` and `unshare --kill-child`; in a shell, `setpriv --pdeathsig KILL` does.
void DieWithParent(pid_t parent);

// A child that does nothing until it is killed.
pid_t StartPausedChild();

// What brings the programs that tests run and a minimal Debian 12 lacks.
struct ProgramPackage {
  const char* program;
  const char* package;
};
inline constexpr std::array kProgramPackages = {
    ProgramPackage{"conntrack", "conntrack"},
    ProgramPackage{"curl", "curl"},
    ProgramPackage{"firewall-cmd", "firewalld"},
    ProgramPackage{"ip", "iproute2"},
    ProgramPackage{"ip6tables-legacy", "iptables"},
    ProgramPackage{"ip6tables-nft", "iptables"},
    ProgramPackage{"ipset", "ipset"},
    ProgramPackage{"iptables-legacy", "iptables"},
    ProgramPackage{"iptables-legacy-restore", "iptables"},
    ProgramPackage{"iptables-legacy-save", "iptables"},
    ProgramPackage{"iptables-nft", "iptables"},
    ProgramPackage{"iptables-nft-restore", "iptables"},
    ProgramPackage{"iptables-nft-save", "iptables"},
    ProgramPackage{"nft", "nftables"},
    ProgramPackage{"pgrep", "procps"},
    ProgramPackage{"prometheus", "prometheus"},
    ProgramPackage{"promtool", "prometheus"},
    ProgramPackage{"python3", "python3-minimal"},
    ProgramPackage{"strace", "strace"},
    ProgramPackage{"systemd-analyze", "systemd"},
    ProgramPackage{"systemd-socket-activate", "systemd"},
    ProgramPackage{"zsh", "zsh"},
};

struct StandardStreams {
  int in = -1;
  int out = -1;
  int err = -1;
};

// Starts argv[0] (looked up in PATH where it has no slash) as the leader of a process group of its
// own, in the calling thread's namespaces. It dies with that thread. -1 and errno where there is no
// process; a program that cannot be run ends with 127 and its reason on standard error, with the
// package that brings a missing one.
pid_t StartChild(char* const* argv, char* const* environment, const StandardStreams& streams);

}  // namespace kipt::testing

#endif  // KIPT_TESTS_SUPPORT_CHILD_H_
