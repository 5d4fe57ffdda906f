// SPDX-License-Identifier: Apache-2.0
//
// File: netlink/rule_builder.h
//
// What is on its way to the kernel, as libnftnl has it, and the expressions of a rule: what
// rule_codec, native_encoder and batch have in common.
#ifndef KIPT_NETLINK_RULE_BUILDER_H_
#define KIPT_NETLINK_RULE_BUILDER_H_

#include <libnftnl/chain.h>
#include <libnftnl/expr.h>
#include <libnftnl/rule.h>
#include <libnftnl/table.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "netlink/attributes.h"
#include "netlink/ruleset.h"

namespace kipt::netlink {

// Owners of libnftnl's objects. A rule owns the expressions that were added to it.
template <auto Free>
struct NftnlDeleter {
  template <typename T>
  void operator()(T* object) const {
    Free(object);
  }
};

using NftnlTablePtr = std::unique_ptr<nftnl_table, NftnlDeleter<&nftnl_table_free>>;
using NftnlChainPtr = std::unique_ptr<nftnl_chain, NftnlDeleter<&nftnl_chain_free>>;
using NftnlRulePtr = std::unique_ptr<nftnl_rule, NftnlDeleter<&nftnl_rule_free>>;
using NftnlExprPtr = std::unique_ptr<nftnl_expr, NftnlDeleter<&nftnl_expr_free>>;

// Adds expressions to a rule in the order of the calls. All go through register 1.
class RuleBuilder {
 public:
  // `rule` must outlive the builder.
  explicit RuleBuilder(nftnl_rule* rule) : rule_(rule) {}

  // False once an allocation has failed.
  bool ok() const { return ok_; }

  // The widest form, 4 or 16 bytes with a mask. iptables-nft writes fewer bytes for /8, /16 and
  // /24; all versions of it read both.
  void Source(Family family, const PrefixMatch& match);
  void Destination(Family family, const PrefixMatch& match);

  // `ct KEY & bits != 0` where `any`, else `== 0`. `key` is an enum nft_ct_keys of 4 bytes.
  void ConnectionBits(uint32_t key, uint32_t bits, bool any);

  // Of nft_compat.
  void Match(const char* name, uint32_t revision, const std::vector<uint8_t>& info);
  void Target(const char* name, uint32_t revision, const std::vector<uint8_t>& info);

  void Counter();

  // `code` is NF_DROP, NF_ACCEPT or an enum nft_verdicts; `chain` that of a jump.
  void Verdict(int32_t code, const char* chain = nullptr);

  // As nft(8) keeps a comment, beside the expressions: 1 to 254 bytes.
  void UserDataComment(absl::string_view text);

 private:
  nftnl_expr* Add(const char* name);
  void Address(uint32_t offset, uint32_t size, const PrefixMatch& match);
  void Mask(WireBytes mask);
  void Compare(uint32_t operation, WireBytes data);
  void SetInfo(nftnl_expr* expression, uint16_t attribute, const std::vector<uint8_t>& info);

  nftnl_rule* rule_;
  bool ok_ = true;
};

// The comments in the content of NFTA_RULE_USERDATA: bytes that only programs read, {type, length,
// value} each. iptables-nft and nft agree on type 0, a comment with its NUL, and write one at most;
// other types say nothing about what the rule does. Empty ones are left out.
std::vector<std::string> UserDataComments(WireBytes bytes);

// InvalidArgument: a prefix longer than an address of `family`, or with bits behind its length.
absl::Status CheckPrefix(Family family, const std::optional<PrefixMatch>& match);

}  // namespace kipt::netlink

#endif  // KIPT_NETLINK_RULE_BUILDER_H_
