// SPDX-License-Identifier: Apache-2.0
#include "netlink/native_decoder.h"

// Before linux/netfilter.h, or the two redefine each other.
#include <netinet/in.h>
// Then the kernel's.
#include <linux/netfilter.h>
#include <linux/netfilter/nf_tables.h>

#include <array>
#include <cstddef>
#include <cstring>
#include <optional>
#include <utility>
#include <variant>

#include "absl/types/span.h"
#include "netlink/expression.h"
#include "netlink/rule_builder.h"
#include "netlink/statement.h"

namespace kipt::netlink {
namespace {

// `ct KEY`, into a register. Nothing for a direction, and for what sets a key.
struct ConnectionLoad {
  uint32_t to = 0;
  uint32_t key = 0;
};

std::optional<ConnectionLoad> ParseConnectionLoad(const Attributes& element) {
  if (element.Text(NFTA_EXPR_NAME) != "ct") return std::nullopt;
  const std::optional<Attributes> data = element.Nest(NFTA_EXPR_DATA);
  if (!data || !data->HasOnly({NFTA_CT_DREG, NFTA_CT_KEY})) return std::nullopt;
  const auto to = data->U32(NFTA_CT_DREG);
  const auto key = data->U32(NFTA_CT_KEY);
  if (!to || !key) return std::nullopt;
  return ConnectionLoad{.to = *to, .key = *key};
}

std::optional<RuleCounters> ParseCounter(const Attributes& element) {
  if (element.Text(NFTA_EXPR_NAME) != "counter") return std::nullopt;
  const std::optional<Attributes> data = element.Nest(NFTA_EXPR_DATA);
  const auto packets = data ? data->U64(NFTA_COUNTER_PACKETS) : std::nullopt;
  const auto bytes = data ? data->U64(NFTA_COUNTER_BYTES) : std::nullopt;
  if (!packets || !bytes) return std::nullopt;
  return RuleCounters{.packets = *packets, .bytes = *bytes};
}

// Reads the expressions of one rule from left to right.
class DropReader {
 public:
  DropReader(Family family, WireBytes list)
      : family_(family), expressions_(ParseExpressions(list)) {
    const std::optional<Attributes> elements = Attributes::Parse(list);
    for (const Attribute& element : elements ? elements->all() : std::vector<Attribute>()) {
      elements_.push_back(Attributes::Parse(element.payload).value_or(Attributes()));
    }
  }

  // Nothing where the rule is not of the vocabulary.
  std::optional<NativeDrop> Read(RuleCounters& counters) {
    if (elements_.size() != expressions_.size()) return std::nullopt;
    while (ReadTest()) {
    }
    const std::optional<RuleCounters> counter =
        next_ < elements_.size() ? ParseCounter(elements_[next_++]) : std::nullopt;
    const auto* verdict = Peek<VerdictExpression>(0);
    if (!counter || verdict == nullptr || verdict->code != NF_DROP ||
        next_ + 1 != expressions_.size()) {
      return std::nullopt;
    }
    counters = *counter;
    return drop_;
  }

 private:
  template <typename T>
  const T* Peek(size_t ahead) const {
    const size_t index = next_ + ahead;
    return index < expressions_.size() ? std::get_if<T>(&expressions_[index]) : nullptr;
  }

  bool ReadTest() { return ReadAddress() || ReadConnection(); }

  bool ReadAddress() {
    if (Peek<PayloadLoad>(0) == nullptr) return false;
    const size_t count = Peek<Masking>(1) == nullptr ? 2 : 3;
    if (Peek<Comparison>(count - 1) == nullptr) return false;
    const auto first = expressions_.begin() + static_cast<ptrdiff_t>(next_);
    const std::vector<Statement> statements =
        ResolveStatements(family_, {first, first + static_cast<ptrdiff_t>(count)});
    const auto* address =
        statements.size() == 1 ? std::get_if<AddressStatement>(&statements[0]) : nullptr;
    if (address == nullptr) return false;
    std::optional<PrefixMatch>& place = address->is_source ? drop_.source : drop_.destination;
    // Twice is a rule of two conditions.
    if (place) return false;
    place = address->match;
    next_ += count;
    return true;
  }

  // `ct KEY & bits == 0` or `!= 0`.
  bool ReadConnection() {
    if (next_ >= elements_.size()) return false;
    const std::optional<ConnectionLoad> load = ParseConnectionLoad(elements_[next_]);
    const auto* mask = Peek<Masking>(1);
    const auto* comparison = Peek<Comparison>(2);
    uint32_t bits = 0;
    if (!load || mask == nullptr || comparison == nullptr || mask->from != load->to ||
        !mask->flip.empty() || comparison->from != mask->to || mask->mask.size() != sizeof(bits) ||
        comparison->data != absl::MakeConstSpan(std::array<uint8_t, sizeof(bits)>{})) {
      return false;
    }
    std::memcpy(&bits, mask->mask.data(), sizeof(bits));
    uint32_t* place = nullptr;
    if (load->key == NFT_CT_STATE) {
      place = comparison->negated ? &drop_.state_any : &drop_.state_none;
    } else if (load->key == NFT_CT_STATUS && !comparison->negated) {
      place = &drop_.status_none;
    }
    // No bits are a test that always holds, or never.
    if (place == nullptr || *place != 0 || bits == 0) return false;
    *place = bits;
    next_ += 3;
    return true;
  }

  Family family_;
  std::vector<Expression> expressions_;
  std::vector<Attributes> elements_;  // the same ones, as they came
  size_t next_ = 0;
  NativeDrop drop_;
};

bool HasContent(const Attributes& attributes, uint16_t type) {
  const std::optional<WireBytes> bytes = attributes.Bytes(type);
  return bytes && !bytes->empty();
}

}  // namespace

NativeTableDecoder::NativeTableDecoder(Family family, std::string name) {
  observed_.table.family = family;
  observed_.table.name = std::move(name);
}

void NativeTableDecoder::AddTable(WireBytes message) {
  const std::optional<Attributes> attributes = Attributes::OfMessage(message);
  const auto use = attributes ? attributes->U32(NFTA_TABLE_USE) : std::nullopt;
  use_ = use.value_or(0);
  // Flags: dormant, owned by a process, kept beyond its death. User data: a comment.
  if (!use || attributes->U32(NFTA_TABLE_FLAGS) != 0U ||
      HasContent(*attributes, NFTA_TABLE_OWNER) || HasContent(*attributes, NFTA_TABLE_USERDATA)) {
    observed_.altered = true;
  }
}

void NativeTableDecoder::AddChain(WireBytes message) {
  const std::optional<Attributes> attributes = Attributes::OfMessage(message);
  const auto name = attributes ? attributes->Text(NFTA_CHAIN_NAME) : std::nullopt;
  const auto hook = attributes ? attributes->Nest(NFTA_CHAIN_HOOK) : std::nullopt;
  const auto number = hook ? hook->U32(NFTA_HOOK_HOOKNUM) : std::nullopt;
  const auto priority = hook ? hook->U32(NFTA_HOOK_PRIORITY) : std::nullopt;
  if (!name || !number || !priority) {
    // A plain chain, among others.
    observed_.altered = true;
    return;
  }
  chains_[*name] = NativeChain{
      .name = *name, .hook = *number, .priority = static_cast<int32_t>(*priority), .rules = {}};
  // Kernels before 5.7 do not tell the flags.
  const uint32_t flags = attributes->U32(NFTA_CHAIN_FLAGS).value_or(0);
  if (!hook->HasOnly({NFTA_HOOK_HOOKNUM, NFTA_HOOK_PRIORITY}) ||
      attributes->Text(NFTA_CHAIN_TYPE) != kNativeChainType ||
      attributes->U32(NFTA_CHAIN_POLICY) != uint32_t{NF_ACCEPT} ||
      (flags & ~uint32_t{NFT_CHAIN_BASE}) != 0 || HasContent(*attributes, NFTA_CHAIN_COUNTERS) ||
      HasContent(*attributes, NFTA_CHAIN_USERDATA)) {
    observed_.altered = true;
  }
}

void NativeTableDecoder::AddRule(WireBytes message) {
  const std::optional<Attributes> attributes = Attributes::OfMessage(message);
  const auto chain = attributes ? attributes->Text(NFTA_RULE_CHAIN) : std::nullopt;
  if (!chain) {
    observed_.altered = true;
    return;
  }
  std::vector<NativeDrop>& rules = rules_[*chain];
  DropReader reader(observed_.table.family,
                    attributes->Bytes(NFTA_RULE_EXPRESSIONS).value_or(WireBytes()));
  RuleCounters counters;
  std::optional<NativeDrop> drop = reader.Read(counters);
  std::vector<std::string> comments =
      UserDataComments(attributes->Bytes(NFTA_RULE_USERDATA).value_or(WireBytes()));
  // NFTA_RULE_COMPAT is a condition outside the expressions.
  if (!drop || comments.size() > 1 || attributes->Bytes(NFTA_RULE_COMPAT)) {
    observed_.altered = true;
    return;
  }
  if (!comments.empty()) drop->comment = std::move(comments.front());
  rules.push_back(*std::move(drop));
  observed_.counters.packets += counters.packets;
  observed_.counters.bytes += counters.bytes;
}

std::set<std::string> NativeTableDecoder::ChainsOfRules() const {
  std::set<std::string> names;
  for (const auto& [name, rules] : rules_) names.insert(name);
  return names;
}

ObservedNativeTable NativeTableDecoder::Finish() && {
  for (auto& [name, rules] : rules_) {
    const auto chain = chains_.find(name);
    if (chain != chains_.end()) {
      chain->second.rules = std::move(rules);
    } else {
      observed_.altered = true;
    }
  }
  for (auto& [name, chain] : chains_) observed_.table.chains.push_back(std::move(chain));
  return std::move(observed_);
}

}  // namespace kipt::netlink
