// SPDX-License-Identifier: Apache-2.0
#include "tests/bench/contenders.h"

#include <map>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/string_view.h"
#include "netlink/ruleset.h"
#include "tests/bench/world.h"
#include "tests/support/run_program.h"

namespace kipt::testing {
namespace {

constexpr char kCanary[] = "KUBE-KUBELET-CANARY";

absl::Status Succeeded(absl::string_view what, const ProgramResult& result) {
  if (result.exit_code == 0) return absl::OkStatus();
  return absl::InternalError(
      absl::StrCat(what, ": exit code ", result.exit_code, ": ", result.err));
}

std::string RestoreText(IpFamily family) {
  struct Block {
    std::string chains;
    std::string rules;
  };
  std::map<std::string, Block> blocks;
  for (const KubeletStep& step : KubeletSequence(kBenchKubelet, family)) {
    Block& block = blocks[step.table];
    if (step.kind == KubeletStep::Kind::kEnsureChain) {
      absl::StrAppend(&block.chains, ":", step.chain, " - [0:0]\n");
      continue;
    }
    absl::StrAppend(&block.rules, step.kind == KubeletStep::Kind::kEnsurePrepend ? "-I " : "-A ",
                    step.chain);
    for (const std::string& word : step.rule) {
      absl::StrAppend(&block.rules, " ", netlink::QuoteForSave(word));
    }
    absl::StrAppend(&block.rules, "\n");
  }
  std::string text;
  for (const auto& [table, block] : blocks) {
    absl::StrAppend(&text, "*", table, "\n", block.chains, block.rules, "COMMIT\n");
  }
  return text;
}

// $F is the family. The martian rule is IPv4's alone, and comes first as in kubelet 1.25.
constexpr absl::string_view kNftOfIPv4 = R"(
add chain ip filter KUBE-FIREWALL
add rule ip filter KUBE-FIREWALL ip daddr 127.0.0.0/8 ip saddr != 127.0.0.0/8 ct state & (established | related) == 0 ct status & dnat == 0 counter drop comment "block incoming localnet connections"
)";
constexpr absl::string_view kNftOfBoth = R"(
add chain $F mangle KUBE-IPTABLES-HINT
add chain $F mangle KUBE-KUBELET-CANARY
add chain $F filter KUBE-KUBELET-CANARY
add chain $F filter KUBE-FIREWALL
add rule $F filter KUBE-FIREWALL meta mark & 0x8000 == 0x8000 counter drop comment "kubernetes firewall for dropping marked packets"
insert rule $F filter INPUT counter jump KUBE-FIREWALL
insert rule $F filter OUTPUT counter jump KUBE-FIREWALL
add chain $F nat KUBE-KUBELET-CANARY
add chain $F nat KUBE-MARK-DROP
add rule $F nat KUBE-MARK-DROP counter meta mark set meta mark | 0x8000
add chain $F nat KUBE-MARK-MASQ
add rule $F nat KUBE-MARK-MASQ counter meta mark set meta mark | 0x4000
add chain $F nat KUBE-POSTROUTING
add rule $F nat KUBE-POSTROUTING meta mark & 0x4000 != 0x4000 counter return
add rule $F nat KUBE-POSTROUTING counter meta mark set meta mark ^ 0x4000
add rule $F nat KUBE-POSTROUTING counter masquerade fully-random comment "kubernetes service traffic requiring SNAT"
insert rule $F nat POSTROUTING counter jump KUBE-POSTROUTING comment "kubernetes postrouting rules"
)";

}  // namespace

absl::Status RunKubeletIn(IpFamily family, IptablesMode mode, Expected expected) {
  const KubeletRun run =
      RunKubelet({.family = family, .mode = mode}, KubeletSequence(kBenchKubelet, family));
  if (!run.error.empty()) return absl::InternalError(run.error);
  const bool did_nothing = run.chains_created == 0 && run.rules_added == 0;
  if (did_nothing == (expected == Expected::kNothingToDo)) return absl::OkStatus();
  return absl::InternalError(absl::StrCat("kubelet made ", run.chains_created, " chains and ",
                                          run.rules_added, " rules of ", NameOf(family)));
}

absl::Status RunKubeletInBothFamilies(IptablesMode mode, Expected expected) {
  for (const IpFamily family : kBothFamilies) {
    if (absl::Status status = RunKubeletIn(family, mode, expected); !status.ok()) return status;
  }
  return absl::OkStatus();
}

absl::Status TickInBothFamilies(IptablesMode mode) {
  for (const IpFamily family : kBothFamilies) {
    const Iptables iptables{.family = family, .mode = mode};
    absl::Status status =
        Succeeded("-S", iptables.Run({"-w", "5", "-W", "100000", "-S", kCanary, "-t", "mangle"}));
    if (!status.ok()) return status;
  }
  return absl::OkStatus();
}

absl::Status RestoreInBothFamilies(IptablesMode mode) {
  for (const IpFamily family : kBothFamilies) {
    const Iptables iptables{.family = family, .mode = mode};
    absl::Status status = Succeeded("restore", iptables.Restore(RestoreText(family)));
    if (!status.ok()) return status;
  }
  return absl::OkStatus();
}

absl::Status NftInBothFamilies() {
  std::string text(kNftOfIPv4);
  for (const char* family : {"ip", "ip6"}) {
    absl::StrAppend(&text, absl::StrReplaceAll(kNftOfBoth, {{"$F", family}}));
  }
  return Succeeded("nft -f", RunProgram({"/usr/sbin/nft", "-f", "-"}, text));
}

absl::Status RunAgentSync(IptablesMode mode) {
  return Succeeded(
      "sync",
      RunProgram({KIPT_AGENT_PROGRAM, "sync", absl::StrCat("--iptables-mode=", NameOf(mode)),
                  "--ip-families=ipv4,ipv6", "--feature-gates=IPTablesOwnershipCleanup=false"}));
}

absl::Status RunTrue() { return Succeeded("true", RunProgram({"/bin/true"})); }

}  // namespace kipt::testing
