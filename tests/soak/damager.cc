// SPDX-License-Identifier: Apache-2.0
//
// Damage to kubelet's chains and rules, one of the things that can be done to them at a time.
#include <iterator>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "tests/soak/writer.h"
#include "tests/support/run_program.h"

namespace kipt::soak {
namespace {

using testing::IpFamily;
using Arguments = std::vector<std::string>;

// Of iptables.
const std::vector<Arguments>& InLegacyMode() {
  static const std::vector<Arguments> all = {
      {"-t", "mangle", "-X", "KUBE-IPTABLES-HINT"},
      {"-t", "mangle", "-X", "KUBE-KUBELET-CANARY"},
      {"-t", "nat", "-X", "KUBE-KUBELET-CANARY"},
      {"-X", "KUBE-KUBELET-CANARY"},
      {"-D", "INPUT", "-j", "KUBE-FIREWALL"},
      {"-D", "OUTPUT", "-j", "KUBE-FIREWALL"},
      {"-I", "INPUT", "-j", "KUBE-FIREWALL"},
      {"-F", "KUBE-FIREWALL"},
      {"-D", "KUBE-FIREWALL", "1"},
      {"-t", "nat", "-D", "POSTROUTING", "-m", "comment", "--comment",
       "kubernetes postrouting rules", "-j", "KUBE-POSTROUTING"},
      {"-t", "nat", "-F", "KUBE-POSTROUTING"},
      {"-t", "nat", "-D", "KUBE-POSTROUTING", "1"},
      {"-t", "nat", "-D", "KUBE-POSTROUTING", "3"},
      {"-t", "nat", "-F", "KUBE-MARK-MASQ"},
      {"-t", "nat", "-F", "KUBE-MARK-DROP"},
  };
  return all;
}

// What a daemon in cleanup mode keeps: what else stands then nobody repairs, as kubelet does not.
const std::vector<Arguments>& InCleanupMode() {
  static const std::vector<Arguments> all = {
      {"-t", "mangle", "-X", "KUBE-IPTABLES-HINT"},
      {"-D", "INPUT", "-j", "KUBE-FIREWALL"},
      {"-D", "OUTPUT", "-j", "KUBE-FIREWALL"},
      {"-I", "INPUT", "-j", "KUBE-FIREWALL"},
      {"-D", "KUBE-FIREWALL", "-m", "comment", "--comment", "block incoming localnet connections",
       "--dst", "127.0.0.0/8", "!", "--src", "127.0.0.0/8", "-m", "conntrack", "!", "--ctstate",
       "RELATED,ESTABLISHED,DNAT", "-j", "DROP"},
  };
  return all;
}

constexpr std::pair<const char*, const char*> kEmptiedByNft[] = {
    {"filter", "KUBE-FIREWALL"}, {"nat", "KUBE-POSTROUTING"}, {"nat", "KUBE-MARK-MASQ"}};

class Damager : public Writer {
 public:
  explicit Damager(int number) : number_(number) {}
  std::string name() const override { return absl::StrCat("damage ", number_); }
  absl::Duration pause() const override { return absl::Milliseconds(900); }

  std::string Act(Node& node, Random& random) override {
    const Shared settings(node.settings_gate);
    const bool cleanup = node.settings.cleanup;
    const IpFamily family = cleanup || Draw(random, 2) == 0 ? IpFamily::kIpv4 : IpFamily::kIpv6;
    const Announcement announcement(node.windows, GuardsOf(family));
    if (node.nft() && !cleanup && Draw(random, 4) == 0) return FlushByNft(family, random);
    const std::vector<Arguments>& all = cleanup ? InCleanupMode() : InLegacyMode();
    Arguments arguments = all[static_cast<size_t>(Draw(random, static_cast<int>(all.size())))];
    arguments.insert(arguments.begin(), "-w");
    // What it names may be missing: then it is damaged already.
    const int code = node.Of(family).Run(arguments).exit_code;
    return absl::StrCat(NameOf(family), " iptables ", absl::StrJoin(arguments, " "), ": ", code);
  }

 private:
  static std::string FlushByNft(IpFamily family, Random& random) {
    const auto& [table, chain] =
        kEmptiedByNft[Draw(random, static_cast<int>(std::size(kEmptiedByNft)))];
    const Arguments argv = {"nft", "flush", "chain", family == IpFamily::kIpv4 ? "ip" : "ip6",
                            table, chain};
    return absl::StrCat(absl::StrJoin(argv, " "), ": ", testing::RunProgram(argv).exit_code);
  }

  const int number_;
};

// A policy is its owner's alone: it stays as it is whatever is repaired meanwhile.
class PolicySetter : public Writer {
 public:
  std::string name() const override { return "policy"; }
  absl::Duration pause() const override { return absl::Seconds(7); }

  std::string Act(Node& node, Random& random) override {
    const Shared foreign(node.foreign_gate);
    const IpFamily family = Draw(random, 2) == 0 ? IpFamily::kIpv4 : IpFamily::kIpv6;
    const Announcement announcement(node.windows, GuardsOf(family));
    const testing::Iptables iptables = node.Of(family);
    if (iptables.Run({"-w", "-P", "FORWARD", "DROP"}).exit_code != 0) return "";
    absl::SleepFor(absl::Milliseconds(Draw(random, 300)));
    const std::string fault = PolicyFault(iptables.Run({"-w", "-S", "FORWARD"}).out);
    if (!fault.empty()) {
      node.journal.Violate(node.name(), "foreign", fault,
                           "-P FORWARD DROP, as its owner has set it");
    }
    iptables.Run({"-w", "-P", "FORWARD", "ACCEPT"});
    return absl::StrCat(NameOf(family), " -P FORWARD DROP, and ACCEPT again");
  }
};

}  // namespace

std::string PolicyFault(const std::string& listed) {
  if (absl::StartsWith(listed, "-P FORWARD DROP\n")) return "";
  return absl::StrCat("the policy of FORWARD is \"", listed.substr(0, listed.find('\n')), "\"");
}

std::unique_ptr<Writer> NewDamager(int number) { return std::make_unique<Damager>(number); }
std::unique_ptr<Writer> NewPolicySetter() { return std::make_unique<PolicySetter>(); }

}  // namespace kipt::soak
