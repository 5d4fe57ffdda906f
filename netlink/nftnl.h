// SPDX-License-Identifier: Apache-2.0
//
// Owners of libnftnl's objects, for batch.cc and rule_codec.cc alone: what we send is built with
// them, and what the kernel answers is read without (README.md).
#ifndef KIPT_NETLINK_NFTNL_H_
#define KIPT_NETLINK_NFTNL_H_

// The kernel's headers come first.
#include "netlink/nf_tables.h"
// Then the library's.
#include <libnftnl/chain.h>
#include <libnftnl/common.h>
#include <libnftnl/expr.h>
#include <libnftnl/rule.h>
#include <libnftnl/table.h>

#include <cstdint>
#include <initializer_list>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/status.h"

namespace kipt::netlink {

template <auto kFree>
struct NftnlDeleter {
  void operator()(auto* object) const { kFree(object); }
};

using NftnlTable = std::unique_ptr<nftnl_table, NftnlDeleter<&nftnl_table_free>>;
using NftnlChain = std::unique_ptr<nftnl_chain, NftnlDeleter<&nftnl_chain_free>>;
// Owns the expressions that were added to it.
using NftnlRule = std::unique_ptr<nftnl_rule, NftnlDeleter<&nftnl_rule_free>>;

// {NFTNL_*, value}.
using NftnlTexts = std::initializer_list<std::pair<uint16_t, std::string>>;

// Gives a new object its texts. Null where an allocation failed.
template <typename Owner, typename Object>
Owner NftnlWith(Object* object, int (*set)(Object*, uint16_t, const char*), NftnlTexts texts) {
  Owner owner(object);
  for (const auto& [attribute, text] : texts) {
    if (object == nullptr || set(object, attribute, text.c_str()) != 0) return nullptr;
  }
  return owner;
}

inline NftnlTable NftnlTableWith(NftnlTexts texts) {
  return NftnlWith<NftnlTable>(nftnl_table_alloc(), nftnl_table_set_str, texts);
}
inline NftnlChain NftnlChainWith(NftnlTexts texts) {
  return NftnlWith<NftnlChain>(nftnl_chain_alloc(), nftnl_chain_set_str, texts);
}
inline NftnlRule NftnlRuleWith(NftnlTexts texts) {
  return NftnlWith<NftnlRule>(nftnl_rule_alloc(), nftnl_rule_set_str, texts);
}

inline absl::Status OutOfMemory() {
  return absl::ResourceExhaustedError("no memory for a message to nf_tables");
}

}  // namespace kipt::netlink

#endif  // KIPT_NETLINK_NFTNL_H_
