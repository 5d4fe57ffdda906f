// SPDX-License-Identifier: Apache-2.0
//
// A plan is walked in stages; each stage has two orders, and each order a pair of versions in
// between (upgrade_way.cc). What a pair does is in pair_facts.cc.
#include "tests/skew/advise/advise.h"

#include <algorithm>
#include <cstddef>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "tests/skew/advise/pair_facts.h"
#include "tests/skew/advise/upgrade_way.h"
#include "tests/skew/report/sentences.h"

namespace kipt::skew {
namespace {

std::string Named(const Pair& pair) {
  return absl::StrCat("kubelet ", ToString(pair.kubelet), " with kube-proxy ",
                      ToString(pair.proxy));
}

// ---- the advice ----

class Adviser {
 public:
  explicit Adviser(const UpgradePlan& plan) : way_(WayOf(plan)) {}

  Advice Give() && {
    FindObstacles();
    for (const Change& stage : way_.stages) orders_.push_back(OrderOf(stage));
    if (advice_.kind != Advice::Kind::kUnsafe) advice_.kind = KindOfOrders();
    Answer();
    for (const ChangeRow* row : WhatComesWith(way_.whole)) {
      if (row->step[0] != '\0') advice_.steps.emplace_back(row->step);
    }
    for (size_t i = 0; i < way_.stages.size(); ++i) AddSteps(way_.stages[i], orders_[i]);
    if (advice_.kind != Advice::Kind::kUnsafe && StartsCleaningUp(way_.whole)) {
      advice_.steps.emplace_back(
          "Reboot one node of each kind, or let kube-iptables-agent retire what is left. Check "
          "that nothing breaks before the other nodes reboot.");
    }
    AddReasons();
    return std::move(advice_);
  }

 private:
  void Obstacle(std::string headline, std::string step) {
    advice_.kind = Advice::Kind::kUnsafe;
    headlines_.push_back(std::move(headline));
    if (!step.empty()) advice_.steps.push_back(std::move(step));
  }

  void FindObstacles() {
    const Pair& end = way_.whole.to;
    if (const std::string why = WhyRefused(end.kubelet); !why.empty()) {
      Obstacle(why, "Take IPTablesOwnershipCleanup out of kubelet's feature gates.");
    }
    if (end.proxy.mode == ProxyMode::kNftables && !Does(end.proxy.version, Trait::kNftablesMode)) {
      Obstacle("kube-proxy has an nftables mode since 1.29 only", "");
    }
    for (const PairFact* fact : FactsOf(end)) {
      if (fact->harm < Harm::kFailsOpen) continue;
      Obstacle(absl::StrCat(fact->headline, " (", Named(end), ")"),
               fact->kubelet_does == PairFact::Kubelet::kKeepsMarks
                   ? "Upgrade kube-proxy to 1.25 or later too."
                   : "Upgrade kube-proxy to 1.25 or later before kubelet gives up its chains, and "
                     "keep it there.");
    }
    const SkewVerdict skew = IsAllowed(end.kubelet.version, end.proxy.version);
    if (!skew.allowed) {
      Obstacle(
          absl::StrCat("Kubernetes does not support ", Named(end)),
          absl::StrCat("Choose versions that Kubernetes supports together: ", skew.because, "."));
    }
    for (const Change& stage : way_.stages) {
      if (OrderOf(stage) != Order::kNeither) continue;
      Obstacle("either order breaks something in between",
               "Replace kubelet and kube-proxy while the node is drained and takes no traffic.");
    }
  }

  Advice::Kind KindOfOrders() const {
    const bool ordered = std::any_of(orders_.begin(), orders_.end(), [](Order order) {
      return order == Order::kKubeletFirst || order == Order::kProxyFirst;
    });
    return ordered || way_.stages.size() > 1 ? Advice::Kind::kSafeInOrder : Advice::Kind::kSafe;
  }

  void Answer() {
    const std::string what =
        absl::StrCat("kubelet ", Arrow(way_.whole.from.kubelet, way_.whole.to.kubelet),
                     ", kube-proxy ", Arrow(way_.whole.from.proxy, way_.whole.to.proxy));
    if (advice_.kind == Advice::Kind::kUnsafe) {
      const size_t shown = std::min<size_t>(headlines_.size(), 2);
      advice_.answer = absl::StrCat(
          "Not safe: ", absl::StrJoin(headlines_.begin(),
                                      headlines_.begin() + static_cast<ptrdiff_t>(shown), "; "));
      if (headlines_.size() > shown) {
        absl::StrAppend(&advice_.answer, "; and ", headlines_.size() - shown, " more");
      }
      advice_.answer += ".";
      return;
    }
    std::string how;
    if (way_.stages.size() > 1) absl::StrAppend(&how, " in ", way_.stages.size(), " stages");
    const auto has = [&](Order order) {
      return std::find(orders_.begin(), orders_.end(), order) != orders_.end();
    };
    if (has(Order::kProxyFirst)) how += ", kube-proxy first";
    if (has(Order::kKubeletFirst)) how += ", kubelet first";
    advice_.answer = absl::StrCat("Safe", how, ": ", what, " breaks nothing of Kubernetes' own.");
  }

  template <typename T>
  static std::string Arrow(const T& from, const T& to) {
    return from == to ? absl::StrCat("stays ", ToString(to))
                      : absl::StrCat(ToString(from), " -> ", ToString(to));
  }

  void AddSteps(const Change& stage, Order order) {
    const Pair& from = stage.from;
    const Pair& to = stage.to;
    if (advice_.kind == Advice::Kind::kUnsafe) return;
    const Version newest = std::max(to.kubelet.version, to.proxy.version);
    if (newest > std::max(from.kubelet.version, from.proxy.version)) {
      advice_.steps.push_back(absl::StrCat("Upgrade the API server to ",
                                           featuregates::ToString(newest),
                                           ": neither kubelet nor kube-proxy may be newer."));
    }
    if (stage.kubelet_moves()) advice_.steps.emplace_back("Drain the node.");
    const std::string kubelet =
        absl::StrCat("kubelet: ", ToString(from.kubelet), " -> ", ToString(to.kubelet), ".");
    const std::string proxy =
        absl::StrCat("kube-proxy: ", ToString(from.proxy), " -> ", ToString(to.proxy), ".");
    if (!stage.proxy_moves() || !stage.kubelet_moves()) {
      if (stage.kubelet_moves()) advice_.steps.push_back(kubelet);
      if (stage.proxy_moves()) advice_.steps.push_back(proxy);
    } else if (order == Order::kAny) {
      advice_.steps.push_back(
          absl::StrCat("In any order: ", kubelet.substr(0, kubelet.size() - 1), ", ", proxy));
    } else {
      const bool proxy_first = order == Order::kProxyFirst;
      advice_.steps.push_back(absl::StrCat("First ", proxy_first ? proxy : kubelet));
      advice_.steps.push_back(absl::StrCat("Then ", proxy_first ? kubelet : proxy));
    }
  }

  void Reason(std::string text, std::vector<std::string> cells) {
    if (!said_.insert(text).second) return;
    advice_.reasons.push_back({std::move(text), std::move(cells)});
  }

  void AddFacts(const std::string& when, const Pair& pair, Harm at_least) {
    for (const PairFact* fact : FactsOf(pair)) {
      if (fact->harm < at_least) continue;
      if (!said_.insert(fact->text).second) continue;
      advice_.reasons.push_back({absl::StrCat(when, fact->text), CellsOf(*fact, pair)});
    }
  }

  void AddReasons() {
    const Change& whole = way_.whole;
    for (const std::string& why : {WhyRefused(whole.to.kubelet), GateWarning(whole.to.kubelet)}) {
      if (!why.empty()) Reason(absl::StrCat(why, "."), {});
    }
    AddFacts("", whole.to, Harm::kFailsOpen);
    for (size_t i = 0; i < way_.stages.size(); ++i) AddOrderReasons(way_.stages[i], orders_[i]);
    AddFacts("This is already the case: ", whole.from, Harm::kFailsOpen);
    for (const ChangeRow* row : WhatComesWith(whole)) {
      std::vector<std::string> cells;
      if (row->kubelet != 0) {
        cells = CellsOn(Path::kUpgradeKubeletFirst, {{{1, row->kubelet}, {}}, {{1, row->proxy}}});
      }
      Reason(row->reason, std::move(cells));
    }
    AddFacts("", whole.to, Harm::kNone);
    AddPolicyReasons();
  }

  void AddOrderReasons(const Change& stage, Order order) {
    if (!stage.kubelet_moves() || !stage.proxy_moves() || order == Order::kAny) return;
    for (const Order other : {Order::kKubeletFirst, Order::kProxyFirst}) {
      if (other == order) continue;
      const Pair between = Between(stage, other);
      AddFacts(absl::StrCat("In the other order ", Named(between),
                            " would meet, and a reboot or a flush then shows it. "),
               between, Harm::kFailsOpen);
    }
  }

  void AddPolicyReasons() {
    if (way_.stages.size() > 1) {
      Reason(
          "kubelet may be three minor versions older than the API server, or two if it is older "
          "than 1.25. One upgrade must not go further.",
          {});
    }
    for (const Change& stage : way_.stages) {
      if (!stage.kubelet_moves() || !stage.proxy_moves()) continue;
      const Pair between = Between(stage, Order::kProxyFirst);
      const SkewVerdict skew = IsAllowed(between.kubelet.version, between.proxy.version);
      if (skew.allowed) continue;
      Reason(absl::StrCat("In between, ", Named(between), " is not supported: ", skew.because,
                          ". Do both while the node is drained."),
             {});
    }
    const Pair& end = way_.whole.to;
    const SkewVerdict skew = IsAllowed(end.kubelet.version, end.proxy.version);
    if (!skew.allowed) Reason(absl::StrCat(Named(end), ": ", skew.because, "."), {});
    if (advice_.reasons.empty()) {
      Reason("Neither writes or needs anything new: the rules that both share stay the same.",
             CellsOn(Path::kUpgradeKubeletFirst, end));
    }
  }

  const Way way_;
  Advice advice_;
  std::vector<Order> orders_;
  std::vector<std::string> headlines_;
  // Facts and reasons that have been given.
  std::set<std::string> said_;
};

// As far in as the first line.
std::string Hanging(const std::string& first, const std::string& text) {
  return Wrapped(first, std::string(first.size(), ' '), text);
}

const char* VerdictOf(Advice::Kind kind) {
  // In the order of the enumeration.
  constexpr const char* kVerdicts[] = {"safe", "safeInOrder", "unsafe"};
  return kVerdicts[static_cast<size_t>(kind)];
}

}  // namespace

Advice Advise(const UpgradePlan& plan) { return Adviser(plan).Give(); }

std::string AdviceText(const Advice& advice) {
  std::string out = Hanging("", advice.answer);
  if (!advice.steps.empty()) {
    out += "\nSteps\n";
    int number = 0;
    for (const std::string& step : advice.steps) {
      ++number;
      const std::string mark = absl::StrCat(number < 10 ? "  " : " ", number, ". ");
      absl::StrAppend(&out, Hanging(mark, step));
    }
  }
  if (!advice.reasons.empty()) out += "\nWhy\n";
  for (const Advice::Reason& reason : advice.reasons) {
    absl::StrAppend(&out, Hanging("  - ", reason.text));
    for (const std::string& cell : reason.cells) absl::StrAppend(&out, "    see ", cell, "\n");
  }
  return out;
}

std::string AdviceJson(const Advice& advice) {
  nlohmann::ordered_json json;
  json["verdict"] = VerdictOf(advice.kind);
  json["answer"] = advice.answer;
  json["steps"] = advice.steps;
  json["reasons"] = nlohmann::ordered_json::array();
  for (const Advice::Reason& reason : advice.reasons) {
    json["reasons"].push_back({{"text", reason.text}, {"cells", reason.cells}});
  }
  // As in agent/report/report_json.cc.
  return json.dump(2, ' ', /*ensure_ascii=*/true,
                   nlohmann::ordered_json::error_handler_t::replace) +
         "\n";
}

}  // namespace kipt::skew
