// SPDX-License-Identifier: Apache-2.0
//
// File: netlink/nftnl_ptr.h
//
// Owners of libnftnl's objects. A rule owns the expressions that were added to it.
#ifndef KIPT_NETLINK_NFTNL_PTR_H_
#define KIPT_NETLINK_NFTNL_PTR_H_

#include <libnftnl/chain.h>
#include <libnftnl/expr.h>
#include <libnftnl/rule.h>
#include <libnftnl/table.h>

#include <memory>

namespace kipt::netlink {

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

}  // namespace kipt::netlink

#endif  // KIPT_NETLINK_NFTNL_PTR_H_
