// SPDX-License-Identifier: Apache-2.0
#include "tests/bench/verdicts.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace kipt::testing {
namespace {

using Row = FiguresView::Row;

constexpr int kMany = 10000;

class Judge {
 public:
  explicit Judge(const FiguresView& figures) : figures_(figures) {}

  std::vector<Verdict> All() && {
    const Row cold = {"cold", "agent"};
    Everywhere("nft", "warm check against kubelet's warm sequence", kKubeletWarm,
               {"check", "agent"}, 100);
    Everywhere("nft", "the same, each right after another process's commit", kKubeletAfterCommit,
               {"check after a commit", "agent"}, 100);
    Everywhere("nft", "question whether anything changed, against the same sequence", kKubeletWarm,
               {"unchanged", "agent"}, 10000);
    Growth();
    At("nft", 0, "cold sync against kubelet's cold sequence", kKubeletCold, cold, 50);
    At("nft", kMany, "cold sync against kubelet's cold sequence", kKubeletCold, cold, 4);
    OneCommit();
    Everywhere("nft", "whole program `sync`, warm, against kubelet's warm sequence", kKubeletWarm,
               {"warm", "agent program"}, 5);
    Everywhere("legacy", "cold sync against kubelet's cold sequence", kKubeletCold, cold, 8);
    Everywhere("legacy", "warm check against kubelet's warm sequence", kKubeletWarm,
               {"check", "agent"}, 4);
    Taken("incidents");
    Taken("storms");
    return std::move(verdicts_);
  }

 private:
  void AtLeast(std::string what, double target, std::optional<double> ratio, std::string where) {
    verdicts_.push_back({.what = std::move(what),
                         .target = absl::StrCat("≥ ", RatioText(target)),
                         .measured = ratio ? absl::StrCat(RatioText(ratio), where) : "not measured",
                         .met = ratio ? std::optional(*ratio >= target) : std::nullopt});
  }

  void At(const std::string& mode, int services, const std::string& what, const Row& more,
          const Row& less, double target) {
    AtLeast(absl::StrCat(mode, ": ", what, ", ", NumberText(services), " services"), target,
            figures_.Ratio(mode, services, more, less), "");
  }

  // The worst of all numbers of services.
  void Everywhere(const std::string& mode, const std::string& what, const Row& more,
                  const Row& less, double target) {
    std::optional<double> worst;
    double best = 0;
    int where = 0;
    for (const int services : figures_.Services(mode)) {
      const std::optional<double> ratio = figures_.Ratio(mode, services, more, less);
      if (!ratio) continue;
      if (!worst || *ratio < *worst) {
        worst = ratio;
        where = services;
      }
      best = std::max(best, *ratio);
    }
    AtLeast(absl::StrCat(mode, ": ", what), target, worst,
            absl::StrCat(" (at ", NumberText(where), " services; at best ", RatioText(best), ")"));
  }

  void Growth() {
    Verdict verdict{.what = absl::StrCat("nft: growth of the check from 0 to ", NumberText(kMany),
                                         " services, by minima"),
                    .target = "≤ 1.20×",
                    .measured = "not measured",
                    .met = std::nullopt};
    const Row check = {"check", "agent"};
    const std::optional<double> none = figures_.Time("nft", 0, check, "wall", "min");
    const std::optional<double> many = figures_.Time("nft", kMany, check, "wall", "min");
    if (none && many) {
      verdict.measured = absl::StrCat(RatioText(*many / *none), " (", TimeText(*none), " to ",
                                      TimeText(*many), ")");
      verdict.met = *many / *none <= 1.2;
    }
    verdicts_.push_back(std::move(verdict));
  }

  void OneCommit() {
    std::optional<double> most;
    for (const int services : figures_.Services("nft")) {
      const nlohmann::json* cell = figures_.Cell("nft", services, {"cold", "agent"});
      if (cell == nullptr || (*cell)["commits"].is_null()) continue;
      most = std::max(most.value_or(0), (*cell)["commits"].get<double>());
    }
    verdicts_.push_back({.what = "nft: generations of a cold sync",
                         .target = "1",
                         .measured = most ? NumberText(*most) : "not measured",
                         .met = most ? std::optional(*most == 1) : std::nullopt});
  }

  // What another command has judged already.
  void Taken(const std::string& part) {
    const nlohmann::json& measured = figures_.Part(part);
    if (measured.is_null()) {
      verdicts_.push_back({.what = absl::StrCat("`tests/bench/run ", part, "`"),
                           .target = "",
                           .measured = "not measured",
                           .met = std::nullopt});
      return;
    }
    for (const nlohmann::json& run : measured) {
      for (const nlohmann::json& target : run["targets"]) {
        const std::string unit = target["unit"].get<std::string>();
        const auto text = [&](double number) { return absl::StrFormat("%.4g %s", number, unit); };
        verdicts_.push_back({.what = absl::StrCat("daemon: ", target["what"].get<std::string>()),
                             .target = absl::StrCat("≤ ", text(target["target"].get<double>())),
                             .measured = text(target["figure"].get<double>()),
                             .met = target["met"].get<bool>()});
      }
    }
  }

  const FiguresView& figures_;
  std::vector<Verdict> verdicts_;
};

}  // namespace

std::vector<Verdict> Verdicts(const FiguresView& figures) { return Judge(figures).All(); }

}  // namespace kipt::testing
