// SPDX-License-Identifier: Apache-2.0
#include "tests/bench/kernel_floor.h"

#include <arpa/inet.h>
#include <linux/netfilter/nf_tables.h>
#include <linux/netfilter/nfnetlink.h>
#include <linux/netlink.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdint>
#include <string>
#include <utility>

#include "agent/policy/policy.h"
#include "netlink/backend.h"
#include "tests/support/observed.h"

namespace kipt::testing {
namespace {

using netlink::ChainId;
using netlink::Family;
using netlink::Table;

struct Message {
  nlmsghdr header;
  nfgenmsg general;
};

Message MakeMessage(uint16_t type, uint16_t resource) {
  Message message = {};
  message.header.nlmsg_len = sizeof(message);
  message.header.nlmsg_type = type;
  message.header.nlmsg_flags = NLM_F_REQUEST;
  message.general.version = NFNETLINK_V0;
  message.general.res_id = htons(resource);
  return message;
}

const ChainId kChain{Family::kIPv4, Table::kFilter, "FLOOR"};
const ChainId kRuleChain{Family::kIPv4, Table::kNat, "FLOOR"};

}  // namespace

KernelFloor::KernelFloor(int fd, std::unique_ptr<netlink::Backend> backend,
                         std::unique_ptr<netlink::Socket> socket)
    : fd_(fd), backend_(std::move(backend)), socket_(std::move(socket)) {}

KernelFloor::~KernelFloor() { close(fd_); }

absl::StatusOr<std::unique_ptr<KernelFloor>> KernelFloor::Create() {
  absl::StatusOr<std::unique_ptr<netlink::Backend>> backend = netlink::NewNftBackend();
  if (!backend.ok()) return backend.status();
  absl::StatusOr<std::unique_ptr<netlink::Socket>> socket = netlink::Socket::Open();
  if (!socket.ok()) return socket.status();
  const int fd = ::socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_NETFILTER);
  if (fd < 0) return absl::InternalError("no netlink socket");
  return std::unique_ptr<KernelFloor>(new KernelFloor(fd, *std::move(backend), *std::move(socket)));
}

absl::Status KernelFloor::AskGeneration() const {
  const Message question = MakeMessage((NFNL_SUBSYS_NFTABLES << 8) | NFT_MSG_GETGEN, 0);
  std::array<char, 256> answer;
  if (send(fd_, &question, sizeof(question), 0) == sizeof(question) &&
      recv(fd_, answer.data(), answer.size(), 0) > 0) {
    return absl::OkStatus();
  }
  return absl::InternalError("NFT_MSG_GETGEN is not answered");
}

absl::Status KernelFloor::Ask(const netlink::Requests& requests) {
  return socket_->Ask(requests, [](const netlink::Reply&) {});
}

absl::Status KernelFloor::AskForEverything() {
  if (questions_.empty()) {
    const std::vector<netlink::ChainQuery> queries = agent::ChainsToRead(agent::DesiredRuleset(
        ::kipt::testing::Wanting(agent::Mode::kLegacy, netlink::kFamilies, {})));
    const absl::StatusOr<netlink::Snapshot> now = backend_->Read(queries);
    if (!now.ok()) return now.status();
    for (const netlink::ChainQuery& query : queries) {
      questions_.push_back({.chain = query.chain,
                            .with_rules = query.with_rules && now->Find(query.chain) != nullptr});
    }
  }
  const auto add = [](netlink::Requests& requests, const ChainId& chain, uint16_t type,
                      uint16_t flags, uint16_t table, uint16_t name) {
    requests.Begin(netlink::NftMessageType(type), netlink::WireFamily(chain.family), flags,
                   {{table, netlink::TableName(chain.table)}, {name, chain.name}});
  };
  if (absl::Status status = AskGeneration(); !status.ok()) return status;
  netlink::Requests chains(socket_->ReserveSequences(static_cast<uint32_t>(questions_.size())));
  for (const netlink::ChainQuery& question : questions_) {
    add(chains, question.chain, NFT_MSG_GETCHAIN, 0, NFTA_CHAIN_TABLE, NFTA_CHAIN_NAME);
  }
  if (absl::Status status = Ask(chains); !status.ok()) return status;
  for (const netlink::ChainQuery& question : questions_) {
    if (!question.with_rules) continue;
    netlink::Requests rules(socket_->ReserveSequences(1));
    add(rules, question.chain, NFT_MSG_GETRULE, NLM_F_DUMP, NFTA_RULE_TABLE, NFTA_RULE_CHAIN);
    if (absl::Status status = Ask(rules); !status.ok()) return status;
  }
  return AskGeneration();
}

absl::Status KernelFloor::CommitNothing() const {
  const std::array<Message, 2> batch = {MakeMessage(NFNL_MSG_BATCH_BEGIN, NFNL_SUBSYS_NFTABLES),
                                        MakeMessage(NFNL_MSG_BATCH_END, NFNL_SUBSYS_NFTABLES)};
  std::array<char, 256> answer;
  if (send(fd_, batch.data(), sizeof(batch), 0) == sizeof(batch) &&
      recv(fd_, answer.data(), answer.size(), MSG_DONTWAIT) < 0 && errno == EAGAIN) {
    return absl::OkStatus();
  }
  return absl::InternalError("an empty batch is refused");
}

absl::Status KernelFloor::Prepare(std::vector<netlink::Operation> operations) {
  const absl::StatusOr<netlink::Snapshot> now = backend_->Read({});
  if (!now.ok()) return now.status();
  batch_.reset();
  transaction_ = {.generation = now->generation, .operations = std::move(operations)};
  absl::StatusOr<netlink::Batch> batch =
      netlink::Batch::Build(transaction_, socket_->ReserveSequences(0));
  if (!batch.ok()) return batch.status();
  socket_->ReserveSequences(batch->messages().count());
  batch_ = *std::move(batch);
  return absl::OkStatus();
}

absl::Status KernelFloor::PrepareChain() {
  const absl::StatusOr<netlink::Snapshot> now = backend_->Read({{{kChain, false}}});
  if (!now.ok()) return now.status();
  if (now->Find(kChain) != nullptr) return Prepare({netlink::DeleteChain{kChain}});
  return Prepare({netlink::CreateChain{kChain}});
}

absl::Status KernelFloor::PrepareRule() {
  const absl::StatusOr<netlink::Snapshot> now = backend_->Read({{{kRuleChain}}});
  if (!now.ok()) return now.status();
  std::vector<netlink::Operation> operations;
  if (const netlink::ObservedChain* chain = now->Find(kRuleChain); chain == nullptr) {
    operations.emplace_back(netlink::CreateChain{kRuleChain});
  } else {
    for (const netlink::ObservedRule& rule : chain->rules) {
      operations.emplace_back(
          netlink::DeleteRule{.chain = kRuleChain, .handle = rule.handle, .rule = *rule.rule()});
    }
  }
  if (!operations.empty()) {
    absl::Status status =
        backend_->Apply({.generation = now->generation, .operations = operations});
    if (!status.ok()) return status;
  }
  return Prepare({netlink::AddRule{.chain = kRuleChain, .rule = {.target = netlink::Return{}}}});
}

absl::Status KernelFloor::Commit() {
  const absl::StatusOr<std::vector<netlink::BatchError>> errors =
      socket_->SendBatch(batch_->messages());
  if (!errors.ok()) return errors.status();
  return batch_->Explain(*errors);
}

}  // namespace kipt::testing
