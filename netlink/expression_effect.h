// SPDX-License-Identifier: Apache-2.0
//
// What expressions without a Statement of their own do to a packet, and to registers.
#ifndef KIPT_NETLINK_EXPRESSION_EFFECT_H_
#define KIPT_NETLINK_EXPRESSION_EFFECT_H_

#include <array>
#include <cstdint>

#include "absl/strings/string_view.h"
#include "netlink/expression.h"
#include "netlink/statement.h"

namespace kipt::netlink {

// Attributes with the numbers of the registers that an expression reads and writes; 0 for none.
struct RegisterUse {
  absl::string_view name;
  std::array<uint16_t, 4> reads = {};
  uint16_t writes = 0;
};
// Null for an expression that we do not know: it may use any register.
const RegisterUse* FindRegisterUse(absl::string_view name);

// `marks` does not have what the expression does with a mark in a register.
OtherExpression DescribeOther(const Expression& expression);

}  // namespace kipt::netlink

#endif  // KIPT_NETLINK_EXPRESSION_EFFECT_H_
