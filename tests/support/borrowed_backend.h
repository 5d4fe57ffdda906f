// SPDX-License-Identifier: Apache-2.0
//
// A backend that hands its calls to one that the test keeps: for code that owns its backend, and
// for backends that differ from another in one call.
#ifndef KIPT_TESTS_SUPPORT_BORROWED_BACKEND_H_
#define KIPT_TESTS_SUPPORT_BORROWED_BACKEND_H_

#include <algorithm>
#include <memory>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "netlink/backend.h"
#include "netlink/transaction.h"

namespace kipt::testing {

class BorrowedBackend : public netlink::Backend {
 public:
  explicit BorrowedBackend(netlink::Backend* backend) : backend_(backend) {}

  netlink::BackendKind kind() const override { return backend_->kind(); }
  using netlink::Backend::Read;
  absl::StatusOr<netlink::Snapshot> Read(absl::Span<const netlink::ChainQuery> queries,
                                         const netlink::NativeTable* native) override {
    return backend_->Read(queries, native);
  }
  absl::StatusOr<netlink::Snapshot> ReadTorn(absl::Span<const netlink::ChainQuery> queries,
                                             const netlink::NativeTable* native) override {
    return backend_->ReadTorn(queries, native);
  }
  absl::StatusOr<netlink::Survey> TakeSurvey(const netlink::SurveyFilter& keep) override {
    return backend_->TakeSurvey(keep);
  }
  absl::Status Apply(const netlink::Transaction& transaction) override {
    return backend_->Apply(transaction);
  }
  absl::StatusOr<std::unique_ptr<netlink::Monitor>> Watch(netlink::WatchMode mode) override {
    return backend_->Watch(mode);
  }

 private:
  netlink::Backend* backend_;
};

// Keeps the queries of each Read.
class KeepsQueries : public BorrowedBackend {
 public:
  KeepsQueries(netlink::Backend* backend, std::vector<netlink::ChainQuery>* kept)
      : BorrowedBackend(backend), kept_(kept) {}
  using netlink::Backend::Read;
  absl::StatusOr<netlink::Snapshot> Read(absl::Span<const netlink::ChainQuery> queries,
                                         const netlink::NativeTable* native) override {
    kept_->insert(kept_->end(), queries.begin(), queries.end());
    return BorrowedBackend::Read(queries, native);
  }

 private:
  std::vector<netlink::ChainQuery>* kept_;
};

struct FamilyRefusal {
  netlink::Family family = netlink::Family::kIPv4;
  // Nothing: every table.
  std::optional<netlink::Table> table = {};
  bool refusing = true;
  // Transactions that were refused.
  int count = 0;
};

// Refuses each transaction with an operation of one family, or of one table of it, as a kernel
// without a module does.
class RefusesFamily : public BorrowedBackend {
 public:
  RefusesFamily(netlink::Backend* backend, FamilyRefusal* refusal)
      : BorrowedBackend(backend), refusal_(refusal) {}
  absl::Status Apply(const netlink::Transaction& transaction) override {
    const bool concerned =
        std::any_of(transaction.operations.begin(), transaction.operations.end(),
                    [this](const auto& operation) {
                      const netlink::ChainId& chain = ChainOf(operation);
                      return !IsNative(operation) && chain.family == refusal_->family &&
                             chain.table == refusal_->table.value_or(chain.table);
                    });
    if (!refusal_->refusing || !concerned) return BorrowedBackend::Apply(transaction);
    ++refusal_->count;
    return absl::NotFoundError("no such kernel module");
  }

 private:
  FamilyRefusal* refusal_;
};

}  // namespace kipt::testing

// Tests name these without a namespace.
namespace kipt {
using testing::BorrowedBackend;
using testing::FamilyRefusal;
using testing::RefusesFamily;
}  // namespace kipt

#endif  // KIPT_TESTS_SUPPORT_BORROWED_BACKEND_H_
