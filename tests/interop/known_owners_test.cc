// SPDX-License-Identifier: Apache-2.0
//
// Rules that the real programs made (testdata/owners) have their owner's name in reports; and a
// name is no more than a name: whatever a chain is called, sync and retire leave it alone.
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/interop/agent_fixture.h"
#include "tests/support/matchers.h"
#include "tests/support/raw_rules.h"
#include "tests/support/status_matchers.h"
#include "tests/support/unescaped.h"

namespace kipt::testing {
namespace {

using Json = nlohmann::json;

std::string Captured(const std::string& name) {
  std::string text = FileText(absl::StrCat(KIPT_OWNERS_DIR, "/", name));
  EXPECT_NE(text, "") << name;
  return text;
}

class KnownOwnersTest : public AgentTest, public ::testing::WithParamInterface<IptablesMode> {
 protected:
  static Iptables Of(IpFamily family) { return {.family = family, .mode = GetParam()}; }
  static void Load(IpFamily family, const std::string& text) {
    const ProgramResult result = Of(family).Restore(text);
    ASSERT_EQ(result.exit_code, 0) << result;
  }
  static SavedRules Saved(IpFamily family) { return SavedRules::Of(Of(family)); }
};

// Each is a name of a known program's, or nearly one of Kubernetes', and is used by nobody.
const std::vector<std::string>& Imitations() {
  static const auto* const kChains = new std::vector<std::string>{
      "ts-input", "ts-\x1b[2J\xe2\x80\xae", "NETAVARK_FORWARD", "AWS-SNAT-CHAIN-0", "AZURE-NPM",
      "OVN-KUBE-ITP", "ISTIO_REDIRECT", "RKE2-CILIUM", "LIBVIRT_INP", "ufw-user-input", "DOCKER",
      "cali-x", "CNI-DN-0123", "IN_public",
      // Kubernetes' own, but in other tables, and what nearly looks like them.
      "KUBE-MARK-MASQ-2", "KUBE-POSTROUTING\x1b[31m", "KUBE-MARK", "KUBE-NWPLCY-X",
      "KUBE-IPTABLES-HINTS", "KUBELET-POSTROUTING-"};
  return *kChains;
}

TEST_P(KnownOwnersTest, ANameIsNoReasonToDeleteOrChangeAnything) {
  std::map<IpFamily, SavedRules> before;
  for (const IpFamily family : kBothFamilies) {
    // What kubelet left, so that there is something to retire.
    Kubelet(KubeletForm::k1_24, Of(family));
    // With a rule in filter, and empty in mangle.
    std::string chains;
    for (const std::string& chain : Imitations())
      absl::StrAppend(&chains, ":", chain, " - [0:0]\n");
    std::string text = absl::StrCat("*mangle\n", chains, "COMMIT\n*filter\n", chains);
    for (const std::string& chain : Imitations()) {
      absl::StrAppend(&text, "-A ", chain, " -p tcp -m tcp --dport 7 -j DROP\n");
    }
    Load(family, text + "COMMIT\n");
    before[family] = Saved(family);
  }
  const AgentSettings settings = {.ownership_cleanup = true, .iptables = GetParam()};
  Agent("sync", settings);
  std::vector<std::string> retire = settings.Flags();
  const TemporaryTree cni;
  retire.insert(retire.begin(), {"retire", "--yes", "--cni-conf-dir=" + cni.root()});
  const ProgramResult retired = Agent(retire);
  EXPECT_EQ(FindUnescaped(retired.out + retired.err), "") << retired;
  for (const IpFamily family : kBothFamilies) {
    const SavedRules after = Saved(family);
    EXPECT_FALSE(after.HasChain("nat", "KUBE-MARK-DROP")) << retired;
    for (const std::string& chain : Imitations()) {
      EXPECT_EQ(after.Rules("filter", chain), before[family].Rules("filter", chain)) << chain;
      EXPECT_EQ(after.Rules("filter", chain).size(), 1U) << chain;
      EXPECT_TRUE(after.HasChain("mangle", chain)) << chain;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Modes, KnownOwnersTest, ::testing::ValuesIn(kBothModes),
                         [](const auto& row) { return TestNameOf(row.param); });

// wg-quick writes the whole mark, from a table with base chains only.
TEST_F(AgentTest, AuditNamesWgQuickAsTheProgramThatSetsOurMarkBits) {
  Kubelet(KubeletForm::k1_24, {});
  const ProgramResult loaded =
      RunProgram({"/usr/sbin/nft", "-f", "-"}, Captured("wg-quick-1.0.20210914.nft"));
  ASSERT_EQ(loaded.exit_code, 0) << loaded;
  const auto rules = ReadRawRules();
  ASSERT_THAT(rules, IsOk());
  const ProgramResult audit = Agent({"audit"});
  EXPECT_EQ(audit.exit_code, kExitDifferences);
  EXPECT_THAT(audit.out, HasSubstr("rules of wg-quick in table wg-quick-wg0 may set any mark"))
      << audit;
  const Json report = Json::parse(Agent({"audit", "--output=json"}).out, nullptr, false);
  bool found = false;
  for (const Json& finding : report["findings"]) {
    if (finding["owner"] != "wg-quick") continue;
    found = true;
    EXPECT_THAT(finding["id"].get<std::string>(), StartsWith("MarkBit")) << finding;
    EXPECT_THAT(finding["message"].get<std::string>(), HasSubstr("table wg-quick-wg0")) << finding;
  }
  EXPECT_TRUE(found) << report;
  Agent({"retire", "--yes"});
  const auto after = ReadRawRules();
  ASSERT_THAT(after, IsOk());
  for (const auto& [id, bytes] : *rules) {
    if (id.table == "wg-quick-wg0") EXPECT_EQ(after->count(id), 1U) << id.chain;
  }
}

}  // namespace
}  // namespace kipt::testing
