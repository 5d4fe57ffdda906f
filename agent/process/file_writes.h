// SPDX-License-Identifier: Apache-2.0
//
// File: agent/process/file_writes.h
#ifndef KIPT_AGENT_PROCESS_FILE_WRITES_H_
#define KIPT_AGENT_PROCESS_FILE_WRITES_H_

#include <string>

#include "absl/status/status.h"

namespace kipt::agent {

// From now on the calling thread, the threads and the programs that it starts can open no file for
// writing except /dev/null, and make, rename and remove none (landlock(7)): EACCES. From Linux 6.12
// on they can send signals only to each other. Files that are open already stay writable.
//
// `may_be_made`: a path at which an empty file can be made all the same, for the lock of
// iptables-legacy. The kernel knows directories only, so any file can be made next to it. Empty:
// none.
//
// no_new_privs must be set (DropCapabilities does that). To be called before there are other
// threads, which would keep what they had.
//
// Unimplemented: this kernel or the container has no Landlock, or this is an instrumented build,
// which writes files of its own; nothing was changed. Internal: anything else; nothing was changed.
absl::Status ForbidFileWrites(const std::string& may_be_made);

}  // namespace kipt::agent

#endif  // KIPT_AGENT_PROCESS_FILE_WRITES_H_
