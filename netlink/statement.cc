// SPDX-License-Identifier: Apache-2.0
#include "netlink/statement.h"

// Before linux/netfilter.h, or the two redefine each other.
#include <netinet/in.h>
// Then the kernel's.
#include <linux/netfilter/nf_tables.h>

#include <algorithm>
#include <cstddef>
#include <optional>
#include <utility>

#include "netlink/xt_info.h"

namespace kipt::netlink {
namespace {

// What a register holds: a load, and the mask it went through since.
struct Register {
  std::variant<PayloadLoad, MetaLoad, ImmediateLoad> load;
  std::optional<WireBytes> mask = std::nullopt;
  WireBytes flip = {};
  size_t first = 0;   // byte in the register file
  size_t length = 0;  // bytes; 0 where the load does not say (meta)
  bool used = false;
};

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

// `meta mark set`, where the value is known or made of the mark itself, and `meta nftrace set 1`.
// Nothing for others.
std::optional<Statement> ReadMetaStore(const Register& value, uint32_t key) {
  const auto* immediate = std::get_if<ImmediateLoad>(&value.load);
  if (key == NFT_META_NFTRACE && immediate != nullptr && !value.mask &&
      immediate->data.size() == 1 && immediate->data[0] == 1) {
    return OtherExpression{
        .name = "meta", .condition = false, .decides = false, .text = "-j TRACE"};
  }
  if (key != NFT_META_MARK) return std::nullopt;
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
                         .marks = MarksOf(Rule{.target = mark})};
}

// Runs through a rule as the kernel does, but remembers where each value came from.
class Resolver {
 public:
  explicit Resolver(std::optional<Family> family) : family_(family) {}

  void operator()(const PayloadLoad& load) { Load(load.to, load, load.length); }
  void operator()(const MetaLoad& load) {
    Load(load.to, load, load.key == NFT_META_MARK ? sizeof(uint32_t) : 0);
  }
  void operator()(const ImmediateLoad& load) { Load(load.to, load, load.data.size()); }

  void operator()(const Masking& masking) {
    Register* from = Find(masking.from, masking.mask.size());
    const std::optional<size_t> to = RegisterStart(masking.to);
    if (from == nullptr || from->mask || !to) {
      (*this)(OtherExpression{
          .name = "bitwise", .condition = false, .decides = false, .is_target = false});
      return;
    }
    from->used = true;
    Store(Register{.load = from->load,
                   .mask = masking.mask,
                   .flip = masking.flip,
                   .first = *to,
                   .length = masking.mask.size()});
  }

  void operator()(const MetaStore& store) {
    Register* from = Find(store.from, store.key == NFT_META_NFTRACE ? 1 : sizeof(uint32_t));
    std::optional<Statement> known;
    if (from != nullptr) known = ReadMetaStore(*from, store.key);
    if (known) {
      from->used = true;
      statements_.push_back(*std::move(known));
      return;
    }
    const uint32_t set = store.key == NFT_META_MARK ? kAllMarks : 0;
    (*this)(OtherExpression{.name = "meta", .condition = false, .marks = {.set = set}});
  }

  void operator()(const Comparison& comparison) {
    Register* from = Find(comparison.from, comparison.data.size());
    std::optional<Statement> known;
    if (from != nullptr && from->flip.empty()) {
      if (const auto* payload = std::get_if<PayloadLoad>(&from->load)) {
        if (ReadBothPorts(*payload, from->mask, comparison)) {
          from->used = true;
          return;
        }
        known = ReadPayload(family_, *payload, from->mask, comparison);
      } else if (const auto* meta = std::get_if<MetaLoad>(&from->load)) {
        known = ReadMeta(*meta, from->mask, comparison);
      }
    }
    Compared(from, std::move(known), "cmp");
  }

  void operator()(const RangeComparison& range) {
    Register* from = Find(range.from, std::max(range.low.size(), range.high.size()));
    std::optional<Statement> known;
    if (from != nullptr && !from->mask) {
      if (const auto* payload = std::get_if<PayloadLoad>(&from->load)) {
        known = ReadPortRange(*payload, range);
      }
    }
    Compared(from, std::move(known), "range");
  }

  void operator()(const CounterExpression& counter) {
    statements_.emplace_back(
        CounterStatement{.counters = {.packets = counter.packets, .bytes = counter.bytes}});
  }
  void operator()(const VerdictExpression& verdict) {
    statements_.emplace_back(VerdictStatement{.code = verdict.code, .chain = verdict.chain});
  }
  void operator()(const XtExpression& xt) { statements_.push_back(ReadXt(family_, xt)); }
  void operator()(const OtherExpression& other) {
    // It may read and write any register.
    OtherExpression with_marks = other;
    if (std::any_of(registers_.begin(), registers_.end(), HoldsMark)) {
      with_marks.marks.tested = kAllMarks;
    }
    Clobber();
    statements_.emplace_back(std::move(with_marks));
  }

  std::vector<Statement> Finish() && {
    Clobber();
    return std::move(statements_);
  }

 private:
  static const char* LoadName(const Register& loaded) {
    if (std::holds_alternative<PayloadLoad>(loaded.load)) return "payload";
    return std::holds_alternative<MetaLoad>(loaded.load) ? "meta" : "immediate";
  }
  static OtherExpression Unread(const char* name, const Register* loaded = nullptr) {
    const bool marks = loaded != nullptr && HoldsMark(*loaded);
    return OtherExpression{.name = name,
                           .decides = false,
                           .is_target = false,
                           .marks = {.tested = marks ? kAllMarks : 0}};
  }

  // A comparison of `from`, which may be null, says `known`, or nothing that we can read.
  void Compared(Register* from, std::optional<Statement> known, const char* name) {
    if (from != nullptr) from->used = true;
    if (known) {
      statements_.push_back(*std::move(known));
    } else {
      statements_.emplace_back(Unread(from != nullptr ? LoadName(*from) : name, from));
    }
  }

  // iptables-nft compares both ports at once where it can. Not equal, that is neither option
  // negated: it is either of them.
  bool ReadBothPorts(const PayloadLoad& load, const std::optional<WireBytes>& mask,
                     const Comparison& comparison) {
    if (load.base != NFT_PAYLOAD_TRANSPORT_HEADER || load.offset != 0 || load.length != 4 ||
        comparison.data.size() != load.length || mask || comparison.negated) {
      return false;
    }
    for (const bool is_source : {true, false}) {
      const uint16_t port = NetworkOrder(comparison.data.subspan(is_source ? 0 : 2));
      statements_.emplace_back(
          PortStatement{.is_source = is_source, .negated = false, .first = port, .last = port});
    }
    return true;
  }

  void Load(uint32_t to, std::variant<PayloadLoad, MetaLoad, ImmediateLoad> load, size_t length) {
    Register loaded{.load = load};
    const std::optional<size_t> first = RegisterStart(to);
    if (!first) {
      statements_.emplace_back(Unread(LoadName(loaded), &loaded));
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
    std::vector<Register> kept;
    for (const Register& old : std::exchange(registers_, {})) {
      if (old.first < end(value) && value.first < end(old)) {
        Retire(old);
      } else {
        kept.push_back(old);
      }
    }
    registers_ = std::move(kept);
    registers_.push_back(value);
  }

  void Clobber() {
    for (const Register& old : std::exchange(registers_, {})) Retire(old);
  }

  // A load ends the rule where the packet is too short for it: one that nobody looks at still says
  // something.
  void Retire(const Register& old) {
    if (old.used) return;
    OtherExpression unread = Unread(LoadName(old), &old);
    // But for bytes of the rule's own.
    unread.condition = !std::holds_alternative<ImmediateLoad>(old.load);
    statements_.emplace_back(std::move(unread));
  }

  std::optional<Family> family_;
  std::vector<Register> registers_;
  std::vector<Statement> statements_;
};

}  // namespace

std::vector<Statement> ResolveStatements(std::optional<Family> family,
                                         const std::vector<Expression>& expressions) {
  Resolver resolver(family);
  for (const Expression& expression : expressions) std::visit(resolver, expression);
  return std::move(resolver).Finish();
}

}  // namespace kipt::netlink
