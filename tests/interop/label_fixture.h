// SPDX-License-Identifier: Apache-2.0
//
// A node whose kubelet's chains act on labels of connections (ConnLabelMarking), or on marks, and a
// component that asks them to.
#ifndef KIPT_TESTS_INTEROP_LABEL_FIXTURE_H_
#define KIPT_TESTS_INTEROP_LABEL_FIXTURE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "tests/interop/daemon_fixture.h"

namespace kipt::testing {

// What a component asks for in these tests, by the port that it is about.
inline constexpr uint16_t kMasqueradedPort = 7001;
inline constexpr uint16_t kDroppedPort = 7002;
inline constexpr uint16_t kPlainPort = 7003;

// What has not come so long after the last that came was dropped; what is not takes milliseconds.
inline constexpr absl::Duration kDroppedByThen = absl::Milliseconds(400);

struct Gates {
  bool cleanup = false;
  bool labels = false;

  std::string Text() const;  // "IPTablesOwnershipCleanup=false,ConnLabelMarking=true"
  std::string Yaml() const;  // "{IPTablesOwnershipCleanup: false, ConnLabelMarking: true}"
};

class LabelTest : public DaemonTest, public ::testing::WithParamInterface<IptablesMode> {
 protected:
  static void SyncWith(Gates gates);

  // Input of iptables-restore --noflush, which must be taken, in both families.
  static void Load(const std::string& text);
  // One command, which must succeed, in both families.
  static void Change(const std::vector<std::string>& arguments);

  // A chain COMPONENT for new connections, those of the node too, that jumps to `masquerade` for
  // one port and to `drop` for the other.
  static std::string Component(absl::string_view masquerade, absl::string_view drop);

  // Packets of all rules of `table` whose text contains each of `parts`, in both families.
  static uint64_t Packets(const std::string& table, const std::vector<std::string>& parts);
};

}  // namespace kipt::testing

#endif  // KIPT_TESTS_INTEROP_LABEL_FIXTURE_H_
