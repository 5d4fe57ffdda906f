// SPDX-License-Identifier: Apache-2.0
//
// File: netlink/batch_errors.h
//
// What the kernel refused of a batch, and why, in words that name everything it is about.
#ifndef KIPT_NETLINK_BATCH_ERRORS_H_
#define KIPT_NETLINK_BATCH_ERRORS_H_

#include <string>

#include "absl/status/status.h"
#include "netlink/attributes.h"
#include "netlink/socket.h"
#include "netlink/transaction.h"

namespace kipt::netlink {

// "creating chain ip filter USER": what was being done.
std::string ActionText(const Operation& operation);

// `why` with what it was about: for what is refused before it is sent.
absl::Status RefuseOperation(const Operation& operation, const absl::Status& why);

// A refused rule. `message` is the one that `error` is for: the kernel points at the expression.
absl::Status ExplainRule(const AddRule& add, const BatchError& error, WireBytes message);

// The same for a message about a native table (NativeMessage::action), or with no `action` for the
// batch's own.
absl::Status ExplainNative(const std::string& action, const BatchError& error, WireBytes message);

}  // namespace kipt::netlink

#endif  // KIPT_NETLINK_BATCH_ERRORS_H_
