// SPDX-License-Identifier: Apache-2.0
#include "netlink/native_encoder.h"

// Before linux/netfilter.h, or the two redefine each other.
#include <netinet/in.h>
// Then the kernel's.
#include <libnftnl/common.h>
#include <linux/netfilter.h>
#include <linux/netfilter/nf_tables.h>

#include <algorithm>
#include <functional>
#include <utility>
#include <variant>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "netlink/native_decoder.h"
#include "netlink/rule_builder.h"
#include "netlink/rule_codec.h"
#include "netlink/socket.h"

namespace kipt::netlink {
namespace {

// A rule has at most two addresses, three tests of its connection and a comment.
constexpr size_t kMaxMessageBytes = 4096;

// NFTNL_UDATA_COMMENT_MAXLEN less the NUL: nft(8) writes no longer one.
constexpr size_t kMaxCommentBytes = 127;

std::string TableText(Family family, const std::string& name) {
  return absl::StrCat(FamilyName(family), " ", name);
}

absl::Status CheckTableName(const std::string& name) {
  // Chains and tables are named alike.
  if (!CheckChainName(name).ok()) {
    return absl::InvalidArgumentError("a table's name has 1 to 255 bytes and no NUL");
  }
  return absl::OkStatus();
}

absl::Status CheckDrop(Family family, const NativeDrop& drop) {
  if (absl::Status status = CheckPrefix(family, drop.source); !status.ok()) return status;
  if (absl::Status status = CheckPrefix(family, drop.destination); !status.ok()) return status;
  const bool printable = std::none_of(drop.comment.begin(), drop.comment.end(), [](char c) {
    return c == '"' || absl::ascii_iscntrl(static_cast<unsigned char>(c));
  });
  if (drop.comment.size() > kMaxCommentBytes || !printable) {
    return absl::InvalidArgumentError(absl::StrCat("a comment has at most ", kMaxCommentBytes,
                                                   " bytes, no quotes and no control characters"));
  }
  return absl::OkStatus();
}

// `build` writes a message to zeroed memory that any fits.
NativeMessage Message(uint16_t type, Family family, uint16_t flags, std::string action,
                      const std::function<void(nlmsghdr*)>& build) {
  NativeMessage message{.bytes = std::vector<uint8_t>(kMaxMessageBytes),
                        .action = std::move(action)};
  nlmsghdr* header = nftnl_nlmsg_build_hdr(reinterpret_cast<char*>(message.bytes.data()), type,
                                           WireFamily(family), flags, /*seq=*/0);
  build(header);
  message.bytes.resize(NLMSG_ALIGN(header->nlmsg_len));
  return message;
}

NativeMessage TableMessage(uint16_t type, Family family, uint16_t flags, const std::string& name,
                           std::string action) {
  const NftnlTablePtr table(nftnl_table_alloc());
  nftnl_table_set_str(table.get(), NFTNL_TABLE_NAME, name.c_str());
  return Message(type, family, flags, std::move(action),
                 [&](nlmsghdr* header) { nftnl_table_nlmsg_build_payload(header, table.get()); });
}

NativeMessage ChainMessage(const NativeTable& table, const NativeChain& chain, std::string action) {
  const NftnlChainPtr encoded(nftnl_chain_alloc());
  nftnl_chain_set_str(encoded.get(), NFTNL_CHAIN_TABLE, table.name.c_str());
  nftnl_chain_set_str(encoded.get(), NFTNL_CHAIN_NAME, chain.name.c_str());
  nftnl_chain_set_str(encoded.get(), NFTNL_CHAIN_TYPE, kNativeChainType);
  nftnl_chain_set_u32(encoded.get(), NFTNL_CHAIN_HOOKNUM, chain.hook);
  nftnl_chain_set_s32(encoded.get(), NFTNL_CHAIN_PRIO, chain.priority);
  // The table is new, so there is no admin's policy that this could undo.
  nftnl_chain_set_u32(encoded.get(), NFTNL_CHAIN_POLICY, NF_ACCEPT);
  return Message(NFT_MSG_NEWCHAIN, table.family, NLM_F_CREATE, std::move(action),
                 [&](nlmsghdr* header) { nftnl_chain_nlmsg_build_payload(header, encoded.get()); });
}

absl::StatusOr<NativeMessage> RuleMessage(const NativeTable& table, const NativeChain& chain,
                                          const NativeDrop& drop, std::string action) {
  const NftnlRulePtr rule(nftnl_rule_alloc());
  if (rule == nullptr) return absl::ResourceExhaustedError("out of memory");
  nftnl_rule_set_str(rule.get(), NFTNL_RULE_TABLE, table.name.c_str());
  nftnl_rule_set_str(rule.get(), NFTNL_RULE_CHAIN, chain.name.c_str());
  RuleBuilder builder(rule.get());
  if (drop.destination) builder.Destination(table.family, *drop.destination);
  if (drop.source) builder.Source(table.family, *drop.source);
  if (drop.state_any != 0) builder.ConnectionBits(NFT_CT_STATE, drop.state_any, true);
  if (drop.state_none != 0) builder.ConnectionBits(NFT_CT_STATE, drop.state_none, false);
  if (drop.status_none != 0) builder.ConnectionBits(NFT_CT_STATUS, drop.status_none, false);
  builder.Counter();
  builder.Verdict(NF_DROP);
  if (!drop.comment.empty()) builder.UserDataComment(drop.comment);
  if (!builder.ok()) return absl::ResourceExhaustedError("out of memory");
  return Message(NFT_MSG_NEWRULE, table.family, NLM_F_CREATE | NLM_F_APPEND, std::move(action),
                 [&](nlmsghdr* header) { nftnl_rule_nlmsg_build_payload(header, rule.get()); });
}

absl::Status AppendChain(const NativeTable& table, const NativeChain& chain,
                         const std::string& table_action, std::vector<NativeMessage>& messages) {
  const std::string action = absl::StrCat(table_action, ", chain ", chain.name);
  const auto refuse = [&](const absl::Status& why) {
    return absl::Status(why.code(), absl::StrCat(action, ": ", why.message()));
  };
  if (absl::Status status = CheckChainName(chain.name); !status.ok()) return refuse(status);
  messages.push_back(ChainMessage(table, chain, action));
  for (const NativeDrop& drop : chain.rules) {
    if (absl::Status status = CheckDrop(table.family, drop); !status.ok()) return refuse(status);
    absl::StatusOr<NativeMessage> rule = RuleMessage(
        table, chain, drop, absl::StrCat(action, ", the rule ", ToString(table.family, drop)));
    if (!rule.ok()) return refuse(rule.status());
    messages.push_back(*std::move(rule));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<NativeMessage>> EncodeNativeTable(const NativeTable& table) {
  const std::string action =
      absl::StrCat("putting in place the table ", TableText(table.family, table.name));
  const auto not_ascending = [](const NativeChain& a, const NativeChain& b) {
    return a.name >= b.name;
  };
  absl::Status status = CheckTableName(table.name);
  if (std::adjacent_find(table.chains.begin(), table.chains.end(), not_ascending) !=
      table.chains.end()) {
    status.Update(absl::InvalidArgumentError("the chains are not in the order of their names"));
  }
  if (!status.ok())
    return absl::Status(status.code(), absl::StrCat(action, ": ", status.message()));
  std::vector<NativeMessage> messages;
  // Creating a table that exists changes nothing, so that there is one to delete.
  messages.push_back(
      TableMessage(NFT_MSG_NEWTABLE, table.family, NLM_F_CREATE, table.name, action));
  messages.push_back(TableMessage(NFT_MSG_DELTABLE, table.family, 0, table.name,
                                  absl::StrCat(action, ", removing the old one")));
  messages.push_back(
      TableMessage(NFT_MSG_NEWTABLE, table.family, NLM_F_CREATE, table.name, action));
  for (const NativeChain& chain : table.chains) {
    if (absl::Status bad = AppendChain(table, chain, action, messages); !bad.ok()) return bad;
  }
  return messages;
}

absl::StatusOr<std::vector<NativeMessage>> EncodeDeleteNativeTable(const DeleteNativeTable& table) {
  std::string action = absl::StrCat("deleting the table ", TableText(table.family, table.name));
  if (absl::Status status = CheckTableName(table.name); !status.ok()) {
    return absl::Status(status.code(), absl::StrCat(action, ": ", status.message()));
  }
  return std::vector<NativeMessage>{
      TableMessage(NFT_MSG_DELTABLE, table.family, 0, table.name, std::move(action))};
}

}  // namespace

absl::StatusOr<std::vector<NativeMessage>> EncodeNative(const Operation& operation) {
  if (const auto* put = std::get_if<PutNativeTable>(&operation))
    return EncodeNativeTable(put->table);
  if (const auto* remove = std::get_if<DeleteNativeTable>(&operation))
    return EncodeDeleteNativeTable(*remove);
  return absl::InvalidArgumentError("not a native table's operation");
}

}  // namespace kipt::netlink
