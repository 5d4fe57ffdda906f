// SPDX-License-Identifier: Apache-2.0
#include "netlink/nft_backend.h"

// Before linux/netfilter.h, or the two redefine each other.
#include <netinet/in.h>
// Then the kernel's.
#include <libmnl/libmnl.h>
#include <libnftnl/common.h>
#include <linux/netfilter.h>
#include <linux/netfilter/nf_tables.h>
#include <linux/netfilter/nfnetlink.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "netlink/attributes.h"
#include "netlink/base_chains.h"
#include "netlink/batch.h"
#include "netlink/kernel_error.h"
#include "netlink/nft_monitor.h"
#include "netlink/rule_codec.h"
#include "netlink/socket.h"

namespace kipt::netlink {
namespace {

// How often a Read starts over when somebody commits in between. A commit that adds or removes
// rules takes longer than a read, so more is a writer that never rests.
constexpr int kReadAttempts = 10;

// GETCHAIN requests in one datagram: their replies (some 200 bytes each) must fit the receive
// buffer.
constexpr size_t kChainsAtOnce = 64;

// Requests to be sent in one datagram.
class Requests {
 public:
  explicit Requests(uint32_t first) : first_(first) {}

  // `attributes` are texts: {type, value}.
  void Add(uint16_t type, uint16_t family, uint16_t flags,
           std::initializer_list<std::pair<uint16_t, std::string>> attributes) {
    const size_t offset = bytes_.size();
    bytes_.resize(offset + kMaxRequestBytes, 0);
    nlmsghdr* header = nftnl_nlmsg_build_hdr(reinterpret_cast<char*>(bytes_.data() + offset), type,
                                             family, flags, first_ + count_);
    for (const auto& [attribute, text] : attributes) {
      mnl_attr_put_strz(header, attribute, text.c_str());
    }
    bytes_.resize(offset + NLMSG_ALIGN(header->nlmsg_len));
    ++count_;
  }

  absl::Span<const uint8_t> bytes() const { return bytes_; }
  uint32_t first() const { return first_; }
  uint32_t count() const { return count_; }

 private:
  // Two names of at most 255 bytes.
  static constexpr size_t kMaxRequestBytes = 1024;

  uint32_t first_;
  uint32_t count_ = 0;
  std::vector<uint8_t> bytes_;
};

// Hook and type are what decides whether packets come here and what may be done to them; where
// among others of the same hook (the priority) an administrator may have moved it.
bool IsHooked(const ChainId& chain, const Attributes& attributes) {
  const BaseChain* base = FindBaseChain(chain.table, chain.name);
  const std::optional<Attributes> hook = attributes.Nest(NFTA_CHAIN_HOOK);
  return base != nullptr && hook && hook->U32(NFTA_HOOK_HOOKNUM) == base->hook &&
         attributes.Text(NFTA_CHAIN_TYPE) == base->type;
}

class NftBackend : public Backend {
 public:
  NftBackend(std::unique_ptr<Socket> socket, std::unique_ptr<EventSocket> events)
      : socket_(std::move(socket)), events_(std::move(events)) {}

  absl::string_view mode() const override { return "nft"; }

  absl::StatusOr<Snapshot> Read(absl::Span<const ChainQuery> queries) override {
    for (int attempt = 0; attempt < kReadAttempts; ++attempt) {
      absl::StatusOr<std::optional<Snapshot>> snapshot = ReadOnce(queries);
      if (!snapshot.ok()) return snapshot.status();
      if (snapshot->has_value()) return **std::move(snapshot);
    }
    return absl::AbortedError(
        absl::StrCat("the ruleset changed during each of ", kReadAttempts, " attempts to read it"));
  }

  absl::Status Apply(const Transaction& transaction) override {
    if (transaction.empty()) return absl::OkStatus();
    const uint32_t first = socket_->ReserveSequences(Batch::MaxMessages(transaction));
    const absl::StatusOr<Batch> batch = Batch::Build(transaction, first);
    if (!batch.ok()) return batch.status();
    const absl::StatusOr<std::vector<BatchError>> errors =
        socket_->SendBatch(batch->bytes(), first, batch->message_count());
    if (!errors.ok()) return errors.status();
    absl::Status status = batch->Explain(*errors);
    if (status.ok()) own_commits_.Add(transaction.generation);
    return status;
  }

  absl::StatusOr<std::unique_ptr<Monitor>> Watch(WatchMode mode) override {
    if (mode == WatchMode::kEvents) return events_->Watch(socket_->port_id());
    return NewPollMonitor([this] { return ReadGeneration(); }, own_commits_);
  }

 private:
  // Nothing where a commit came in between.
  absl::StatusOr<std::optional<Snapshot>> ReadOnce(absl::Span<const ChainQuery> queries) {
    const absl::StatusOr<uint32_t> before = ReadGeneration();
    if (!before.ok()) return before.status();
    Snapshot snapshot{.generation = *before, .chains = {}};
    // Whether anything has changed at all is asked often, and is one round trip.
    if (queries.empty()) return std::make_optional(std::move(snapshot));
    for (size_t i = 0; i < queries.size(); i += kChainsAtOnce) {
      if (absl::Status status = ReadChains(queries.subspan(i, kChainsAtOnce), snapshot);
          !status.ok()) {
        return status;
      }
    }
    // Also of chains whose NFTA_CHAIN_USE says that nothing is in them: it counts what a
    // transaction of somebody else's has begun and may yet abort.
    std::set<ChainId> read;
    for (const ChainQuery& query : queries) {
      const auto chain = snapshot.chains.find(query.chain);
      if (!query.with_rules || chain == snapshot.chains.end() || !read.insert(query.chain).second) {
        continue;
      }
      const absl::Status status = ReadRules(chain->first, chain->second.rules);
      if (absl::IsAborted(status)) return std::optional<Snapshot>();
      if (!status.ok()) return status;
    }
    const absl::StatusOr<uint32_t> after = ReadGeneration();
    if (!after.ok()) return after.status();
    if (*after != *before) return std::optional<Snapshot>();
    return std::make_optional(std::move(snapshot));
  }

  absl::StatusOr<uint32_t> ReadGeneration() {
    Requests requests(socket_->ReserveSequences(1));
    requests.Add(NFT_MSG_GETGEN, NFPROTO_UNSPEC, 0, {});
    std::optional<uint32_t> generation;
    int error = 0;
    absl::Status asked = Ask(requests, [&](const Reply& reply) {
      error = reply.error_number;
      if (reply.message == nullptr) return;
      const std::optional<Attributes> attributes =
          Attributes::OfMessage(MessageBytes(reply.message));
      if (attributes) generation = attributes->U32(NFTA_GEN_ID);
    });
    if (!asked.ok()) return asked;
    // nfnetlink answers so for a subsystem that it does not have and cannot load.
    if (error == EINVAL || error == EOPNOTSUPP) {
      return absl::UnavailableError("this kernel has no nf_tables");
    }
    if (error != 0) return KernelError(error, "reading the generation of the ruleset");
    if (!generation) return absl::DataLossError("nf_tables did not say its generation");
    return *generation;
  }

  // Whether the chains are there, and on their hooks.
  absl::Status ReadChains(absl::Span<const ChainQuery> queries, Snapshot& snapshot) {
    Requests requests(socket_->ReserveSequences(static_cast<uint32_t>(queries.size())));
    for (const ChainQuery& query : queries) {
      const ChainId& chain = query.chain;
      if (absl::Status status = CheckChainName(chain.name); !status.ok()) return status;
      requests.Add(
          NFT_MSG_GETCHAIN, WireFamily(chain.family), 0,
          {{NFTA_CHAIN_TABLE, std::string(TableName(chain.table))}, {NFTA_CHAIN_NAME, chain.name}});
    }
    absl::Status status;
    absl::Status asked = Ask(requests, [&](const Reply& reply) {
      const ChainId& chain = queries[reply.sequence - requests.first()].chain;
      if (reply.message == nullptr) {
        // Neither the table nor the chain is told apart, and neither needs to be.
        if (reply.error_number != ENOENT && status.ok()) {
          status = KernelError(reply.error_number, absl::StrCat("reading chain ", ToString(chain)));
        }
        return;
      }
      const std::optional<Attributes> attributes =
          Attributes::OfMessage(MessageBytes(reply.message));
      snapshot.chains[chain].hooked = attributes && IsHooked(chain, *attributes);
    });
    return asked.ok() ? status : asked;
  }

  // Aborted where the dump was interrupted.
  absl::Status ReadRules(const ChainId& chain, std::vector<ObservedRule>& rules) {
    Requests requests(socket_->ReserveSequences(1));
    requests.Add(
        NFT_MSG_GETRULE, WireFamily(chain.family), NLM_F_DUMP,
        {{NFTA_RULE_TABLE, std::string(TableName(chain.table))}, {NFTA_RULE_CHAIN, chain.name}});
    const std::string action = absl::StrCat("reading the rules of chain ", ToString(chain));
    absl::Status status;
    absl::Status asked = Ask(requests, [&](const Reply& reply) {
      if (reply.message == nullptr) {
        status = KernelError(reply.error_number, action);
        return;
      }
      absl::StatusOr<ObservedRule> rule = DecodeRule(MessageBytes(reply.message));
      if (rule.ok()) {
        rules.push_back(*std::move(rule));
      } else if (status.ok()) {
        status =
            absl::Status(rule.status().code(), absl::StrCat(action, ": ", rule.status().message()));
      }
    });
    return asked.ok() ? status : asked;
  }

  absl::Status Ask(const Requests& requests, const std::function<void(const Reply&)>& handle) {
    return socket_->Ask(requests.bytes(), requests.first(), requests.count(), handle);
  }

  std::unique_ptr<Socket> socket_;
  std::unique_ptr<EventSocket> events_;
  OwnCommits own_commits_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Backend>> NewNftBackend() {
  absl::StatusOr<std::unique_ptr<Socket>> socket = Socket::Open();
  if (!socket.ok()) return socket.status();
  absl::StatusOr<std::unique_ptr<EventSocket>> events = EventSocket::Open();
  if (!events.ok()) return events.status();
  return std::make_unique<NftBackend>(*std::move(socket), *std::move(events));
}

}  // namespace kipt::netlink
