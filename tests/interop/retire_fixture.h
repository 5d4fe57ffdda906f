// SPDX-License-Identifier: Apache-2.0
//
// What exists before and after `--stale-chains=retire`, line by line, next to what kubelet left and
// what a kube-proxy writes.
#ifndef KIPT_TESTS_INTEROP_RETIRE_FIXTURE_H_
#define KIPT_TESTS_INTEROP_RETIRE_FIXTURE_H_

#include <iterator>
#include <nlohmann/json.hpp>
#include <set>

#include "tests/interop/daemon_fixture.h"

namespace kipt::testing {

// "nat: -A KUBE-MARK-DROP -j MARK --set-xmark 0x8000/0x8000", "nat: :KUBE-MARK-DROP -".
using Lines = std::set<std::string>;

// "nat: :OUTPUT ACCEPT". User chains have no policy.
inline bool IsBaseChain(const std::string& line) {
  return absl::StrContains(line, ": :") && !absl::EndsWith(line, " -");
}

inline Lines AllLinesIn(const std::string& saved) {
  const std::vector<std::string> lines = SavedRules::Parse(saved).LinesMissingIn(SavedRules());
  return {lines.begin(), lines.end()};
}

// Unlike SavedRules::Of next to tables of the other mode, of which iptables-nft-save warns.
inline Lines AllLinesOf(const Iptables& iptables) {
  const ProgramResult saved = iptables.Save();
  EXPECT_EQ(saved.exit_code, 0) << saved;
  return AllLinesIn(saved.out);
}

// User chains and all rules.
inline Lines LinesOf(const Iptables& iptables) {
  Lines lines = AllLinesOf(iptables);
  std::erase_if(lines, IsBaseChain);
  return lines;
}

// Built-in chains and their policies: "filter: :INPUT DROP".
inline Lines BaseChainsOf(const Iptables& iptables) {
  Lines lines = AllLinesOf(iptables);
  std::erase_if(lines, [](const std::string& line) { return !IsBaseChain(line); });
  return lines;
}

// The lines of an iptables-save text, without built-in chains.
inline Lines LinesIn(const std::string& saved) {
  Lines lines = AllLinesIn(saved);
  std::erase_if(lines, IsBaseChain);
  return lines;
}

// Those of `of` that are not in `in`.
inline Lines Without(const Lines& of, const Lines& in) {
  Lines rest;
  std::set_difference(of.begin(), of.end(), in.begin(), in.end(), std::inserter(rest, rest.end()));
  return rest;
}

// "OfAllInTurnNft": names a test with a row and a mode as its parameter.
template <typename Row>
std::string RowAndModeName(const ::testing::TestParamInfo<std::tuple<Row, IptablesMode>>& info) {
  return absl::StrCat(std::get<0>(info.param).name, TestNameOf(std::get<1>(info.param)));
}

// A save of kube-proxy's: "1.24" (iptables mode) or "ipvs-1.23".
inline std::string KubeProxySave(const std::string& version, const Iptables& iptables) {
  const bool six = iptables.family == IpFamily::kIpv6;
  std::string path;
  if (absl::StartsWith(version, "ipvs-")) {
    path = absl::StrCat(KIPT_IPVS_RULESETS_DIR, "/", version, six ? "-v6" : "-v4");
  } else {
    path = absl::StrCat(KIPT_RULESETS_DIR, "/kube-proxy-", version, "-A", six ? "-v6" : "-v4");
  }
  const ProgramResult text = RunProgram({"cat", path + ".save"});
  EXPECT_EQ(text.exit_code, 0) << text;
  return text.out;
}

// The sets that IPVS mode keeps, empty: a rule cannot be made before its set.
inline void MakeIpSets(const std::string& save, IpFamily family) {
  const std::map<std::string, std::string> types = {
      {"LOOP-BACK", "hash:ip,port,ip"},
      {"LOAD-BALANCER-SOURCE-CIDR", "hash:ip,port,net"},
      {"LOAD-BALANCER-SOURCE-CID", "hash:ip,port,net"},  // of IPv6: names end at 31 characters
      {"IPVS-IPS", "hash:ip"},
      {"NODE-PORT-TCP", "bitmap:port range 0-65535"},
      {"HEALTH-CHECK-NODE-PORT", "bitmap:port range 0-65535"},
  };
  const std::string prefix = family == IpFamily::kIpv4 ? "KUBE-" : "KUBE-6-";
  std::set<std::string> sets;
  for (absl::string_view rest = save;;) {
    const size_t at = rest.find("--match-set ");
    if (at == absl::string_view::npos) break;
    rest.remove_prefix(at + sizeof("--match-set ") - 1);
    sets.emplace(rest.substr(0, rest.find(' ')));
  }
  for (const std::string& set : sets) {
    const auto known = types.find(set.substr(prefix.size()));
    const std::string type = known == types.end() ? "hash:ip,port" : known->second;
    std::vector<std::string> argv = {"ipset", "create", "-exist", set};
    for (absl::string_view word : absl::StrSplit(type, ' ')) argv.emplace_back(word);
    if (absl::StartsWith(type, "hash:")) {
      argv.insert(argv.end(), {"family", family == IpFamily::kIpv4 ? "inet" : "inet6"});
    }
    const ProgramResult result = RunProgram(argv);
    EXPECT_EQ(result.exit_code, 0) << set << result;
  }
}

// kube-proxy makes sure that it is there, and leaves its rules alone.
inline bool IsOnlyEnsured(const std::string& line, IpFamily family) {
  return line == "nat: :KUBE-MARK-DROP -" ||
         (line == "filter: :KUBE-FIREWALL -" && family == IpFamily::kIpv6) ||
         absl::EndsWith(line, ": :KUBE-PROXY-CANARY -");
}

inline bool IsBaseChainRule(const std::string& line) {
  for (const char* chain : {"PREROUTING", "INPUT", "FORWARD", "OUTPUT", "POSTROUTING"}) {
    if (absl::StrContains(line, absl::StrCat(": -A ", chain, " "))) return true;
  }
  return false;
}

// Loads that save over what exists, as kube-proxy does: chains that it owns are emptied first;
// those that it only ensures (KUBE-MARK-DROP; KUBE-FIREWALL of IPv6) are left unchanged; jumps in
// built-in chains that exist are not doubled. Makes the sets that IPVS mode's rules name.
inline ProgramResult LoadKubeProxy(const std::string& version, const Iptables& iptables) {
  const std::string save = KubeProxySave(version, iptables);
  MakeIpSets(save, iptables.family);
  const Lines existing = LinesOf(iptables);
  std::string input;
  std::string table;
  for (absl::string_view piece : absl::StrSplit(save, '\n', absl::SkipEmpty())) {
    const std::string line(piece.substr(0, piece.find(" [")));
    if (absl::StartsWith(piece, "*")) table = std::string(piece.substr(1));
    const std::string known = absl::StrCat(table, ": ", line);
    const bool keep =
        IsBaseChain(known) || IsOnlyEnsured(known, iptables.family) || IsBaseChainRule(known);
    if (IsBaseChain(known) || (keep && existing.count(known) != 0)) continue;
    absl::StrAppend(&input, piece, "\n");
  }
  return iptables.Restore(input);
}

// All that kubelet of legacy mode leaves that cleanup mode has no use for, canaries aside.
inline Lines NatResidue() {
  return {"nat: :KUBE-MARK-DROP -",
          "nat: -A KUBE-MARK-DROP -j MARK --set-xmark 0x8000/0x8000",
          "nat: :KUBE-MARK-MASQ -",
          "nat: -A KUBE-MARK-MASQ -j MARK --set-xmark 0x4000/0x4000",
          "nat: :KUBE-POSTROUTING -",
          "nat: -A KUBE-POSTROUTING -m mark ! --mark 0x4000/0x4000 -j RETURN",
          "nat: -A KUBE-POSTROUTING -j MARK --set-xmark 0x4000/0x0",
          "nat: -A KUBE-POSTROUTING -m comment --comment \"kubernetes service traffic requiring "
          "SNAT\" -j MASQUERADE --random-fully",
          "nat: -A POSTROUTING -m comment --comment \"kubernetes postrouting rules\" -j "
          "KUBE-POSTROUTING"};
}

// KUBE-MARK-DROP and the rule that acts on it.
inline Lines DropResidue() {
  return {"nat: :KUBE-MARK-DROP -", "nat: -A KUBE-MARK-DROP -j MARK --set-xmark 0x8000/0x8000",
          "filter: -A KUBE-FIREWALL -m comment --comment \"kubernetes firewall for dropping marked "
          "packets\" -m mark --mark 0x8000/0x8000 -j DROP"};
}

// What is removed where no rule uses it, in this family.
inline Lines WholeResidue(IpFamily family) {
  Lines lines = NatResidue();
  lines.merge(DropResidue());
  if (family == IpFamily::kIpv4) return lines;
  // Only IPv4 has martians.
  lines.insert({"filter: :KUBE-FIREWALL -", "filter: -A INPUT -j KUBE-FIREWALL",
                "filter: -A OUTPUT -j KUBE-FIREWALL"});
  return lines;
}

// What `retire` keeps and why: {"ip nat KUBE-MARK-MASQ", {"kubeProxy"}}. Rules with their text,
// KUBE-KUBELET-CANARY left out where only a live kubelet claims it.
using Kept = std::map<std::string, std::set<std::string>>;

inline void Note(const nlohmann::json& kept, Kept& all) {
  const std::string chain = kept["chain"];
  const std::string text = kept["text"];
  std::string name = absl::StrCat(kept["family"].get<std::string>(), " ",
                                  kept["table"].get<std::string>(), " ", chain);
  if (!absl::StartsWith(text, ":")) name = absl::StrCat(name, " rule");
  std::set<std::string> kinds;
  for (const nlohmann::json& claim : kept["claims"]) kinds.insert(claim["kind"]);
  if (chain == "KUBE-KUBELET-CANARY" && kinds == std::set<std::string>{"liveKubelet"}) return;
  all[name] = kinds;
}

struct Retired {
  ProgramResult result;
  // In the iptables mode that is managed.
  Kept kept;
  // Of both modes.
  int all_changes = 0;
};

class RetireTest : public DaemonTest {
 protected:
  void SetUp() override {
    DaemonTest::SetUp();
    tree_.Write("net.d/10-net.conf", "{}");
    cni_dir_ = tree_.Path("net.d");
  }

  // --stale-chains=retire, with a CNI configuration that names no chain.
  std::vector<std::string> RetireFlags(IptablesMode mode) const {
    // Spelled, for what another mode left would speak for that one.
    return {absl::StrCat("--iptables-mode=", NameOf(mode)), "--stale-chains=retire",
            "--cni-conf-dir=" + cni_dir_};
  }

  // `sync` in cleanup mode with those flags.
  Retired SyncAndRetire(IptablesMode mode, const std::vector<std::string>& more = {}) const {
    return RunAgent(Words{"sync"} + RetireFlags(mode) + more);
  }

  // The same of --stale-chains=keep.
  static void SyncAndKeep(IptablesMode mode) {
    const ProgramResult result = Agent({"sync", absl::StrCat("--iptables-mode=", NameOf(mode))});
    EXPECT_EQ(result.exit_code, kExitOk) << result;
  }

  Retired RunRetire(IptablesMode mode, const std::vector<std::string>& more = {}) const {
    return RunAgent(Words{"retire", absl::StrCat("--iptables-mode=", NameOf(mode)),
                          "--cni-conf-dir=" + cni_dir_} +
                    more);
  }

  // kubelet 1.24, both families.
  static void LeaveResidue(IptablesMode mode) {
    for (const IpFamily family : kBothFamilies) {
      Kubelet(KubeletForm::k1_24, {.family = family, .mode = mode});
    }
  }

  // Rules and chains of other programs, some with names like kubelet's.
  static void AddThirdParty(IptablesMode mode) {
    for (const IpFamily family : kBothFamilies) {
      const ProgramResult result = Iptables{.family = family, .mode = mode}.Restore(
          "*filter\n:THIRD - [0:0]\n-A INPUT -p tcp -m tcp --dport 22 -j THIRD\n"
          "-A THIRD -m mark --mark 0x2000/0x2000 -j ACCEPT\nCOMMIT\n"
          "*nat\n:THIRD-NAT - [0:0]\n:KUBE-MARK-MASQ-2 - [0:0]\n:KUBELET-POSTROUTING- - [0:0]\n"
          "-A POSTROUTING -p udp -j THIRD-NAT\n"
          "-A THIRD-NAT -j MARK --set-xmark 0x2000/0x2000\n-A THIRD-NAT -j MASQUERADE\nCOMMIT\n");
      EXPECT_EQ(result.exit_code, 0) << result;
    }
  }

  const std::string& cni_dir() const { return cni_dir_; }
  const TemporaryTree& tree() const { return tree_; }

 private:
  Retired RunAgent(std::vector<std::string> arguments) const {
    arguments.push_back("--output=json");
    Retired retired;
    retired.result = Agent(arguments);
    const nlohmann::json json = nlohmann::json::parse(retired.result.out, nullptr, false);
    const auto modes = json.find(json.contains("modes") ? "modes" : "retired");
    if (!json.is_object() || modes == json.end()) {
      ADD_FAILURE() << "does not report what was retired: " << retired.result;
      return retired;
    }
    for (const nlohmann::json& mode : *modes) {
      retired.all_changes += static_cast<int>(mode["changes"].size());
      if (&mode != &(*modes)[0]) continue;
      for (const nlohmann::json& kept : mode["kept"]) Note(kept, retired.kept);
    }
    return retired;
  }

  TemporaryTree tree_;
  std::string cni_dir_;
};

}  // namespace kipt::testing

#endif  // KIPT_TESTS_INTEROP_RETIRE_FIXTURE_H_
