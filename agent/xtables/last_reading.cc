// SPDX-License-Identifier: Apache-2.0
#include "agent/xtables/last_reading.h"

#include "absl/algorithm/container.h"

namespace kipt::agent {
namespace {

constexpr std::chrono::milliseconds kFresh(100);

}  // namespace

void LastReading::Begin() {
  reading_.reset();
  if (!lock_watch_) {
    auto watch = XtablesLockWatch::Start(lock_path_);
    if (watch.ok()) lock_watch_ = *std::move(watch);
  } else if (!lock_watch_->Take().ok()) {
    lock_watch_.reset();
  }
}

void LastReading::End(ObservedChains chains, SavedSelection selection) {
  reading_ = {std::move(chains), std::move(selection), std::chrono::steady_clock::now()};
}

std::optional<ObservedChains> LastReading::TakeUnchanged(const std::set<netlink::ChainId>& needed) {
  std::optional<Reading> reading = std::exchange(reading_, std::nullopt);
  if (!reading || !lock_watch_ || std::chrono::steady_clock::now() - reading->time > kFresh) {
    return std::nullopt;
  }
  const absl::StatusOr<XtablesLockWatch::Use> use = lock_watch_->Take();
  if (!use.ok()) lock_watch_.reset();
  const bool unchanged = use.ok() && !use->any();
  // Of a chain that was read without its rules it is enough that it does not exist.
  const bool complete = absl::c_all_of(needed, [&](const netlink::ChainId& chain) {
    return reading->selection.chains.contains(chain) ||
           (reading->selection.bare.contains(chain) && !reading->chains.contains(chain));
  });
  if (!unchanged || !complete) return std::nullopt;
  return std::move(reading->chains);
}

}  // namespace kipt::agent
