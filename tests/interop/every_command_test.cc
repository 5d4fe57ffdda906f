// SPDX-License-Identifier: Apache-2.0
//
// Every command of README's table on a node with a kubelet, a kube-proxy and a CNI plugin, in both
// iptables modes, as text and as JSON: the exit code, the line that a reader needs, and the fields
// that a program may rely on.
#include <sys/mount.h>
#include <sys/stat.h>

#include <nlohmann/json.hpp>
#include <tuple>

#include "absl/strings/str_join.h"
#include "tests/interop/daemon_fixture.h"
#include "tests/support/rows.h"

namespace kipt::testing {
namespace {

using Json = nlohmann::json;

// One call of the program. "MODE" anywhere in a row is the iptables mode, "DIR" the directory with
// the files of this test.
struct Row {
  std::vector<std::string> arguments;
  int exit_code;
  // The text output contains it.
  std::string text;
  // JSON pointers that exist.
  std::vector<std::string> fields;
  // JSON pointers and their values.
  Json values = Json::object();
  // Standard input: the node's rules, as iptables-save -c prints them.
  bool reads_rules = false;
};

std::vector<std::string> Below(const std::string& parent, const std::vector<std::string>& names) {
  std::vector<std::string> fields;
  for (const std::string& name : names) fields.push_back(absl::StrCat(parent, "/", name));
  return fields;
}

const std::vector<std::string> kSubject =
    Below("", {"mode", "emulatedVersion", "iptablesMode", "ipFamilies/1", "generation"});
const std::vector<std::string> kChange = {"family",    "table", "chain",
                                          "operation", "text",  "reason"};
const std::vector<std::string> kExisting = {"family", "table", "chain", "text", "reason"};
const std::vector<std::string> kCheck =
    kSubject + Below("/inPlace/0", kExisting) + Below("/stale/0", kExisting) +
    Below("", {"findings", "nativeTable/state", "nativeTable/reason", "nativeTable/packetsDropped",
               "otherMode/iptablesMode", "otherMode/chains", "otherMode/problem"});
const std::vector<std::string> kRetiredMode =
    Below("/modes/0", {"generation", "removesNativeTable", "unsettled", "error", "kept/0/text",
                       "kept/0/claims/0/kind", "kept/0/claims/0/text"}) +
    Below("/modes/0/changes/0", kChange);
const std::vector<std::string> kAudit =
    Below("/findings/0",
          {"id", "severity", "netns", "iptablesMode", "family", "chain", "owner", "message",
           "count", "packets", "rules", "details", "consequence", "remedy", "allowed"}) +
    Below("/kubeProxy/0", {"iptablesMode", "family", "mode", "release", "oldestMinor",
                           "newestMinor", "leftovers", "evidence/0"}) +
    Below("", {"errors", "warnings", "infos", "allowed"});
const std::vector<std::string> kExplanation =
    Below("/0", {"owner", "what", "madeBy", "inShort/0", "users", "ruleCount", "next"}) +
    Below("/0/purposes/0", {"id", "title", "reason", "owner", "count", "packets"}) +
    Below("/0/purposes/0/examples/0", {"chain", "rule", "meaning", "packets"}) +
    Below("/0/rules/0", {"chain", "rule", "meaning", "packets"});

// Those that only read.
const std::vector<Row> kReading = {
    {List("version"), kExitOk, "kube-iptables-agent v", List("/version")},
    {List("gates"), kExitOk, "IPTablesOwnershipCleanup",
     Below("/gates/0", {"component", "stage", "default", "value", "locked", "set"}),
     Json{{"/emulatedVersion", "1.27"}}},
    {List("detect"), kExitOk, "ip: MODE\n",
     Below("/families/0", {"findings", "contradiction", "evidence/0/source", "evidence/0/says",
                           "evidence/0/text"}),
     Json{{"/families/0/family", "ip"},
          {"/families/0/iptablesMode", "MODE"},
          {"/families/1/family", "ip6"},
          {"/families/1/iptablesMode", "MODE"}}},
    {List("detect", "--capabilities=kubelet"), kExitOk, "kubelet: present\n",
     Below("", {"kernel"}) + Below("/software/0", {"name", "state", "findings"}) +
         Below("/software/0/capabilities/0",
               {"feature", "since", "until", "why", "needed", "state", "reason"}),
     Json{{"/software/0/name", "kubelet"}}},
    {List("plan"), kExitDifferences, "  + :KUBE-IPTABLES-HINT - [0:0]",
     kCheck + Below("/changes/0", kChange),
     Json{{"/mode", "cleanup"},
          {"/iptablesMode", "MODE"},
          {"/changes/0/chain", "KUBE-IPTABLES-HINT"},
          {"/changes/0/operation", "createChain"}}},
    {List("status"), kExitDifferences, "ip: 3 changes needed (see plan)\n",
     kCheck + Below("/martians", {"ruleExists", "packetsDropped", "routeLocalnet", "exposed"}),
     Json{{"/iptablesMode", "MODE"}, {"/changesNeeded", 4}}},
    {List("audit", "--cni-conf-dir=DIR/cni"), kExitDifferences, "CniConfig", kAudit,
     Json{{"/kubeProxy/0/iptablesMode", "MODE"}}},
    {List("audit", "--before=kube-proxy-nftables", "--cni-conf-dir=DIR/cni"), kExitDifferences,
     " before kube-proxy-nftables\n", kAudit, Json{{"/before", "kube-proxy-nftables"}}},
    {List("audit", "--cni-conf-dir=DIR/cni", "--all-netns"), kExitDifferences,
     "ChainUser  [/run/netns/pod1] MODE ip nat/KUBE-MARK-MASQ\n", kAudit},
    {List("marks"), kExitOk, "  MODE ip nat: kubelet ",
     Below("/bits/31",
           {"bit", "mask", "configuredFor", "sets", "maySet", "clears", "tests", "knownSoftware"}) +
         Below("/users/0", {"who", "sets", "clears", "tests", "maySetAny", "overwritesWholeMark",
                            "count", "examples/0"}) +
         Below("/knownSoftware/0", {"software", "use", "bits", "mask", "source"}) +
         Below("/verdicts/1", {"bit", "use", "severity", "findings"}) + Below("", {"problems"}),
     Json{{"/bits/15/configuredFor", "drop"}, {"/verdicts/0/bit", 14}}},
    {List("explain", "nat/KUBE-MARK-MASQ"), kExitOk, "nat/KUBE-MARK-MASQ  (MODE ip)\n",
     kExplanation,
     Json{{"/0/chain", "nat/KUBE-MARK-MASQ"},
          {"/0/family", "ip"},
          {"/0/iptablesMode", "MODE"},
          {"/1/family", "ip6"}}},
    {List("explain", "--from-file=DIR/rules", "nat/KUBE-MARK-MASQ"), kExitOk,
     "nat/KUBE-MARK-MASQ  (ip)\n", kExplanation,
     Json{{"/0/chain", "nat/KUBE-MARK-MASQ"}, {"/0/iptablesMode", ""}}},
    {List("explain", "--from-file=-", "nat/KUBE-MARK-MASQ"), kExitOk, "nat/KUBE-MARK-MASQ  (ip)\n",
     kExplanation, Json{{"/0/chain", "nat/KUBE-MARK-MASQ"}, {"/0/iptablesMode", ""}},
     /*reads_rules=*/true},
};

// Those that write, and what the others report afterwards, in this order.
const std::vector<Row> kWriting = {
    {List("sync"), kExitOk, "ip: 3 changes made\n",
     kSubject + Below("/applied/0", kChange) +
         Below("", {"nativeTablePut", "nativeTableRemoved", "findings", "error"}),
     Json{{"/checks", 1},
          {"/families/0/family", "ip"},
          {"/families/0/ok", true},
          {"/families/0/error", ""},
          {"/families/1/ok", true}}},
    {List("sync"), kExitOk, "ip: nothing to change\nip6: nothing to change\n", List("/checks"),
     Json{{"/applied", Json::array()}}},
    {List("plan"), kExitOk, "0 to add, 0 to remove", kCheck, Json{{"/changes", Json::array()}}},
    {List("status"), kExitOk, "ip: in place\nip6: in place\n", kCheck, Json{{"/changesNeeded", 0}}},
    {List("retire", "--cni-conf-dir=DIR/cni"), kExitDifferences, "- -X KUBE-MARK-DROP",
     kRetiredMode,
     Json{{"/dryRun", true}, {"/modes/0/applied", false}, {"/modes/0/iptablesMode", "MODE"}}},
    {List("retire", "--cni-conf-dir=DIR/cni", "--yes"), kExitOk, "- -X KUBE-MARK-DROP",
     kRetiredMode,
     Json{{"/dryRun", false}, {"/modes/0/applied", true}, {"/modes/0/iptablesMode", "MODE"}}},
    {List("retire", "--cni-conf-dir=DIR/cni"), kExitOk, "0 to remove", List(),
     Json{{"/modes/0/changes", Json::array()}}},
};

class EveryCommandTest : public DaemonTest,
                         public ::testing::WithParamInterface<std::tuple<IptablesMode, bool>> {
 protected:
  // kubelet 1.23 of both families, kube-proxy 1.24 of IPv4, and a plugin that will use a chain of
  // kubelet's. In a namespace with the name pod1, others' rules use that chain.
  void MakeNode(IptablesMode mode) {
    mode_ = NameOf(mode);
    for (const IpFamily family : kBothFamilies) {
      Kubelet(KubeletForm::k1_19, {.family = family, .mode = mode});
    }
    Output({KIPT_KUBE_PROXY_LIKE, mode_, KIPT_KUBE_PROXY_INPUTS, "1.24", "never"});
    tree_.Write("cni/10-net.conflist",
                R"({"cniVersion": "0.4.0", "name": "net", "plugins": [{"type": "portmap",)"
                R"( "externalSetMarkChain": "KUBE-MARK-MASQ"}]})");
    rules_ = Output({absl::StrCat("iptables-", mode_, "-save"), "-c"});
    tree_.Write("rules", rules_);

    pod_.emplace(NewNetns());
    ASSERT_EQ(mkdir("/run/netns", 0755), 0);
    std::ofstream("/run/netns/pod1").close();
    ASSERT_EQ(mount(pod_->Path().c_str(), "/run/netns/pod1", "none", MS_BIND, nullptr), 0);
    const InNetns inside(*pod_);
    const ProgramResult restored = Iptables{.mode = mode}.Restore(
        "*nat\n:KUBE-MARK-MASQ - [0:0]\n:CNI-DN-pod - [0:0]\n-A CNI-DN-pod -j KUBE-MARK-MASQ\n"
        "COMMIT\n");
    ASSERT_EQ(restored.exit_code, 0) << restored;
  }

  std::string Filled(const std::string& text) const {
    return absl::StrReplaceAll(text, {{"MODE", mode_}, {"DIR", tree_.root()}});
  }

  // --all-netns lists the namespaces of all processes. Here these are the program's own: other
  // tests run at the same time.
  ProgramResult Call(const Row& row, bool json) const {
    std::vector<std::string> argv;
    if (row.arguments.back() == "--all-netns") {
      argv = {"unshare", "--pid", "--fork", "--propagation=unchanged", "--mount-proc", "--"};
    }
    argv.push_back(AgentProgram());
    for (const std::string& argument : row.arguments) argv.push_back(Filled(argument));
    if (json) argv.push_back("--output=json");
    return RunProgram(argv, row.reads_rules ? rules_ : "");
  }

  void ExpectText(const Row& row) const {
    const ProgramResult result = Call(row, /*json=*/false);
    EXPECT_EQ(result.exit_code, row.exit_code) << result;
    EXPECT_THAT(result.out, HasSubstr(Filled(row.text))) << result;
  }

  void ExpectJson(const Row& row) const {
    const ProgramResult result = Call(row, /*json=*/true);
    EXPECT_EQ(result.exit_code, row.exit_code) << result;
    const Json json = Json::parse(result.out, nullptr, /*allow_exceptions=*/false);
    ASSERT_FALSE(json.is_discarded()) << result;
    for (const std::string& field : row.fields) {
      EXPECT_TRUE(json.contains(Json::json_pointer(field))) << field << " is missing" << result;
    }
    for (const auto& [field, value] : row.values.items()) {
      const Json::json_pointer pointer(field);
      ASSERT_TRUE(json.contains(pointer)) << field << " is missing" << result;
      EXPECT_EQ(json[pointer], value == "MODE" ? Json(mode_) : value) << field << result;
    }
  }

 private:
  TemporaryTree tree_;
  std::string mode_;
  std::string rules_;
  std::optional<Netns> pod_;
};

TEST_P(EveryCommandTest, HasThePromisedStatusAndOutput) {
  const auto [mode, json] = GetParam();
  ASSERT_NO_FATAL_FAILURE(MakeNode(mode));
  for (const std::vector<Row>* rows : {&kReading, &kWriting}) {
    for (const Row& row : *rows) {
      SCOPED_TRACE(absl::StrJoin(row.arguments, " "));
      if (json) {
        ExpectJson(row);
      } else {
        ExpectText(row);
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Outputs, EveryCommandTest,
                         ::testing::Combine(::testing::ValuesIn(kBothModes), ::testing::Bool()),
                         [](const auto& row) {
                           return absl::StrCat(TestNameOf(std::get<0>(row.param)),
                                               std::get<1>(row.param) ? "Json" : "Text");
                         });

}  // namespace
}  // namespace kipt::testing
