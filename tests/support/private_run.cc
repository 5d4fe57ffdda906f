// SPDX-License-Identifier: Apache-2.0
#include "tests/support/private_run.h"

#include <fcntl.h>
#include <sched.h>
#include <sys/mount.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <iostream>

namespace kipt::testing {
namespace {

// Where a daemon keeps its incidents, unless a flag names another file.
constexpr char kStateDirectory[] = "/var/lib/kube-iptables-agent";

void Must(bool done, const char* what) {
  if (done) return;
  std::cerr << what << ": " << std::strerror(errno)
            << ": this needs root (CAP_SYS_ADMIN), to get a /run of its own\n";
  std::abort();
}

}  // namespace

PrivateRun::PrivateRun()
    // Not /proc/self/ns/mnt: that is the main thread's.
    : mounts_before_(open("/proc/thread-self/ns/mnt", O_RDONLY | O_CLOEXEC)),
      root_before_(open("/", O_PATH | O_DIRECTORY | O_CLOEXEC)),
      directory_before_(open(".", O_PATH | O_DIRECTORY | O_CLOEXEC)) {
  Must(mounts_before_ >= 0 && root_before_ >= 0 && directory_before_ >= 0,
       "opening the mount namespace");
  Must(unshare(CLONE_NEWNS) == 0, "unshare(CLONE_NEWNS)");
  Must(mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0, "making mounts private");
  Must(mount("tmpfs", "/run", "tmpfs", 0, "mode=755") == 0, "mounting /run");
  // Where the directory is missing, a daemon does not make it.
  if (access(kStateDirectory, F_OK) == 0) {
    Must(mount("tmpfs", kStateDirectory, "tmpfs", 0, "mode=755") == 0, "mounting over the state");
  }
}

PrivateRun::~PrivateRun() {
  // setns() fails while another thread shares the root and working directory. A joined thread may
  // do so for a moment yet (the kernel wakes the joiner before it releases them), and
  // ThreadSanitizer's own thread always does.
  Must(unshare(CLONE_FS) == 0, "unshare(CLONE_FS)");
  Must(setns(mounts_before_, CLONE_NEWNS) == 0, "going back to the mount namespace");
  // The namespace's root need not be ours: in a chroot.
  Must(fchdir(root_before_) == 0 && chroot(".") == 0, "going back to the root directory");
  Must(fchdir(directory_before_) == 0, "going back to the directory");
  close(mounts_before_);
  close(root_before_);
  close(directory_before_);
}

}  // namespace kipt::testing
