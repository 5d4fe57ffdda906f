// SPDX-License-Identifier: Apache-2.0
#include "netlink/rule_codec.h"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>
#include <initializer_list>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "netlink/nf_tables.h"
#include "netlink/nftnl.h"
#include "netlink/rule_display.h"
#include "netlink/statement.h"
#include "netlink/translation.h"
#include "netlink/xt_info.h"

namespace kipt::netlink {
namespace {

// The kernel does not cut longer names off.
constexpr size_t kMaxNameLength = NFT_NAME_MAXLEN - 1;
// NFTNL_UDATA_COMMENT_MAXLEN without the NUL: nft(8) writes no longer one.
constexpr size_t kMaxNativeComment = 127;

constexpr std::array<uint8_t, 16> kZeros = {};

// Adds expressions to a rule in the order of the calls. All go through register 1.
class ExpressionWriter {
 public:
  explicit ExpressionWriter(nftnl_rule* rule) : rule_(rule) {}

  // False once an allocation has failed.
  bool ok() const { return ok_; }

  // `kind` is "match" or "target": NFTNL_EXPR_TG_* are numbered alike.
  void Xt(const char* kind, const XtName& xt, const std::vector<uint8_t>& info) {
    Add(kind, {{NFTNL_EXPR_MT_REV, xt.revision}});
    Set(NFTNL_EXPR_MT_NAME, xt.name, std::strlen(xt.name) + 1);
    // libnftnl keeps the pointer, for free().
    void* kept = ok_ ? std::malloc(info.size()) : nullptr;
    ok_ = kept != nullptr;
    if (!ok_) return;
    std::memcpy(kept, info.data(), info.size());
    Set(NFTNL_EXPR_MT_INFO, kept, info.size());
  }  // NOLINT(clang-analyzer-unix.Malloc): the analyzer does not see libnftnl keep it

  // Loads `loaded` bytes of the address.
  void Address(Family family, bool is_source, const PrefixMatch& match, uint32_t loaded) {
    // The offset of saddr in struct iphdr and struct ipv6hdr; daddr follows.
    const uint32_t source = family == Family::kIPv4 ? 12 : 8;
    const uint32_t size = family == Family::kIPv4 ? 4 : 16;
    Add("payload", {{NFTNL_EXPR_PAYLOAD_DREG, NFT_REG_1},
                    {NFTNL_EXPR_PAYLOAD_BASE, NFT_PAYLOAD_NETWORK_HEADER},
                    {NFTNL_EXPR_PAYLOAD_OFFSET, is_source ? source : source + size},
                    {NFTNL_EXPR_PAYLOAD_LEN, loaded}});
    if (match.prefix.length != loaded * 8) {
      Mask(absl::MakeConstSpan(PrefixMask(match.prefix.length)).first(loaded));
    }
    Compare(match.negated ? NFT_CMP_NEQ : NFT_CMP_EQ,
            absl::MakeConstSpan(match.prefix.address).first(loaded));
  }

  // `ct KEY & bits != 0` where `any`, else `== 0`; nothing for no bits. `key` is an enum
  // nft_ct_keys of 4 bytes.
  void ConnectionBits(uint32_t key, uint32_t bits, bool any) {
    if (bits == 0) return;
    Add("ct", {{NFTNL_EXPR_CT_KEY, key}, {NFTNL_EXPR_CT_DREG, NFT_REG_1}});
    // A number in a register is in the machine's own order.
    Mask({reinterpret_cast<const uint8_t*>(&bits), sizeof(bits)});
    Compare(any ? NFT_CMP_NEQ : NFT_CMP_EQ, absl::MakeConstSpan(kZeros).first(sizeof(bits)));
  }

  void Counter() {
    Add("counter", {});
    for (const uint16_t each : {NFTNL_EXPR_CTR_BYTES, NFTNL_EXPR_CTR_PACKETS}) {
      Set(each, kZeros.data(), sizeof(uint64_t));
    }
  }

  // `code` is NF_DROP or an enum nft_verdicts; `chain` that of a jump.
  void Verdict(int32_t code, const std::string& chain = "") {
    Add("immediate", {{NFTNL_EXPR_IMM_DREG, NFT_REG_VERDICT},
                      {NFTNL_EXPR_IMM_VERDICT, static_cast<uint32_t>(code)}});
    if (!chain.empty()) Set(NFTNL_EXPR_IMM_CHAIN, chain.c_str(), chain.size() + 1);
  }

 private:
  // `numbers` are {NFTNL_EXPR_*, value}.
  void Add(const char* name, std::initializer_list<std::pair<uint16_t, uint32_t>> numbers) {
    last_ = ok_ ? nftnl_expr_alloc(name) : nullptr;
    ok_ = last_ != nullptr;
    if (!ok_) return;
    nftnl_rule_add_expr(rule_, last_);
    for (const auto& [type, number] : numbers) Set(type, &number, sizeof(number));
  }
  // Sets an attribute of the expression that was added last.
  void Set(uint16_t type, const void* data, size_t size) {
    ok_ = ok_ && nftnl_expr_set(last_, type, data, static_cast<uint32_t>(size)) == 0;
  }
  void Mask(WireBytes mask) {
    Add("bitwise", {{NFTNL_EXPR_BITWISE_SREG, NFT_REG_1},
                    {NFTNL_EXPR_BITWISE_DREG, NFT_REG_1},
                    {NFTNL_EXPR_BITWISE_LEN, static_cast<uint32_t>(mask.size())}});
    Set(NFTNL_EXPR_BITWISE_MASK, mask.data(), mask.size());
    Set(NFTNL_EXPR_BITWISE_XOR, kZeros.data(), mask.size());
  }
  void Compare(uint32_t operation, WireBytes data) {
    Add("cmp", {{NFTNL_EXPR_CMP_SREG, NFT_REG_1}, {NFTNL_EXPR_CMP_OP, operation}});
    Set(NFTNL_EXPR_CMP_DATA, data.data(), data.size());
  }

  nftnl_rule* rule_;
  nftnl_expr* last_ = nullptr;  // which the rule owns
  bool ok_ = true;
};

struct TargetEncoder {
  Family family;
  ExpressionWriter& writer;

  void operator()(const Drop&) const { writer.Verdict(NF_DROP); }
  void operator()(const Return&) const { writer.Verdict(NFT_RETURN); }
  void operator()(const Jump& jump) const { writer.Verdict(NFT_JUMP, jump.chain); }
  void operator()(const SetMark& mark) const {
    writer.Xt("target", kXtSetMark, EncodeXtSetMark(mark));
  }
  void operator()(const Masquerade& masquerade) const {
    writer.Xt("target", kXtMasquerade, EncodeXtMasquerade(family, masquerade));
  }
  void operator()(const NoTarget&) const {}
};

absl::Status CheckPrefix(Family family, const std::optional<PrefixMatch>& match) {
  if (!match) return absl::OkStatus();
  const Prefix& prefix = match->prefix;
  if (prefix.length > (family == Family::kIPv4 ? 32 : 128)) {
    return absl::InvalidArgumentError(absl::StrCat("an ", FamilyName(family), " prefix of ",
                                                   static_cast<int>(prefix.length), " bits"));
  }
  const absl::StatusOr<Prefix> normal = ParsePrefix(family, ToString(family, prefix));
  if (!normal.ok() || *normal != prefix) {
    return absl::InvalidArgumentError(
        absl::StrCat("the prefix ", ToString(family, prefix), " has bits beyond its length"));
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
  if (absl::Status status = CheckConnLabel(rule); !status.ok()) return status;
  const Jump* jump = std::get_if<Jump>(&rule.target);
  return jump != nullptr ? CheckChainName(jump->chain) : absl::OkStatus();
}

}  // namespace

absl::Status CheckChainName(absl::string_view name) {
  if (name.empty() || name.size() > kMaxNameLength || name.find('\0') != absl::string_view::npos) {
    return absl::InvalidArgumentError(
        absl::StrCat("a chain's name has 1 to ", kMaxNameLength, " bytes and no NUL"));
  }
  return absl::OkStatus();
}

absl::Status EncodeRule(const ChainId& chain, const Rule& rule, nlmsghdr* to) {
  if (absl::Status status = CheckChainName(chain.name); !status.ok()) return status;
  if (absl::Status status = CheckRule(chain.family, rule); !status.ok()) return status;
  const NftnlRule made = NftnlRuleWith(
      {{NFTNL_RULE_TABLE, std::string(TableName(chain.table))}, {NFTNL_RULE_CHAIN, chain.name}});
  if (made == nullptr) return OutOfMemory();
  // `iptables -C` compares the matches in order: comment first, as other programs write it.
  // iptables-nft writes fewer bytes of an address for /8, /16 and /24; all its versions read both.
  ExpressionWriter writer(made.get());
  const uint32_t bytes = chain.family == Family::kIPv4 ? 4 : 16;
  if (rule.source) writer.Address(chain.family, /*is_source=*/true, *rule.source, bytes);
  if (rule.destination) writer.Address(chain.family, false, *rule.destination, bytes);
  if (!rule.comment.empty()) writer.Xt("match", kXtComment, EncodeXtComment(rule.comment));
  if (rule.mark) writer.Xt("match", kXtMark, EncodeXtMark(*rule.mark));
  if (rule.ct_state) writer.Xt("match", kXtConntrack, EncodeXtCtState(*rule.ct_state));
  if (rule.conn_label) writer.Xt("match", kXtConnLabel, EncodeXtConnLabel(*rule.conn_label));
  writer.Counter();
  std::visit(TargetEncoder{.family = chain.family, .writer = writer}, rule.target);
  if (!writer.ok()) return OutOfMemory();
  nftnl_rule_nlmsg_build_payload(to, made.get());
  return absl::OkStatus();
}

absl::Status CheckDrop(Family family, const NativeDrop& drop) {
  if (absl::Status status = CheckPrefix(family, drop.source); !status.ok()) return status;
  if (absl::Status status = CheckPrefix(family, drop.destination); !status.ok()) return status;
  const bool printable = std::none_of(drop.comment.begin(), drop.comment.end(), [](char c) {
    return c == '"' || absl::ascii_iscntrl(static_cast<unsigned char>(c));
  });
  if (drop.comment.size() > kMaxNativeComment || !printable) {
    return absl::InvalidArgumentError(absl::StrCat("a comment has at most ", kMaxNativeComment,
                                                   " bytes, no quotes and no control characters"));
  }
  return absl::OkStatus();
}

absl::Status EncodeDrop(const NativeTable& table, const std::string& chain, const NativeDrop& drop,
                        nlmsghdr* to) {
  const NftnlRule made = NftnlRuleWith({{NFTNL_RULE_TABLE, table.name}, {NFTNL_RULE_CHAIN, chain}});
  if (made == nullptr) return OutOfMemory();
  ExpressionWriter writer(made.get());
  const auto address = [&](const std::optional<PrefixMatch>& match, bool is_source) {
    if (!match) return;
    // Whole bytes need no mask.
    const uint32_t size = table.family == Family::kIPv4 ? 4 : 16;
    const uint32_t bits = match->prefix.length;
    writer.Address(table.family, is_source, *match, bits % 8 == 0 && bits > 0 ? bits / 8 : size);
  };
  address(drop.destination, /*is_source=*/false);
  address(drop.source, /*is_source=*/true);
  writer.ConnectionBits(NFT_CT_STATE, drop.state_any, /*any=*/true);
  writer.ConnectionBits(NFT_CT_STATE, drop.state_none, /*any=*/false);
  writer.ConnectionBits(NFT_CT_STATUS, drop.status_none, /*any=*/false);
  writer.Counter();
  writer.Verdict(NF_DROP);
  if (!writer.ok()) return OutOfMemory();
  if (!drop.comment.empty()) {
    // As nft(8) keeps a comment: {type 0, length, text with its NUL}.
    std::vector<uint8_t> data = {0, static_cast<uint8_t>(drop.comment.size() + 1)};
    data.insert(data.end(), drop.comment.begin(), drop.comment.end());
    data.push_back(0);
    if (nftnl_rule_set_data(made.get(), NFTNL_RULE_USERDATA, data.data(),
                            static_cast<uint32_t>(data.size())) != 0) {
      return OutOfMemory();
    }
  }
  nftnl_rule_nlmsg_build_payload(to, made.get());
  return absl::OkStatus();
}

// ---- decoding ----

namespace {

bool SetsLabel(const Rule& rule) { return rule.conn_label && rule.conn_label->set; }

// The comments in NFTA_RULE_USERDATA, whose entries are {type, length, value}. iptables-nft and nft
// agree on type 0, a comment with its NUL; other types do not change what the rule does.
std::vector<std::string> UserDataComments(WireBytes bytes) {
  std::vector<std::string> comments;
  while (bytes.size() >= 2) {
    const uint8_t type = bytes[0];
    const size_t length = bytes[1];
    bytes.remove_prefix(2);
    if (length > bytes.size()) break;
    const WireBytes text = bytes.first(length);
    if (type == 0 && !text.empty() && text[0] != 0) {
      comments.emplace_back(text.begin(), std::find(text.begin(), text.end(), 0));
    }
    bytes.remove_prefix(length);
  }
  return comments;
}

// Puts statements into a Rule as long as each has a place of its own there.
class RuleAssembler {
 public:
  void operator()(const AddressStatement& address) {
    Set(address.is_source ? rule_.source : rule_.destination, address.match);
  }
  void operator()(const MarkMatch& mark) { Set(rule_.mark, mark); }
  void operator()(const XtCtState& state) {
    fits_ = fits_ && !state.state_alias;
    Set(rule_.ct_state, state.match);
  }
  void operator()(const ConnStateStatement& state) {
    // Another rule than iptables would make.
    fits_ = false;
    Set(rule_.ct_state, state.match);
  }
  void operator()(const ConnLabelMatch& label) { Set(rule_.conn_label, label); }
  void operator()(const CommentStatement& comment) {
    // A comment after the target is in the user data.
    fits_ = fits_ && rule_.comment.empty() && !comment.text.empty();
    if (rule_.comment.empty()) rule_.comment = comment.text;
  }
  // Where it counts does not change what the rule does.
  void operator()(const RuleCounters&) {}
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
  void operator()(const FamilyStatement& only) {
    fits_ = false;
    family_ = only.family;
  }
  void operator()(const InterfaceStatement& interface) {
    fits_ = false;
    // OpaqueRule::in_interface has the first.
    if (!interface.is_input || std::exchange(has_input_, true)) all_known_ = false;
  }
  void operator()(const OtherExpression& other) {
    fits_ = false;
    if (other.condition) all_known_ = false;
  }
  // Conditions without a place.
  void operator()(const auto&) { fits_ = all_known_ = false; }

  // Whether all statements have a place in the rule.
  bool Finish() {
    if (!has_target_ && SetsLabel(rule_)) SetTarget(NoTarget{});
    return fits_ && has_target_;
  }
  Rule Take() { return std::move(rule_); }
  std::optional<Family> family() const { return family_; }
  // As OpaqueRule::all_known.
  bool all_known() const { return all_known_; }

 private:
  template <typename T>
  void Set(std::optional<T>& place, const T& value) {
    // Twice is a rule of two conditions; after the target it comes too late.
    fits_ = fits_ && !place.has_value() && !has_target_;
    all_known_ = all_known_ && !place.has_value();
    if (!place) place = value;
  }
  void SetTarget(Target target) {
    fits_ = fits_ && !has_target_;
    has_target_ = true;
    rule_.target = std::move(target);
  }

  Rule rule_;
  std::optional<Family> family_;
  bool fits_ = true;
  bool all_known_ = true;
  bool has_input_ = false;
  bool has_target_ = false;
};

std::variant<Rule, OpaqueRule> ContentOf(std::optional<Family> family,
                                         const std::vector<Statement>& statements) {
  RuleAssembler assembler;
  for (const Statement& statement : statements) std::visit(assembler, statement);
  if (assembler.Finish()) return assembler.Take();
  OpaqueRule opaque = DescribeOpaqueRule(family, statements);
  opaque.family = assembler.family();
  opaque.all_known = assembler.all_known();
  opaque.known = assembler.Take();
  opaque.known.target = NoTarget{};
  return opaque;
}

// Whether the statements of a Rule are in the order in which ToString(Rule) prints them; both print
// addresses first, wherever they are.
bool AreInPrintedOrder(const std::vector<Statement>& statements) {
  size_t last = 0;
  for (const Statement& statement : statements) {
    const bool anywhere = std::holds_alternative<AddressStatement>(statement) ||
                          std::holds_alternative<RuleCounters>(statement);
    if (anywhere) continue;
    if (statement.index() < last) return false;
    last = statement.index();
  }
  return true;
}

std::optional<Family> RuleFamily(WireBytes message) {
  const uint8_t family = FamilyOf(message);
  if (family == NFPROTO_IPV4) return Family::kIPv4;
  return family == NFPROTO_IPV6 ? std::optional<Family>(Family::kIPv6) : std::nullopt;
}

}  // namespace

absl::StatusOr<SurveyRule> DecodeRule(WireBytes message, DecodeFor purpose) {
  const Attributes attributes = Attributes::OfMessage(message);
  const auto handle = attributes.U64(NFTA_RULE_HANDLE);
  if (!handle) return absl::DataLossError("a rule's message is malformed");
  const std::optional<Family> family = RuleFamily(message);
  const bool spelled = purpose == DecodeFor::kSurvey;
  if (!family && !spelled) return absl::DataLossError("a rule of an unexpected family");
  const std::vector<Expression> expressions =
      ParseExpressions(attributes.Bytes(NFTA_RULE_EXPRESSIONS).value_or(WireBytes()));
  SurveyRule rule;
  rule.handle = *handle;
  rule.xt =
      absl::c_any_of(expressions, [](const Expression& each) { return ParseXt(each).has_value(); });
  rule.unlistable = family && !IsListable(*family, expressions);
  std::vector<Statement> statements = ResolveStatements(family, expressions);
  for (const Statement& statement : statements) {
    // The last counter counts, as iptables-save prints it.
    if (const auto* counters = std::get_if<RuleCounters>(&statement)) rule.counters = *counters;
  }
  for (std::string& comment :
       UserDataComments(attributes.Bytes(NFTA_RULE_USERDATA).value_or(WireBytes()))) {
    statements.emplace_back(CommentStatement{.text = std::move(comment)});
  }
  if (attributes.Bytes(NFTA_RULE_COMPAT)) {
    // `-p` for xtables matches: a condition outside the expressions.
    statements.insert(
        statements.begin(),
        OtherExpression{.name = "compat", .selects = true, .decides = false, .is_target = false});
  }
  rule.content = ContentOf(family, statements);
  // iptables can list a counter alone, and no other copy.
  const bool may_be_copy = family && !rule.xt && (rule.unlistable || expressions.size() == 1) &&
                           !attributes.Bytes(NFTA_RULE_COMPAT);
  if (auto* opaque = std::get_if<OpaqueRule>(&rule.content); opaque != nullptr && may_be_copy) {
    if (std::optional<Rule> translated = ReadTranslation(*family, expressions)) {
      translated->comment = std::move(opaque->known.comment);
      opaque->target = TargetName(ObservedRule{.content = *translated});
      opaque->known = *std::move(translated);
      opaque->translated = true;
    }
  }
  if (spelled && rule.rule() != nullptr && !AreInPrintedOrder(statements)) {
    std::string spelling = DescribeOpaqueRule(family, statements).text;
    if (spelling != ToString(family.value_or(Family::kIPv4), rule)) {
      rule.spelling = std::move(spelling);
    }
  }
  return rule;
}

}  // namespace kipt::netlink
