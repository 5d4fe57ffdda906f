// SPDX-License-Identifier: Apache-2.0
//
// What stands before and after `--stale-chains=retire`, line by line, beside what kubelet left and
// what a kube-proxy writes.
#ifndef KIPT_TESTS_INTEROP_RETIRE_FIXTURE_H_
#define KIPT_TESTS_INTEROP_RETIRE_FIXTURE_H_

#include <set>

#include "tests/interop/daemon_fixture.h"

namespace kipt::testing {

// "nat: -A KUBE-MARK-DROP -j MARK --set-xmark 0x8000/0x8000", "nat: :KUBE-MARK-DROP -".
using Lines = std::set<std::string>;

// User chains and all rules.
Lines LinesOf(const Iptables& iptables);
// Built-in chains and their policies: "filter: :INPUT DROP".
Lines BaseChainsOf(const Iptables& iptables);
// Those of `of` that are not in `in`.
Lines Without(const Lines& of, const Lines& in);
// The lines of an iptables-save text, without built-in chains.
Lines LinesIn(const std::string& saved);

// A save of kube-proxy's: "1.24" (iptables mode) or "ipvs-1.23".
std::string KubeProxySave(const std::string& version, const Iptables& iptables);
// Its rules as kube-proxy puts them over what stands: chains that it owns are emptied first; those
// that it only makes sure of (KUBE-MARK-DROP; KUBE-FIREWALL of IPv6) are left as they are; jumps in
// built-in chains that stand are not doubled. Makes the sets that IPVS mode's rules name.
std::string OverWhatStands(const std::string& save, const Iptables& iptables);
ProgramResult LoadKubeProxy(const std::string& version, const Iptables& iptables);

// What `retire` keeps and why: {"ip nat KUBE-MARK-MASQ", {"kubeProxy"}}. Rules with their text,
// KUBE-KUBELET-CANARY left out where only a live kubelet claims it.
using Kept = std::map<std::string, std::set<std::string>>;

struct Retired {
  ProgramResult result;
  // In the iptables mode that is managed.
  Kept kept;
  int changes = 0;
  // Of both modes.
  int all_changes = 0;
};

// All that kubelet of legacy mode leaves that cleanup mode has no use for, canaries aside.
Lines NatResidue();
// What goes where nobody uses it, in this family.
Lines WholeResidue(IpFamily family);
// KUBE-MARK-DROP and the rule that acts on it.
Lines DropResidue();

class RetireTest : public DaemonTest {
 protected:
  void SetUp() override;

  // --stale-chains=retire, with an empty directory for CNI configurations.
  std::vector<std::string> RetireFlags(IptablesMode mode) const;
  // `sync` in cleanup mode with those flags, or `retire`.
  Retired SyncAndRetire(IptablesMode mode, const std::vector<std::string>& more = {}) const;
  // The same of --stale-chains=keep.
  static void SyncAndKeep(IptablesMode mode);
  Retired RunRetire(IptablesMode mode, const std::vector<std::string>& more = {}) const;

  // kubelet 1.24, both families.
  static void LeaveResidue(IptablesMode mode);
  // Somebody's rules and chains that have nothing to do with kubelet, whatever they are called.
  static void AddThirdParty(IptablesMode mode);

  const std::string& cni_dir() const { return cni_dir_; }
  const TemporaryTree& tree() const { return tree_; }

 private:
  Retired RunAgent(std::vector<std::string> arguments) const;

  TemporaryTree tree_;
  std::string cni_dir_;
};

}  // namespace kipt::testing

#endif  // KIPT_TESTS_INTEROP_RETIRE_FIXTURE_H_
