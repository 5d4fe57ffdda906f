// SPDX-License-Identifier: Apache-2.0
//
// A reconciler over the kernel in memory, in time that only passes when it sleeps.
#ifndef KIPT_TESTS_AGENT_LOOP_RECONCILER_FIXTURE_H_
#define KIPT_TESTS_AGENT_LOOP_RECONCILER_FIXTURE_H_

#include <functional>
#include <utility>

#include "absl/time/time.h"
#include "agent/loop/reconciler.h"
#include "tests/support/borrowed_backend.h"
#include "tests/support/fake_backend.h"
#include "tests/support/matchers.h"
#include "tests/support/observed.h"

namespace kipt::agent {

// Time that passes only when the code sleeps, or by `per_read` whenever the clock is read.
class FakeTime {
 public:
  explicit FakeTime(absl::Duration per_read = absl::ZeroDuration()) : per_read_(per_read) {}
  Clock clock() {
    return {.now = [this] { return now_ += per_read_; },
            .sleep =
                [this](absl::Duration duration) {
                  now_ += duration;
                  slept_ += duration;
                }};
  }
  absl::Duration slept() const { return slept_; }

 private:
  absl::Duration per_read_;
  SteadyTime now_;
  absl::Duration slept_ = absl::ZeroDuration();
};

// A kernel that is read by `read`.
class ReadsBy : public BorrowedBackend {
 public:
  using Queries = absl::Span<const netlink::ChainQuery>;
  using ReadFunction =
      std::function<absl::StatusOr<netlink::Snapshot>(Queries, const netlink::NativeTable*)>;
  ReadsBy(FakeBackend* backend, ReadFunction read)
      : BorrowedBackend(backend), read_(std::move(read)) {}
  absl::StatusOr<netlink::Snapshot> Read(Queries queries,
                                         const netlink::NativeTable* native) override {
    return read_(queries, native);
  }

 private:
  ReadFunction read_;
};

inline PolicyInput Both(Mode mode) { return Wanting(mode, netlink::kFamilies, {}); }

class ReconcilerFixture : public ::testing::Test {
 protected:
  SyncReport Sync(Mode mode) { return SyncBy(kernel_, mode); }
  SyncReport SyncBy(netlink::Backend& backend, Mode mode) {
    return Reconciler(&backend, time_.clock()).Sync(Both(mode));
  }

  FakeBackend kernel_;
  FakeTime time_;
};

}  // namespace kipt::agent

#endif  // KIPT_TESTS_AGENT_LOOP_RECONCILER_FIXTURE_H_
