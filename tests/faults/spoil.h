// SPDX-License-Identifier: Apache-2.0
//
// What can be wrong with what the kernel sent.
#ifndef KIPT_TESTS_FAULTS_SPOIL_H_
#define KIPT_TESTS_FAULTS_SPOIL_H_

#include <linux/netlink.h>

#include <cstddef>

#include "tests/faults/control.h"

namespace kipt::testing {

// Whether a message of `size` bytes has attributes. Only then there is one to be spoilt.
bool HasAttributes(const nlmsghdr* message, size_t size);

// Spoils one message, of which `size` bytes are there. For a fault of Point::kAttribute it must
// have attributes.
void SpoilMessage(const FaultRow& row, nlmsghdr* message, size_t size);

// Part of an answer of many messages, and not its end. The kernel never loses such a one without
// saying ENOBUFS, and nothing else would tell.
bool IsPartOfADump(const nlmsghdr* message);

}  // namespace kipt::testing

#endif  // KIPT_TESTS_FAULTS_SPOIL_H_
