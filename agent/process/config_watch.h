// SPDX-License-Identifier: Apache-2.0
//
// Notices every change of a configuration file: written over, replaced by an editor, reached
// through symbolic links that now lead elsewhere (a Kubernetes ConfigMap volume), removed, or new.
#ifndef KIPT_AGENT_PROCESS_CONFIG_WATCH_H_
#define KIPT_AGENT_PROCESS_CONFIG_WATCH_H_

#include <sys/types.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "agent/process/files.h"

namespace kipt::agent {

// Watches each directory on the path for the name that is looked up there, and the file itself. Not
// noticed: a mount over the path, changed permissions, and a file made with O_TMPFILE and linkat(2)
// until its writer closes it and touches it again.
//
// Not safe for use by several threads at once.
class ConfigWatch {
 public:
  // `path` need not exist. InvalidArgument: it is empty. ResourceExhausted: no descriptors, or too
  // many inotify instances or watches. PermissionDenied: neither the file nor its directory can be
  // read. NotFound: /proc is not mounted.
  static absl::StatusOr<std::unique_ptr<ConfigWatch>> Create(std::string path);

  // Readable while there are events, including those of other names in the watched directories.
  int fd() const { return inotify_.fd(); }

  // Takes queued events without blocking; fd() stays readable while there are more. Returns whether
  // LoadConfig could read something else than when this last returned true, or at Create. Not true
  // for a half-written file, except in a new directory, where the end of the write returns true
  // again. True also if an editor has renamed the old file away: wait a tenth of a second before
  // treating the file as removed.
  //
  // Errors are Create's; the watch is then useless.
  absl::StatusOr<bool> Drain();

 private:
  // Equal while the file's content is, up to the resolution of file times.
  struct Identity {
    int error = 0;  // errno of the lookup
    dev_t device = 0;
    ino_t inode = 0;
    off_t size = 0;
    absl::Time modified = absl::UnixEpoch();
    absl::Time changed = absl::UnixEpoch();

    bool operator==(const Identity&) const = default;
  };
  // A watch, and a name in its directory; "": the directory, or the file itself.
  using Entry = std::pair<int, std::string>;
  // The way to the file.
  struct Way {
    std::set<Entry> watched;
    // The file's only name, or that of its unreadable directory. Empty: it is missing, no regular
    // file, or has several.
    std::optional<Entry> file;
    // Neither the last directory nor the file can be read.
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
  // Probably regular files that their writers have made and not yet closed.
  std::set<Entry> unfinished_;
  Identity last_;
  // One more write after `last_` was read may have left the same times.
  bool last_was_fresh_ = false;
};

}  // namespace kipt::agent

#endif  // KIPT_AGENT_PROCESS_CONFIG_WATCH_H_
