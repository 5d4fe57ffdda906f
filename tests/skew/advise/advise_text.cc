// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <nlohmann/json.hpp>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "featuregates/go_text.h"
#include "tests/skew/advise/advise.h"
#include "tests/skew/report/wrapped.h"

namespace kipt::skew {
namespace {

// As far in as the first line. A live node's rules and files have names of any bytes.
std::string Hanging(const std::string& first, const std::string& text) {
  return Wrapped(first, std::string(first.size(), ' '), featuregates::Printable(text));
}

// Names keep their case: "nat/KUBE-MARK-DROP", "route_localnet", "kubelet".
std::string Sentence(std::string text) {
  const absl::string_view first = absl::string_view(text).substr(0, text.find(' '));
  const bool is_word = std::all_of(first.begin(), first.end(), absl::ascii_islower);
  if (is_word && !first.empty() && first != "kubelet")
    text[0] = static_cast<char>(text[0] - 'a' + 'A');
  return text;
}

std::string LiveText(const LiveNode& live) {
  std::string out = "\nOn this node\n";
  absl::StrAppend(&out,
                  Hanging("  - ", absl::StrCat("kube-proxy: ",
                                               live.proxy_generation.value_or(
                                                   "none, or its rules do not show the version"),
                                               ".")));
  for (const LiveNode::Fact& fact : live.facts) {
    absl::StrAppend(&out, Hanging(fact.blocking ? "  ! " : "  - ",
                                  absl::StrCat(Sentence(fact.what), ". ", fact.means)));
  }
  if (live.facts.empty()) out += "  - Nothing that matters to this upgrade.\n";
  return out;
}

const char* VerdictOf(Advice::Kind kind) {
  switch (kind) {
    case Advice::Kind::kSafe:
      return "safe";
    case Advice::Kind::kSafeInOrder:
      return "safeInOrder";
    case Advice::Kind::kUnsafe:
      return "unsafe";
  }
  return "";
}

}  // namespace

std::string AdviceText(const Advice& advice, const std::optional<LiveNode>& live) {
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
  if (live.has_value()) out += LiveText(*live);
  if (!advice.reasons.empty()) out += "\nWhy\n";
  for (const Advice::Reason& reason : advice.reasons) {
    absl::StrAppend(&out, Hanging("  - ", reason.text));
    for (const std::string& cell : reason.cells) absl::StrAppend(&out, "    see ", cell, "\n");
  }
  return out;
}

std::string AdviceJson(const Advice& advice, const std::optional<LiveNode>& live) {
  nlohmann::ordered_json json;
  json["verdict"] = VerdictOf(advice.kind);
  json["answer"] = advice.answer;
  json["steps"] = advice.steps;
  json["reasons"] = nlohmann::ordered_json::array();
  for (const Advice::Reason& reason : advice.reasons) {
    json["reasons"].push_back({{"text", reason.text}, {"cells", reason.cells}});
  }
  if (live.has_value()) {
    nlohmann::ordered_json& node = json["node"];
    node["kubeProxy"] = nullptr;
    if (live->proxy_generation.has_value()) node["kubeProxy"] = *live->proxy_generation;
    node["facts"] = nlohmann::ordered_json::array();
    for (const LiveNode::Fact& fact : live->facts) {
      node["facts"].push_back(
          {{"what", fact.what}, {"means", fact.means}, {"blocking", fact.blocking}});
    }
  }
  // As in agent/report/report_json.cc.
  return json.dump(2, ' ', /*ensure_ascii=*/true,
                   nlohmann::ordered_json::error_handler_t::replace) +
         "\n";
}

}  // namespace kipt::skew
