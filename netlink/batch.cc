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
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "netlink/attributes.h"
#include "netlink/base_chains.h"
#include "netlink/expression.h"
#include "netlink/kernel_error.h"
#include "netlink/nftnl_ptr.h"
#include "netlink/rule_codec.h"
#include "netlink/socket.h"

namespace kipt::netlink {
namespace {

// A rule has at most a comment (256 bytes), a connection state (168), two addresses, and names of
// 255 bytes.
constexpr size_t kMaxMessageBytes = 4096;

// What was being done, for errors.
struct ActionText {
  std::string operator()(const CreateChain& create) const {
    return absl::StrCat("creating chain ", ToString(create.chain));
  }
  std::string operator()(const AddRule& add) const {
    const std::string rule = ToString(add.chain.family, add.rule);
    if (!add.before) {
      return absl::StrCat("appending to chain ", ToString(add.chain), " the rule ", rule);
    }
    return absl::StrCat("inserting into chain ", ToString(add.chain), " before handle ",
                        *add.before, " the rule ", rule);
  }
  std::string operator()(const DeleteRule& remove) const {
    return absl::StrCat("deleting from chain ", ToString(remove.chain), " handle ", remove.handle,
                        ", the rule ", ToString(remove.chain.family, remove.rule));
  }
  std::string operator()(const DeleteChain& remove) const {
    return absl::StrCat("deleting chain ", ToString(remove.chain));
  }
};

absl::Status Refuse(const Operation& operation, const absl::Status& why) {
  return absl::Status(why.code(),
                      absl::StrCat(std::visit(ActionText{}, operation), ": ", why.message()));
}

// What the kernel pointed at in a message it refused.
struct Culprit {
  std::optional<uint16_t> attribute;  // of the message itself, enum nft_rule_attributes
  std::optional<Expression> expression;
};

// `offset` is that of an attribute's header, from the start of the message; 0 is unknown.
Culprit FindCulprit(WireBytes message, size_t offset) {
  const auto holds_offset = [&](const Attribute& attribute) {
    const size_t begin =
        static_cast<size_t>(attribute.payload.data() - message.data()) - NLA_HDRLEN;
    return offset >= begin && offset < begin + NLA_HDRLEN + attribute.payload.size();
  };
  const std::optional<Attributes> attributes = Attributes::OfMessage(message);
  if (!attributes) return {};
  for (const Attribute& attribute : attributes->all()) {
    if (!holds_offset(attribute)) continue;
    Culprit culprit{.attribute = attribute.type, .expression = std::nullopt};
    const std::optional<Attributes> elements = Attributes::Parse(attribute.payload);
    if (attribute.type != NFTA_RULE_EXPRESSIONS || !elements) return culprit;
    const std::vector<Expression> expressions = ParseExpressions(attribute.payload);
    for (size_t i = 0; i < elements->all().size() && i < expressions.size(); ++i) {
      if (holds_offset(elements->all()[i])) culprit.expression = expressions[i];
    }
    return culprit;
  }
  return {};
}

// A refused rule, with what the kernel said about where.
absl::Status ExplainRule(const AddRule& add, int error_number, const Culprit& culprit) {
  const std::string action = ActionText{}(add);
  const Jump* jump = std::get_if<Jump>(&add.rule.target);
  if (error_number == ENOENT && culprit.expression) {
    if (const auto* xt = std::get_if<XtExpression>(&*culprit.expression)) {
      absl::Status status = KernelError(
          error_number, action,
          absl::StrCat("the kernel has no xtables ", xt->is_target ? "target " : "match ", xt->name,
                       " of revision ", xt->revision, ": module xt_", xt->name,
                       " or nft_compat is missing"));
      SetMissingExtension(status, xt->name);
      return status;
    }
    if (jump != nullptr && std::holds_alternative<VerdictExpression>(*culprit.expression)) {
      return KernelError(error_number, action,
                         absl::StrCat("there is no chain ", jump->chain, " to jump to"));
    }
  }
  if (error_number == ENOENT) {
    switch (culprit.attribute.value_or(NFTA_RULE_UNSPEC)) {
      case NFTA_RULE_TABLE:
      case NFTA_RULE_CHAIN:
        return KernelError(error_number, action, "there is no such chain");
      case NFTA_RULE_POSITION:
        return KernelError(error_number, action, "there is no rule of that handle in the chain");
      default:
        break;
    }
  }
  if (error_number == EINVAL && std::holds_alternative<Masquerade>(add.rule.target)) {
    return KernelError(error_number, action, "MASQUERADE is for nat POSTROUTING only");
  }
  return KernelError(error_number, action);
}

}  // namespace

uint32_t Batch::MaxMessages(const Transaction& transaction) {
  // Begin, end, and for each operation one message and perhaps a table.
  return static_cast<uint32_t>(2 + 2 * transaction.operations.size());
}

absl::StatusOr<Batch> Batch::Build(const Transaction& transaction, uint32_t first_sequence) {
  Batch batch(first_sequence);
  batch.AppendBegin(transaction.generation);
  std::set<std::pair<Family, Table>> tables;
  for (const Operation& operation : transaction.operations) {
    const ChainId& chain = ChainOf(operation);
    if (absl::Status status = CheckChainName(chain.name); !status.ok()) {
      return Refuse(operation, status);
    }
    if (std::holds_alternative<CreateChain>(operation) &&
        tables.emplace(chain.family, chain.table).second) {
      batch.AppendTable(operation);
    }
    if (absl::Status status = batch.AppendOperation(operation); !status.ok()) {
      return Refuse(operation, status);
    }
  }
  batch.Append(Message{},
               [](char* memory, uint32_t sequence) { return nftnl_batch_end(memory, sequence); });
  return batch;
}

void Batch::Append(Message message, const std::function<struct nlmsghdr*(char*, uint32_t)>& build) {
  message.offset = bytes_.size();
  bytes_.resize(message.offset + kMaxMessageBytes, 0);
  char* memory = reinterpret_cast<char*>(bytes_.data() + message.offset);
  const nlmsghdr* header = build(memory, first_sequence_ + message_count());
  bytes_.resize(message.offset + NLMSG_ALIGN(header->nlmsg_len));
  messages_.push_back(message);
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

absl::Status Batch::Explain(absl::Span<const BatchError> errors) const {
  if (errors.empty()) return absl::OkStatus();
  const BatchError* first = &errors.front();
  for (const BatchError& error : errors) {
    if (error.error_number == ERESTART) return KernelError(ERESTART, "committing to nf_tables");
    if (error.sequence - first_sequence_ < first->sequence - first_sequence_) first = &error;
  }
  const size_t index = first->sequence - first_sequence_;
  if (index >= messages_.size() || messages_[index].operation == nullptr) {
    return KernelError(first->error_number, "committing to nf_tables");
  }
  const Message& message = messages_[index];
  if (message.is_table) {
    const ChainId& chain = ChainOf(*message.operation);
    return KernelError(first->error_number,
                       absl::StrCat("creating table ", FamilyName(chain.family), " ",
                                    TableName(chain.table), " for chain ", chain.name));
  }
  if (const auto* add = std::get_if<AddRule>(message.operation)) {
    const size_t end = index + 1 < messages_.size() ? messages_[index + 1].offset : bytes_.size();
    const WireBytes bytes =
        absl::MakeConstSpan(bytes_).subspan(message.offset, end - message.offset);
    return ExplainRule(*add, first->error_number, FindCulprit(bytes, first->attribute_offset));
  }
  absl::string_view advice;
  if (first->error_number == ENOENT) {
    advice = std::holds_alternative<DeleteRule>(*message.operation)
                 ? "there is no such chain, or no rule of that handle in it"
                 : "there is no such chain";
  }
  return KernelError(first->error_number, std::visit(ActionText{}, *message.operation), advice);
}

}  // namespace kipt::netlink
