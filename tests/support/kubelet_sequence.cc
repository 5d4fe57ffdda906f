// SPDX-License-Identifier: Apache-2.0
#include "tests/support/kubelet_sequence.h"

#include <cstdint>
#include <fstream>
#include <iterator>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"

namespace kipt::testing {
namespace {

using Arguments = std::vector<std::string>;
using Kind = KubeletStep::Kind;

constexpr char kMarkDropComment[] = "kubernetes firewall for dropping marked packets";
constexpr char kMartianComment[] = "block incoming localnet connections";
constexpr char kPostroutingComment[] = "kubernetes postrouting rules";
constexpr char kMasqueradeComment[] = "kubernetes service traffic requiring SNAT";

std::string Mark(int bit) { return absl::StrFormat("0x%08x", uint32_t{1} << bit); }
std::string MarkAndMask(int bit) { return absl::StrCat(Mark(bit), "/", Mark(bit)); }

class Sequence {
 public:
  Sequence(KubeletForm form, IpFamily family, KubeletBits bits)
      : form_(form), family_(family), bits_(bits) {}

  std::vector<KubeletStep> Steps() && {
    if (form_ == KubeletForm::k1_27GateOff || form_ == KubeletForm::k1_27GateOn) {
      From125();
    } else {
      Until124();
    }
    // Monitor() makes them in the order of the tables it was given.
    for (const char* table : {"mangle", "nat", "filter"}) Chain(table, "KUBE-KUBELET-CANARY");
    return std::move(steps_);
  }

 private:
  // syncNetworkUtil() up to 1.24.
  void Until124() {
    MarkDrop();
    Chain("filter", "KUBE-FIREWALL");
    MarkDropRule();
    if (form_ != KubeletForm::k1_17) MartianRule();
    FirewallJumps();
    Masquerade();
    if (form_ == KubeletForm::k1_24) Chain("mangle", "KUBE-IPTABLES-HINT");
  }

  // syncIPTablesRules() since 1.25.
  void From125() {
    Chain("mangle", "KUBE-IPTABLES-HINT");
    if (family_ == IpFamily::kIpv4) {
      Chain("filter", "KUBE-FIREWALL");
      FirewallJumps();
      MartianRule();
    }
    if (form_ == KubeletForm::k1_27GateOn) return;
    MarkDrop();
    Chain("filter", "KUBE-FIREWALL");
    MarkDropRule();
    Masquerade();
  }

  void MarkDrop() {
    Chain("nat", "KUBE-MARK-DROP");
    Append("nat", "KUBE-MARK-DROP", SetMark(bits_.drop));
  }

  void MarkDropRule() {
    Append("filter", "KUBE-FIREWALL",
           {"-m", "comment", "--comment", kMarkDropComment, "-m", "mark", "--mark",
            MarkAndMask(bits_.drop), "-j", "DROP"});
  }

  void MartianRule() {
    if (family_ == IpFamily::kIpv6) return;
    Append("filter", "KUBE-FIREWALL",
           {"-m", "comment", "--comment", kMartianComment, "--dst", "127.0.0.0/8", "!", "--src",
            "127.0.0.0/8", "-m", "conntrack", "!", "--ctstate", "RELATED,ESTABLISHED,DNAT", "-j",
            "DROP"});
  }

  void FirewallJumps() {
    Prepend("filter", "OUTPUT", {"-j", "KUBE-FIREWALL"});
    Prepend("filter", "INPUT", {"-j", "KUBE-FIREWALL"});
  }

  void Masquerade() {
    Chain("nat", "KUBE-MARK-MASQ");
    Chain("nat", "KUBE-POSTROUTING");
    Append("nat", "KUBE-MARK-MASQ", SetMark(bits_.masquerade));
    Prepend("nat", "POSTROUTING",
            {"-m", "comment", "--comment", kPostroutingComment, "-j", "KUBE-POSTROUTING"});
    const std::string mark = MarkAndMask(bits_.masquerade);
    if (form_ == KubeletForm::k1_17) {
      Append("nat", "KUBE-POSTROUTING",
             {"-m", "comment", "--comment", kMasqueradeComment, "-m", "mark", "--mark", mark, "-j",
              "MASQUERADE", "--random-fully"});
      return;
    }
    Append("nat", "KUBE-POSTROUTING", {"-m", "mark", "!", "--mark", mark, "-j", "RETURN"});
    Append("nat", "KUBE-POSTROUTING", {"-j", "MARK", "--xor-mark", Mark(bits_.masquerade)});
    Append(
        "nat", "KUBE-POSTROUTING",
        {"-m", "comment", "--comment", kMasqueradeComment, "-j", "MASQUERADE", "--random-fully"});
  }

  Arguments SetMark(int bit) const {
    if (form_ == KubeletForm::k1_17) return {"-j", "MARK", "--set-xmark", MarkAndMask(bit)};
    return {"-j", "MARK", "--or-mark", Mark(bit)};
  }

  void Chain(const char* table, const char* chain) {
    steps_.push_back({Kind::kEnsureChain, table, chain, {}});
  }
  void Append(const char* table, const char* chain, Arguments rule) {
    steps_.push_back({Kind::kEnsureAppend, table, chain, std::move(rule)});
  }
  void Prepend(const char* table, const char* chain, Arguments rule) {
    steps_.push_back({Kind::kEnsurePrepend, table, chain, std::move(rule)});
  }

  const KubeletForm form_;
  const IpFamily family_;
  const KubeletBits bits_;
  std::vector<KubeletStep> steps_;
};

// `-w 5 OPERATION CHAIN -t TABLE RULE`: kubelet's spelling since iptables 1.6.1.
Arguments FullArguments(Arguments arguments, const char* operation, const KubeletStep& step) {
  arguments.insert(arguments.end(), {operation, step.chain, "-t", step.table});
  arguments.insert(arguments.end(), step.rule.begin(), step.rule.end());
  return arguments;
}

std::string Failure(const Arguments& arguments, const ProgramResult& result) {
  return absl::StrCat("iptables ", absl::StrJoin(arguments, " "), ": exit code ", result.exit_code,
                      ": ", result.err);
}

}  // namespace

const char* NameOf(IpFamily family) { return family == IpFamily::kIpv4 ? "ipv4" : "ipv6"; }

const char* NameOf(IptablesMode mode) { return mode == IptablesMode::kNft ? "nft" : "legacy"; }

Arguments Iptables::Command(const std::string& suffix) const {
  Arguments command;
  if (!chroot_dir.empty()) command = {"/usr/sbin/chroot", chroot_dir};
  const char* name = family == IpFamily::kIpv4 ? "iptables-" : "ip6tables-";
  command.push_back(absl::StrCat("/usr/sbin/", name, NameOf(mode), suffix));
  return command;
}

ProgramResult Iptables::Run(const Arguments& arguments) const {
  Arguments command = Command("");
  command.insert(command.end(), arguments.begin(), arguments.end());
  return RunProgram(std::move(command));
}

ProgramResult Iptables::Save(const std::string& table) const {
  Arguments command = Command("-save");
  if (!table.empty()) command.insert(command.end(), {"-t", table});
  return RunProgram(std::move(command));
}

ProgramResult Iptables::Restore(const std::string& text, const Arguments& more) const {
  Arguments command = Command("-restore");
  command.insert(command.end(), more.begin(), more.end());
  command.push_back("--noflush");
  return RunProgram(std::move(command), text);
}

ProgramResult Iptables::Replace(const std::string& text) const {
  // In a chroot legacy iptables has one lock for all tests that run at once.
  Arguments command = Command("-restore");
  command.insert(command.end(), {"-w", "30"});
  return RunProgram(std::move(command), text);
}

std::vector<KubeletStep> KubeletSequence(KubeletForm form, IpFamily family, KubeletBits bits) {
  return Sequence(form, family, bits).Steps();
}

Arguments WaitFlags(bool with_sleep) {
  return with_sleep ? Arguments{"-w", "5", "-W", "100000"} : Arguments{"-w", "5"};
}

std::string CallText(const Iptables& iptables, const Arguments& arguments, int exit_code) {
  std::string text =
      absl::StrCat(exit_code, "\t", iptables.family == IpFamily::kIpv4 ? "iptables" : "ip6tables");
  for (const std::string& argument : arguments) {
    const char* quote = argument.find(' ') == std::string::npos ? "" : "\"";
    absl::StrAppend(&text, " ", quote, argument, quote);
  }
  return text;
}

KubeletRun RunKubelet(const Iptables& iptables, const std::vector<KubeletStep>& steps,
                      const Arguments& wait) {
  KubeletRun run;
  const auto call = [&](const Arguments& arguments) {
    const ProgramResult result = iptables.Run(arguments);
    run.calls.push_back(CallText(iptables, arguments, result.exit_code));
    return result;
  };
  for (const KubeletStep& step : steps) {
    if (step.kind == Kind::kEnsureChain) {
      const Arguments arguments = FullArguments(wait, "-N", step);
      const ProgramResult result = call(arguments);
      // 1: EnsureChain() takes it to mean that the chain exists already.
      if (result.exit_code > 1) return run.error = Failure(arguments, result), run;
      run.chains_created += result.exit_code == 0 ? 1 : 0;
      continue;
    }
    Arguments arguments = FullArguments(wait, "-C", step);
    ProgramResult result = call(arguments);
    if (result.exit_code == 0) continue;
    if (result.exit_code != 1) return run.error = Failure(arguments, result), run;
    arguments = FullArguments(wait, step.kind == Kind::kEnsurePrepend ? "-I" : "-A", step);
    result = call(arguments);
    if (result.exit_code != 0) return run.error = Failure(arguments, result), run;
    ++run.rules_added;
  }
  return run;
}

std::string IptablesLegacyTables(IpFamily family) {
  std::ifstream names(family == IpFamily::kIpv4 ? "/proc/thread-self/net/ip_tables_names"
                                                : "/proc/thread-self/net/ip6_tables_names");
  using Word = std::istream_iterator<std::string>;
  return absl::StrJoin(std::set<std::string>(Word(names), Word()), " ");
}

}  // namespace kipt::testing
