// SPDX-License-Identifier: Apache-2.0
//
// File: tests/support/borrowed_backend.h
//
// A backend that hands its calls to one that the test keeps: for code that owns its backend, and
// for backends that differ from another in one call.
#ifndef KIPT_TESTS_SUPPORT_BORROWED_BACKEND_H_
#define KIPT_TESTS_SUPPORT_BORROWED_BACKEND_H_

#include <memory>

#include "netlink/backend.h"

namespace kipt::testing {

class BorrowedBackend : public netlink::Backend {
 public:
  explicit BorrowedBackend(netlink::Backend* backend) : backend_(backend) {}

  absl::string_view mode() const override { return backend_->mode(); }
  absl::StatusOr<netlink::Snapshot> Read(absl::Span<const netlink::ChainQuery> queries) override {
    return backend_->Read(queries);
  }
  absl::StatusOr<netlink::NativeReading> ReadNativeTable(netlink::Family family,
                                                         const std::string& name) override {
    return backend_->ReadNativeTable(family, name);
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

}  // namespace kipt::testing

#endif  // KIPT_TESTS_SUPPORT_BORROWED_BACKEND_H_
