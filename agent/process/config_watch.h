// SPDX-License-Identifier: Apache-2.0
//
// File: agent/process/config_watch.h
//
// Notices that a configuration file was changed, however that is done: written over, replaced by an
// editor, reached through symbolic links that now lead elsewhere (a Kubernetes ConfigMap volume),
// removed, made for the first time.
#ifndef KIPT_AGENT_PROCESS_CONFIG_WATCH_H_
#define KIPT_AGENT_PROCESS_CONFIG_WATCH_H_

#include <sys/types.h>

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "agent/process/files.h"

namespace kipt::agent {

// Watches every directory that the path leads through, for the one name that is looked up there,
// and the file itself, which tells of writers who reach it under another name or another mount.
//
// Not seen: what is mounted over the path, changed permissions, and a file made with
// O_TMPFILE and linkat(2) before its writer has closed it and touched it again.
//
// Not safe for use by several threads at once.
class ConfigWatch {
 public:
  // `path` need not exist; a relative one is looked up in the current directory each time.
  //
  // InvalidArgument: `path` is empty. ResourceExhausted: no descriptors, or too many inotify
  // instances or watches. PermissionDenied: neither the file nor the directory that it is, or would
  // be, in may be read. NotFound: /proc is not mounted.
  static absl::StatusOr<std::unique_ptr<ConfigWatch>> Create(std::string path);

  // Becomes readable (poll(2), level-triggered) when there is something to drain, which includes
  // whatever is made or removed beside the file.
  int fd() const { return inotify_.fd(); }

  // Empties the queue without blocking. True: what LoadConfig would read may be something else than
  // at the last call that said so, or at Create. Never while the file is only half written, unless
  // its directory has only just been made; then the end of the writing says true again. An editor
  // that renames the old file away before it writes the new one leaves none for a moment, and that
  // is said, too: wait a tenth of a second before believing that the file is gone.
  //
  // Errors as Create's: make a new one, or do without.
  absl::StatusOr<bool> Drain();

 private:
  // Of the file that the path leads to. While all of this stays, so does what is in the file, as
  // far as the clock that file systems use can tell.
  struct Identity {
    int error = 0;  // errno of the lookup
    dev_t device = 0;
    ino_t inode = 0;
    off_t size = 0;
    absl::Time modified = absl::UnixEpoch();
    absl::Time changed = absl::UnixEpoch();

    bool operator==(const Identity&) const = default;
  };
  // A name in the directory of a watch.
  using Entry = std::pair<int, std::string>;
  // What is watched on the way to the file.
  struct Way {
    // The names that matter, by watch; none for the file itself.
    std::map<int, std::set<std::string>> watched;
    // Where the file has its only name. Empty: it is missing, no regular file, or has several.
    std::optional<Entry> file;
    // Neither the last directory nor the file may be read.
    bool blind = false;
  };

  ConfigWatch(std::string path, Inotify inotify)
      : path_(std::move(path)), inotify_(std::move(inotify)) {}

  bool Notice(const inotify_event& event);
  absl::StatusOr<Identity> Arm();
  absl::StatusOr<WalkedPath> WatchDirectories(Way& way);
  absl::StatusOr<int> Watch(const OwnedFd& what, uint32_t events);
  void Remember(const Identity& identity);

  std::string path_;
  Inotify inotify_;
  Way way_;
  // Regular files, as far as is known, that were made and not closed by their writers yet.
  std::set<Entry> unfinished_;
  Identity last_;
  // The file was written so shortly before `last_` was taken that one more write may have left the
  // same times.
  bool last_was_fresh_ = false;
};

}  // namespace kipt::agent

#endif  // KIPT_AGENT_PROCESS_CONFIG_WATCH_H_
