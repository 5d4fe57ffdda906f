// SPDX-License-Identifier: Apache-2.0
#include "agent/detect/rule_support.h"

#include "absl/strings/str_cat.h"

namespace kipt::agent {
namespace {

std::string WhatChanged(const RuleSupport& before, const RuleSupport& now) {
  if (!now.xt) return absl::StrCat("iptables can hold no rules here: ", now.reason);
  if (!before.xt) return "iptables can hold rules now";
  if (now.conn_labels) return "connection labels can be had now";
  return absl::StrCat("connection labels cannot be had here: ", now.conn_labels_reason);
}

}  // namespace

RuleSupport SupportSource::Now(absl::string_view iptables_mode, bool labels_desired) {
  const XtCompatReading xt = Read();
  XtCompatReading reading = xt;
  if (reading.compat == XtCompat::kAbsent && disproved_) reading.compat = XtCompat::kUnknown;
  if (reading.compat == XtCompat::kUnknown && refused_) {
    reading = {.compat = XtCompat::kAbsent,
               .reason = "the kernel refused a rule of iptables-nft for want of a match"};
  }
  RuleSupport now;
  if (iptables_mode != "legacy" && reading.compat == XtCompat::kAbsent) {
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

bool SupportSource::Look(absl::string_view iptables_mode, bool labels_desired) {
  looked_ = true;
  const RuleSupport before = std::exchange(known_, Now(iptables_mode, labels_desired));
  if (known_ == before) return false;
  news_ = WhatChanged(before, known_);
  return true;
}

bool SupportSource::LookOnce(absl::string_view iptables_mode, bool labels_desired) {
  if (looked_) return false;
  const std::string news = news_;
  const bool changed = Look(iptables_mode, labels_desired);
  news_ = news;
  return changed;
}

bool SupportSource::NoteRefusal(absl::string_view iptables_mode, bool labels_desired) {
  refused_ = true;
  return Look(iptables_mode, labels_desired);
}

bool SupportSource::NoteDisproof(absl::string_view iptables_mode, bool labels_desired) {
  disproved_ = true;
  return Look(iptables_mode, labels_desired);
}

bool SupportSource::NoteConnLabelRefusal(absl::string_view iptables_mode,
                                         absl::string_view refusal) {
  conn_label_refusal_ = {.at = {Read(), ReadConnLabel()}, .said = std::string(refusal)};
  return Look(iptables_mode, /*labels_desired=*/true);
}

}  // namespace kipt::agent
