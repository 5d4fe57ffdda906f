// SPDX-License-Identifier: Apache-2.0
#include "agent/detect/rule_support.h"

#include <array>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "agent/xtables/conn_label_names.h"

namespace kipt::agent {
namespace {

// The functions are what each module registers, so every build of it has them.
constexpr std::array<ModuleQuery, 4> kModules = {{
    {"nft_compat", "nft_match_select_ops"},
    {"xt_comment", "comment_mt"},
    {"xt_conntrack", "conntrack_mt_v3"},
    {"xt_mark", "mark_mt"},
}};
constexpr ModuleQuery kConnLabel = {"xt_connlabel", "connlabel_mt"};

XtCompatReading Judge(absl::string_view module, const ModuleEvidence& evidence,
                      bool loads_modules) {
  if (evidence.loaded.value_or(false)) {
    return {.compat = XtCompat::kPresent, .reason = absl::StrCat(module, " is loaded")};
  }
  if (evidence.built_in.value_or(false)) {
    return {.compat = XtCompat::kPresent, .reason = absl::StrCat(module, " is built in")};
  }
  if (!loads_modules) {
    if (!evidence.built_in) {
      return {.compat = XtCompat::kUnknown,
              .reason = absl::StrCat("whether ", module, " is built in cannot be read")};
    }
    return {.compat = XtCompat::kAbsent,
            .reason = absl::StrCat(module, " is not built in, and this kernel loads no modules")};
  }
  if (!evidence.on_disk) {
    return {.compat = XtCompat::kUnknown,
            .reason = absl::StrCat(module,
                                   " is not known to be loaded, and there is no modules.dep "
                                   "to say whether it can be")};
  }
  if (*evidence.on_disk) {
    return {.compat = XtCompat::kPresent, .reason = absl::StrCat(module, " is in ", evidence.list)};
  }
  if (!evidence.loaded || !evidence.built_in) {
    return {.compat = XtCompat::kUnknown,
            .reason = absl::StrCat(module, " is not in ", evidence.list, ", and whether it is ",
                                   evidence.loaded ? "built in" : "loaded", " cannot be read")};
  }
  return {.compat = XtCompat::kAbsent,
          .reason = absl::StrCat(module, " is not loaded and not in ", evidence.list)};
}

}  // namespace

XtCompatReading ReadXtCompat(KernelPaths paths, KernelSymbols symbols) {
  if (symbols == KernelSymbols::kSkip) paths.kallsyms.clear();
  const ModulesEvidence evidence = LookForModules(paths, kModules);
  XtCompatReading worst = {
      .compat = XtCompat::kPresent,
      .reason =
          "nft_compat, xt_comment, xt_conntrack and xt_mark are loaded, built in or loadable"};
  for (size_t i = 0; i < kModules.size(); ++i) {
    XtCompatReading reading =
        Judge(kModules[i].module, evidence.modules[i], evidence.loads_modules);
    if (reading.compat == XtCompat::kAbsent) return reading;
    // One that is missing decides; until it is found, the first that nobody knows.
    if (reading.compat == XtCompat::kUnknown && worst.compat == XtCompat::kPresent) {
      worst = std::move(reading);
    }
  }
  return worst;
}

XtCompatReading ReadConnLabelMatch(KernelPaths paths, const std::string& label_names_path,
                                   KernelSymbols symbols) {
  if (symbols == KernelSymbols::kSkip) paths.kallsyms.clear();
  const ModulesEvidence evidence = LookForModules(paths, {&kConnLabel, 1});
  XtCompatReading reading =
      Judge(kConnLabel.module, evidence.modules.front(), evidence.loads_modules);
  if (reading.compat == XtCompat::kAbsent) return reading;
  std::string problem = ConnLabelNamesProblem(label_names_path);
  if (problem.empty()) return reading;
  return {.compat = XtCompat::kAbsent, .reason = std::move(problem)};
}

RuleSupport SupportFor(netlink::BackendKind kind, const XtCompatReading& reading, HintPolicy hint) {
  const bool absent = kind == netlink::BackendKind::kNft && reading.compat == XtCompat::kAbsent;
  return {.xt = !absent, .reason = absent ? reading.reason : "", .hint = hint};
}

void AddConnLabelSupport(const XtCompatReading& reading, RuleSupport& support) {
  support.conn_labels = reading.compat != XtCompat::kAbsent;
  support.conn_labels_reason = support.conn_labels ? "" : reading.reason;
}

void SupportWatch::NoteConnLabelRefusal(absl::string_view refusal) {
  conn_label_refusal_ = {.at = {read_(), read_conn_label_()}, .said = std::string(refusal)};
}

bool SupportWatch::Look(netlink::BackendKind kind, HintPolicy hint, bool labels_wanted) {
  const XtCompatReading xt = read_();
  XtCompatReading reading = xt;
  if (reading.compat == XtCompat::kAbsent && disproved_) reading.compat = XtCompat::kUnknown;
  if (reading.compat == XtCompat::kUnknown && refused_) {
    reading = {.compat = XtCompat::kAbsent,
               .reason = "the kernel refused a rule of iptables-nft for want of a match"};
  }
  RuleSupport now = SupportFor(kind, reading, hint);
  now.refused = !now.xt && refused_;
  if (!labels_wanted) conn_label_refusal_.reset();
  if (labels_wanted && now.xt) {
    const XtCompatReading conn_label = read_conn_label_();
    // nft_compat may have been what was missing.
    if (conn_label_refusal_ && conn_label_refusal_->at != Readings{xt, conn_label}) {
      conn_label_refusal_.reset();
    }
    AddConnLabelSupport(conn_label, now);
    if (conn_label_refusal_) now = WithoutConnLabels(std::move(now), conn_label_refusal_->said);
  }
  const RuleSupport before = std::exchange(support_, std::move(now));
  return support_ != before;
}

}  // namespace kipt::agent
