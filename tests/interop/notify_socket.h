// SPDX-License-Identifier: Apache-2.0
//
// The service manager's end of $NOTIFY_SOCKET: sd_notify(3).
#ifndef KIPT_TESTS_INTEROP_NOTIFY_SOCKET_H_
#define KIPT_TESTS_INTEROP_NOTIFY_SOCKET_H_

#include <sys/socket.h>
#include <sys/types.h>
#include <sys/un.h>
#include <unistd.h>

#include "tests/interop/agent_fixture.h"

namespace kipt::testing {

class NotifySocket {
 public:
  NotifySocket() : path_(directory_.directory() + "/notify") {
    fd_ = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    const sockaddr_un address = Address();
    bound_ = bind(fd_, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0;
  }
  ~NotifySocket() { close(fd_); }
  NotifySocket(const NotifySocket&) = delete;
  NotifySocket& operator=(const NotifySocket&) = delete;

  bool bound() const { return bound_; }
  std::string Variable() const { return "NOTIFY_SOCKET=" + path_; }
  // All notifications so far.
  const std::string& Received() {
    char buffer[4096];
    ssize_t count = 0;
    while ((count = recv(fd_, buffer, sizeof(buffer), 0)) > 0) {
      received_.append(buffer, static_cast<size_t>(count));
      received_ += '\n';
    }
    return received_;
  }
  bool Receives(const std::string& text) {
    return WaitUntil([&] { return absl::StrContains(Received(), text); });
  }

 private:
  sockaddr_un Address() const {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    path_.copy(address.sun_path, sizeof(address.sun_path) - 1);
    return address;
  }

  TemporaryFile directory_{""};
  std::string path_;
  int fd_ = -1;
  bool bound_ = false;
  std::string received_;
};

}  // namespace kipt::testing

#endif  // KIPT_TESTS_INTEROP_NOTIFY_SOCKET_H_
