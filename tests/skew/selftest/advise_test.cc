// SPDX-License-Identifier: Apache-2.0
#include "tests/skew/advise/advise.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <ostream>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "tests/skew/advise/pair_facts.h"
#include "tests/skew/matrix/cell.h"

namespace kipt::skew {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::StartsWith;
using Kind = Advice::Kind;

KubeletVersion K(int minor, std::optional<bool> gate = {}) { return {{1, minor}, gate}; }
ProxyVersion P(int minor, ProxyMode mode = ProxyMode::kIptables) { return {{1, minor}, mode}; }

std::string Reasons(const Advice& advice) {
  std::string text;
  for (const Advice::Reason& reason : advice.reasons) absl::StrAppend(&text, reason.text, "\n");
  return text;
}
std::string Steps(const Advice& advice) {
  std::string text;
  for (const std::string& step : advice.steps) absl::StrAppend(&text, step, "\n");
  return text;
}
std::set<std::string> CellsOf(const Advice& advice) {
  std::set<std::string> cells;
  for (const Advice::Reason& reason : advice.reasons) {
    cells.insert(reason.cells.begin(), reason.cells.end());
  }
  return cells;
}
const std::set<std::string>& MatrixIds() {
  static const auto* const kIds = [] {
    auto* ids = new std::set<std::string>();
    for (const Cell& cell : DefaultCells({std::begin(kAllPaths), std::end(kAllPaths)})) {
      ids->insert(CellId(cell));
    }
    return ids;
  }();
  return *kIds;
}

struct AdviceRow {
  std::string name;
  UpgradePlan plan;
  Kind kind;
  std::string answer;
  // Parts of the reasons, and of the steps.
  std::vector<std::string> reasons = {};
  std::vector<std::string> steps = {};
  std::string cell = {};
};
void PrintTo(const AdviceRow& row, std::ostream* stream) { *stream << row.name; }

AdviceRow Row(std::string name, const UpgradePlan& plan, Kind kind, std::string answer,
              std::vector<std::string> reasons = {}, std::vector<std::string> steps = {},
              std::string cell = {}) {
  return {std::move(name),  plan,           kind, std::move(answer), std::move(reasons),
          std::move(steps), std::move(cell)};
}

const AdviceRow kRows[] = {
    // Stepwise, kube-proxy the same.
    Row("From1_24To1_25", {K(24), K(25)}, Kind::kSafeInOrder,
        "Safe, kube-proxy first:", {"makes no jumps", "of the same minor version only"},
        {"First kube-proxy: 1.24 -> 1.25.\nThen kubelet: 1.24 -> 1.25."},
        "boot/kubelet-1.25/proxy-1.24/nft/kubelet"),
    Row("From1_25To1_26", {K(25), K(26)}, Kind::kSafe, "Safe:", {}, {"In any order"}),
    Row("From1_26To1_27", {K(26), K(27)}, Kind::kSafe,
        "Safe:", {"work until a reboot or a flush", "mark bits no longer count", "full syncs only"},
        {"kube-iptables-agent audit", "Reboot one node"},
        "upgrade-kubelet-first/kubelet-1.27/proxy-1.27/nft/kubelet"),
    Row("From1_27To1_28", {K(27), K(28)}, Kind::kSafe, "Safe:", {"mark bits no longer count"}),
    Row("From1_30To1_31", {K(30), K(31)}, Kind::kSafe, "Safe:", {"does not start with them"},
        {"Take --iptables-masquerade-bit and --iptables-drop-bit off"}),

    // The gate by hand.
    Row("TheGateOnByHandBeforeKubeProxy1_25", {K(24), K(25, true)}, Kind::kSafeInOrder,
        "Safe, kube-proxy first:",
        {"In the other order kubelet 1.25 gate on with kube-proxy 1.24", "It fails open"},
        {"First kube-proxy: 1.24 -> 1.25."}, "boot/kubelet-1.27/proxy-1.24/nft/kubelet"),
    Row("TheGateOnAlone", {K(26), K(26, true)}, Kind::kSafe,
        "Safe:", {"work until a reboot or a flush"}),
    Row("TheGateOnAloneBesideKubeProxy1_24", {K(26), K(26, true), P(24), P(24)}, Kind::kUnsafe,
        "Not safe: what must be dropped would be let through", {"It fails open"},
        {"Upgrade kube-proxy to 1.25 or later before kubelet gives up its chains"}),
    Row("TheGateOffIn1_28", {K(27, false), K(28, false)}, Kind::kUnsafe,
        "Not safe: kubelet 1.28 does not start with IPTablesOwnershipCleanup=false",
        {"locked to true"}, {"Take IPTablesOwnershipCleanup out"}),
    Row("TheGateOffIn1_29", {K(28), K(29, false)}, Kind::kUnsafe,
        "Not safe: kubelet 1.29 does not start"),
    Row("TheGateOnIn1_29", {K(28), K(29, true)}, Kind::kSafe, "Safe:", {"warns of"}),
    Row("TheGateNamedIn1_30", {K(29), K(30, true)}, Kind::kUnsafe,
        "Not safe: kubelet 1.30 does not start where IPTablesOwnershipCleanup is named"),
    Row("TheGateNamedIn1_24", {K(23), K(24, false)}, Kind::kUnsafe,
        "Not safe: kubelet 1.24 does not know"),
    Row("TheGateOffUntil1_27", {K(27, false), K(28)}, Kind::kSafe,
        "Safe:", {"kubelet 1.28 and 1.29 do not start with IPTablesOwnershipCleanup=false"},
        {"Take IPTablesOwnershipCleanup out of kubelet's feature gates (flag and configuration "
         "file)"}),

    // kube-proxy stays behind, or goes back.
    Row("CleaningUpBesideKubeProxy1_24", {K(26), K(27), P(24), P(24)}, Kind::kUnsafe,
        "Not safe: what must be dropped would be let through (kubelet 1.27 with kube-proxy 1.24)",
        {"kube-proxy 1.20 to 1.24", "work until a reboot or a flush"}, {},
        "boot/kubelet-1.27/proxy-1.24/nft/kubelet"),
    Row("CleaningUpBesideKubeProxy1_20", {K(22), K(27), P(20), P(20)}, Kind::kUnsafe,
        "Not safe: what must be dropped", {}, {}, "boot/kubelet-1.27/proxy-1.24/nft/kubelet"),
    Row("CleaningUpBesideKubeProxy1_19", {K(22), K(27), P(19), P(19)}, Kind::kUnsafe,
        "Not safe: no service would work", {"table nat is not"}, {},
        "boot/kubelet-1.27/proxy-1.19/nft/kubelet"),
    Row("KubeProxyBackTo1_24AfterTheCleanup", {K(27), K(27), P(27), P(24)}, Kind::kUnsafe,
        "Not safe: what must be dropped", {}, {"and keep it there"}),
    Row("BothBackTo1_24", {K(27), K(24)}, Kind::kSafeInOrder, "Safe, kubelet first:",
        {"In the other order kubelet 1.27 with kube-proxy 1.24", "makes its chains again"},
        {"First kubelet: 1.27 -> 1.24.\nThen kube-proxy: 1.27 -> 1.24."}),
    Row("KubeProxyOutOfTheFailure", {K(27), K(27), P(24), P(25)}, Kind::kSafe,
        "Safe:", {"This is already the case"}),
    Row("KubeProxy1_27BesideAKubeletThatFillsItsChains", {K(26), K(26), P(26), P(27)}, Kind::kSafe,
        "Safe:", {"empties IPv4's filter/KUBE-FIREWALL at every sync"}, {},
        "boot/kubelet-1.26/proxy-1.27/nft/kubelet"),

    // What the skew policy says.
    Row("TooFarAhead", {K(33), K(34), P(30), P(30)}, Kind::kUnsafe,
        "Not safe: Kubernetes does not support kubelet 1.34 with kube-proxy 1.30",
        {"up to 3 minor versions apart"}),
    Row("ManyMinorsAtOnce", {K(24), K(34)}, Kind::kSafeInOrder,
        "Safe in 4 stages, kube-proxy first:", {"three minor versions older than the API server"},
        {"First kube-proxy: 1.24 -> 1.26.\nThen kubelet: 1.24 -> 1.26.",
         "kubelet: 1.26 -> 1.29, kube-proxy: 1.26 -> 1.29",
         "kubelet: 1.29 -> 1.32, kube-proxy: 1.29 -> 1.32", "Upgrade the API server to 1.34"}),
    Row("ThreeMinorsAtOnce", {K(31), K(34)}, Kind::kSafe, "Safe:"),

    // Other modes.
    Row("IpvsUpTo1_24", {K(25), K(27), P(24, ProxyMode::kIpvs), P(24, ProxyMode::kIpvs)},
        Kind::kUnsafe, "Not safe: what must be dropped", {"nat/KUBE-FIREWALL"}),
    Row("Ipvs", {K(26), K(27), P(26, ProxyMode::kIpvs)}, Kind::kSafe, "Safe:", {},
        {"kube-proxy: 1.26 ipvs -> 1.27 ipvs"}),
    Row("ToNftables", {K(30), K(31), P(30), P(31, ProxyMode::kNftables)}, Kind::kSafe, "Safe:",
        {"externalSetMarkChain: KUBE-MARK-MASQ, its ADD fails", "leaves the rules of the old mode"},
        {"kube-proxy --cleanup", "If the CNI configuration has externalSetMarkChain"},
        "boot/kubelet-1.31/proxy-1.31-nftables/nft/kubelet"),
    Row("NftablesTooEarly", {K(27), K(28), P(27), P(28, ProxyMode::kNftables)}, Kind::kUnsafe,
        "Not safe: kube-proxy has an nftables mode since 1.29 only"),

    // Odds and ends.
    Row("TheOldJump", {K(19), K(20)}, Kind::kSafe, "Safe:", {"INPUT's jump to KUBE-SERVICES"}),
    Row("NoMartianRule", {K(17), K(18)}, Kind::kSafe, "Safe:", {"CVE-2020-8558"}),
    Row("WithoutUtilChains", {K(22), K(23)}, Kind::kSafe, "Safe:", {"makeIPTablesUtilChains"}),
    Row("NothingChanges", {K(30), K(30)}, Kind::kSafe,
        "Safe: kubelet stays 1.30, kube-proxy stays 1.30"),
};

class AdviceTest : public ::testing::TestWithParam<AdviceRow> {};

TEST_P(AdviceTest, SaysWhatTheFactsSay) {
  const AdviceRow& row = GetParam();
  const Advice advice = Advise(row.plan);
  EXPECT_EQ(advice.kind, row.kind) << AdviceText(advice);
  EXPECT_THAT(advice.answer, StartsWith(row.answer));
  for (const std::string& part : row.reasons) EXPECT_THAT(Reasons(advice), HasSubstr(part));
  for (const std::string& part : row.steps) EXPECT_THAT(Steps(advice), HasSubstr(part));
  if (!row.cell.empty()) {
    EXPECT_THAT(CellsOf(advice), Contains(row.cell));
  }
  EXPECT_THAT(advice.reasons, Not(IsEmpty()));
}

INSTANTIATE_TEST_SUITE_P(Of, AdviceTest, ::testing::ValuesIn(kRows),
                         [](const auto& row) { return row.param.name; });

// Every upgrade and downgrade, kube-proxy along or left behind.
std::vector<UpgradePlan> EveryPlan() {
  std::vector<UpgradePlan> plans;
  for (const Version from : AllVersions()) {
    for (const Version to : AllVersions()) {
      plans.push_back({{from, {}}, {to, {}}});
      plans.push_back({{from, {}}, {to, {}}, ProxyVersion{from}, ProxyVersion{from}});
      plans.push_back({{to, {}}, {to, {}}, ProxyVersion{from}, ProxyVersion{to}});
    }
  }
  return plans;
}

TEST(EveryAdviceTest, NamesCellsThatTheMatrixHas) {
  std::set<std::string> named;
  for (const UpgradePlan& plan : EveryPlan()) named.merge(CellsOf(Advise(plan)));
  EXPECT_GT(named.size(), 5U);
  for (const std::string& id : named) EXPECT_EQ(MatrixIds().count(id), 1U) << id;
}

TEST(EveryAdviceTest, IsUnsafeWhereItEndsInAPairThatFails) {
  for (const UpgradePlan& plan : EveryPlan()) {
    const Pair end = {plan.to, plan.proxy_to.value_or(ProxyVersion{plan.to.version})};
    const bool fails = HarmOf(end) >= Harm::kFailsOpen;
    const bool allowed = IsAllowed(end.kubelet.version, end.proxy.version).allowed;
    const Advice advice = Advise(plan);
    EXPECT_EQ(advice.kind == Kind::kUnsafe, fails || !allowed) << advice.answer;
  }
}

// Words that are longer than a line, cells' names, aside.
TEST(EveryAdviceTest, FitsOnATerminal) {
  for (const UpgradePlan& plan : EveryPlan()) {
    const std::string text = AdviceText(Advise(plan));
    for (absl::string_view line : absl::StrSplit(text, '\n')) EXPECT_LE(line.size(), 100U) << line;
  }
}

TEST(AdviceTextTest, AnswersFirstThenSaysWhatToDoAndWhy) {
  Advice advice = {
      .kind = Kind::kUnsafe, .answer = "Not safe: because.", .steps = {"Do.", "Do it."}};
  advice.reasons = {{"A fact.", {"boot/kubelet-1.27/proxy-1.24/nft/kubelet"}}};
  EXPECT_EQ(AdviceText(advice),
            "Not safe: because.\n"
            "\n"
            "Steps\n"
            "  1. Do.\n"
            "  2. Do it.\n"
            "\n"
            "Why\n"
            "  - A fact.\n"
            "    see boot/kubelet-1.27/proxy-1.24/nft/kubelet\n");
}

TEST(AdviceJsonTest, HasTheSameForPrograms) {
  for (const UpgradePlan& plan : {UpgradePlan{K(26), K(27), P(24), P(24)}, {K(25), K(26)}}) {
    const Advice advice = Advise(plan);
    const nlohmann::json json = nlohmann::json::parse(AdviceJson(advice), nullptr, false);
    ASSERT_TRUE(json.is_object());
    EXPECT_EQ(json["verdict"], advice.kind == Kind::kUnsafe ? "unsafe" : "safe");
    EXPECT_EQ(json["answer"], advice.answer);
    EXPECT_EQ(json["steps"].size(), advice.steps.size());
    EXPECT_EQ(json["reasons"].size(), advice.reasons.size());
    EXPECT_EQ(json["reasons"][0]["text"], advice.reasons[0].text);
  }
}

}  // namespace
}  // namespace kipt::skew
