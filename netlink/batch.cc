// SPDX-License-Identifier: Apache-2.0
#include "netlink/batch.h"

#include <endian.h>
#include <libmnl/libmnl.h>

#include <algorithm>
#include <cerrno>
#include <optional>
#include <set>
#include <utility>
#include <variant>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "netlink/expression.h"
#include "netlink/kernel_error.h"
#include "netlink/nf_tables.h"
#include "netlink/nftnl.h"
#include "netlink/rule_codec.h"
namespace kipt::netlink {
namespace {

constexpr char kCommitting[] = "committing to nf_tables";

absl::Status Refuse(absl::string_view action, const absl::Status& why) {
  return absl::Status(why.code(), absl::StrCat(action, ": ", why.message()));
}

// What was being done, for errors.
struct OperationAction {
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
  std::string operator()(const WakeTable& wake) const {
    return absl::StrCat("waking table ", FamilyName(wake.chain.family), " ",
                        TableName(wake.chain.table));
  }
  std::string operator()(const auto& native) const { return ToString(Operation(native)); }
};

// What the kernel pointed at in a message it refused.
struct Culprit {
  uint16_t attribute = NFTA_RULE_UNSPEC;  // of the message itself; UNSPEC: unknown
  std::optional<Expression> expression;
};

// `offset` is that of an attribute's header, from the start of the message; 0 is unknown.
Culprit FindCulprit(WireBytes message, size_t offset) {
  const auto holds_offset = [&](WireBytes payload) {
    const size_t begin = static_cast<size_t>(payload.data() - message.data()) - NLA_HDRLEN;
    return offset >= begin && offset < begin + NLA_HDRLEN + payload.size();
  };
  for (const Attribute& attribute : Attributes::OfMessage(message).all()) {
    if (!holds_offset(attribute.payload)) continue;
    Culprit culprit{.attribute = attribute.type, .expression = std::nullopt};
    if (attribute.type != NFTA_RULE_EXPRESSIONS) return culprit;
    for (const Expression& expression : ParseExpressions(attribute.payload)) {
      if (holds_offset(expression.bytes)) culprit.expression = expression;
    }
    return culprit;
  }
  return {};
}

// The module of an expression that a kernel may lack; empty for those that nf_tables itself has.
// (The counter has a module before 5.18.)
std::string ModuleOf(const std::optional<Expression>& expression) {
  constexpr absl::string_view kOwn[] = {"bitwise", "cmp",     "immediate", "match",
                                        "meta",    "payload", "range",     "target"};
  return !expression || absl::c_linear_search(kOwn, expression->name) ? "" : expression->name;
}

std::string LackOf(const std::string& module) {
  return absl::StrCat("the kernel has no nf_tables expression ", module, ": module nft_", module,
                      " is missing");
}

}  // namespace

// Puts the messages of one operation after the other. InvalidArgument: a kernel must not get it.
class Batch::Builder {
 public:
  explicit Builder(Batch& batch) : batch_(batch), to_(batch.messages_) {}

  // `write` is nftnl_batch_begin or nftnl_batch_end.
  nlmsghdr* Mark(nlmsghdr* write(char* memory, uint32_t sequence)) {
    batch_.subjects_.emplace_back();
    const auto [memory, sequence] = to_.Next();
    return write(memory, sequence);
  }

  absl::Status Add(const Operation& operation) {
    operation_ = &operation;
    if (IsNative(operation)) return std::visit(*this, operation);
    absl::Status status = CheckChainName(ChainOf(operation).name);
    if (status.ok()) status = std::visit(*this, operation);
    return status.ok() ? status : Refuse(ActionText(operation), status);
  }

  absl::Status operator()(const CreateChain& create) {
    const ChainId& id = create.chain;
    // Without NLM_F_EXCL: an existing table is left unchanged, and is no commit.
    if (tables_.emplace(id.family, id.table).second) {
      const std::string table(TableName(id.table));
      absl::Status status = PutTable(absl::StrCat("creating table ", FamilyName(id.family), " ",
                                                  table, " for chain ", id.name),
                                     NFT_MSG_NEWTABLE, id.family, NLM_F_CREATE, table);
      if (!status.ok()) return status;
    }
    const NftnlChain chain = Named(id);
    // Never NFTNL_CHAIN_POLICY: on a chain that exists it turns the admin's DROP into ACCEPT. A new
    // one gets ACCEPT without.
    const BaseChain* base = FindBaseChain(id.table, id.name);
    if (chain == nullptr ||
        (base != nullptr && !SetHook(*chain, base->type, base->hook, base->priority))) {
      return OutOfMemory();
    }
    nftnl_chain_nlmsg_build_payload(Begin(NFT_MSG_NEWCHAIN, id.family, NLM_F_CREATE), chain.get());
    return absl::OkStatus();
  }

  absl::Status operator()(const AddRule& add) {
    // NFTA_RULE_POSITION without NLM_F_APPEND is "before that rule".
    const uint16_t where = add.before ? 0 : NLM_F_APPEND;
    nlmsghdr* message = Begin(NFT_MSG_NEWRULE, add.chain.family, NLM_F_CREATE | where);
    if (add.before) mnl_attr_put_u64(message, NFTA_RULE_POSITION, htobe64(*add.before));
    return EncodeRule(add.chain, add.rule, message);
  }

  absl::Status operator()(const DeleteRule& remove) {
    const ChainId& chain = remove.chain;
    const NftnlRule rule = NftnlRuleWith(
        {{NFTNL_RULE_TABLE, std::string(TableName(chain.table))}, {NFTNL_RULE_CHAIN, chain.name}});
    if (rule == nullptr) return OutOfMemory();
    // Without a handle the kernel would flush the chain; handles start at 1, so 0 names none.
    nftnl_rule_set_u64(rule.get(), NFTNL_RULE_HANDLE, remove.handle);
    nftnl_rule_nlmsg_build_payload(Begin(NFT_MSG_DELRULE, chain.family, 0), rule.get());
    return absl::OkStatus();
  }

  absl::Status operator()(const DeleteChain& remove) {
    // The kernel would do it, and the administrator's policy would be lost.
    if (IsBaseChain(remove.chain)) {
      return absl::InvalidArgumentError("a base chain is not deleted");
    }
    const NftnlChain chain = Named(remove.chain);
    if (chain == nullptr) return OutOfMemory();
    // Without NLM_F_NONREC the kernel deletes the chain's rules with it.
    nftnl_chain_nlmsg_build_payload(Begin(NFT_MSG_DELCHAIN, remove.chain.family, NLM_F_NONREC),
                                    chain.get());
    return absl::OkStatus();
  }

  absl::Status operator()(const WakeTable& wake) {
    const NftnlTable table =
        NftnlTableWith({{NFTNL_TABLE_NAME, std::string(TableName(wake.chain.table))}});
    if (table == nullptr) return OutOfMemory();
    nftnl_table_set_u32(table.get(), NFTNL_TABLE_FLAGS, wake.flags & ~kTableDormant);
    // The kernel would make a missing table; the batch's generation prevents that.
    nftnl_table_nlmsg_build_payload(Begin(NFT_MSG_NEWTABLE, wake.chain.family, 0), table.get());
    return absl::OkStatus();
  }

  absl::Status operator()(const PutNativeTable& put) {
    const NativeTable& table = put.table;
    const std::string action =
        absl::StrCat("putting in place the table ", FamilyName(table.family), " ", table.name);
    absl::Status status = CheckTableName(table.name);
    const auto not_ascending = [](const NativeChain& a, const NativeChain& b) {
      return a.name >= b.name;
    };
    if (std::adjacent_find(table.chains.begin(), table.chains.end(), not_ascending) !=
        table.chains.end()) {
      status.Update(absl::InvalidArgumentError("the chains are not in the order of their names"));
    }
    if (!status.ok()) return Refuse(action, status);
    const auto put_table = [&](const std::string& what, uint16_t type, uint16_t flags) {
      if (status.ok()) status = PutTable(what, type, table.family, flags, table.name);
    };
    // Creating a table that exists changes nothing, so that there is one to delete.
    put_table(action, NFT_MSG_NEWTABLE, NLM_F_CREATE);
    put_table(action + ", removing the old one", NFT_MSG_DELTABLE, 0);
    put_table(action, NFT_MSG_NEWTABLE, NLM_F_CREATE);
    if (!status.ok()) return Refuse(action, status);
    for (const NativeChain& chain : table.chains) {
      const std::string chain_action = absl::StrCat(action, ", chain ", chain.name);
      status = AddNativeChain(table, chain, chain_action);
      if (!status.ok()) return Refuse(chain_action, status);
    }
    return absl::OkStatus();
  }

  absl::Status operator()(const DeleteNativeTable& remove) {
    const std::string action =
        absl::StrCat("deleting the table ", FamilyName(remove.family), " ", remove.name);
    absl::Status status = CheckTableName(remove.name);
    if (status.ok()) status = PutTable(action, NFT_MSG_DELTABLE, remove.family, 0, remove.name);
    return status.ok() ? status : Refuse(action, status);
  }

 private:
  static absl::Status CheckTableName(const std::string& name) {
    // Chains and tables are named alike.
    if (CheckChainName(name).ok()) return absl::OkStatus();
    return absl::InvalidArgumentError("a table's name has 1 to 255 bytes and no NUL");
  }

  static NftnlChain Named(const ChainId& id) {
    return NftnlChainWith(
        {{NFTNL_CHAIN_TABLE, std::string(TableName(id.table))}, {NFTNL_CHAIN_NAME, id.name}});
  }
  // False where an allocation failed.
  static bool SetHook(nftnl_chain& chain, const char* type, uint32_t hook, int32_t priority) {
    nftnl_chain_set_u32(&chain, NFTNL_CHAIN_HOOKNUM, hook);
    nftnl_chain_set_s32(&chain, NFTNL_CHAIN_PRIO, priority);
    return nftnl_chain_set_str(&chain, NFTNL_CHAIN_TYPE, type) == 0;
  }

  absl::Status AddNativeChain(const NativeTable& table, const NativeChain& native,
                              const std::string& action) {
    if (absl::Status status = CheckChainName(native.name); !status.ok()) return status;
    const NftnlChain chain =
        NftnlChainWith({{NFTNL_CHAIN_TABLE, table.name}, {NFTNL_CHAIN_NAME, native.name}});
    if (chain == nullptr || !SetHook(*chain, kNativeChainType, native.hook, native.priority)) {
      return OutOfMemory();
    }
    // The table is new, so there is no admin's policy that this could undo.
    nftnl_chain_set_u32(chain.get(), NFTNL_CHAIN_POLICY, NF_ACCEPT);
    nftnl_chain_nlmsg_build_payload(Begin(NFT_MSG_NEWCHAIN, table.family, NLM_F_CREATE, action),
                                    chain.get());
    for (const NativeDrop& drop : native.rules) {
      absl::Status status = CheckDrop(table.family, drop);
      if (status.ok()) {
        status =
            EncodeDrop(table, native.name, drop,
                       Begin(NFT_MSG_NEWRULE, table.family, NLM_F_CREATE | NLM_F_APPEND,
                             absl::StrCat(action, ", the rule ", ToString(table.family, drop))));
      }
      if (!status.ok()) return status;
    }
    return absl::OkStatus();
  }

  nlmsghdr* Begin(uint16_t type, Family family, uint16_t flags, std::string action = "") {
    batch_.subjects_.push_back({.operation = operation_, .action = std::move(action)});
    const auto [memory, sequence] = to_.Next();
    return nftnl_nlmsg_build_hdr(memory, type, WireFamily(family), flags, sequence);
  }
  absl::Status PutTable(std::string action, uint16_t type, Family family, uint16_t flags,
                        const std::string& name) {
    const NftnlTable table = NftnlTableWith({{NFTNL_TABLE_NAME, name}});
    if (table == nullptr) return OutOfMemory();
    nftnl_table_nlmsg_build_payload(Begin(type, family, flags, std::move(action)), table.get());
    return absl::OkStatus();
  }

  Batch& batch_;
  Requests& to_;
  const Operation* operation_ = nullptr;
  std::set<std::pair<Family, Table>> tables_;
};

absl::StatusOr<Batch> Batch::Build(const Transaction& transaction, uint32_t first_sequence) {
  Batch batch(first_sequence);
  Builder builder(batch);
  // The kernel refuses the batch (ERESTART) if it is at another generation: adding a rule twice
  // adds two rules.
  mnl_attr_put_u32(builder.Mark(nftnl_batch_begin), NFNL_BATCH_GENID,
                   htonl(transaction.generation));
  for (const Operation& operation : transaction.operations) {
    if (absl::Status status = builder.Add(operation); !status.ok()) return status;
  }
  builder.Mark(nftnl_batch_end);
  return batch;
}

std::string ActionText(const Operation& operation) {
  return std::visit(OperationAction{}, operation);
}

absl::Status ExplainRule(const AddRule& add, const BatchError& error, WireBytes message) {
  const Culprit culprit = FindCulprit(message, error.attribute_offset);
  const bool missing = error.error_number == ENOENT;
  const std::optional<XtExpression> xt =
      missing && culprit.expression ? ParseXt(*culprit.expression) : std::nullopt;
  const std::string module = ModuleOf(culprit.expression);
  const Jump* jump = std::get_if<Jump>(&add.rule.target);
  std::string advice;
  if (xt) {
    advice = absl::StrCat("the kernel has no xtables ", xt->is_target ? "target " : "match ",
                          xt->name, " of revision ", xt->revision, ": module xt_", xt->name,
                          " or nft_compat is missing");
  } else if (missing && !module.empty()) {
    advice = LackOf(module);
  } else if (missing && jump != nullptr && culprit.expression &&
             culprit.expression->name == "immediate") {
    advice = absl::StrCat("there is no chain ", jump->chain, " to jump to");
  } else if (missing &&
             (culprit.attribute == NFTA_RULE_TABLE || culprit.attribute == NFTA_RULE_CHAIN)) {
    advice = "there is no such chain";
  } else if (missing && culprit.attribute == NFTA_RULE_POSITION) {
    advice = "there is no rule of that handle in the chain";
  } else if (error.error_number == EINVAL && std::holds_alternative<Masquerade>(add.rule.target)) {
    advice = "MASQUERADE is for nat POSTROUTING only";
  }
  absl::Status status = KernelError(error.error_number, OperationAction{}(add), advice);
  if (xt) SetMissingExtension(status, xt->name);
  return status;
}

absl::Status ExplainNative(const std::string& action, const BatchError& error, WireBytes message) {
  if (action.empty()) return KernelError(error.error_number, kCommitting);
  const std::string module = ModuleOf(FindCulprit(message, error.attribute_offset).expression);
  const bool missing = error.error_number == ENOENT && !module.empty();
  return KernelError(error.error_number, action, missing ? LackOf(module) : "");
}

absl::Status Batch::Explain(absl::Span<const BatchError> errors) const {
  if (errors.empty()) return absl::OkStatus();
  const auto index_of = [&](const BatchError& error) { return error.sequence - messages_.first(); };
  const BatchError* first = &errors.front();
  for (const BatchError& error : errors) {
    if (error.error_number == ERESTART) return KernelError(ERESTART, kCommitting);
    if (index_of(error) < index_of(*first)) first = &error;
  }
  const int error_number = first->error_number;
  const size_t index = index_of(*first);
  if (index >= subjects_.size()) return KernelError(error_number, kCommitting);
  const auto& [operation, action] = subjects_[index];
  const WireBytes bytes = messages_.Message(index);
  // Without CAP_NET_ADMIN the kernel refuses the beginning of the batch.
  if (error_number == EPERM && (operation != nullptr || !action.empty())) {
    absl::Status status = KernelError(EPERM, action.empty() ? ActionText(*operation) : action,
                                      "another process owns the table (flag owner): have that "
                                      "process give it up");
    SetWriteRefused(status);
    return status;
  }
  if (operation == nullptr || !action.empty()) return ExplainNative(action, *first, bytes);
  if (const auto* add = std::get_if<AddRule>(operation)) return ExplainRule(*add, *first, bytes);
  absl::string_view advice;
  if (error_number == ENOENT) {
    advice = std::holds_alternative<DeleteRule>(*operation)
                 ? "there is no such chain, or no rule of that handle in it"
                 : "there is no such chain";
  }
  absl::Status status = KernelError(error_number, ActionText(*operation), advice);
  const auto* remove = std::get_if<DeleteChain>(operation);
  if (remove != nullptr && error_number == EBUSY) SetChainInUse(status, remove->chain);
  return status;
}

}  // namespace kipt::netlink
