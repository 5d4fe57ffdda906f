// SPDX-License-Identifier: Apache-2.0
//
// Writers with chains and rules of their own, each of which is in the ledger.
#include <algorithm>
#include <deque>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "netlink/ruleset.h"
#include "netlink/transaction.h"
#include "tests/soak/writer.h"
#include "tests/support/foreign_writer.h"

namespace kipt::soak {
namespace {

using testing::IpFamily;
using Lines = std::vector<std::string>;

const char* kHostPortChain = "CNI-HOSTPORT-DNAT";
const char* kHostPortJump = "-A PREROUTING -m addrtype --dst-type LOCAL -j CNI-HOSTPORT-DNAT";

// Restores `lines` behind what stands; an own chain that is declared must be new. Empty: done.
std::string Put(Node& node, const TableId& table, const std::string& writer, const Lines& lines) {
  std::string text = absl::StrCat("*", table.second, "\n");
  for (const std::string& line : lines) {
    absl::StrAppend(&text, line, line.front() == ':' ? " [0:0]\n" : "\n");
  }
  const testing::ProgramResult result = node.Of(table.first).Restore(text + "COMMIT\n");
  if (result.exit_code != 0) return absl::StrCat("exit code ", result.exit_code, ": ", result.err);
  node.ledger.Add(table, writer, lines);
  return "";
}

class PortMapper : public Writer {
 public:
  std::string name() const override { return "port mapper"; }
  absl::Duration pause() const override { return absl::Seconds(1); }

  std::string Act(Node& node, Random& random) override {
    const Shared foreign(node.foreign_gate);
    const IpFamily family = Draw(random, 2) == 0 ? IpFamily::kIpv4 : IpFamily::kIpv6;
    switch (Draw(random, 3)) {
      case 0:
        return AddMapping(node, {family, "nat"});
      case 1:
        return RemoveMapping(node, {family, "nat"});
      default:
        return AddForward(node, {family, "filter"});
    }
  }

 private:
  static std::string Dnat(IpFamily family) {
    return family == IpFamily::kIpv4 ? "10.180.0.1:80" : "[fd00:180::1]:80";
  }
  static Lines MappingOf(IpFamily family, int number) {
    const std::string chain = absl::StrCat("CNI-DN-", number);
    const int port = 20000 + number % 9000;
    return {absl::StrCat(":", chain, " -"),
            absl::StrCat("-A ", kHostPortChain, " -p tcp -m comment --comment soak_cni_", number,
                         " -m multiport --dports ", port, " -j ", chain),
            absl::StrCat("-A ", chain, " -p tcp -m tcp --dport ", port,
                         " -j DNAT --to-destination ", Dnat(family))};
  }

  std::string AddMapping(Node& node, const TableId& table) {
    Lines lines;
    const std::string declaration = absl::StrCat(":", kHostPortChain, " -");
    if (!node.ledger.Has(table, name(), declaration)) lines.push_back(declaration);
    if (!node.ledger.Has(table, name(), kHostPortJump)) lines.emplace_back(kHostPortJump);
    const int number = ++number_;
    for (std::string& line : MappingOf(table.first, number)) lines.push_back(std::move(line));
    // Chains first.
    std::stable_partition(lines.begin(), lines.end(),
                          [](const std::string& line) { return line.front() == ':'; });
    const std::string error = Put(node, table, name(), lines);
    if (error.empty()) mappings_.emplace_back(table, number);
    return absl::StrCat("maps port ", number, " of ", NameOf(table.first), " ", error);
  }

  std::string RemoveMapping(Node& node, const TableId& /*table*/) {
    if (mappings_.empty()) return "";
    const auto [table, number] = mappings_.front();
    mappings_.pop_front();
    const Lines lines = MappingOf(table.first, number);
    if (!node.ledger.Has(table, name(), lines.front())) return "";
    std::string text = "*nat\n";
    // Of a flushed table only the chain is left.
    for (size_t i = lines.size() - 1; i >= 1; --i) {
      if (!node.ledger.Has(table, name(), lines[i])) continue;
      absl::StrAppend(&text, "-D", lines[i].substr(2), "\n");
    }
    absl::StrAppend(&text, "-X CNI-DN-", number, "\nCOMMIT\n");
    const testing::ProgramResult result = node.Of(table.first).Restore(text);
    if (result.exit_code == 4) {  // the lock
      mappings_.emplace_front(table, number);
      return "";
    }
    if (result.exit_code != 0) {
      node.journal.Violate(node.name(), "foreign",
                           absl::StrCat("mapping ", number, " of ", NameOf(table.first),
                                        " cannot be removed: ", result.err),
                           "it stands as it was made");
    }
    node.ledger.Remove(table, name(), lines);
    return absl::StrCat("unmaps port ", number, " of ", NameOf(table.first));
  }

  // Rules of an administrator's in a chain of everybody's.
  std::string AddForward(Node& node, const TableId& table) {
    const int number = ++number_;
    const std::string source = table.first == IpFamily::kIpv4
                                   ? absl::StrCat("10.201.", number % 250, ".0/24")
                                   : absl::StrCat("fd00:201:", number % 9999, "::/48");
    const Lines lines = {absl::StrCat("-A FORWARD -s ", source,
                                      " -m comment --comment soak_forward_", number, " -j ACCEPT")};
    return absl::StrCat("allows ", source, " ", Put(node, table, name(), lines));
  }

  int number_ = 0;
  std::deque<std::pair<TableId, int>> mappings_;
};

class Storm : public Writer {
 public:
  std::string name() const override { return "storm"; }
  absl::Duration pause() const override { return absl::Seconds(5); }

  std::string Act(Node& node, Random& random) override {
    const Shared foreign(node.foreign_gate);
    if (writer_ == nullptr && node.nft()) {
      auto writer = testing::ForeignWriter::Create();
      if (!writer.ok()) return "";
      writer_ = *std::move(writer);
    }
    const TableId table = {IpFamily::kIpv4, "filter"};
    if (node.ledger.Has(table, name(), ":SOAK-STORM -")) return TakeAway(node, table);
    if (node.nft() && Draw(random, 2) == 0) return SmallCommits(200 + Draw(random, 800));
    return node.nft() ? CommitRules(node, table, 500 + Draw(random, 4500))
                      : RestoreRules(node, table, 100 + Draw(random, 900));
  }

 private:
  static netlink::Rule RuleOf(int number) {
    netlink::Rule rule;
    rule.target = netlink::Return{};
    netlink::PrefixMatch source{.prefix = {.length = 32}};
    source.prefix.address = {10, 202, static_cast<uint8_t>(number >> 8),
                             static_cast<uint8_t>(number)};
    rule.source = source;
    return rule;
  }
  static Lines LinesOf(int count) {
    Lines lines = {":SOAK-STORM -"};
    for (int i = 0; i < count; ++i) {
      lines.push_back(
          absl::StrCat("-A SOAK-STORM -s 10.202.", i >> 8, ".", i & 255, "/32 -j RETURN"));
    }
    return lines;
  }

  std::string SmallCommits(int count) {
    CommitOften(*writer_, count);
    return absl::StrCat(count, " small transactions");
  }

  std::string CommitRules(Node& node, const TableId& table, int count) {
    const netlink::ChainId chain{netlink::Family::kIPv4, netlink::Table::kFilter, "SOAK-STORM"};
    std::vector<netlink::Operation> operations = {netlink::CreateChain{chain}};
    for (int i = 0; i < count; ++i) {
      operations.emplace_back(netlink::AddRule{.chain = chain, .rule = RuleOf(i)});
    }
    const auto took = writer_->Commit(std::move(operations));
    if (!took.ok()) return std::string(took.status().message());
    node.ledger.Add(table, name(), LinesOf(count));
    return absl::StrCat(count, " rules in one transaction");
  }

  std::string RestoreRules(Node& node, const TableId& table, int count) {
    return absl::StrCat(count, " rules in one restore ", Put(node, table, name(), LinesOf(count)));
  }

  std::string TakeAway(Node& node, const TableId& table) {
    const testing::Iptables iptables = node.Of(IpFamily::kIpv4);
    if (iptables.Run({"-w", "-F", "SOAK-STORM"}).exit_code != 0 ||
        iptables.Run({"-w", "-X", "SOAK-STORM"}).exit_code != 0) {
      node.journal.Violate(node.name(), "foreign", "SOAK-STORM cannot be emptied and deleted",
                           "it stands as it was made");
    }
    const auto of_writers = node.ledger.Of(table);
    const auto mine = of_writers.find(name());
    if (mine != of_writers.end()) node.ledger.Remove(table, name(), mine->second);
    return "takes its rules away";
  }

  std::unique_ptr<testing::ForeignWriter> writer_;
};

}  // namespace

void CommitOften(testing::ForeignWriter& writer, int count) {
  // An even number that has succeeded: afterwards all is as before.
  for (int done = 0; done < count || done % 2 != 0;) done += writer.CommitChain().ok() ? 1 : 0;
}

std::unique_ptr<Writer> NewPortMapper() { return std::make_unique<PortMapper>(); }
std::unique_ptr<Writer> NewStorm() { return std::make_unique<Storm>(); }

}  // namespace kipt::soak
