// SPDX-License-Identifier: Apache-2.0
#include "netlink/rule_codec.h"

// Before linux/netfilter.h, or the two redefine each other.
#include <netinet/in.h>
// Then the kernel's.
#include <linux/netfilter.h>
#include <linux/netfilter/nf_tables.h>
#include <linux/netfilter/nfnetlink.h>
#include <linux/netlink.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "netlink/expression.h"
#include "netlink/rule_display.h"
#include "netlink/statement.h"
#include "netlink/xt_info.h"

namespace kipt::netlink {
namespace {

// nf_tables allows 255; longer names are cut off nowhere, so refuse them here.
constexpr size_t kMaxNameLength = NFT_NAME_MAXLEN - 1;

// ---- Rule to wire ----

// Adds expressions to a rule in the order of the calls.
class RuleBuilder {
 public:
  explicit RuleBuilder(nftnl_rule* rule) : rule_(rule) {}

  // False once an allocation has failed.
  bool ok() const { return ok_; }

  // The widest form, LEN 4 or 16 with a mask. iptables-nft writes fewer bytes for /8, /16 and /24;
  // all versions of it read both.
  void Address(uint32_t offset, uint32_t size, const PrefixMatch& match) {
    nftnl_expr* load = Add("payload");
    if (load == nullptr) return;
    nftnl_expr_set_u32(load, NFTNL_EXPR_PAYLOAD_DREG, NFT_REG_1);
    nftnl_expr_set_u32(load, NFTNL_EXPR_PAYLOAD_BASE, NFT_PAYLOAD_NETWORK_HEADER);
    nftnl_expr_set_u32(load, NFTNL_EXPR_PAYLOAD_OFFSET, offset);
    nftnl_expr_set_u32(load, NFTNL_EXPR_PAYLOAD_LEN, size);
    if (match.prefix.length != size * 8) Mask(size, match.prefix.length);
    nftnl_expr* compare = Add("cmp");
    if (compare == nullptr) return;
    nftnl_expr_set_u32(compare, NFTNL_EXPR_CMP_SREG, NFT_REG_1);
    nftnl_expr_set_u32(compare, NFTNL_EXPR_CMP_OP, match.negated ? NFT_CMP_NEQ : NFT_CMP_EQ);
    nftnl_expr_set(compare, NFTNL_EXPR_CMP_DATA, match.prefix.address.data(), size);
  }

  void Match(const char* name, uint32_t revision, const std::vector<uint8_t>& info) {
    if (nftnl_expr* match = Add("match")) {
      nftnl_expr_set_str(match, NFTNL_EXPR_MT_NAME, name);
      nftnl_expr_set_u32(match, NFTNL_EXPR_MT_REV, revision);
      SetInfo(match, NFTNL_EXPR_MT_INFO, info);
    }
  }

  void Target(const char* name, uint32_t revision, const std::vector<uint8_t>& info) {
    if (nftnl_expr* target = Add("target")) {
      nftnl_expr_set_str(target, NFTNL_EXPR_TG_NAME, name);
      nftnl_expr_set_u32(target, NFTNL_EXPR_TG_REV, revision);
      SetInfo(target, NFTNL_EXPR_TG_INFO, info);
    }
  }

  void Counter() {
    if (nftnl_expr* counter = Add("counter")) {
      nftnl_expr_set_u64(counter, NFTNL_EXPR_CTR_PACKETS, 0);
      nftnl_expr_set_u64(counter, NFTNL_EXPR_CTR_BYTES, 0);
    }
  }

  void Verdict(int32_t code, const char* chain = nullptr) {
    if (nftnl_expr* verdict = Add("immediate")) {
      nftnl_expr_set_u32(verdict, NFTNL_EXPR_IMM_DREG, NFT_REG_VERDICT);
      nftnl_expr_set_u32(verdict, NFTNL_EXPR_IMM_VERDICT, static_cast<uint32_t>(code));
      if (chain != nullptr) nftnl_expr_set_str(verdict, NFTNL_EXPR_IMM_CHAIN, chain);
    }
  }

 private:
  nftnl_expr* Add(const char* name) {
    nftnl_expr* expression = nftnl_expr_alloc(name);
    if (expression == nullptr) {
      ok_ = false;
    } else {
      nftnl_rule_add_expr(rule_, expression);
    }
    return expression;
  }

  void Mask(uint32_t size, unsigned length) {
    nftnl_expr* mask = Add("bitwise");
    if (mask == nullptr) return;
    std::array<uint8_t, 16> ones{};
    for (unsigned bit = 0; bit < length; ++bit) {
      ones[bit / 8] = static_cast<uint8_t>(ones[bit / 8] | (0x80U >> (bit % 8)));
    }
    const std::array<uint8_t, 16> zeros{};
    nftnl_expr_set_u32(mask, NFTNL_EXPR_BITWISE_SREG, NFT_REG_1);
    nftnl_expr_set_u32(mask, NFTNL_EXPR_BITWISE_DREG, NFT_REG_1);
    nftnl_expr_set_u32(mask, NFTNL_EXPR_BITWISE_LEN, size);
    nftnl_expr_set(mask, NFTNL_EXPR_BITWISE_MASK, ones.data(), size);
    nftnl_expr_set(mask, NFTNL_EXPR_BITWISE_XOR, zeros.data(), size);
  }

  void SetInfo(nftnl_expr* expression, uint16_t attribute, const std::vector<uint8_t>& info) {
    // libnftnl keeps this pointer and gives it to free().
    std::unique_ptr<void, NftnlDeleter<&std::free>> copy(std::malloc(info.size()));
    ok_ = ok_ && copy != nullptr;
    if (copy == nullptr) return;
    std::memcpy(copy.get(), info.data(), info.size());
    nftnl_expr_set(expression, attribute, copy.release(), static_cast<uint32_t>(info.size()));
  }  // NOLINT(clang-analyzer-unix.Malloc): the analyzer does not see libnftnl keep it

  nftnl_rule* rule_;
  bool ok_ = true;
};

struct TargetEncoder {
  Family family;
  RuleBuilder& builder;

  void operator()(const Drop&) const { builder.Verdict(NF_DROP); }
  void operator()(const Return&) const { builder.Verdict(NFT_RETURN); }
  void operator()(const Jump& jump) const { builder.Verdict(NFT_JUMP, jump.chain.c_str()); }
  void operator()(const SetMark& mark) const {
    builder.Target(kXtSetMark, kXtSetMarkRevision, EncodeXtSetMark(mark));
  }
  void operator()(const Masquerade& masquerade) const {
    builder.Target(kXtMasquerade, kXtMasqueradeRevision, EncodeXtMasquerade(family, masquerade));
  }
};

absl::Status CheckPrefix(Family family, const std::optional<PrefixMatch>& match) {
  if (!match) return absl::OkStatus();
  const int bits = family == Family::kIPv4 ? 32 : 128;
  const Prefix& prefix = match->prefix;
  if (prefix.length > bits) {
    return absl::InvalidArgumentError(absl::StrCat("an ", FamilyName(family), " prefix of ",
                                                   static_cast<int>(prefix.length), " bits"));
  }
  const absl::StatusOr<Prefix> normal = ParsePrefix(family, ToString(family, prefix));
  if (!normal.ok() || *normal != prefix) {
    return absl::InvalidArgumentError(
        absl::StrCat("the prefix ", ToString(family, prefix), " has bits behind its length"));
  }
  return absl::OkStatus();
}

absl::Status CheckRule(Family family, const Rule& rule) {
  if (absl::Status status = CheckPrefix(family, rule.source); !status.ok()) return status;
  if (absl::Status status = CheckPrefix(family, rule.destination); !status.ok()) return status;
  if (rule.comment.size() > kMaxCommentLength || rule.comment.find('\0') != std::string::npos) {
    return absl::InvalidArgumentError(
        absl::StrCat("a comment has at most ", kMaxCommentLength, " bytes and no NUL"));
  }
  if (rule.ct_state && !IsKnownCtState(rule.ct_state->states)) {
    return absl::InvalidArgumentError("a connection state that iptables has no name for");
  }
  const Jump* jump = std::get_if<Jump>(&rule.target);
  return jump != nullptr ? CheckChainName(jump->chain) : absl::OkStatus();
}

// ---- wire to Rule ----

// Puts statements into a Rule as long as each has a place of its own there.
class RuleAssembler {
 public:
  void operator()(const AddressStatement& address) {
    Set(address.is_source ? rule_.source : rule_.destination, address.match);
  }
  void operator()(const MarkMatch& mark) { Set(rule_.mark, mark); }
  void operator()(const CtStateStatement& state) {
    fits_ = fits_ && !state.state_alias;
    Set(rule_.ct_state, state.match);
  }
  void operator()(const CommentStatement& comment) {
    // A comment may stand anywhere, behind the target too: it is in the user data then.
    fits_ = fits_ && rule_.comment.empty() && !comment.text.empty();
    rule_.comment = comment.text;
  }
  // Where it counts does not change what the rule does.
  void operator()(const CounterStatement&) {}
  void operator()(const VerdictStatement& verdict) {
    if (verdict.code == NF_DROP) {
      SetTarget(Drop{});
    } else if (verdict.code == NFT_RETURN) {
      SetTarget(Return{});
    } else if (verdict.code == NFT_JUMP && CheckChainName(verdict.chain).ok()) {
      SetTarget(Jump{.chain = verdict.chain});
    } else {
      fits_ = false;
    }
  }
  void operator()(const SetMark& mark) { SetTarget(mark); }
  void operator()(const Masquerade& masquerade) { SetTarget(masquerade); }
  void operator()(const InterfaceStatement&) { fits_ = false; }
  void operator()(const ProtocolStatement&) { fits_ = false; }
  void operator()(const PortStatement&) { fits_ = false; }
  void operator()(const XtStatement&) { fits_ = false; }
  void operator()(const OtherExpression&) { fits_ = false; }

  std::optional<Rule> Finish() && {
    if (!fits_ || !has_target_) return std::nullopt;
    return std::move(rule_);
  }

 private:
  template <typename T>
  void Set(std::optional<T>& place, const T& value) {
    // Twice is a rule of two conditions; behind the target it is one that comes too late.
    fits_ = fits_ && !place.has_value() && !has_target_;
    place = value;
  }
  void SetTarget(Target target) {
    fits_ = fits_ && !has_target_;
    has_target_ = true;
    rule_.target = std::move(target);
  }

  Rule rule_;
  bool fits_ = true;
  bool has_target_ = false;
};

// NFTA_RULE_USERDATA is bytes that only programs read: {type, length, value} each. iptables-nft and
// nft agree on type 0, a comment with its NUL. Other types say nothing about what the rule does.
void AppendUserDataComment(WireBytes bytes, std::vector<Statement>& statements) {
  constexpr uint8_t kComment = 0;
  while (bytes.size() >= 2) {
    const uint8_t type = bytes[0];
    const size_t length = bytes[1];
    bytes.remove_prefix(2);
    if (length > bytes.size()) break;
    if (type == kComment) {
      const WireBytes text = bytes.subspan(0, length);
      const std::string comment(text.begin(), std::find(text.begin(), text.end(), 0));
      if (!comment.empty()) statements.emplace_back(CommentStatement{.text = comment});
    }
    bytes.remove_prefix(length);
  }
}

std::variant<Rule, OpaqueRule> ReadContent(Family family, const Attributes& attributes) {
  const std::vector<Expression> expressions =
      ParseExpressions(attributes.Bytes(NFTA_RULE_EXPRESSIONS).value_or(WireBytes()));
  std::vector<Statement> statements = ResolveStatements(family, expressions);
  AppendUserDataComment(attributes.Bytes(NFTA_RULE_USERDATA).value_or(WireBytes()), statements);
  if (attributes.Bytes(NFTA_RULE_COMPAT)) {
    // `-p` as xtables matches want to be told it: a condition outside the expressions.
    statements.emplace_back(
        OtherExpression{.name = "compat", .decides = false, .is_target = false});
  }
  RuleAssembler assembler;
  for (const Statement& statement : statements) std::visit(assembler, statement);
  if (std::optional<Rule> rule = std::move(assembler).Finish()) return *std::move(rule);
  return DescribeOpaqueRule(family, statements);
}

}  // namespace

absl::Status CheckChainName(absl::string_view name) {
  if (name.empty() || name.size() > kMaxNameLength || name.find('\0') != absl::string_view::npos) {
    return absl::InvalidArgumentError(
        absl::StrCat("a chain's name has 1 to ", kMaxNameLength, " bytes and no NUL"));
  }
  return absl::OkStatus();
}

absl::StatusOr<NftnlRulePtr> EncodeRule(const ChainId& chain, const Rule& rule) {
  if (absl::Status status = CheckChainName(chain.name); !status.ok()) return status;
  if (absl::Status status = CheckRule(chain.family, rule); !status.ok()) return status;
  const bool ipv4 = chain.family == Family::kIPv4;
  // Offsets of saddr and daddr in struct iphdr and struct ipv6hdr.
  const uint32_t source_offset = ipv4 ? 12 : 8;
  const uint32_t size = ipv4 ? 4 : 16;

  NftnlRulePtr encoded(nftnl_rule_alloc());
  if (encoded == nullptr) return absl::ResourceExhaustedError("out of memory");
  nftnl_rule_set_u32(encoded.get(), NFTNL_RULE_FAMILY, ipv4 ? NFPROTO_IPV4 : NFPROTO_IPV6);
  nftnl_rule_set_str(encoded.get(), NFTNL_RULE_TABLE, std::string(TableName(chain.table)).c_str());
  nftnl_rule_set_str(encoded.get(), NFTNL_RULE_CHAIN, chain.name.c_str());

  // `iptables -C` compares the matches in order: comment first, as those who write such rules give
  // it.
  RuleBuilder builder(encoded.get());
  if (rule.source) builder.Address(source_offset, size, *rule.source);
  if (rule.destination) builder.Address(source_offset + size, size, *rule.destination);
  if (!rule.comment.empty()) {
    builder.Match(kXtComment, kXtCommentRevision, EncodeXtComment(rule.comment));
  }
  if (rule.mark) builder.Match(kXtMark, kXtMarkRevision, EncodeXtMark(*rule.mark));
  if (rule.ct_state) {
    builder.Match(kXtConntrack, kXtConntrackRevision, EncodeXtCtState(*rule.ct_state));
  }
  builder.Counter();
  std::visit(TargetEncoder{.family = chain.family, .builder = builder}, rule.target);
  if (!builder.ok()) return absl::ResourceExhaustedError("out of memory");
  return encoded;
}

absl::StatusOr<ObservedRule> DecodeRule(WireBytes message) {
  nfgenmsg header = {};
  if (message.size() < NLMSG_HDRLEN + sizeof(header)) {
    return absl::DataLossError("a rule's message is too short");
  }
  std::memcpy(&header, message.data() + NLMSG_HDRLEN, sizeof(header));
  if (header.nfgen_family != NFPROTO_IPV4 && header.nfgen_family != NFPROTO_IPV6) {
    return absl::DataLossError("a rule of an unexpected family");
  }
  message.remove_prefix(NLMSG_HDRLEN + sizeof(header));
  const std::optional<Attributes> attributes = Attributes::Parse(message);
  const std::optional<uint64_t> handle =
      attributes ? attributes->U64(NFTA_RULE_HANDLE) : std::optional<uint64_t>();
  if (!handle) return absl::DataLossError("a rule's message is malformed");
  const Family family = header.nfgen_family == NFPROTO_IPV4 ? Family::kIPv4 : Family::kIPv6;
  return ObservedRule{.handle = *handle, .content = ReadContent(family, *attributes)};
}

}  // namespace kipt::netlink
