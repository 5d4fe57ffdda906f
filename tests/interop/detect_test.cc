// SPDX-License-Identifier: Apache-2.0
//
// `detect`, and what sync, plan and status make of it, on nodes that we, kubelet, both or others
// made.
#include <nlohmann/json.hpp>

#include "tests/interop/agent_fixture.h"
#include "tests/support/rows.h"

namespace kipt::testing {
namespace {

using Json = nlohmann::json;

class DetectTest : public AgentTest {
 protected:
  static void Shell(const std::string& script) { MustRun({"/bin/sh", "-ec", script}); }

  // kubelet's commands for the hint and its canaries, by one of the two iptables.
  static void KubeletWith(const std::string& variant) {
    for (const char* const program : {"iptables", "ip6tables"}) {
      const std::string command = absl::StrCat("/usr/sbin/", program, "-", variant);
      MustRun({command, "-w", "5", "-N", "KUBE-IPTABLES-HINT", "-t", "mangle"});
      for (const char* const table : kIptablesTables) {
        MustRun({command, "-w", "5", "-N", "KUBE-KUBELET-CANARY", "-t", table});
      }
      MustRun({command, "-w", "5", "-t", "filter", "-N", "KUBE-FIREWALL"});
      MustRun({command, "-w", "5", "-t", "filter", "-I", "INPUT", "-j", "KUBE-FIREWALL"});
    }
  }

  // How iptables-wrappers distinguishes the two, in its order: the hint or canary in nft's mangle,
  // of either family; then in all tables of iptables-legacy; else nothing ("").
  static std::string WrappersAnswer() {
    return Output({"/bin/sh", "-c",
                   "marks='^:(KUBE-IPTABLES-HINT|KUBE-KUBELET-CANARY) '\n"
                   "for save in iptables-nft-save ip6tables-nft-save; do\n"
                   "  if /usr/sbin/$save -t mangle 2>/dev/null | grep -qE \"$marks\"; then\n"
                   "    printf nft; exit\n"
                   "  fi\n"
                   "done\n"
                   "for save in iptables-legacy-save ip6tables-legacy-save; do\n"
                   "  if /usr/sbin/$save 2>/dev/null | grep -qE \"$marks\"; then\n"
                   "    printf legacy; exit\n"
                   "  fi\n"
                   "done"});
  }

  // `detect`, twice, as text and as JSON: both must end with `exit_code`, say `mode` for both
  // families and change nothing.
  static Json Detect(const std::string& mode, int exit_code,
                     const std::vector<std::string>& flags = {}) {
    const std::string before = TablesAndModules();
    const Words arguments = Words{"detect"} + flags;
    const ProgramResult text = Agent(arguments);
    EXPECT_EQ(text.exit_code, exit_code) << text;
    EXPECT_THAT(text.out, AllOf(HasSubstr("ip: " + mode + "\n"), HasSubstr("ip6: " + mode + "\n")))
        << text;
    const ProgramResult json = Agent(arguments + Words{"--output=json"});
    EXPECT_EQ(json.exit_code, exit_code) << json;
    EXPECT_EQ(TablesAndModules(), before) << "looking has changed something";
    Json parsed = Json::parse(json.out, nullptr, /*allow_exceptions=*/false);
    EXPECT_TRUE(parsed.is_object()) << json;
    for (const Json& family : parsed["families"]) EXPECT_EQ(family["iptablesMode"], mode) << json;
    // Where the wrappers know an answer and we have one, it is the same.
    const std::string wrappers = WrappersAnswer();
    if (!wrappers.empty() && mode != "unknown" && flags.empty()) {
      EXPECT_EQ(wrappers, mode);
    }
    return parsed;
  }
};

TEST_F(DetectTest, AFreshNodeIsNoneAndGetsNft) {
  const Json json = Detect("none", kExitOk);
  EXPECT_THAT(json["families"][0]["evidence"][1]["text"].get<std::string>(),
              HasSubstr("--host-root"));
  EXPECT_EQ(Agent({"plan"}).exit_code, kExitDifferences);
  EXPECT_EQ(Agent({"sync"}).exit_code, kExitOk);
  Detect("nft", kExitOk);
  EXPECT_EQ(FileText("/proc/thread-self/net/ip_tables_names"), "");
  EXPECT_EQ(FileText("/proc/thread-self/net/ip6_tables_names"), "");
}

TEST_F(DetectTest, WhatTheKernelCanDoIsReadWithoutATrace) {
  const std::string before = TablesAndModules();
  // IPVS mode may lack something.
  EXPECT_THAT(Agent({"detect", "--capabilities"}).exit_code, AnyOf(kExitOk, kExitDifferences));
  for (const char* const software : {"kubelet", "kube-proxy-nftables", "iptables-legacy"}) {
    const ProgramResult result = Agent({"detect", absl::StrCat("--capabilities=", software)});
    EXPECT_EQ(result.exit_code, kExitOk) << result;
    EXPECT_THAT(result.out, HasSubstr(absl::StrCat("\n", software, ": present\n"))) << result;
    EXPECT_EQ(AgentAsNobody({"detect", absl::StrCat("--capabilities=", software)}).out, result.out);
  }
  EXPECT_EQ(TablesAndModules(), before);
  EXPECT_EQ(Agent({"detect", "--capabilities=ipvs"}).exit_code, kExitUsage);
  EXPECT_EQ(Agent({"plan", "--capabilities"}).exit_code, kExitUsage);
}

TEST_F(DetectTest, AnOldKubeletIsKnownByItsCanary) {
  for (const IpFamily family : kBothFamilies) Kubelet(KubeletForm::k1_19, {family});
  const Json json = Detect("nft", kExitOk);
  EXPECT_EQ(json["families"][0]["evidence"][2]["says"], "none");
  EXPECT_EQ(json["families"][0]["evidence"][3]["says"], "nft");
}

TEST_F(DetectTest, TwoHintsAreAFindingAndNothingIsWritten) {
  KubeletWith("legacy");
  KubeletWith("nft");
  const Json json = Detect("unknown", kExitDifferences);
  EXPECT_THAT(json["families"][0]["findings"][0].get<std::string>(),
              HasSubstr("exists in both nft and iptables-legacy"));
  const std::string before = TablesAndModules();
  const std::vector<std::string> off = {"retire", "--yes", "--make-iptables-util-chains=false"};
  for (const std::vector<std::string>& command :
       std::vector<std::vector<std::string>>{{"sync"}, {"plan"}, {"status"}, {"retire"}, off}) {
    const ProgramResult result = Agent(command);
    EXPECT_EQ(result.exit_code, kExitFailed);
    EXPECT_THAT(result.err, AllOf(HasSubstr("cannot tell which iptables this node uses"),
                                  HasSubstr("--iptables-mode=nft")));
  }
  EXPECT_EQ(TablesAndModules(), before);
  Detect("nft", kExitDifferences, {"--iptables-mode=nft"});
  EXPECT_EQ(Agent({"sync", "--iptables-mode=nft"}).exit_code, kExitOk);
  // plan and status name the chain in the mode that is not managed.
  for (std::vector<std::string> arguments :
       std::vector<std::vector<std::string>>{{"plan", "--all"}, {"status"}}) {
    arguments.emplace_back("--iptables-mode=nft");
    EXPECT_THAT(Agent(arguments).out, AllOf(HasSubstr("other iptables mode, legacy"),
                                            HasSubstr("  . ip mangle KUBE-IPTABLES-HINT\n")));
    arguments.emplace_back("--output=json");
    const Json other =
        Json::parse(Agent(arguments).out, nullptr, /*allow_exceptions=*/false)["otherMode"];
    EXPECT_EQ(other["iptablesMode"], "legacy");
    EXPECT_FALSE(other["chains"].empty());
  }
}

// What lives in the mode that the host's program does not select.
struct OtherModeRow {
  std::string name;
  std::vector<std::string> commands;  // arguments of iptables
  bool kubelets = false;              // so the mode is unknown
  std::vector<std::string> of_program = {};
};
const OtherModeRow kOtherModeRows[] = {
    {"a hint", List("-t mangle -N KUBE-IPTABLES-HINT"), true},
    {"a canary", List("-t mangle -N KUBE-KUBELET-CANARY"), true},
    {"the drop-mark rule of kubelet",
     List("-N KUBE-FIREWALL",
          "-A KUBE-FIREWALL -m comment --comment 'kubernetes firewall for dropping marked packets' "
          "-m mark --mark 0x8000/0x8000 -j DROP"),
     true},
    {"a hint, and one in the program's mode", List("-t mangle -N KUBE-IPTABLES-HINT"), true,
     List("-t mangle -N KUBE-IPTABLES-HINT")},
    {"kube-proxy 1.27",
     List("-t mangle -N KUBE-PROXY-CANARY", "-t nat -N KUBE-SERVICES", "-t nat -N KUBE-MARK-MASQ",
          "-t nat -A KUBE-MARK-MASQ -j MARK --or-mark 0x4000", "-N KUBE-FIREWALL",
          "-A KUBE-FIREWALL -d 127.0.0.0/8 ! -s 127.0.0.0/8 -m comment --comment 'block incoming "
          "localnet connections' -m conntrack ! --ctstate RELATED,ESTABLISHED,DNAT -j DROP",
          "-I INPUT -j KUBE-FIREWALL")},
};

// A host whose programs are of `variant`: links, and programs that must not be run.
std::string HostWith(const std::string& variant, const TemporaryTree& tree) {
  const std::string program = "usr/sbin/xtables-" + variant + "-multi";
  tree.Write(program, absl::StrCat("#!/bin/sh\ntouch ", tree.Path("was-run"), "\n"));
  std::filesystem::permissions(tree.Path(program), std::filesystem::perms(0755));
  for (const std::string name : {"iptables", "ip6tables"}) {
    tree.Link("usr/sbin/" + name, "/etc/alternatives/" + name);
    tree.Link("etc/alternatives/" + name, absl::StrCat("/usr/sbin/", name, "-", variant));
    tree.Link(absl::StrCat("usr/sbin/", name, "-", variant), "xtables-" + variant + "-multi");
  }
  return "--host-root=" + tree.Path("");
}

TEST_F(DetectTest, KubeletInAnotherModeThanTheHostsProgramIsUnknownForEveryCommand) {
  for (const std::string program : {"nft", "legacy"}) {
    const TemporaryTree host;
    const std::string root = HostWith(program, host);
    const std::string other = program == "nft" ? "legacy" : "nft";
    const auto write = [](const std::string& mode, const std::vector<std::string>& commands) {
      for (const std::string& command : commands) {
        for (const char* const name : {"iptables", "ip6tables"}) {
          std::string made = command;
          if (name == std::string("ip6tables") && made.find("127.0.0.0") != std::string::npos) {
            continue;
          }
          Shell(absl::StrCat("/usr/sbin/", name, "-", mode, mode == "nft" ? " " : " -w 5 ", made));
        }
      }
    };
    for (const OtherModeRow& row : kOtherModeRows) {
      SCOPED_TRACE(absl::StrCat("host ", program, ": ", row.name));
      const Netns fresh = NewNetns();
      const InNetns in(fresh);
      write(other, row.commands);
      write(program, row.of_program);
      const std::vector<std::string> arguments = {"detect", root, "--ip-families=ipv4",
                                                  "--output=json"};
      const ProgramResult detected = Agent(arguments);
      const Json family = Json::parse(detected.out, nullptr, false)["families"][0];
      EXPECT_EQ(family["iptablesMode"], row.kubelets ? "unknown" : program) << detected;
      EXPECT_EQ(detected.exit_code, row.kubelets ? kExitDifferences : kExitOk);
      const std::string sentence = family.value("problem", "none");
      EXPECT_EQ(sentence != "", row.kubelets) << detected;
      EXPECT_EQ(Agent({"plan", root}).exit_code, row.kubelets ? kExitFailed : kExitDifferences);
      if (!row.kubelets) continue;
      EXPECT_THAT(sentence, HasSubstr("; give --iptables-mode=nft or --iptables-mode=legacy"));
      const std::string before = TablesAndModules();
      for (const char* const command : {"plan", "status", "check", "sync", "retire"}) {
        const ProgramResult result = Agent({command, root});
        EXPECT_EQ(result.exit_code, kExitFailed) << command;
        EXPECT_THAT(result.err, HasSubstr(absl::StrCat("Error: ", sentence, "\n"))) << command;
      }
      EXPECT_THAT(Agent({"detect", root}).out, HasSubstr(absl::StrCat("  ! ", sentence, "\n")));
      const Json audit =
          Json::parse(Agent({"audit", root, "--output=json"}).out, nullptr, false)["findings"];
      EXPECT_TRUE(std::any_of(audit.begin(), audit.end(), [&](const Json& finding) {
        return finding["id"] == "ModeUnknown" && finding["severity"] == "error" &&
               finding["message"] == sentence;
      })) << audit;
      EXPECT_EQ(TablesAndModules(), before);
      EXPECT_EQ(Agent({"sync", root, "--iptables-mode=" + other}).exit_code, kExitOk);
      EXPECT_THAT(Agent({"audit", root, "--iptables-mode=" + other}).out,
                  Not(HasSubstr("ModeUnknown")));
    }
    EXPECT_FALSE(std::filesystem::exists(host.Path("was-run")));
  }
}

TEST_F(DetectTest, NamesWhatAnOrdinaryUserLacks) {
  const ProgramResult result = AgentAsNobody({"detect"});
  EXPECT_EQ(result.exit_code, kExitFailed) << result;
  EXPECT_THAT(result.out, AllOf(HasSubstr("ip: unknown\n"), HasSubstr("CAP_NET_ADMIN"),
                                HasSubstr("ip_tables_names")));
  EXPECT_THAT(result.out, Not(HasSubstr("ip: nft\n")));
}

}  // namespace
}  // namespace kipt::testing
