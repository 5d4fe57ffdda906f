// SPDX-License-Identifier: Apache-2.0
#include "netlink/statement.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <iterator>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/functional/function_ref.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "netlink/comparison.h"
#include "netlink/expression_effect.h"
#include "netlink/nf_tables.h"
#include "netlink/xt_statement.h"

namespace kipt::netlink {
namespace {

// meta and immediate: packet metadata, and bytes of the rule's own, into a register.
struct MetaLoad {
  uint32_t key = 0;  // enum nft_meta_keys
};
struct ImmediateLoad {
  WireBytes data;
};
// `ct state` and `ct mark`.
struct ConnStateLoad {};
struct ConnMarkLoad {};
// The result of another expression.
struct OtherLoad {
  bool of_mark = false;  // it has read the packet mark
};
using AnyLoad =
    std::variant<PayloadLoad, MetaLoad, ImmediateLoad, ConnStateLoad, ConnMarkLoad, OtherLoad>;

// What a register holds: a load, and since then bitwise, (value & mask) ^ flip.
struct Register {
  AnyLoad load;
  std::optional<WireBytes> mask = std::nullopt;
  WireBytes flip = {};  // as long as the mask; empty if it flips no bit
  size_t first = 0;     // byte in the register file
  size_t length = 0;    // bytes; 0 where the load does not say (meta)
  bool used = false;
};

// The values of the attributes `types`, and there are no others.
template <typename... Types>
std::optional<std::array<uint32_t, sizeof...(Types)>> ExactWords(const Attributes& data,
                                                                 Types... types) {
  if (!data.HasOnly({static_cast<uint16_t>(types)...}) || !(data.U32(types) && ...)) {
    return std::nullopt;
  }
  return std::array<uint32_t, sizeof...(Types)>{*data.U32(types)...};
}

// nf_tables has the same 64 bytes under two sets of names: NFT_REG_1..4 of 16 bytes and
// NFT_REG32_00..15 of 4.
std::optional<size_t> RegisterStart(uint32_t number) {
  if (number >= NFT_REG_1 && number <= NFT_REG_4) return (number - NFT_REG_1) * size_t{16};
  if (number >= NFT_REG32_00 && number <= NFT_REG32_15) return (number - NFT_REG32_00) * size_t{4};
  return std::nullopt;
}

bool HoldsMark(const Register& value) {
  const auto* meta = std::get_if<MetaLoad>(&value.load);
  return meta != nullptr && meta->key == NFT_META_MARK;
}

// The bits of the packet mark that `value` shows.
uint32_t MarkBits(const Register& value) {
  if (!HoldsMark(value)) return 0;
  return value.mask && value.mask->size() == sizeof(uint32_t) ? HostOrder(*value.mask) : kAllMarks;
}

// `meta mark set ct mark & mask | bits`, in the words of CONNMARK where it has them.
OtherExpression RestoreMark(const Register& value) {
  const bool masked = value.mask && value.mask->size() == sizeof(uint32_t);
  const uint32_t mask = masked ? HostOrder(*value.mask) : kAllMarks;
  const uint32_t flip = masked && !value.flip.empty() ? HostOrder(value.flip) : 0;
  return {.name = "meta",
          .condition = false,
          .text = flip != 0 ? ""
                            : absl::StrCat("-j CONNMARK --restore-mark --nfmask 0xffffffff "
                                           "--ctmask 0x",
                                           absl::Hex(mask)),
          .target = "CONNMARK",
          .marks = {.set = mask | flip, .cleared = ~(flip & ~mask)}};
}

// `meta mark set`, where the value is known or made of a mark, and `meta nftrace set 1`.
std::optional<Statement> ReadMetaStore(const Register& value, uint32_t key) {
  const auto* immediate = std::get_if<ImmediateLoad>(&value.load);
  if (key == NFT_META_NFTRACE && immediate != nullptr && !value.mask &&
      immediate->data.size() == 1 && immediate->data[0] == 1) {
    return OtherExpression{
        .name = "meta", .condition = false, .decides = false, .text = "-j TRACE"};
  }
  if (key != NFT_META_MARK) return std::nullopt;
  if (std::holds_alternative<ConnMarkLoad>(value.load)) return RestoreMark(value);
  // mark = (mark & ~mask) ^ bits, as the target MARK has it.
  SetMark mark;
  if (immediate != nullptr && !value.mask && immediate->data.size() == sizeof(uint32_t)) {
    mark.value = HostOrder(immediate->data);
  } else if (HoldsMark(value) && value.mask && value.mask->size() == sizeof(uint32_t)) {
    mark.mask = ~HostOrder(*value.mask);
    mark.value = value.flip.empty() ? 0 : HostOrder(value.flip);
  } else {
    return std::nullopt;
  }
  return OtherExpression{.name = "meta",
                         .condition = false,
                         .text = ToString(Family::kIPv4, Rule{.target = mark}),
                         .target = "MARK",
                         .marks = MarksOf(Rule{.target = mark})};
}

// `ct state established,related`, and `!=`: (state & mask) compared with 0.
std::vector<Statement> ReadConnState(const Register& state, const Comparison& comparison) {
  // NF_CT_STATE_BIT of the kernel, for the states that nft(8) has names for; xt_conntrack has
  // another bit for the last.
  constexpr uint32_t kSame = kCtInvalid | kCtEstablished | kCtRelated | kCtNew;
  constexpr uint32_t kUntracked = 0x40;
  const bool sized = state.mask && state.mask->size() == sizeof(uint32_t) &&
                     comparison.data.size() == sizeof(uint32_t);
  if (!sized || HostOrder(comparison.data) != 0) return {};
  const uint32_t states = HostOrder(*state.mask);
  if ((states & ~(kSame | kUntracked)) != 0) return {};
  return {ConnStateStatement{
      {.states = static_cast<uint16_t>((states & kSame) | (states & kUntracked ? kCtUntracked : 0)),
       .negated = !comparison.negated}}};
}

// Nothing for others, and for packets of all but one.
std::optional<Family> FamilyOfProtocol(const Comparison& nfproto) {
  if (nfproto.negated || nfproto.data.size() != 1) return std::nullopt;
  if (nfproto.data[0] == NFPROTO_IPV4) return Family::kIPv4;
  return nfproto.data[0] == NFPROTO_IPV6 ? std::optional<Family>(Family::kIPv6) : std::nullopt;
}

// Runs through a rule as the kernel does, but remembers where each value came from.
class Resolver {
 public:
  explicit Resolver(std::optional<Family> family) : family_(family) {}

  void Take(const Expression& expression) {
    static constexpr std::pair<absl::string_view, bool (Resolver::*)(const Attributes&)> kKnown[] =
        {{"payload", &Resolver::TakePayload}, {"meta", &Resolver::TakeMeta},
         {"bitwise", &Resolver::TakeBitwise}, {"cmp", &Resolver::TakeComparison},
         {"range", &Resolver::TakeRange},     {"immediate", &Resolver::TakeImmediate},
         {"counter", &Resolver::TakeCounter}, {"ct", &Resolver::TakeConnection}};
    if (const std::optional<XtExpression> xt = ParseXt(expression)) {
      statements_.push_back(ReadXt(family_, *xt));
      return;
    }
    for (const auto& [name, take] : kKnown) {
      if (name == expression.name && expression.data && (this->*take)(*expression.data)) return;
    }
    TakeOther(DescribeOther(expression), expression.data);
  }

  std::vector<Statement> Finish() && {
    Clobber();
    return std::move(statements_);
  }

 private:
  // Each of these answers false where the expression is outside the vocabulary, or malformed.
  bool TakePayload(const Attributes& data) {
    const auto words = ExactWords(data, NFTA_PAYLOAD_DREG, NFTA_PAYLOAD_BASE, NFTA_PAYLOAD_OFFSET,
                                  NFTA_PAYLOAD_LEN);
    if (!words) return false;
    const auto [to, base, offset, length] = *words;
    Load(to, PayloadLoad{.base = base, .offset = offset, .length = length}, length);
    return true;
  }

  bool TakeMeta(const Attributes& data) {
    if (const auto words = ExactWords(data, NFTA_META_DREG, NFTA_META_KEY)) {
      const auto [to, key] = *words;
      Load(to, MetaLoad{.key = key}, key == NFT_META_MARK ? sizeof(uint32_t) : 0);
      return true;
    }
    const auto words = ExactWords(data, NFTA_META_SREG, NFTA_META_KEY);
    if (!words) return false;
    const auto [number, key] = *words;
    Register* from = Find(number, key == NFT_META_NFTRACE ? 1 : sizeof(uint32_t));
    std::optional<Statement> known;
    if (from != nullptr) known = ReadMetaStore(*from, key);
    if (known) {
      from->used = true;
      statements_.push_back(*std::move(known));
    } else {
      Marks marks;
      if (key == NFT_META_MARK) marks = {.set = kAllMarks, .cleared = Overwrites(from)};
      TakeOther({.name = "meta", .condition = false, .marks = marks}, data);
    }
    return true;
  }

  // A value of unknown bits, but not one made of the mark, replaces the whole mark.
  static uint32_t Overwrites(const Register* from) {
    if (from == nullptr || HoldsMark(*from)) return 0;
    const auto* other = std::get_if<OtherLoad>(&from->load);
    return other != nullptr && other->of_mark ? 0 : kAllMarks;
  }

  // Loads the connection's state or mark.
  bool TakeConnection(const Attributes& data) {
    const auto words = ExactWords(data, NFTA_CT_DREG, NFTA_CT_KEY);
    const std::optional<size_t> to = words ? RegisterStart((*words)[0]) : std::nullopt;
    if (to && (*words)[1] == NFT_CT_STATE) {
      Store(Register{.load = ConnStateLoad(), .first = *to, .length = sizeof(uint32_t)});
      return true;
    }
    if (!to || (*words)[1] != NFT_CT_MARK) return false;
    TakeOther({.name = "ct", .decides = false, .is_target = false}, data);
    Store(Register{.load = ConnMarkLoad(), .first = *to, .length = sizeof(uint32_t), .used = true});
    return true;
  }

  // Those that shift, or take two registers, are outside the vocabulary.
  bool TakeBitwise(const Attributes& data) {
    // Kernels since 5.6 dump the operation. A number, because it has had more than one name.
    constexpr uint32_t kMaskXor = 0;
    if (!data.HasOnly({NFTA_BITWISE_SREG, NFTA_BITWISE_DREG, NFTA_BITWISE_LEN, NFTA_BITWISE_MASK,
                       NFTA_BITWISE_XOR, NFTA_BITWISE_OP}) ||
        (data.Bytes(NFTA_BITWISE_OP) && data.U32(NFTA_BITWISE_OP) != kMaskXor)) {
      return false;
    }
    const auto source = data.U32(NFTA_BITWISE_SREG);
    const auto destination = data.U32(NFTA_BITWISE_DREG);
    const auto length = data.U32(NFTA_BITWISE_LEN);
    const auto mask = DataValue(data, NFTA_BITWISE_MASK);
    const auto flip = DataValue(data, NFTA_BITWISE_XOR);
    if (!source || !destination || !mask || !flip || mask->size() != length ||
        flip->size() != length) {
      return false;
    }
    Register* from = Find(*source, mask->size());
    const std::optional<size_t> to = RegisterStart(*destination);
    const bool flips = absl::c_any_of(*flip, [](uint8_t byte) { return byte != 0; });
    std::optional<Register> result;
    if (from != nullptr && !from->mask && to && !std::holds_alternative<OtherLoad>(from->load)) {
      result = Register{.load = from->load,
                        .mask = *mask,
                        .flip = flips ? *flip : WireBytes(),
                        .first = *to,
                        .length = mask->size()};
      result->used = from->used = std::holds_alternative<ConnMarkLoad>(from->load);
    }
    if (!result || result->used) {
      TakeOther({.name = "bitwise", .condition = false, .decides = false, .is_target = false},
                data);
    } else {
      from->used = true;
    }
    if (result) Store(*result);
    return true;
  }

  bool TakeComparison(const Attributes& data) {
    if (!data.HasOnly({NFTA_CMP_SREG, NFTA_CMP_OP, NFTA_CMP_DATA})) return false;
    const auto from = data.U32(NFTA_CMP_SREG);
    const auto op = data.U32(NFTA_CMP_OP);
    const auto value = DataValue(data, NFTA_CMP_DATA);
    if (!from || !op || !value) return false;
    if (*op == NFT_CMP_EQ || *op == NFT_CMP_NEQ) {
      Compare(*from, value->size(), "cmp", [&](const Register& loaded) {
        return ReadComparison(loaded, {.negated = *op == NFT_CMP_NEQ, .data = *value});
      });
      return true;
    }
    const bool less = *op == NFT_CMP_LT || *op == NFT_CMP_LTE;
    if (!less && *op != NFT_CMP_GT && *op != NFT_CMP_GTE) return false;
    CompareRange(*from, {.open = *op == NFT_CMP_LT || *op == NFT_CMP_GT,
                         .low = less ? WireBytes() : *value,
                         .high = less ? *value : WireBytes()});
    return true;
  }

  bool TakeRange(const Attributes& data) {
    if (!data.HasOnly({NFTA_RANGE_SREG, NFTA_RANGE_OP, NFTA_RANGE_FROM_DATA, NFTA_RANGE_TO_DATA})) {
      return false;
    }
    const auto from = data.U32(NFTA_RANGE_SREG);
    const auto op = data.U32(NFTA_RANGE_OP);
    const auto low = DataValue(data, NFTA_RANGE_FROM_DATA);
    const auto high = DataValue(data, NFTA_RANGE_TO_DATA);
    const bool negated = op == NFT_RANGE_NEQ;
    if (!from || !low || !high || low->empty() || high->empty() ||
        (op != NFT_RANGE_EQ && !negated)) {
      return false;
    }
    CompareRange(*from, {.negated = negated, .low = *low, .high = *high});
    return true;
  }

  bool TakeImmediate(const Attributes& data) {
    if (std::optional<VerdictStatement> verdict = ParseVerdict(data)) {
      statements_.emplace_back(*std::move(verdict));
      return true;
    }
    const auto to = data.U32(NFTA_IMMEDIATE_DREG);
    const auto loaded = DataValue(data, NFTA_IMMEDIATE_DATA);
    if (!to || to == NFT_REG_VERDICT || !loaded || loaded->empty() ||
        !data.HasOnly({NFTA_IMMEDIATE_DREG, NFTA_IMMEDIATE_DATA})) {
      return false;
    }
    Load(*to, ImmediateLoad{.data = *loaded}, loaded->size());
    return true;
  }

  bool TakeCounter(const Attributes& data) {
    statements_.emplace_back(ParseCounter(data));
    return true;
  }

  void TakeOther(OtherExpression other, const std::optional<Attributes>& data) {
    const RegisterUse* use = FindRegisterUse(other.name);
    if (!data || use == nullptr) {
      // It may read whatever no expression has read yet, and write any register.
      Clobber();
      statements_.emplace_back(std::move(other));
      return;
    }
    bool of_mark = false;
    for (const uint16_t attribute : use->reads) {
      const auto number = attribute == 0 ? std::nullopt : data->U32(attribute);
      if (number) of_mark = Read(*number, other.marks) || of_mark;
    }
    const auto number = use->writes == 0 ? std::nullopt : data->U32(use->writes);
    const std::optional<size_t> to = number ? RegisterStart(*number) : std::nullopt;
    if (to) Store(Register{.load = OtherLoad{.of_mark = of_mark}, .first = *to, .used = true});
    statements_.emplace_back(std::move(other));
  }

  // An expression with `marks` reads register `number`, and as part of the same key perhaps those
  // after it that no expression has read yet. Whether the mark is among them.
  bool Read(uint32_t number, Marks& marks) {
    const std::optional<size_t> first = RegisterStart(number);
    bool of_mark = false;
    for (Register& value : registers_) {
      const bool exact = first == value.first;
      if (!first || (!exact && (value.first < *first || value.used))) continue;
      const auto* other = std::get_if<OtherLoad>(&value.load);
      of_mark = of_mark || HoldsMark(value) || (other != nullptr && other->of_mark);
      marks.tested |= MarkBits(value);
      Retire(value);
      value.used = true;
    }
    return of_mark;
  }

  // The value of `length` bytes at register `number` is compared. `read` returns the statements
  // that this makes, or none if they are unknown.
  void Compare(uint32_t number, size_t length, const char* name,
               absl::FunctionRef<std::vector<Statement>(const Register&)> read) {
    Register* from = Find(number, length);
    std::vector<Statement> known;
    if (from != nullptr) {
      from->used = true;
      if (from->flip.empty()) known = read(*from);
    }
    if (known.empty()) {
      OtherExpression unread = Unread(LoadName(from, name), from);
      // Bytes of the rule's own are the same for every packet.
      unread.selects = from == nullptr || !std::holds_alternative<ImmediateLoad>(from->load);
      known.emplace_back(std::move(unread));
    }
    absl::c_move(known, std::back_inserter(statements_));
  }

  void CompareRange(uint32_t number, const RangeComparison& range) {
    const auto read = [&](const Register& loaded) {
      const auto* payload = std::get_if<PayloadLoad>(&loaded.load);
      return payload != nullptr && !loaded.mask ? ReadPortRange(*payload, range)
                                                : std::vector<Statement>();
    };
    Compare(number, std::max(range.low.size(), range.high.size()), "range", read);
  }

  std::vector<Statement> ReadComparison(const Register& loaded, const Comparison& comparison) {
    if (const auto* payload = std::get_if<PayloadLoad>(&loaded.load)) {
      return ReadPayload(family_, *payload, loaded.mask, comparison);
    }
    if (std::holds_alternative<ConnStateLoad>(loaded.load)) {
      return ReadConnState(loaded, comparison);
    }
    const auto* meta = std::get_if<MetaLoad>(&loaded.load);
    if (meta != nullptr && meta->key == NFT_META_NFPROTO && !family_ && !loaded.mask) {
      family_ = FamilyOfProtocol(comparison);
      return family_ ? std::vector<Statement>{FamilyStatement{*family_}} : std::vector<Statement>();
    }
    return meta != nullptr ? ReadMeta(meta->key, loaded.mask, comparison)
                           : std::vector<Statement>();
  }

  // `otherwise` for a value that has been shown with the expression that loaded it.
  static const char* LoadName(const Register* loaded, const char* otherwise = "") {
    static constexpr const char* kNames[] = {"payload", "meta", "immediate", "ct"};
    const bool named = loaded != nullptr && loaded->load.index() < std::size(kNames);
    return named ? kNames[loaded->load.index()] : otherwise;
  }
  static OtherExpression Unread(const char* name, const Register* loaded) {
    return OtherExpression{.name = name,
                           .decides = false,
                           .is_target = false,
                           .marks = {.tested = loaded != nullptr ? MarkBits(*loaded) : 0}};
  }

  void Load(uint32_t to, const AnyLoad& load, size_t length) {
    Register loaded{.load = load};
    const std::optional<size_t> first = RegisterStart(to);
    if (!first) {
      statements_.emplace_back(Unread(LoadName(&loaded), &loaded));
      return;
    }
    loaded.first = *first;
    loaded.length = length;
    Store(loaded);
  }

  // The value that starts at `number` and is `length` bytes long.
  Register* Find(uint32_t number, size_t length) {
    const std::optional<size_t> first = RegisterStart(number);
    for (Register& candidate : registers_) {
      if (candidate.first == first && (candidate.length == 0 || candidate.length == length)) {
        return &candidate;
      }
    }
    return nullptr;
  }

  void Store(const Register& value) {
    // 16 bytes is the most that any load of unknown length writes.
    const auto end = [](const Register& r) { return r.first + (r.length == 0 ? 16 : r.length); };
    const auto overlaps = [&](const Register& old) {
      return old.first < end(value) && value.first < end(old);
    };
    for (const Register& old : registers_) {
      if (overlaps(old)) Retire(old);
    }
    std::erase_if(registers_, overlaps);
    registers_.push_back(value);
  }

  void Clobber() {
    for (const Register& old : std::exchange(registers_, {})) Retire(old);
  }

  // A load ends the rule where the packet is too short for it, so that an unused one is a
  // condition, unless it loads bytes of the rule's own.
  void Retire(const Register& old) {
    if (old.used) return;
    OtherExpression unread = Unread(LoadName(&old), &old);
    unread.condition = !std::holds_alternative<ImmediateLoad>(old.load);
    statements_.emplace_back(std::move(unread));
  }

  std::optional<Family> family_;
  std::vector<Register> registers_;
  std::vector<Statement> statements_;
};

}  // namespace

std::optional<VerdictStatement> ParseVerdict(const Attributes& data) {
  if (data.U32(NFTA_IMMEDIATE_DREG) != NFT_REG_VERDICT) return std::nullopt;
  const Attributes verdict = data.Nest(NFTA_IMMEDIATE_DATA).Nest(NFTA_DATA_VERDICT);
  const std::optional<uint32_t> code = verdict.U32(NFTA_VERDICT_CODE);
  if (!code) return std::nullopt;
  return VerdictStatement{.code = static_cast<int32_t>(*code),
                          .chain = verdict.Text(NFTA_VERDICT_CHAIN).value_or("")};
}

std::vector<Statement> ResolveStatements(std::optional<Family> family,
                                         const std::vector<Expression>& expressions) {
  Resolver resolver(family);
  for (const Expression& expression : expressions) resolver.Take(expression);
  return std::move(resolver).Finish();
}

}  // namespace kipt::netlink
