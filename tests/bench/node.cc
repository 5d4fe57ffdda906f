// SPDX-License-Identifier: Apache-2.0
#include "tests/bench/node.h"

#include <linux/netfilter/nf_tables.h>
#include <linux/netlink.h>

#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "agent/policy/rule_forms.h"
#include "agent/xtables/iptables_legacy_backend.h"
#include "netlink/nft_requests.h"
#include "netlink/ruleset.h"
#include "tests/support/observed.h"
#include "tests/support/run_program.h"
#include "tests/support/service_rules.h"

namespace kipt::testing {
namespace {

constexpr char kProxyMark[] = "KUBE-PROXY-MARK";

// iptables-restore's lines that remove what `family` has of kubelet's.
std::string RemovalText(KubeletForm kubelet, IpFamily family) {
  struct Lines {
    std::string jumps;
    std::string chains;
  };
  std::map<std::string, Lines> tables;
  std::set<std::string> chains;
  for (const KubeletStep& step : KubeletSequence(kubelet, family)) {
    Lines& lines = tables[step.table];
    if (step.kind == KubeletStep::Kind::kEnsureChain) {
      lines.chains =
          absl::StrCat(":", step.chain, " - [0:0]\n", lines.chains, "-X ", step.chain, "\n");
      chains.insert(step.chain);
    } else if (!chains.contains(step.chain)) {
      absl::StrAppend(&lines.jumps, "-D ", step.chain);
      for (const std::string& word : step.rule) {
        absl::StrAppend(&lines.jumps, " ", netlink::QuoteForSave(word));
      }
      absl::StrAppend(&lines.jumps, "\n");
    }
  }
  std::string text;
  for (const auto& [table, lines] : tables) {
    absl::StrAppend(&text, "*", table, "\n", lines.jumps, lines.chains, "COMMIT\n");
  }
  return text;
}

}  // namespace

absl::Status LoadBenchServices(IptablesMode mode, int services) {
  return LoadServices(mode, services, kProxyMark);
}

absl::Status RemoveKubelets(IptablesMode mode, KubeletForm kubelet) {
  for (const IpFamily family : kBothFamilies) {
    const ProgramResult result = Iptables{family, "", mode}.Restore(RemovalText(kubelet, family));
    if (result.exit_code != 0) return absl::InternalError(result.err);
  }
  return absl::OkStatus();
}

absl::Status RunKubeletPrograms(IptablesMode mode, KubeletForm kubelet, bool makes) {
  for (const IpFamily family : kBothFamilies) {
    const KubeletRun run = RunKubelet({family, "", mode}, KubeletSequence(kubelet, family));
    if (!run.error.empty()) return absl::InternalError(run.error);
    if ((run.chains_created + run.rules_added > 0) != makes) {
      return absl::InternalError(absl::StrCat("kubelet made ", run.chains_created, " chains and ",
                                              run.rules_added, " rules of ", NameOf(family)));
    }
  }
  return absl::OkStatus();
}

Node::Node(IptablesMode mode, int services, Netns netns)
    : mode_(mode),
      services_(services),
      netns_(std::move(netns)),
      inside_(netns_),
      runner_(agent::NewCommandRunner()),
      desired_(Wanting(agent::Mode::kLegacy, netlink::kFamilies, {})) {}

absl::StatusOr<std::unique_ptr<Node>> Node::Create(IptablesMode mode, int services) {
  absl::StatusOr<Netns> netns = Netns::Create();
  if (!netns.ok()) return netns.status();
  std::unique_ptr<Node> node(new Node(mode, services, *std::move(netns)));
  absl::Status status = LoadBenchServices(mode, services);
  if (status.ok()) status = node->Open();
  if (status.ok()) status = node->PutInPlace();
  if (!status.ok()) return status;
  return node;
}

absl::Status Node::Open() {
  absl::StatusOr<std::unique_ptr<netlink::Backend>> backend =
      mode_ == IptablesMode::kNft ? netlink::NewNftBackend()
                                  : agent::NewIptablesLegacyBackend(runner_.get());
  if (!backend.ok()) return backend.status();
  backend_ = *std::move(backend);
  reconciler_.emplace(backend_.get(), agent::SteadyClock());
  if (mode_ == IptablesMode::kLegacy) return absl::OkStatus();
  absl::StatusOr<std::unique_ptr<netlink::Socket>> socket = netlink::Socket::Open();
  if (!socket.ok()) return socket.status();
  socket_ = *std::move(socket);
  absl::StatusOr<std::unique_ptr<ForeignWriter>> writer = ForeignWriter::Create();
  if (!writer.ok()) return writer.status();
  writer_ = *std::move(writer);
  return absl::OkStatus();
}

absl::Status Node::PutInPlace() { return reconciler_->Sync(desired_).FirstError(); }

absl::Status Node::Check() {
  const absl::StatusOr<agent::Plan> plan = reconciler_->Check(desired_);
  if (!plan.ok()) return plan.status();
  if (plan->diff.empty()) return absl::OkStatus();
  return absl::InternalError(absl::StrCat("not in place: ", plan->diff.changes.size(), " changes"));
}

absl::Status Node::Repair() {
  const agent::SyncReport report = reconciler_->Sync(desired_);
  if (absl::Status status = report.FirstError(); !status.ok()) return status;
  if (!report.applied.empty()) return absl::OkStatus();
  return absl::InternalError("there was nothing to repair");
}

absl::Status Node::DamagePostrouting() {
  const ProgramResult result =
      Iptables{.mode = mode_}.Run({"-w", "-t", "nat", "-F", "KUBE-POSTROUTING"});
  return result.exit_code == 0 ? absl::OkStatus() : absl::InternalError(result.err);
}

absl::Status Node::AskForEverything() {
  const std::vector<netlink::ChainQuery> queries =
      agent::ChainsToRead(agent::DesiredRuleset(desired_));
  const auto count = static_cast<uint32_t>(queries.size());
  std::set<std::pair<netlink::Family, netlink::Table>> followed;
  const auto ask = [&](uint16_t type, uint16_t flags, const netlink::ChainId& chain,
                       netlink::Requests::Texts names, netlink::Requests& requests) {
    requests.Begin(netlink::NftMessageType(type), netlink::WireFamily(chain.family), flags, names);
  };
  std::optional<netlink::ObservedNativeTable> native;
  absl::Status status = netlink::ReadGeneration(*socket_).status();
  status.Update(netlink::ReadNativeOnce(*socket_, agent::NativeMartians(), native));
  const uint32_t first = socket_->ReserveSequences(count);
  netlink::Requests chains(first);
  netlink::Requests tables(socket_->ReserveSequences(count));
  for (const auto& [chain, with_rules, follow] : queries) {
    const absl::string_view table = netlink::TableName(chain.table);
    ask(NFT_MSG_GETCHAIN, 0, chain, {{NFTA_CHAIN_TABLE, table}, {NFTA_CHAIN_NAME, chain.name}},
        chains);
    if (!follow || !followed.emplace(chain.family, chain.table).second) continue;
    ask(NFT_MSG_GETTABLE, 0, chain, {{NFTA_TABLE_NAME, table}}, tables);
  }
  std::set<netlink::ChainId> existing;
  status.Update(socket_->Ask(chains, [&](const netlink::Reply& reply) {
    if (reply.message != nullptr) existing.insert(queries[reply.sequence - first].chain);
  }));
  for (const netlink::ChainQuery& query : queries) {
    if (!query.with_rules || existing.erase(query.chain) == 0) continue;
    netlink::Requests rules(socket_->ReserveSequences(1));
    ask(NFT_MSG_GETRULE, NLM_F_DUMP, query.chain,
        {{NFTA_RULE_TABLE, netlink::TableName(query.chain.table)},
         {NFTA_RULE_CHAIN, query.chain.name}},
        rules);
    status.Update(socket_->Ask(rules, [](const netlink::Reply&) {}));
  }
  status.Update(socket_->Ask(tables, [](const netlink::Reply&) {}));
  status.Update(netlink::ReadGeneration(*socket_).status());
  return status;
}

}  // namespace kipt::testing
