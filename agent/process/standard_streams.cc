// SPDX-License-Identifier: Apache-2.0
#include "agent/process/standard_streams.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <iostream>
#include <system_error>

namespace kipt::agent {

void OccupyStandardDescriptors() {
  for (const int fd : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    if (fcntl(fd, F_GETFD) >= 0 || errno != EBADF) continue;
    // The wrong way round, so that reading and writing fail. The lowest free number is `fd`.
    const int flags = fd == STDIN_FILENO ? O_WRONLY : O_RDONLY;
    // Where there is no /dev, any descriptor does.
    if (open("/dev/null", flags) < 0 && open("/", O_RDONLY | O_DIRECTORY) < 0) return;
  }
}

int FinishOutput(int exit_code) {
  errno = 0;
  std::cout.flush();
  const bool flushed = std::fflush(stdout) == 0;
  const int error = errno;
  if (flushed && std::cout.good() && std::ferror(stdout) == 0) return exit_code;
  // The error of an earlier write is lost.
  std::cerr << "Error: writing to standard output: "
            << (error == 0 ? "not all of it was written" : std::generic_category().message(error))
            << "\n";
  return 1;
}

}  // namespace kipt::agent
