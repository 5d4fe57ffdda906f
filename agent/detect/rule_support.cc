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

std::string WhatChanged(const RuleSupport& before, const RuleSupport& now) {
  if (!now.xt) return absl::StrCat("iptables can hold no rules here: ", now.reason);
  if (!before.xt) return "iptables can hold rules now";
  if (now.conn_labels) return "connection labels can be had now";
  return absl::StrCat("connection labels cannot be had here: ", now.conn_labels_reason);
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

RuleSupport SupportSource::Now(netlink::BackendKind kind, bool labels_desired) {
  const XtCompatReading xt = Read();
  XtCompatReading reading = xt;
  if (reading.compat == XtCompat::kAbsent && disproved_) reading.compat = XtCompat::kUnknown;
  if (reading.compat == XtCompat::kUnknown && refused_) {
    reading = {.compat = XtCompat::kAbsent,
               .reason = "the kernel refused a rule of iptables-nft for want of a match"};
  }
  RuleSupport now;
  if (kind == netlink::BackendKind::kNft && reading.compat == XtCompat::kAbsent) {
    now = {.xt = false, .reason = reading.reason, .refused = refused_};
  }
  if (!labels_desired) conn_label_refusal_.reset();
  if (!labels_desired || !now.xt) return now;
  const XtCompatReading conn_label = ReadConnLabel();
  // nft_compat may have been what was missing.
  if (conn_label_refusal_ && conn_label_refusal_->at != Readings{xt, conn_label}) {
    conn_label_refusal_.reset();
  }
  if (conn_label.compat == XtCompat::kAbsent) {
    now.conn_labels = false;
    now.conn_labels_reason = conn_label.reason;
  }
  return conn_label_refusal_ ? WithoutConnLabels(std::move(now), conn_label_refusal_->said) : now;
}

bool SupportSource::Look(netlink::BackendKind kind, bool labels_desired) {
  const RuleSupport before = known_;
  LookAnew();
  if (!LookOnce(kind, labels_desired)) return false;
  news_ = WhatChanged(before, known_);
  return true;
}

bool SupportSource::LookOnce(netlink::BackendKind kind, bool labels_desired) {
  if (std::exchange(looked_, true)) return false;
  const RuleSupport before = std::exchange(known_, Now(kind, labels_desired));
  return known_ != before;
}

bool SupportSource::NoteRefusal(netlink::BackendKind kind, bool labels_desired) {
  refused_ = true;
  return Look(kind, labels_desired);
}

bool SupportSource::NoteDisproof(netlink::BackendKind kind, bool labels_desired) {
  disproved_ = true;
  return Look(kind, labels_desired);
}

bool SupportSource::NoteConnLabelRefusal(netlink::BackendKind kind, absl::string_view refusal) {
  conn_label_refusal_ = {.at = {Read(), ReadConnLabel()}, .said = std::string(refusal)};
  return Look(kind, /*labels_desired=*/true);
}

}  // namespace kipt::agent
