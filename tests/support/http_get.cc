// SPDX-License-Identifier: Apache-2.0
#include "tests/support/http_get.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include <cstdlib>

#include "tests/support/background_program.h"

namespace kipt::testing {

HttpAnswer HttpGet(int port, const std::string& path, absl::Duration patience) {
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd < 0) return {};
  const timeval longest = absl::ToTimeval(Patient(patience));
  // Of connect() and send(), and of recv().
  setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &longest, sizeof(longest));
  setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &longest, sizeof(longest));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  std::string text;
  const std::string request =
      "GET " + path + " HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
  if (connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0 &&
      send(fd, request.data(), request.size(), MSG_NOSIGNAL) ==
          static_cast<ssize_t>(request.size())) {
    char buffer[65536];
    ssize_t count = 0;
    while ((count = recv(fd, buffer, sizeof(buffer), 0)) > 0) {
      text.append(buffer, static_cast<size_t>(count));
    }
  }
  close(fd);
  const size_t end = text.find("\r\n\r\n");
  if (end == std::string::npos || text.size() < 12) return {};
  return {.status = std::atoi(text.substr(9, 3).c_str()), .body = text.substr(end + 4)};
}

}  // namespace kipt::testing
