// SPDX-License-Identifier: Apache-2.0
#include "agent/visiting_backend.h"

#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace kipt::agent {
namespace {

// What `work` returns, or why it could not be done.
template <typename Result, typename Work>
Result Inside(const VisitedNamespace& visited, const Work& work) {
  Result result = absl::UnknownError("");
  absl::Status status = visited.Visit([&] { result = work(); });
  if (!status.ok()) return status;
  return result;
}

class VisitingMonitor : public netlink::Monitor {
 public:
  VisitingMonitor(std::unique_ptr<netlink::Monitor> inner, const VisitedNamespace& visited)
      : inner_(std::move(inner)), visited_(visited) {}

  int fd() const override { return inner_->fd(); }
  absl::StatusOr<netlink::RulesetChanges> Drain() override {
    return Inside<absl::StatusOr<netlink::RulesetChanges>>(visited_,
                                                           [&] { return inner_->Drain(); });
  }

 private:
  std::unique_ptr<netlink::Monitor> inner_;
  const VisitedNamespace& visited_;
};

class VisitingBackend : public netlink::Backend {
 public:
  VisitingBackend(std::unique_ptr<netlink::Backend> inner, const VisitedNamespace& visited)
      : inner_(std::move(inner)), visited_(visited) {}

  netlink::BackendKind kind() const override { return inner_->kind(); }
  bool spans_families() const override { return inner_->spans_families(); }
  std::string caveat() const override { return inner_->caveat(); }

  absl::StatusOr<netlink::Snapshot> Read(absl::Span<const netlink::ChainQuery> queries) override {
    return Inside<absl::StatusOr<netlink::Snapshot>>(visited_,
                                                     [&] { return inner_->Read(queries); });
  }
  absl::StatusOr<netlink::Survey> TakeSurvey(const netlink::SurveyFilter& keep) override {
    return Inside<absl::StatusOr<netlink::Survey>>(visited_,
                                                   [&] { return inner_->TakeSurvey(keep); });
  }
  absl::StatusOr<netlink::NativeReading> ReadNativeTable(netlink::Family family,
                                                         const std::string& name) override {
    return Inside<absl::StatusOr<netlink::NativeReading>>(
        visited_, [&] { return inner_->ReadNativeTable(family, name); });
  }
  absl::Status Apply(const netlink::Transaction& transaction) override {
    return Inside<absl::Status>(visited_, [&] { return inner_->Apply(transaction); });
  }
  absl::StatusOr<std::unique_ptr<netlink::Monitor>> Watch(netlink::WatchMode mode) override {
    auto monitor = Inside<absl::StatusOr<std::unique_ptr<netlink::Monitor>>>(
        visited_, [&] { return inner_->Watch(mode); });
    if (!monitor.ok()) return monitor.status();
    return std::make_unique<VisitingMonitor>(*std::move(monitor), visited_);
  }

 private:
  std::unique_ptr<netlink::Backend> inner_;
  const VisitedNamespace& visited_;
};

}  // namespace

std::unique_ptr<netlink::Backend> NewVisitingBackend(std::unique_ptr<netlink::Backend> inner,
                                                     const VisitedNamespace& visited) {
  return std::make_unique<VisitingBackend>(std::move(inner), visited);
}

}  // namespace kipt::agent
