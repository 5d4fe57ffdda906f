// SPDX-License-Identifier: Apache-2.0
#include "netlink/statement.h"

// Before linux/netfilter.h, or the two redefine each other.
#include <netinet/in.h>
// Then the kernel's.
#include <linux/netfilter/nf_tables.h>

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstring>
#include <optional>
#include <utility>

#include "netlink/xt_info.h"

namespace kipt::netlink {
namespace {

// What a register holds: a load, and the mask it went through since.
struct Register {
  std::variant<PayloadLoad, MetaLoad> load;
  std::optional<WireBytes> mask = std::nullopt;
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

// The length of a prefix mask. Nothing where a one follows a zero.
std::optional<uint8_t> PrefixLength(WireBytes mask) {
  size_t bits = 0;
  bool ended = false;
  for (const uint8_t byte : mask) {
    const int ones = std::countl_one(byte);
    if ((ended && byte != 0) || std::popcount(byte) != ones) return std::nullopt;
    bits += static_cast<size_t>(ones);
    ended = ones != 8;
  }
  return static_cast<uint8_t>(bits);
}

std::optional<Statement> ReadAddress(Family family, const PayloadLoad& load,
                                     const std::optional<WireBytes>& mask,
                                     const Comparison& comparison) {
  // Offsets of saddr and daddr in struct iphdr and struct ipv6hdr.
  const size_t source = family == Family::kIPv4 ? 12 : 8;
  const size_t size = family == Family::kIPv4 ? 4 : 16;
  const bool is_source = load.offset == source;
  if (load.base != NFT_PAYLOAD_NETWORK_HEADER || load.length == 0 || load.length > size ||
      comparison.data.size() != load.length || (!is_source && load.offset != source + size)) {
    return std::nullopt;
  }
  PrefixMatch match;
  match.negated = comparison.negated;
  if (mask) {
    const std::optional<uint8_t> length = PrefixLength(*mask);
    if (!length) return std::nullopt;
    match.prefix.length = *length;
  } else {
    match.prefix.length = static_cast<uint8_t>(load.length * 8);
  }
  for (size_t i = 0; i < load.length; ++i) {
    // A bit outside the mask makes a comparison that can never hold.
    if (mask && (comparison.data[i] & ~(*mask)[i]) != 0) return std::nullopt;
    match.prefix.address[i] = comparison.data[i];
  }
  return AddressStatement{.is_source = is_source, .match = match};
}

std::optional<Statement> ReadPayload(Family family, const PayloadLoad& load,
                                     const std::optional<WireBytes>& mask,
                                     const Comparison& comparison) {
  if (auto address = ReadAddress(family, load, mask, comparison)) return address;
  if (mask || comparison.data.size() != load.length) return std::nullopt;
  // Offsets of `protocol` in struct iphdr, of `nexthdr` in struct ipv6hdr.
  const uint32_t protocol_offset = family == Family::kIPv4 ? 9 : 6;
  if (load.base == NFT_PAYLOAD_NETWORK_HEADER && load.offset == protocol_offset &&
      load.length == 1) {
    return ProtocolStatement{.negated = comparison.negated, .protocol = comparison.data[0]};
  }
  if (load.base == NFT_PAYLOAD_TRANSPORT_HEADER && load.offset <= 2 && load.offset % 2 == 0 &&
      load.length == 2) {
    const int port = comparison.data[0] << 8 | comparison.data[1];
    return PortStatement{.is_source = load.offset == 0,
                         .negated = comparison.negated,
                         .port = static_cast<uint16_t>(port)};
  }
  return std::nullopt;
}

uint32_t HostOrder(WireBytes bytes) {
  uint32_t value = 0;
  std::memcpy(&value, bytes.data(), sizeof(value));
  return value;
}

std::optional<Statement> ReadMeta(const MetaLoad& load, const std::optional<WireBytes>& mask,
                                  const Comparison& comparison) {
  const WireBytes data = comparison.data;
  if (load.key == NFT_META_MARK && data.size() == sizeof(uint32_t)) {
    return MarkMatch{.value = HostOrder(data),
                     .mask = mask ? HostOrder(*mask) : 0xffffffff,
                     .negated = comparison.negated};
  }
  if (mask || data.empty()) return std::nullopt;
  if (load.key == NFT_META_L4PROTO && data.size() == 1) {
    return ProtocolStatement{.negated = comparison.negated, .protocol = data[0]};
  }
  if ((load.key == NFT_META_IIFNAME || load.key == NFT_META_OIFNAME)) {
    const auto* const end = std::find(data.begin(), data.end(), 0);
    std::string name(data.begin(), end);
    // A comparison that ends before the NUL is one of beginnings.
    if (end == data.end()) name += '+';
    return InterfaceStatement{.is_input = load.key == NFT_META_IIFNAME,
                              .negated = comparison.negated,
                              .name = std::move(name)};
  }
  return std::nullopt;
}

Statement ReadXt(Family family, const XtExpression& xt) {
  const auto is = [&](bool target, const char* name, uint32_t revision) {
    return xt.is_target == target && xt.name == name && xt.revision == revision;
  };
  std::optional<Statement> known;
  if (is(false, kXtComment, kXtCommentRevision)) {
    // An empty comment is none in a Rule, so it must not become one.
    const auto text = DecodeXtComment(xt.info);
    if (text && !text->empty()) known = CommentStatement{.text = *text};
  } else if (is(false, kXtMark, kXtMarkRevision)) {
    if (const auto mark = DecodeXtMark(xt.info)) known = *mark;
  } else if (!xt.is_target && xt.name == kXtConntrack) {
    if (const auto state = DecodeXtCtState(xt.revision, xt.info)) {
      known = CtStateStatement{.match = state->match, .state_alias = state->state_alias};
    }
  } else if (is(true, kXtSetMark, kXtSetMarkRevision)) {
    if (const auto mark = DecodeXtSetMark(xt.info)) known = *mark;
  } else if (is(true, kXtMasquerade, kXtMasqueradeRevision)) {
    if (const auto masquerade = DecodeXtMasquerade(family, xt.info)) known = *masquerade;
  }
  if (known) return *std::move(known);
  return XtStatement{.is_target = xt.is_target, .name = xt.name, .revision = xt.revision};
}

// Runs through a rule as the kernel does, but remembers where each value came from.
class Resolver {
 public:
  explicit Resolver(Family family) : family_(family) {}

  void operator()(const PayloadLoad& load) { Load(load.to, load, load.length); }
  void operator()(const MetaLoad& load) {
    Load(load.to, load, load.key == NFT_META_MARK ? sizeof(uint32_t) : 0);
  }

  void operator()(const Masking& masking) {
    Register* from = Find(masking.from, masking.mask.size());
    const std::optional<size_t> to = RegisterStart(masking.to);
    if (from == nullptr || from->mask || !to) {
      Clobber();
      statements_.emplace_back(
          OtherExpression{.name = "bitwise", .decides = false, .is_target = false});
      return;
    }
    Register masked = *from;
    from->used = true;
    masked.mask = masking.mask;
    masked.first = *to;
    masked.length = masking.mask.size();
    masked.used = false;
    Store(masked);
  }

  void operator()(const Comparison& comparison) {
    Register* from = Find(comparison.from, comparison.data.size());
    std::optional<Statement> known;
    if (from != nullptr) {
      from->used = true;
      if (const auto* payload = std::get_if<PayloadLoad>(&from->load)) {
        known = ReadPayload(family_, *payload, from->mask, comparison);
      } else {
        known = ReadMeta(std::get<MetaLoad>(from->load), from->mask, comparison);
      }
    }
    if (known) {
      statements_.push_back(*std::move(known));
    } else {
      statements_.emplace_back(Unread(from != nullptr ? LoadName(*from) : "cmp"));
    }
  }

  void operator()(const CounterExpression&) { statements_.emplace_back(CounterStatement{}); }
  void operator()(const VerdictExpression& verdict) {
    statements_.emplace_back(VerdictStatement{.code = verdict.code, .chain = verdict.chain});
  }
  void operator()(const XtExpression& xt) { statements_.push_back(ReadXt(family_, xt)); }
  void operator()(const OtherExpression& other) {
    // It may read and write any register.
    Clobber();
    statements_.emplace_back(other);
  }

  std::vector<Statement> Finish() && {
    Clobber();
    return std::move(statements_);
  }

 private:
  static const char* LoadName(const Register& loaded) {
    return std::holds_alternative<PayloadLoad>(loaded.load) ? "payload" : "meta";
  }
  static OtherExpression Unread(const char* name) {
    return OtherExpression{.name = name, .decides = false, .is_target = false};
  }

  void Load(uint32_t to, std::variant<PayloadLoad, MetaLoad> load, size_t length) {
    Register loaded{.load = load};
    const std::optional<size_t> first = RegisterStart(to);
    if (!first) {
      statements_.emplace_back(Unread(LoadName(loaded)));
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
    if (!old.used) statements_.emplace_back(Unread(LoadName(old)));
  }

  Family family_;
  std::vector<Register> registers_;
  std::vector<Statement> statements_;
};

}  // namespace

std::vector<Statement> ResolveStatements(Family family,
                                         const std::vector<Expression>& expressions) {
  Resolver resolver(family);
  for (const Expression& expression : expressions) std::visit(resolver, expression);
  return std::move(resolver).Finish();
}

}  // namespace kipt::netlink
