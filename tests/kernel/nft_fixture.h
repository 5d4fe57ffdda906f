// SPDX-License-Identifier: Apache-2.0
//
// The nft backend in a network namespace of its own, with the programs that share nf_tables.
#ifndef KIPT_TESTS_KERNEL_NFT_FIXTURE_H_
#define KIPT_TESTS_KERNEL_NFT_FIXTURE_H_

// What most tests here use.
#include <algorithm>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"
#include "netlink/backend.h"
#include "tests/support/matchers.h"
#include "tests/support/netns_fixture.h"
#include "tests/support/run_program.h"
#include "tests/support/status_matchers.h"
#include "tests/support/temporary_tree.h"

namespace kipt::testing {

// Through a shell, which understands the quotes that iptables-save prints.
ProgramResult Shell(const std::string& command);

// "iptables-nft" or "ip6tables-nft".
std::string Iptables(netlink::Family family);

// What iptables-nft-save prints, without the lines that carry the time. A table that it calls
// incompatible fails the test.
std::string Save(netlink::Family family);

// The "-A CHAIN ..." lines of a save, without those words.
std::vector<std::string> SavedLines(netlink::Family family, const std::string& chain);

// "[packets:bytes] -A CHAIN ..." lines by chain, in their order, by table.
using SavedTables = std::map<std::string, std::map<std::string, std::vector<std::string>>>;
// Of what iptables-save -c prints, or of the part of a survey's text after "# FAMILY". `policies`:
// with the policy of each chain as its first line.
SavedTables TablesOf(const std::string& text, absl::string_view family = "", bool policies = false);

// Input of iptables-restore -c --noflush: testdata/rulesets/README.md.
std::string ThirdPartyRules(netlink::Family family);

// Every form of rule that there is, in filter TEST and nat TESTNAT.
std::vector<std::pair<netlink::ChainId, netlink::Rule>> AllRules(netlink::Family family);

class NftBackendTest : public NetnsTest {
 protected:
  void SetUp() override;

  netlink::Snapshot Read(const std::vector<netlink::ChainId>& chains);

  // Based on the current ruleset.
  absl::Status Apply(std::vector<netlink::Operation> operations);

  static netlink::AddRule Append(const netlink::ChainId& chain, const netlink::Rule& rule);

  // Makes the chains of AllRules, and ELSE, and fills them.
  static std::vector<netlink::Operation> AllOperations(netlink::Family family);

  std::unique_ptr<netlink::Backend> backend_;
};

}  // namespace kipt::testing

#endif  // KIPT_TESTS_KERNEL_NFT_FIXTURE_H_
