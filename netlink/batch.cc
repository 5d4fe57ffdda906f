// SPDX-License-Identifier: Apache-2.0
#include "netlink/batch.h"

// Before linux/netfilter.h, or the two redefine each other.
#include <netinet/in.h>
// Then the kernel's.
#include <libmnl/libmnl.h>
#include <libnftnl/common.h>
#include <linux/netfilter.h>
#include <linux/netfilter/nf_tables.h>
#include <linux/netfilter/nfnetlink.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "netlink/base_chains.h"
#include "netlink/batch_errors.h"
#include "netlink/kernel_error.h"
#include "netlink/native_encoder.h"
#include "netlink/rule_builder.h"
#include "netlink/rule_codec.h"
#include "netlink/socket.h"

namespace kipt::netlink {
namespace {

// A rule has at most a comment (256 bytes), a connection state (168), two addresses, and names of
// 255 bytes.
constexpr size_t kMaxMessageBytes = 4096;

}  // namespace

uint32_t Batch::MaxMessages(const Transaction& transaction) {
  // Begin, end, and for each operation one message and perhaps a table.
  size_t count = 2 + 2 * transaction.operations.size();
  for (const Operation& operation : transaction.operations) {
    const auto* put = std::get_if<PutNativeTable>(&operation);
    if (put == nullptr) continue;
    // The table, its end, and the table again.
    count += 3 + put->table.chains.size();
    for (const NativeChain& chain : put->table.chains) count += chain.rules.size();
  }
  return static_cast<uint32_t>(count);
}

absl::StatusOr<Batch> Batch::Build(const Transaction& transaction, uint32_t first_sequence) {
  Batch batch(first_sequence);
  batch.AppendBegin(transaction.generation);
  std::set<std::pair<Family, Table>> tables;
  for (const Operation& operation : transaction.operations) {
    if (IsNative(operation)) {
      if (absl::Status status = batch.AppendNative(operation); !status.ok()) return status;
      continue;
    }
    const ChainId& chain = ChainOf(operation);
    if (absl::Status status = CheckChainName(chain.name); !status.ok()) {
      return RefuseOperation(operation, status);
    }
    if (std::holds_alternative<CreateChain>(operation) &&
        tables.emplace(chain.family, chain.table).second) {
      batch.AppendTable(operation);
    }
    if (absl::Status status = batch.AppendOperation(operation); !status.ok()) {
      return RefuseOperation(operation, status);
    }
  }
  batch.Append(Message{},
               [](char* memory, uint32_t sequence) { return nftnl_batch_end(memory, sequence); });
  return batch;
}

absl::Status Batch::AppendNative(const Operation& operation) {
  const absl::StatusOr<std::vector<NativeMessage>> messages = EncodeNative(operation);
  if (!messages.ok()) return messages.status();
  for (const NativeMessage& message : *messages) {
    Append(Message{.operation = &operation, .native_action = message.action},
           [&](char* memory, uint32_t sequence) {
             std::memcpy(memory, message.bytes.data(), message.bytes.size());
             auto* header = reinterpret_cast<nlmsghdr*>(memory);
             header->nlmsg_seq = sequence;
             return header;
           });
  }
  return absl::OkStatus();
}

void Batch::Append(Message message, const std::function<struct nlmsghdr*(char*, uint32_t)>& build) {
  message.offset = bytes_.size();
  bytes_.resize(message.offset + kMaxMessageBytes, 0);
  char* memory = reinterpret_cast<char*>(bytes_.data() + message.offset);
  const nlmsghdr* header = build(memory, first_sequence_ + message_count());
  bytes_.resize(message.offset + NLMSG_ALIGN(header->nlmsg_len));
  messages_.push_back(std::move(message));
}

void Batch::AppendBegin(uint32_t generation) {
  Append(Message{}, [&](char* memory, uint32_t sequence) {
    nlmsghdr* header = nftnl_batch_begin(memory, sequence);
    // The kernel refuses the batch (ERESTART) if it is at another generation: adding a rule twice
    // adds two rules.
    mnl_attr_put_u32(header, NFNL_BATCH_GENID, htonl(generation));
    return header;
  });
}

// NLM_F_CREATE without NLM_F_EXCL: a table that exists is left as it is and is no commit.
void Batch::AppendTable(const Operation& operation) {
  const ChainId& chain = ChainOf(operation);
  const NftnlTablePtr table(nftnl_table_alloc());
  nftnl_table_set_str(table.get(), NFTNL_TABLE_NAME, std::string(TableName(chain.table)).c_str());
  Append(Message{.operation = &operation, .is_table = true}, [&](char* memory, uint32_t sequence) {
    nlmsghdr* header = nftnl_nlmsg_build_hdr(memory, NFT_MSG_NEWTABLE, WireFamily(chain.family),
                                             NLM_F_CREATE, sequence);
    nftnl_table_nlmsg_build_payload(header, table.get());
    return header;
  });
}

absl::Status Batch::AppendOperation(const Operation& operation) {
  if (const auto* create = std::get_if<CreateChain>(&operation)) {
    AppendNewChain(operation, create->chain);
  } else if (const auto* add = std::get_if<AddRule>(&operation)) {
    return AppendNewRule(operation, *add);
  } else if (const auto* remove = std::get_if<DeleteRule>(&operation)) {
    AppendDeleteRule(operation, *remove);
  } else if (const auto* wake = std::get_if<WakeTable>(&operation)) {
    AppendWake(operation, *wake);
  } else {
    return AppendDeleteChain(operation, ChainOf(operation));
  }
  return absl::OkStatus();
}

void Batch::AppendNewChain(const Operation& operation, const ChainId& id) {
  const NftnlChainPtr chain(nftnl_chain_alloc());
  nftnl_chain_set_str(chain.get(), NFTNL_CHAIN_TABLE, std::string(TableName(id.table)).c_str());
  nftnl_chain_set_str(chain.get(), NFTNL_CHAIN_NAME, id.name.c_str());
  if (const BaseChain* base = FindBaseChain(id.table, id.name)) {
    nftnl_chain_set_u32(chain.get(), NFTNL_CHAIN_HOOKNUM, base->hook);
    nftnl_chain_set_s32(chain.get(), NFTNL_CHAIN_PRIO, base->priority);
    nftnl_chain_set_str(chain.get(), NFTNL_CHAIN_TYPE, base->type);
    // Never NFTNL_CHAIN_POLICY: on a chain that exists it turns the admin's DROP into ACCEPT. A new
    // one gets ACCEPT without.
  }
  Append(Message{.operation = &operation}, [&](char* memory, uint32_t sequence) {
    nlmsghdr* header = nftnl_nlmsg_build_hdr(memory, NFT_MSG_NEWCHAIN, WireFamily(id.family),
                                             NLM_F_CREATE, sequence);
    nftnl_chain_nlmsg_build_payload(header, chain.get());
    return header;
  });
}

absl::Status Batch::AppendNewRule(const Operation& operation, const AddRule& add) {
  absl::StatusOr<NftnlRulePtr> rule = EncodeRule(add.chain, add.rule);
  if (!rule.ok()) return rule.status();
  // NFTA_RULE_POSITION without NLM_F_APPEND is "before that rule".
  uint16_t flags = NLM_F_CREATE;
  if (add.before) {
    nftnl_rule_set_u64(rule->get(), NFTNL_RULE_POSITION, *add.before);
  } else {
    flags |= NLM_F_APPEND;
  }
  Append(Message{.operation = &operation}, [&](char* memory, uint32_t sequence) {
    nlmsghdr* header = nftnl_nlmsg_build_hdr(memory, NFT_MSG_NEWRULE, WireFamily(add.chain.family),
                                             flags, sequence);
    nftnl_rule_nlmsg_build_payload(header, rule->get());
    return header;
  });
  return absl::OkStatus();
}

void Batch::AppendDeleteRule(const Operation& operation, const DeleteRule& remove) {
  const ChainId& chain = remove.chain;
  const NftnlRulePtr rule(nftnl_rule_alloc());
  nftnl_rule_set_str(rule.get(), NFTNL_RULE_TABLE, std::string(TableName(chain.table)).c_str());
  nftnl_rule_set_str(rule.get(), NFTNL_RULE_CHAIN, chain.name.c_str());
  // Without a handle the kernel would flush the chain; handles start at 1, so 0 names none.
  nftnl_rule_set_u64(rule.get(), NFTNL_RULE_HANDLE, remove.handle);
  Append(Message{.operation = &operation}, [&](char* memory, uint32_t sequence) {
    nlmsghdr* header =
        nftnl_nlmsg_build_hdr(memory, NFT_MSG_DELRULE, WireFamily(chain.family), 0, sequence);
    nftnl_rule_nlmsg_build_payload(header, rule.get());
    return header;
  });
}

absl::Status Batch::AppendDeleteChain(const Operation& operation, const ChainId& id) {
  // The kernel would do it, and with it would go the admin's policy.
  if (FindBaseChain(id.table, id.name) != nullptr) {
    return absl::InvalidArgumentError("a base chain is not deleted");
  }
  const NftnlChainPtr chain(nftnl_chain_alloc());
  nftnl_chain_set_str(chain.get(), NFTNL_CHAIN_TABLE, std::string(TableName(id.table)).c_str());
  nftnl_chain_set_str(chain.get(), NFTNL_CHAIN_NAME, id.name.c_str());
  // Without NLM_F_NONREC the kernel deletes the chain's rules with it.
  Append(Message{.operation = &operation}, [&](char* memory, uint32_t sequence) {
    nlmsghdr* header = nftnl_nlmsg_build_hdr(memory, NFT_MSG_DELCHAIN, WireFamily(id.family),
                                             NLM_F_NONREC, sequence);
    nftnl_chain_nlmsg_build_payload(header, chain.get());
    return header;
  });
  return absl::OkStatus();
}

void Batch::AppendWake(const Operation& operation, const WakeTable& wake) {
  const NftnlTablePtr table(nftnl_table_alloc());
  nftnl_table_set_str(table.get(), NFTNL_TABLE_NAME,
                      std::string(TableName(wake.chain.table)).c_str());
  nftnl_table_set_u32(table.get(), NFTNL_TABLE_FLAGS, wake.flags & ~kTableDormant);
  Append(Message{.operation = &operation}, [&](char* memory, uint32_t sequence) {
    // The kernel would make a table that has gone meanwhile; the batch's generation prevents that.
    nlmsghdr* header =
        nftnl_nlmsg_build_hdr(memory, NFT_MSG_NEWTABLE, WireFamily(wake.chain.family), 0, sequence);
    nftnl_table_nlmsg_build_payload(header, table.get());
    return header;
  });
}

absl::Status Batch::Explain(absl::Span<const BatchError> errors) const {
  if (errors.empty()) return absl::OkStatus();
  const BatchError* first = &errors.front();
  for (const BatchError& error : errors) {
    if (error.error_number == ERESTART) return KernelError(ERESTART, "committing to nf_tables");
    if (error.sequence - first_sequence_ < first->sequence - first_sequence_) first = &error;
  }
  const size_t index = first->sequence - first_sequence_;
  if (index >= messages_.size()) {
    return KernelError(first->error_number, "committing to nf_tables");
  }
  const Message& message = messages_[index];
  const size_t end = index + 1 < messages_.size() ? messages_[index + 1].offset : bytes_.size();
  const WireBytes bytes = absl::MakeConstSpan(bytes_).subspan(message.offset, end - message.offset);
  if (message.operation == nullptr || IsNative(*message.operation)) {
    return ExplainNative(message.native_action, *first, bytes);
  }
  if (message.is_table) {
    const ChainId& chain = ChainOf(*message.operation);
    return KernelError(first->error_number,
                       absl::StrCat("creating table ", FamilyName(chain.family), " ",
                                    TableName(chain.table), " for chain ", chain.name));
  }
  if (const auto* add = std::get_if<AddRule>(message.operation)) {
    return ExplainRule(*add, *first, bytes);
  }
  absl::string_view advice;
  if (first->error_number == ENOENT) {
    advice = std::holds_alternative<DeleteRule>(*message.operation)
                 ? "there is no such chain, or no rule of that handle in it"
                 : "there is no such chain";
  }
  absl::Status status = KernelError(first->error_number, ActionText(*message.operation), advice);
  const auto* remove = std::get_if<DeleteChain>(message.operation);
  if (remove != nullptr && first->error_number == EBUSY) SetChainInUse(status, remove->chain);
  return status;
}

}  // namespace kipt::netlink
