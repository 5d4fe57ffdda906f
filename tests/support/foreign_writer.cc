// SPDX-License-Identifier: Apache-2.0
#include "tests/support/foreign_writer.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "netlink/backend.h"
#include "netlink/batch.h"
#include "tests/support/run_program.h"

namespace kipt::testing {
namespace {

using namespace ::kipt::netlink;  // NOLINT(google-build-using-namespace): the model's vocabulary

constexpr char kStormChain[] = "STORM";
constexpr int kAttempts = 100;

netlink::Rule StormRule(int number) {
  netlink::Rule rule;
  rule.target = netlink::Return{};
  netlink::PrefixMatch source{.prefix = {.length = 32}};
  source.prefix.address = {10, static_cast<uint8_t>(number >> 16),
                           static_cast<uint8_t>(number >> 8), static_cast<uint8_t>(number)};
  rule.source = source;
  return rule;
}

}  // namespace

ForeignWriter::ForeignWriter(std::unique_ptr<netlink::Backend> backend,
                             std::unique_ptr<netlink::Socket> socket)
    : backend_(std::move(backend)), socket_(std::move(socket)) {}

absl::StatusOr<std::unique_ptr<ForeignWriter>> ForeignWriter::Create() {
  absl::StatusOr<std::unique_ptr<netlink::Backend>> backend = netlink::NewNftBackend();
  if (!backend.ok()) return backend.status();
  absl::StatusOr<std::unique_ptr<netlink::Socket>> socket = netlink::Socket::Open();
  if (!socket.ok()) return socket.status();
  return std::unique_ptr<ForeignWriter>(new ForeignWriter(*std::move(backend), *std::move(socket)));
}

absl::StatusOr<absl::Duration> ForeignWriter::Commit(std::vector<netlink::Operation> operations) {
  netlink::Transaction transaction{.operations = std::move(operations)};
  absl::Status status;
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    const absl::StatusOr<netlink::Snapshot> now = backend_->Read({});
    if (!now.ok()) return now.status();
    transaction.generation = now->generation;
    const absl::StatusOr<netlink::Batch> batch =
        netlink::Batch::Build(transaction, socket_->ReserveSequences(0));
    if (!batch.ok()) return batch.status();
    socket_->ReserveSequences(batch->messages().count());
    const absl::Time start = absl::Now();
    const absl::StatusOr<std::vector<netlink::BatchError>> errors =
        socket_->SendBatch(batch->messages());
    const absl::Duration took = absl::Now() - start;
    if (!errors.ok()) return errors.status();
    status = batch->Explain(*errors);
    if (status.ok()) return took;
    if (!absl::IsAborted(status)) return status;
  }
  return status;
}

absl::StatusOr<absl::Duration> ForeignWriter::CommitRules(int count) {
  const ChainId chain{Family::kIPv4, Table::kFilter, kStormChain};
  std::vector<netlink::Operation> operations = {netlink::CreateChain{chain}};
  operations.reserve(static_cast<size_t>(count) + 1);
  for (int i = 0; i < count; ++i) {
    operations.emplace_back(netlink::AddRule{.chain = chain, .rule = StormRule(i)});
  }
  return Commit(std::move(operations));
}

absl::Status ForeignWriter::RemoveRules() {
  const ProgramResult result = RunProgram({"iptables-nft", "-F", kStormChain});
  if (result.exit_code == 0) return absl::OkStatus();
  return absl::InternalError(absl::StrCat("iptables-nft -F: ", result.err));
}

absl::StatusOr<absl::Duration> ForeignWriter::CommitChain() {
  const ChainId chain{Family::kIPv4, Table::kFilter, "FOREIGN"};
  absl::StatusOr<absl::Duration> took =
      chain_exists_ ? Commit({netlink::DeleteChain{chain}}) : Commit({netlink::CreateChain{chain}});
  if (took.ok()) chain_exists_ = !chain_exists_;
  return took;
}

}  // namespace kipt::testing
