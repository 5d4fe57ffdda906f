// SPDX-License-Identifier: Apache-2.0
#include "agent/detect/rule_support.h"

namespace kipt::agent {

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
