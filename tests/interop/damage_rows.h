// SPDX-License-Identifier: Apache-2.0
//
// What people and programs do to kubelet's rules, as a table.
#ifndef KIPT_TESTS_INTEROP_DAMAGE_ROWS_H_
#define KIPT_TESTS_INTEROP_DAMAGE_ROWS_H_

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "tests/support/kubelet_sequence.h"

namespace kipt::testing {

// Other programs' rules and chains, everywhere near ours, as iptables-restore reads them. All have
// "foreign" or "FOREIGN" in them.
extern const char kForeignRules[];

// The rules of each user chain and of each base chain that has any, in their order; by
// "table/chain". What iptables-save prints, without policies and without empty base chains, which
// come and go with nf_tables.
using Content = std::map<std::string, std::vector<std::string>>;

Content ContentOf(const Iptables& iptables);

// Takes away what a flush of `table`, with the deletion of its chains, takes of kForeignRules.
void LoseForeignChains(Content& content, const std::string& table);

// Must succeed.
using Strike = std::function<void(const Iptables&)>;
using Effect = std::function<void(Content&)>;

struct Damage {
  std::string name;
  Strike strike;
  // Each as the log has it after the family.
  std::vector<std::string> items;
  // What it does to others' rules, or adds to them, for good.
  Effect leaves = [](Content& /*content*/) {};
  // Follows "iptables-nft"; the kernel keeps 15 characters of a command.
  std::string program_suffix = {};
  // Several commands: the daemon sleeps meanwhile, for what it does between them is not the point.
  bool asleep = false;
};

// `iptables ARGUMENTS`.
Strike Runs(std::vector<std::string> arguments);

// All of them do the same in both families and both modes of iptables.
std::vector<Damage> EveryDamage();

// The same of the chains of ConnLabelMarking, in cleanup mode.
std::vector<Damage> EveryDamageToLabels();

}  // namespace kipt::testing

#endif  // KIPT_TESTS_INTEROP_DAMAGE_ROWS_H_
