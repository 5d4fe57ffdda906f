// SPDX-License-Identifier: Apache-2.0
//
// One node, from its first packet to its end.
#ifndef KIPT_TESTS_SOAK_SOAK_H_
#define KIPT_TESTS_SOAK_SOAK_H_

#include <sys/types.h>

#include <set>
#include <string>
#include <vector>

#include "tests/soak/journal.h"
#include "tests/soak/node.h"
#include "tests/soak/summary.h"
#include "tests/support/netns.h"

namespace kipt::soak {

// Soaks one node for the length of the run. `namespaces` gets each network namespace that was made:
// afterwards no process may be in them. While they are held, the kernel gives their inode numbers
// to no namespace of another program.
NodeSummary SoakNode(testing::IptablesMode mode, const Options& options, Journal& journal,
                     std::vector<testing::Netns>& namespaces);
std::set<ino_t> InodesOf(const std::vector<testing::Netns>& namespaces);

// Shows processes that are in one of them, and children of this process.
void JudgeRemains(const std::set<ino_t>& namespaces, Journal& journal);

}  // namespace kipt::soak

#endif  // KIPT_TESTS_SOAK_SOAK_H_
