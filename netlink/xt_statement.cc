// SPDX-License-Identifier: Apache-2.0
#include "netlink/xt_statement.h"

#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "netlink/xt_display.h"
#include "netlink/xt_info.h"

namespace kipt::netlink {

Statement ReadXt(std::optional<Family> family, const XtExpression& xt) {
  const auto is = [&](bool target, const XtName& known) {
    return xt.is_target == target && xt.name == known.name && xt.revision == known.revision;
  };
  std::optional<Statement> known;
  const auto take = [&](const auto& decoded) {
    if (decoded) known = *decoded;
  };
  if (is(false, kXtComment)) {
    // An empty comment is none in a Rule, so it must not become one.
    const auto text = DecodeXtComment(xt.info);
    if (text && !text->empty()) known = CommentStatement{.text = *text};
  } else if (is(false, kXtMark)) {
    take(DecodeXtMark(xt.info));
  } else if (is(false, {kXtConntrack.name, xt.revision})) {
    take(DecodeXtCtState(xt.revision, xt.info));
  } else if (is(false, kXtConnLabel)) {
    take(DecodeXtConnLabel(xt.info));
  } else if (is(true, kXtSetMark)) {
    take(DecodeXtSetMark(xt.info));
  } else if (family && is(true, kXtMasquerade)) {
    take(DecodeXtMasquerade(*family, xt.info));
  }
  if (known) return *std::move(known);
  std::string text;
  if (family) {
    text = (xt.is_target ? DisplayXtTarget(*family, xt.name, xt.revision, xt.info)
                         : DisplayXtMatch(*family, xt.name, xt.revision, xt.info))
               .value_or("");
  }
  const bool spelled = !text.empty();
  if (!spelled) {
    text = absl::StrCat(xt.is_target ? "-j " : "", "[xt ", xt.name, " rev ", xt.revision, "]");
  }
  const TargetEffect effect =
      xt.is_target ? EffectOfTarget(xt.name) : TargetEffect{.decides = false};
  return OtherExpression{
      .name = xt.name,
      // A comment that we cannot read still matches every packet.
      .condition = !xt.is_target && xt.name != kXtComment.name,
      .selects = !xt.is_target && Selects(xt.name, xt.info),
      .decides = effect.decides,
      .terminal = effect.terminal,
      .perhaps_terminal = effect.perhaps_terminal,
      .queues = xt.is_target && QueuesWithoutBypass(xt.name, xt.revision, xt.info),
      .is_target = xt.is_target,
      .text = std::move(text),
      .target = xt.is_target && spelled ? xt.name : "",
      .nfacct = !xt.is_target && spelled && xt.name == "nfacct",
      .set_directions =
          !xt.is_target && xt.name == "set" ? XtSetDirections(xt.revision, xt.info) : "",
      .marks = xt.is_target ? MarksOfXtTarget(xt.name, xt.revision, xt.info)
                            : MarksOfXtMatch(xt.name, xt.revision, xt.info)};
}

}  // namespace kipt::netlink
