// SPDX-License-Identifier: Apache-2.0
//
// Damage to whole tables. What others have in them goes too; the ledger knows, and its owners put
// back what they need.
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "tests/skew/actors/third_parties.h"
#include "tests/soak/writer.h"
#include "tests/support/run_program.h"

namespace kipt::soak {
namespace {

using testing::IpFamily;

// What iptables-restore makes of a table that has no rules and no chains of anybody's.
std::string EmptyTable(const std::string& table) {
  std::string text = absl::StrCat("*", table, "\n");
  std::vector<const char*> chains;
  if (table != "filter") chains.push_back("PREROUTING");
  chains.insert(chains.end(), {"INPUT", "OUTPUT"});
  if (table != "nat") chains.push_back("FORWARD");
  if (table != "filter") chains.push_back("POSTROUTING");
  for (const char* chain : chains) absl::StrAppend(&text, ":", chain, " ACCEPT [0:0]\n");
  return text + "COMMIT\n";
}

// Without -w legacy iptables-restore does not wait.
bool LockIsTaken(const testing::ProgramResult& result) {
  if (result.exit_code != 4) return false;
  absl::SleepFor(absl::Milliseconds(5));
  return true;
}

class Wrecker : public Writer {
 public:
  std::string name() const override { return "wrecker"; }
  absl::Duration pause() const override { return absl::Seconds(4); }

  std::string Act(Node& node, Random& random) override {
    const Shared settings(node.settings_gate);
    if (node.settings.cleanup) return "";  // nobody would repair what is not cleanup mode's
    const Alone foreign(node.foreign_gate);
    const Announcement announcement(node.windows, kAllGuards);
    const IpFamily family = Draw(random, 2) == 0 ? IpFamily::kIpv4 : IpFamily::kIpv6;
    const TableId table = {family, kTables[Draw(random, 3)]};
    switch (Draw(random, 6)) {
      case 0:
        return Flush(node, table);
      case 1:
        return Replace(node, table);
      case 2:
        return node.nft() ? DeleteByNft(node, table) : Replace(node, table);
      case 3:
        return SaveAndRestore(node);
      case 4:
        return Reload(node, family);
      default:
        return Draw(random, 3) != 0 ? Reprovision(node, random) : Flush(node, table);
    }
  }

 private:
  static std::string Text(const TableId& table) {
    return absl::StrCat(NameOf(table.first), " ", table.second);
  }
  static void OthersComeBack(Node& node) {
    node.users_are_due = true;
    node.proxy_is_due = true;
  }

  static std::string Flush(Node& node, const TableId& table) {
    if (node.Of(table.first).Run({"-w", "-t", table.second, "-F"}).exit_code != 0) return "";
    node.ledger.ForgetRules(table);
    OthersComeBack(node);
    return "-F of " + Text(table);
  }

  static std::string Replace(Node& node, const TableId& table) {
    const testing::ProgramResult result = node.Of(table.first).Replace(EmptyTable(table.second));
    // Without a wait legacy iptables-restore gives up where the lock is taken.
    if (result.exit_code != 0) return "iptables-restore gave up: " + result.err;
    node.ledger.ForgetTable(table);
    OthersComeBack(node);
    return "iptables-restore of an empty " + Text(table);
  }

  static std::string DeleteByNft(Node& node, const TableId& table) {
    const char* family = table.first == IpFamily::kIpv4 ? "ip" : "ip6";
    if (testing::RunProgram({"nft", "delete", "table", family, table.second}).exit_code != 0) {
      return "";
    }
    node.ledger.ForgetTable(table);
    OthersComeBack(node);
    return "nft delete table " + Text(table);
  }

  static std::string SaveAndRestore(Node& node) {
    const skew::Act act = skew::SaveAndRestore(node.Choice());
    // Rules that the daemon or a user has put in meanwhile may be gone again.
    OthersComeBack(node);
    return "iptables-save | iptables-restore " + act.error;
  }

  // A firewall's: what stood stands again, a moment later.
  static std::string Reload(Node& node, IpFamily family) {
    const testing::Iptables iptables = node.Of(family);
    const testing::ProgramResult saved = iptables.Save();
    if (saved.exit_code != 0) return "";
    for (const char* what : {"-F", "-X"}) {
      for (const char* table : kTables) iptables.Run({"-w", "-t", table, what});
    }
    testing::ProgramResult restored;
    do {
      restored = iptables.Replace(saved.out);
    } while (LockIsTaken(restored));
    if (restored.exit_code != 0) {
      node.journal.Violate(node.name(), "harness", "iptables-restore: " + restored.err,
                           "what iptables-save wrote can be restored");
    }
    OthersComeBack(node);
    return absl::StrCat("a firewall's reload, ", NameOf(family));
  }

  // The node is set up anew, with another kube-proxy, or none.
  static std::string Reprovision(Node& node, Random& random) {
    for (const IpFamily family : testing::kBothFamilies) {
      for (const char* table : kTables) {
        testing::ProgramResult result;
        do {
          result = node.Of(family).Replace(EmptyTable(table));
        } while (LockIsTaken(result));
        node.ledger.ForgetTable({family, table});
      }
    }
    node.proxy = node.DrawProxy(random);
    OthersComeBack(node);
    return absl::StrCat("set up anew, kube-proxy ",
                        node.proxy ? absl::StrCat("1.", node.proxy->minor) : "none");
  }
};

}  // namespace

std::unique_ptr<Writer> NewWrecker() { return std::make_unique<Wrecker>(); }

}  // namespace kipt::soak
