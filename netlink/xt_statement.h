// SPDX-License-Identifier: Apache-2.0
//
// The meaning of an xtables match or target.
#ifndef KIPT_NETLINK_XT_STATEMENT_H_
#define KIPT_NETLINK_XT_STATEMENT_H_

#include <optional>

#include "netlink/expression.h"
#include "netlink/ruleset.h"
#include "netlink/statement.h"

namespace kipt::netlink {

// Without a family, without text.
Statement ReadXt(std::optional<Family> family, const XtExpression& xt);

}  // namespace kipt::netlink

#endif  // KIPT_NETLINK_XT_STATEMENT_H_
