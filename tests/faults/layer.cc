// SPDX-License-Identifier: Apache-2.0
#include "tests/faults/layer.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>

namespace kipt::testing {
namespace {

Control* g_control = nullptr;

// Before anything of the program's, and before it gives up the right to open anything.
__attribute__((constructor)) void MapControl() {
  const char* path = std::getenv(kControlVariable);
  if (path == nullptr) return;
  const int fd = static_cast<int>(syscall(SYS_openat, AT_FDCWD, path, O_RDWR | O_CLOEXEC));
  if (fd < 0) std::abort();
  void* memory = mmap(nullptr, sizeof(Control), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (memory == MAP_FAILED) std::abort();
  syscall(SYS_close, fd);
  g_control = static_cast<Control*>(memory);
  g_control->loaded = 1;
}

}  // namespace

Control* TheControl() { return g_control; }

bool Armed() { return g_control != nullptr && g_control->armed == 1; }

const FaultRow* Meet(Point point) {
  if (!Armed()) return nullptr;
  const uint32_t occurrence = ++g_control->occurrences[static_cast<size_t>(point)];
  const FaultRow& row = kFaults[g_control->row % kFaultCount];
  if (row.point != point || occurrence != g_control->nth) return nullptr;
  ++g_control->injected;
  return &row;
}

int DomainOf(int fd) {
  const int before = errno;
  int domain = -1;
  socklen_t size = sizeof(domain);
  if (syscall(SYS_getsockopt, fd, SOL_SOCKET, SO_DOMAIN, &domain, &size) != 0) domain = -1;
  errno = before;
  return domain;
}

int FailWith(const FaultRow& row) {
  errno = row.number;
  return -1;
}

}  // namespace kipt::testing
