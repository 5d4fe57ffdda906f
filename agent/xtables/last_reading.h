// SPDX-License-Identifier: Apache-2.0
//
// What the iptables-legacy backend read last, for a write that follows at once: reading everything
// again takes most of a write's time next to many rules, and others wait for the lock meanwhile.
// Not installed.
#ifndef KIPT_AGENT_XTABLES_LAST_READING_H_
#define KIPT_AGENT_XTABLES_LAST_READING_H_

#include <chrono>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include "agent/xtables/iptables_save.h"
#include "agent/xtables/xtables_lock_watch.h"
#include "netlink/ruleset.h"

namespace kipt::agent {

// Not safe for use by several threads at once.
class LastReading {
 public:
  explicit LastReading(std::string lock_path) : lock_path_(std::move(lock_path)) {}

  // Before anything is read. Forgets what was read before.
  void Begin();
  // After all was read: `chains`, which are what exists of `selection`.
  void End(ObservedChains chains, SavedSelection selection);

  // What was read, perhaps long ago; nothing after TakeUnchanged.
  ObservedChains chains() const { return reading_ ? reading_->chains : ObservedChains(); }
  // The chains, if they are still what exists, and all that is `needed` is among them. Nothing if
  // that is not certain: 100 ms have passed, a program has used the lock since Begin, or that
  // cannot be watched. Call it with the lock: a program that wrote meanwhile has closed it. A
  // reading ends with the first call.
  std::optional<ObservedChains> TakeUnchanged(const std::set<netlink::ChainId>& needed);

 private:
  std::string lock_path_;
  // Nothing where it cannot be watched.
  std::optional<XtablesLockWatch> lock_watch_;
  struct Reading {
    ObservedChains chains;
    SavedSelection selection;
    std::chrono::steady_clock::time_point time;
  };
  std::optional<Reading> reading_;
};

}  // namespace kipt::agent

#endif  // KIPT_AGENT_XTABLES_LAST_READING_H_
