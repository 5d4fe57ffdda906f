// SPDX-License-Identifier: Apache-2.0
//
// File: agent/process/privileges.h
//
// Gives up, for good, what the agent does not need: capabilities (capabilities(7)) and writing to
// files (landlock(7)). System calls: syscall_filter.h.
#ifndef KIPT_AGENT_PROCESS_PRIVILEGES_H_
#define KIPT_AGENT_PROCESS_PRIVILEGES_H_

#include <string>

#include "absl/base/config.h"
#include "absl/status/status.h"
#include "absl/types/span.h"

namespace kipt::agent {

// Whether this build has the run time of a sanitizer in it, which has threads and makes system
// calls that the program itself has not; or that of line coverage, which writes files at the end.
// Our preset for coverage says so by KIPT_COVERAGE.
#if defined(ABSL_HAVE_ADDRESS_SANITIZER) || defined(ABSL_HAVE_THREAD_SANITIZER) || \
    defined(ABSL_HAVE_MEMORY_SANITIZER) || defined(KIPT_COVERAGE)
inline constexpr bool kBuiltWithASanitizer = true;
#else
inline constexpr bool kBuiltWithASanitizer = false;
#endif

// Leaves the calling thread no capability but CAP_NET_ADMIN, which nf_tables wants of who looks as
// of who writes, and with `keep_net_raw` CAP_NET_RAW, without which iptables-legacy cannot open its
// socket. What is kept is permitted and effective; with `keep_net_raw` also inheritable and
// ambient, so that the programs have it, whoever runs them. Then sets no_new_privs
// (PR_SET_NO_NEW_PRIVS), so that no program that is run can have more.
//
// Capabilities are each thread's own: to be called before there are other threads. Nothing that
// needs another privilege (setns, a port below 1024) can be done afterwards.
//
// PermissionDenied: one that is to be kept is not there; the message says where it is given.
// FailedPrecondition: there are other threads. Internal: the kernel did not do as it was told; do
// not go on.
absl::Status DropCapabilities(bool keep_net_raw);

// As above, for who reads what it can: of its capabilities the calling thread keeps those in `most`
// (CAP_* of linux/capability.h), and none has to be there. `for_programs`: programs have them, too.
// FailedPrecondition and Internal as above.
absl::Status LimitCapabilities(absl::Span<const unsigned int> most, bool for_programs);

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

#endif  // KIPT_AGENT_PROCESS_PRIVILEGES_H_
