// SPDX-License-Identifier: Apache-2.0
#include "agent/reload_watch.h"

#include <glog/logging.h>

#include <algorithm>

#include "absl/status/status.h"
#include "absl/time/time.h"

namespace kipt::agent {
namespace {

constexpr absl::Duration kEditorPause = absl::Milliseconds(100);
constexpr absl::Duration kLongestEditorPause = absl::Milliseconds(500);

}  // namespace

absl::StatusOr<std::unique_ptr<ReloadWatch>> ReloadWatch::Create(EventLoop& loop,
                                                                 const std::string& path,
                                                                 std::function<void()> reload) {
  std::unique_ptr<ReloadWatch> watch(new ReloadWatch(std::move(reload)));
  absl::StatusOr<std::unique_ptr<ConfigWatch>> file = ConfigWatch::Create(path);
  if (!file.ok()) return file.status();
  watch->file_ = *std::move(file);
  watch->timer_ = loop.AddTimer([self = watch.get()] {
    self->due_ = SteadyTime::InfiniteFuture();
    self->reload_();
  });
  auto changed = loop.AddReadable(watch->file_->fd(), [self = watch.get()] { self->OnChange(); });
  if (!changed.ok()) return changed.status();
  watch->changed_ = *std::move(changed);
  return watch;
}

void ReloadWatch::OnChange() {
  const absl::StatusOr<bool> changed = file_->Drain();
  if (!changed.ok()) {
    LOG(WARNING) << "Watching the configuration: " << changed.status().message();
  } else if (*changed) {
    const SteadyTime now = SteadyNow();
    due_ = std::min(due_, now + kLongestEditorPause);
    timer_->FireAfter(std::min(kEditorPause, due_ - now));
  }
}

}  // namespace kipt::agent
