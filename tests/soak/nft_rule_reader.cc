// SPDX-License-Identifier: Apache-2.0
#include <arpa/inet.h>
#include <linux/netfilter.h>
#include <linux/netfilter/nf_tables.h>
#include <linux/netfilter/nfnetlink.h>
#include <linux/netfilter/xt_mark.h>
#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>

// These need FILE of <cstdio>, so they come after the standard headers.
#include <libnftnl/common.h>
#include <libnftnl/expr.h>
#include <libnftnl/rule.h>

#include "absl/strings/string_view.h"
#include "tests/soak/sight.h"

namespace kipt::soak {
namespace {

using testing::IpFamily;
using RulePtr = std::unique_ptr<nftnl_rule, void (*)(const nftnl_rule*)>;

constexpr uint32_t kIpv4Destination = 16;

uint32_t NumberIn(const nftnl_expr* expression, uint16_t attribute) {
  return nftnl_expr_get_u32(expression, attribute);
}

// A mask or a value of 32 bits in the CPU's byte order, as marks are.
uint32_t WordIn(const nftnl_expr* expression, uint16_t attribute) {
  uint32_t length = 0;
  const void* data = nftnl_expr_get(expression, attribute, &length);
  uint32_t word = 0;
  if (data != nullptr && length == sizeof(word)) std::memcpy(&word, data, sizeof(word));
  return word;
}

template <typename Info>
std::optional<Info> InfoIn(const nftnl_expr* expression, uint16_t attribute) {
  uint32_t length = 0;
  const void* data = nftnl_expr_get(expression, attribute, &length);
  if (data == nullptr || length < sizeof(Info)) return std::nullopt;
  Info info;
  std::memcpy(&info, data, sizeof(info));
  return info;
}

// Reads one rule, expression by expression. Two encodings of `-m mark` exist: the match of xtables,
// and (iptables 1.8.9) meta, bitwise and cmp.
class Expressions {
 public:
  void Add(const nftnl_expr* expression) {
    const absl::string_view kind = nftnl_expr_get_str(expression, NFTNL_EXPR_NAME);
    if (kind == "immediate") Immediate(expression);
    if (kind == "match") Match(expression);
    if (kind == "target") Target(expression);
    if (kind == "masq") rule_.target = "MASQUERADE";
    if (kind == "ct") rule_.ct_state = true;
    if (kind == "payload") {
      rule_.destination |=
          NumberIn(expression, NFTNL_EXPR_PAYLOAD_BASE) == NFT_PAYLOAD_NETWORK_HEADER &&
          NumberIn(expression, NFTNL_EXPR_PAYLOAD_OFFSET) == kIpv4Destination;
    }
    if (kind == "meta" || kind == "payload" || kind == "ct") {
      mask_ = ~uint32_t{0};
      holds_mark_ = kind == "meta" && NumberIn(expression, NFTNL_EXPR_META_KEY) == NFT_META_MARK &&
                    nftnl_expr_is_set(expression, NFTNL_EXPR_META_DREG);
    }
    if (kind == "bitwise") mask_ = WordIn(expression, NFTNL_EXPR_BITWISE_MASK);
    if (kind == "cmp" && holds_mark_) {
      rule_.mark = MarkMatch{WordIn(expression, NFTNL_EXPR_CMP_DATA), mask_,
                             NumberIn(expression, NFTNL_EXPR_CMP_OP) == NFT_CMP_NEQ};
    }
  }
  const SeenRule& rule() const { return rule_; }

 private:
  void Immediate(const nftnl_expr* expression) {
    if (!nftnl_expr_is_set(expression, NFTNL_EXPR_IMM_VERDICT)) return;
    switch (static_cast<int>(NumberIn(expression, NFTNL_EXPR_IMM_VERDICT))) {
      case NF_DROP:
        rule_.target = "DROP";
        break;
      case NFT_RETURN:
        rule_.target = "RETURN";
        break;
      case NFT_JUMP:
      case NFT_GOTO:
        rule_.target = nftnl_expr_get_str(expression, NFTNL_EXPR_IMM_CHAIN);
        break;
      default:
        break;
    }
  }
  void Match(const nftnl_expr* expression) {
    const absl::string_view name = nftnl_expr_get_str(expression, NFTNL_EXPR_MT_NAME);
    if (name == "conntrack") rule_.ct_state = true;
    if (name != "mark") return;
    const auto info = InfoIn<xt_mark_mtinfo1>(expression, NFTNL_EXPR_MT_INFO);
    if (info) rule_.mark = MarkMatch{info->mark, info->mask, info->invert != 0};
  }
  void Target(const nftnl_expr* expression) {
    rule_.target = nftnl_expr_get_str(expression, NFTNL_EXPR_TG_NAME);
    if (rule_.target != "MARK") return;
    const auto info = InfoIn<xt_mark_tginfo2>(expression, NFTNL_EXPR_TG_INFO);
    if (info) rule_.sets = MarkChange{info->mark, info->mask};
  }

  SeenRule rule_;
  // What the register holds at this point.
  bool holds_mark_ = false;
  uint32_t mask_ = 0;
};

absl::Status Changed() { return absl::AbortedError("the rules were changed meanwhile"); }

int AddRule(const nlmsghdr* message, void* data) {
  const RulePtr rule(nftnl_rule_alloc(), nftnl_rule_free);
  if (nftnl_rule_nlmsg_parse(message, rule.get()) < 0) return MNL_CB_ERROR;
  Expressions expressions;
  const auto add = [](nftnl_expr* expression, void* all) {
    static_cast<Expressions*>(all)->Add(expression);
    return 0;
  };
  nftnl_expr_foreach(rule.get(), add, &expressions);
  static_cast<std::vector<SeenRule>*>(data)->push_back(expressions.rule());
  return MNL_CB_OK;
}

int ReadGeneration(const nlmsghdr* message, void* data) {
  const auto read = [](const nlattr* attribute, void* generation) {
    if (mnl_attr_get_type(attribute) == NFTA_GEN_ID) {
      *static_cast<uint32_t*>(generation) = ntohl(mnl_attr_get_u32(attribute));
    }
    return MNL_CB_OK;
  };
  return mnl_attr_parse(message, sizeof(nfgenmsg), read, data);
}

}  // namespace

absl::StatusOr<std::unique_ptr<NftRuleReader>> NftRuleReader::Create() {
  Socket socket(mnl_socket_open2(NETLINK_NETFILTER, SOCK_CLOEXEC), mnl_socket_close);
  if (socket == nullptr || mnl_socket_bind(socket.get(), 0, MNL_SOCKET_AUTOPID) < 0) {
    return absl::ErrnoToStatus(errno, "netlink socket");
  }
  return std::unique_ptr<NftRuleReader>(new NftRuleReader(std::move(socket)));
}

// Reads up to the end of the answer in every case, so that nothing of it is left for the next
// request.
absl::Status NftRuleReader::Exchange(const nlmsghdr& request, mnl_cb_t read, void* data) {
  if (mnl_socket_sendto(socket_.get(), &request, request.nlmsg_len) < 0) {
    return absl::ErrnoToStatus(errno, "a request to nf_tables");
  }
  std::vector<char> buffer(1 << 16);
  absl::Status status;
  for (;;) {
    const ssize_t size = mnl_socket_recvfrom(socket_.get(), buffer.data(), buffer.size());
    if (size < 0) return absl::ErrnoToStatus(errno, "an answer of nf_tables");
    int left = static_cast<int>(size);
    const auto* message = reinterpret_cast<const nlmsghdr*>(buffer.data());
    for (; mnl_nlmsg_ok(message, left); message = mnl_nlmsg_next(message, &left)) {
      if (message->nlmsg_seq != request.nlmsg_seq) continue;
      if ((message->nlmsg_flags & NLM_F_DUMP_INTR) != 0) status.Update(Changed());
      if (message->nlmsg_type == NLMSG_DONE) return status;
      if (message->nlmsg_type == NLMSG_ERROR) {
        const auto* error = static_cast<const nlmsgerr*>(mnl_nlmsg_get_payload(message));
        if (error->error != 0) return absl::ErrnoToStatus(-error->error, "nf_tables");
        return status;
      }
      if (read(message, data) < 0) status.Update(absl::InternalError("a rule cannot be read"));
    }
  }
}

absl::StatusOr<uint32_t> NftRuleReader::Generation() {
  std::array<char, 256> memory = {};
  nlmsghdr* request =
      nftnl_nlmsg_build_hdr(memory.data(), NFT_MSG_GETGEN, AF_UNSPEC, NLM_F_ACK, ++sequence_);
  uint32_t generation = 0;
  const absl::Status status = Exchange(*request, ReadGeneration, &generation);
  if (!status.ok()) return status;
  return generation;
}

absl::StatusOr<std::vector<SeenRule>> NftRuleReader::RulesOf(const ChainKey& chain) {
  const auto& [family, table, name] = chain;
  std::array<char, 512> memory = {};
  nlmsghdr* request = nftnl_nlmsg_build_hdr(memory.data(), NFT_MSG_GETRULE,
                                            family == IpFamily::kIpv4 ? NFPROTO_IPV4 : NFPROTO_IPV6,
                                            NLM_F_DUMP, ++sequence_);
  const RulePtr filter(nftnl_rule_alloc(), nftnl_rule_free);
  nftnl_rule_set_str(filter.get(), NFTNL_RULE_TABLE, table.c_str());
  nftnl_rule_set_str(filter.get(), NFTNL_RULE_CHAIN, name.c_str());
  nftnl_rule_nlmsg_build_payload(request, filter.get());
  std::vector<SeenRule> rules;
  const absl::Status status = Exchange(*request, AddRule, &rules);
  if (!status.ok()) return status;
  return rules;
}

absl::StatusOr<SeenChains> NftRuleReader::Read() {
  const absl::StatusOr<uint32_t> before = Generation();
  if (!before.ok()) return before.status();
  SeenChains chains;
  for (const ChainKey& chain : WatchedChains()) {
    absl::StatusOr<std::vector<SeenRule>> rules = RulesOf(chain);
    if (!rules.ok()) return rules.status();
    chains[chain] = *std::move(rules);
  }
  const absl::StatusOr<uint32_t> after = Generation();
  if (!after.ok()) return after.status();
  if (*before != *after) return Changed();
  return chains;
}

}  // namespace kipt::soak
