// SPDX-License-Identifier: Apache-2.0
//
// What expressions outside the vocabulary of statement.h do to a packet, and to registers.
#include "netlink/expression_effect.h"

#include <iterator>

#include "absl/algorithm/container.h"
#include "absl/strings/match.h"
#include "absl/strings/string_view.h"
#include "netlink/nf_tables.h"
#include "netlink/statement.h"
#include "netlink/xt_display.h"

namespace kipt::netlink {
namespace {

// What an expression outside our vocabulary does to a packet.
enum class Effect : uint8_t {
  kPassesOn,  // nothing
  kChanges,   // changes the packet or its connection, and passes it on
  kLoads,     // into a register; ends the rule for packets that do not have the value
  kSelects,   // sends some packets past the rest of the rule
  kStores,    // changes the packet where that is possible, and ends the rule where it is not
  kSometimesEnds,
  kEnds,  // a verdict for every packet that comes so far
};

struct KnownExpression {
  RegisterUse use;
  Effect effect;
  // The attribute that makes a test a store: it writes to the packet.
  uint16_t stores = 0;
  // It has nothing to do with the packet mark or the connection's labels.
  bool leaves_mark = false;
};

// All expressions of the kernel (net/netfilter/nft_*.c, linux/netfilter/nf_tables.h). A name that
// is not here may do anything.
constexpr KnownExpression kExpressions[] = {
    // The second register, of Linux 6.13, has no name in older headers.
    {{"bitwise", {NFTA_BITWISE_SREG, 8}, NFTA_BITWISE_DREG}, Effect::kPassesOn},
    {{"byteorder", {NFTA_BYTEORDER_SREG}, NFTA_BYTEORDER_DREG}, Effect::kPassesOn},
    {{"cmp", {NFTA_CMP_SREG}}, Effect::kSelects},
    {{"connlimit"}, Effect::kSelects},
    {{"counter"}, Effect::kPassesOn},
    {{"ct", {NFTA_CT_SREG}, NFTA_CT_DREG}, Effect::kLoads, NFTA_CT_SREG},
    {{"dup", {NFTA_DUP_SREG_ADDR, NFTA_DUP_SREG_DEV}}, Effect::kChanges, 0, true},
    // It ends the rule where the set is full.
    {{"dynset", {NFTA_DYNSET_SREG_KEY, NFTA_DYNSET_SREG_DATA}}, Effect::kLoads},
    {{"exthdr", {NFTA_EXTHDR_SREG}, NFTA_EXTHDR_DREG}, Effect::kLoads, NFTA_EXTHDR_SREG},
    {{"fib", {}, NFTA_FIB_DREG}, Effect::kLoads},
    // It ends the rule for packets that it cannot offload.
    {{"flow_offload"}, Effect::kSometimesEnds, 0, true},
    {{"fwd", {NFTA_FWD_SREG_DEV, NFTA_FWD_SREG_ADDR}}, Effect::kEnds, 0, true},
    {{"hash", {NFTA_HASH_SREG}, NFTA_HASH_DREG}, Effect::kLoads},
    {{"immediate", {}, NFTA_IMMEDIATE_DREG}, Effect::kPassesOn},
    {{"last"}, Effect::kPassesOn, 0, true},
    {{"limit"}, Effect::kSelects},
    {{"log"}, Effect::kPassesOn},
    {{"lookup", {NFTA_LOOKUP_SREG}, NFTA_LOOKUP_DREG}, Effect::kSelects},
    {{"masq", {NFTA_MASQ_REG_PROTO_MIN, NFTA_MASQ_REG_PROTO_MAX}}, Effect::kEnds},
    {{"meta", {NFTA_META_SREG}, NFTA_META_DREG}, Effect::kLoads, NFTA_META_SREG},
    {{"nat",
      {NFTA_NAT_REG_ADDR_MIN, NFTA_NAT_REG_ADDR_MAX, NFTA_NAT_REG_PROTO_MIN,
       NFTA_NAT_REG_PROTO_MAX}},
     Effect::kEnds,
     0,
     true},
    {{"notrack"}, Effect::kChanges, 0, true},
    {{"numgen", {}, NFTA_NG_DREG}, Effect::kLoads},
    {{"objref", {NFTA_OBJREF_SET_SREG}}, Effect::kChanges, 0, true},
    {{"osf", {}, NFTA_OSF_DREG}, Effect::kLoads},
    {{"payload", {NFTA_PAYLOAD_SREG}, NFTA_PAYLOAD_DREG}, Effect::kLoads, NFTA_PAYLOAD_SREG},
    // The queue's program decides. With `bypass` and without a program the packet is accepted.
    {{"queue", {NFTA_QUEUE_SREG_QNUM}}, Effect::kEnds},
    {{"quota"}, Effect::kSelects},
    {{"range", {NFTA_RANGE_SREG}}, Effect::kSelects},
    {{"redir", {NFTA_REDIR_REG_PROTO_MIN, NFTA_REDIR_REG_PROTO_MAX}}, Effect::kEnds},
    {{"reject"}, Effect::kEnds},
    {{"rt", {}, NFTA_RT_DREG}, Effect::kLoads},
    {{"socket", {}, NFTA_SOCKET_DREG}, Effect::kLoads},
    {{"synproxy"}, Effect::kSometimesEnds, 0, true},
    // It ends the rule for packets without a socket.
    {{"tproxy", {NFTA_TPROXY_REG_ADDR, NFTA_TPROXY_REG_PORT}}, Effect::kSometimesEnds, 0, true},
    {{"tunnel", {}, NFTA_TUNNEL_DREG}, Effect::kLoads},
    {{"xfrm", {}, NFTA_XFRM_DREG}, Effect::kLoads},
};

const KnownExpression* Find(absl::string_view name) {
  const auto* const found = absl::c_find_if(
      kExpressions, [&](const KnownExpression& each) { return each.use.name == name; });
  return found != std::end(kExpressions) ? found : nullptr;
}

// Some of the objects that a rule names choose packets; others only count them.
// NFT_OBJECT_* of linux/netfilter/nf_tables.h.
Effect EffectOfObject(const Attributes& data) {
  // A map names the object: packets that are not in it go past the rule.
  if (data.Bytes(NFTA_OBJREF_SET_SREG)) return Effect::kLoads;
  switch (data.U32(NFTA_OBJREF_IMM_TYPE).value_or(NFT_OBJECT_UNSPEC)) {
    case NFT_OBJECT_COUNTER:
      return Effect::kPassesOn;
    case NFT_OBJECT_QUOTA:
    case NFT_OBJECT_LIMIT:
    case NFT_OBJECT_CONNLIMIT:
      return Effect::kSelects;
    case NFT_OBJECT_CT_HELPER:
    case NFT_OBJECT_TUNNEL:
    case NFT_OBJECT_CT_TIMEOUT:
    case NFT_OBJECT_SECMARK:
    case NFT_OBJECT_CT_EXPECT:
      return Effect::kChanges;
    default:  // NFT_OBJECT_SYNPROXY, and what is not known
      return Effect::kSometimesEnds;
  }
}

// Nothing for an expression that may do anything.
std::optional<Effect> EffectOf(absl::string_view name, const Attributes& data) {
  const KnownExpression* known = Find(name);
  if (known == nullptr) return std::nullopt;
  if (name == "objref") return EffectOfObject(data);
  // A verdict map looks verdicts up, perhaps one for every packet.
  if (name == "lookup" && data.U32(NFTA_LOOKUP_DREG) == NFT_REG_VERDICT) {
    return Effect::kSometimesEnds;
  }
  if (name == "immediate" && data.U32(NFTA_IMMEDIATE_DREG).value_or(0) == NFT_REG_VERDICT) {
    return std::nullopt;
  }
  if (known->stores == 0 || !data.Bytes(known->stores)) return known->effect;
  // These two end the rule where the packet has no such header.
  const bool may_fail = name == "payload" || name == "exthdr";
  return may_fail ? Effect::kStores : Effect::kChanges;
}

// `ct label set` takes the labels from a register.
ConnLabelSet LabelsSetBy(absl::string_view name, const Attributes& data) {
  const bool sets = name == "ct" && data.Bytes(NFTA_CT_SREG).has_value() &&
                    data.U32(NFTA_CT_KEY).value_or(NFT_CT_LABELS) == NFT_CT_LABELS;
  return sets ? AllConnLabels() : ConnLabelSet();
}

}  // namespace

const RegisterUse* FindRegisterUse(absl::string_view name) {
  const KnownExpression* known = Find(name);
  return known != nullptr ? &known->use : nullptr;
}

OtherExpression DescribeOther(const Expression& expression) {
  const std::string& name = expression.name;
  const std::optional<Attributes>& data = expression.data;
  OtherExpression other = {.name = name};
  if (name == "masq") other.target = "MASQUERADE";
  if (name == "nat" && data) {
    other.target = data->U32(NFTA_NAT_TYPE) == NFT_NAT_SNAT ? "SNAT" : "DNAT";
  }
  const KnownExpression* known = Find(name);
  if (known == nullptr || !known->leaves_mark) other.marks = MarksOfUnknownTarget();
  const std::optional<Effect> effect = data ? EffectOf(name, *data) : std::nullopt;
  other.perhaps_terminal = !effect || effect == Effect::kSometimesEnds;
  if (data) other.text = DisplayNative(name, *data);
  // A verdict that could not be read has no condition.
  if (data && name == "immediate" && !effect) other.condition = false;
  if (!effect) return other;
  other.selects = effect == Effect::kSelects;
  other.terminal = effect == Effect::kEnds;
  const bool goes_on = effect == Effect::kPassesOn || effect == Effect::kChanges;
  other.condition = !other.terminal && !goes_on;
  const bool reads = other.selects || effect == Effect::kPassesOn || effect == Effect::kLoads;
  other.decides = !reads;
  other.is_target = !reads || absl::StartsWith(other.text, "-j ");
  if (name == "queue") {
    other.queues = (data->U16(NFTA_QUEUE_FLAGS).value_or(0) & NFT_QUEUE_FLAG_BYPASS) == 0;
    return other;
  }
  other.marks.labels_set = LabelsSetBy(name, *data);
  if (name == "meta" && other.decides) return other;
  // The mark chooses the route.
  const bool route =
      name == "fib" && (data->U32(NFTA_FIB_FLAGS).value_or(0) & NFTA_FIB_F_MARK) != 0;
  other.marks.tested = route || name == "meta" ? kAllMarks : 0;
  other.marks.set = 0;
  return other;
}

}  // namespace kipt::netlink
