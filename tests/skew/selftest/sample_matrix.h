// SPDX-License-Identifier: Apache-2.0
//
// Reports that nobody measured, for tests of how reports are written.
#ifndef KIPT_TESTS_SKEW_SELFTEST_SAMPLE_MATRIX_H_
#define KIPT_TESTS_SKEW_SELFTEST_SAMPLE_MATRIX_H_

#include <string>

#include "tests/skew/report/matrix_report.h"

namespace kipt::skew {

// A check of "lb-refused/tcp/ipv4" that is sound: a DROP rule counted the packet.
Check SampleCheck();
// The same, as it is where nobody drops: known, or not (`because` empty).
Check SampleLeak(const std::string& because);
StreamCheck SampleStream(uint64_t bad, uint64_t allowed);
// One step of each kind; `id` is as of boot/kubelet-1.24/proxy-1.27/nft/agent, and says the rest.
CellReport SampleCell(const std::string& id, Verdict verdict);
// Every field of it set, to something of its own.
CellReport CellWithEveryField();

}  // namespace kipt::skew

#endif  // KIPT_TESTS_SKEW_SELFTEST_SAMPLE_MATRIX_H_
