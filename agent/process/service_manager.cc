// SPDX-License-Identifier: Apache-2.0
#include "agent/process/service_manager.h"

#include <systemd/sd-daemon.h>

#include <algorithm>
#include <chrono>
#include <string>

#include "absl/strings/str_cat.h"
#include "featuregates/printable.h"

namespace kipt::agent {
namespace {

// A message is one datagram, and a status that fills a screen tells less than one that does not.
constexpr size_t kLongestStatus = 1024;

void Send(const std::string& message) { sd_notify(/*unset_environment=*/0, message.c_str()); }

}  // namespace

void ServiceManager::Ready() const { Send("READY=1"); }

void ServiceManager::Status(absl::string_view text) const {
  const std::string line = featuregates::Printable(text);
  size_t end = std::min(line.size(), kLongestStatus);
  // Not in the middle of a UTF-8 sequence: systemd drops a status that is not UTF-8.
  while (end > 0 && end < line.size() && (static_cast<unsigned char>(line[end]) & 0xc0) == 0x80) {
    --end;
  }
  Send(absl::StrCat("STATUS=", line.substr(0, end)));
}

void ServiceManager::Reloading() const {
  // CLOCK_MONOTONIC in libstdc++. systemd compares it with the moment at which it sent the signal.
  const auto now = std::chrono::duration_cast<std::chrono::microseconds>(
      std::chrono::steady_clock::now().time_since_epoch());
  Send(absl::StrCat("RELOADING=1\nMONOTONIC_USEC=", now.count()));
}

void ServiceManager::Stopping() const { Send("STOPPING=1"); }

std::vector<OwnedFd> TakePassedSockets() {
  std::vector<OwnedFd> sockets;
  // Below 0: they cannot be taken over.
  const int count = std::max(sd_listen_fds(/*unset_environment=*/1), 0);
  sockets.reserve(static_cast<size_t>(count));
  for (int i = 0; i < count; ++i) sockets.emplace_back(SD_LISTEN_FDS_START + i);
  return sockets;
}

}  // namespace kipt::agent
