// SPDX-License-Identifier: Apache-2.0
#include "agent/detect/iptables_mode.h"

#include <cstddef>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace kipt::agent {
namespace {

// Kinds of traces, strongest first.
struct Level {
  EvidenceSource source;
  const char* what;
  std::optional<bool> ModeTraces::*answer;
};
constexpr Level kLevels[] = {
    {EvidenceSource::kHint, "mangle KUBE-IPTABLES-HINT", &ModeTraces::hint},
    {EvidenceSource::kCanary, "mangle KUBE-KUBELET-CANARY", &ModeTraces::canary},
    {EvidenceSource::kRules, "rules or chains in mangle, nat or filter", &ModeTraces::rules},
};

std::string AnswerText(const ModeTraces& traces, std::optional<bool> answer) {
  if (answer == true) return "yes";
  if (answer == false) return traces.possible ? "no" : "no (the kernel cannot)";
  return traces.problem.empty() ? "not read" : absl::StrCat("not known: ", traces.problem);
}

IptablesMode Weigh(std::optional<bool> nft, std::optional<bool> legacy) {
  if (!nft || !legacy || (*nft && *legacy)) return IptablesMode::kUnknown;
  if (*nft) return IptablesMode::kNft;
  return *legacy ? IptablesMode::kLegacy : IptablesMode::kNone;
}

bool IsKnown(IptablesMode mode) {
  return mode == IptablesMode::kNft || mode == IptablesMode::kLegacy;
}

// What shows that kubelet, or this agent in its place, writes in the mode.
std::vector<std::string> KubeletTraces(const ModeTraces& traces) {
  std::vector<std::string> found;
  for (const Level& level : kLevels) {
    if (level.source == EvidenceSource::kRules) continue;
    if (traces.*level.answer == true) found.emplace_back(level.what);
  }
  if (found.empty() && !traces.kubelet_chain.empty()) found.push_back(traces.kubelet_chain);
  return found;
}

// One pass through the precedence.
class Decision {
 public:
  explicit Decision(const ModeQuestion& question) : question_(question) {
    result_.family = question.family;
    result_.mode = IptablesMode::kNone;
  }

  FamilyMode Make() {
    WeighFlag();
    WeighProgram();
    for (const Level& level : kLevels) WeighTraces(level);
    WeighKernel();
    if (blocked_ && result_.mode == IptablesMode::kUnknown) {
      FindProblem("nft", question_.nft);
      FindProblem("legacy", question_.legacy);
    }
    return std::move(result_);
  }

 private:
  void Add(EvidenceSource source, IptablesMode says, std::string text) {
    result_.evidence.push_back({source, says, std::move(text)});
  }
  void Find(std::string text) { result_.findings.push_back(std::move(text)); }
  void FindProblem(absl::string_view mode, const ModeTraces& traces) {
    if (traces.problem.empty()) return;
    Find(absl::StrCat(mode, " cannot be read: ", traces.problem));
  }
  void Contradict(std::string text) {
    Find(std::move(text));
    result_.contradiction = true;
  }

  // The first conclusive source decides.
  void Decide(IptablesMode mode) {
    if (decided_ || mode == IptablesMode::kNone) return;
    decided_ = true;
    result_.mode = mode;
  }

  void WeighFlag() {
    const IptablesMode says = question_.flag.value_or(IptablesMode::kNone);
    Add(EvidenceSource::kFlag, says,
        absl::StrCat("--iptables-mode=", question_.flag ? IptablesModeName(says) : "auto"));
    Decide(says);
  }

  // A program of unknown kind decides nothing; the hint does.
  void WeighProgram() {
    const IptablesMode says = question_.program.value_or(IptablesMode::kNone);
    Add(EvidenceSource::kProgram, says, question_.program_text);
    if (question_.program_unreadable && !decided_) {
      Find(absl::StrCat("the host's iptables program cannot be read: ", question_.program_text));
      return Decide(IptablesMode::kUnknown);
    }
    if (!IsKnown(says) || decided_) return;
    const bool nft = says == IptablesMode::kNft;
    const std::vector<std::string> others = KubeletTraces(nft ? question_.legacy : question_.nft);
    if (others.empty()) return Decide(says);
    Contradict(absl::StrCat(
        "the host's iptables program selects ", IptablesModeName(says), ", but ",
        absl::StrJoin(others, " and "), others.size() == 1 ? " exists" : " exist", " in ",
        nft ? "legacy" : "nft", ", where a kubelet with iptables programs of its own may write"));
    Decide(IptablesMode::kUnknown);
    marked_ = true;
  }

  void WeighTraces(const Level& level) {
    const std::optional<bool> nft = question_.nft.*level.answer;
    const std::optional<bool> legacy = question_.legacy.*level.answer;
    const IptablesMode says = Weigh(nft, legacy);
    const bool both = nft == true && legacy == true;
    Add(level.source, says,
        absl::StrCat(level.what, ": nft ", AnswerText(question_.nft, nft), ", legacy ",
                     AnswerText(question_.legacy, legacy)));
    if (level.source == EvidenceSource::kRules) {
      if (both && !decided_) {
        Find(
            "both nft and iptables-legacy hold rules, and no other source shows which one is in "
            "use");
      }
    } else if (!marked_) {
      Compare(level, says, both);
      marked_ = nft == true || legacy == true;
    } else if (nft == true && result_.mode == IptablesMode::kLegacy) {
      Contradict(
          absl::StrCat(level.what,
                       " exists in nft, and the hint in iptables-legacy; iptables-wrappers accepts "
                       "either, checks nft first, and so takes nft. Delete it in nft"));
    }
    if (decided_) return;
    blocked_ = says == IptablesMode::kUnknown && !both;
    Decide(says);
  }

  // The hint, or the canary if there is no hint, with itself and with the flag.
  void Compare(const Level& level, IptablesMode says, bool both) {
    if (both) {
      Contradict(absl::StrCat(level.what,
                              " exists in both nft and iptables-legacy; programs that check it "
                              "take nft. Remove it from the one that is not in use"));
    } else if (question_.flag && IsKnown(says) && says != result_.mode) {
      Contradict(absl::StrCat("--iptables-mode selects ", IptablesModeName(result_.mode), ", but ",
                              level.what, " exists in ", IptablesModeName(says),
                              ", which other programs follow"));
    }
  }

  void WeighKernel() {
    const bool nft = question_.nft.possible;
    const bool legacy = question_.legacy.possible;
    const auto can = [](bool possible) { return possible ? " possible" : " impossible"; };
    const IptablesMode only = nft == legacy ? IptablesMode::kNone
                              : nft         ? IptablesMode::kNft
                                            : IptablesMode::kLegacy;
    const bool neither = !nft && !legacy;
    Add(EvidenceSource::kKernel, neither ? IptablesMode::kUnknown : only,
        absl::StrCat("this kernel: nft", can(nft), ", legacy", can(legacy)));
    // What could not be read must be of the mode that is possible.
    if (decided_ && !blocked_) return;
    if (only != IptablesMode::kNone) result_.mode = only;
    if (neither && !decided_) {
      result_.mode = IptablesMode::kUnknown;
      Find("this kernel has neither nf_tables nor iptables-legacy");
    }
  }

  const ModeQuestion& question_;
  FamilyMode result_;
  bool decided_ = false;
  // Decided as unknown because something could not be read.
  bool blocked_ = false;
  // Hint and canary have been compared.
  bool marked_ = false;
};

}  // namespace

absl::string_view IptablesModeName(IptablesMode mode) {
  constexpr absl::string_view kNames[] = {"nft", "legacy", "none", "unknown"};
  return kNames[static_cast<size_t>(mode)];
}

absl::string_view EvidenceSourceName(EvidenceSource source) {
  constexpr absl::string_view kNames[] = {"flag", "program", "hint", "canary", "rules", "kernel"};
  return kNames[static_cast<size_t>(source)];
}

std::string WhyUnknown(const FamilyMode& mode) {
  const std::string findings = absl::StrJoin(mode.findings, "; ");
  // Who may not read may not write either, in no mode.
  const bool not_permitted = absl::StrContains(findings, "CAP_NET_ADMIN");
  return absl::StrCat(kIptablesModeUnknown, netlink::FamilyName(mode.family), ": ", findings,
                      not_permitted ? "; run this as root, or with that capability"
                                    : "; give --iptables-mode=nft or --iptables-mode=legacy; "
                                      "`kube-iptables-agent detect` shows the evidence");
}

FamilyMode DecideMode(const ModeQuestion& question) { return Decision(question).Make(); }

}  // namespace kipt::agent
