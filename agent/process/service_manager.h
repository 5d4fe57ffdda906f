// SPDX-License-Identifier: Apache-2.0
//
// File: agent/process/service_manager.h
//
// Tells the service manager that started this process how it is (sd_notify(3), Type=notify). The
// watchdog is the event loop's.
#ifndef KIPT_AGENT_PROCESS_SERVICE_MANAGER_H_
#define KIPT_AGENT_PROCESS_SERVICE_MANAGER_H_

#include <vector>

#include "absl/strings/string_view.h"
#include "agent/process/owned_fd.h"

namespace kipt::agent {

// Sends to $NOTIFY_SOCKET, and does nothing where that is not set. What cannot be delivered is
// lost: nobody could do anything about it but who is not listening. The variable stays in this
// process' environment; the programs that are run get an environment of their own (command.h), so
// that none of them can speak in our name.
//
// Safe for use by several threads at once.
class ServiceManager {
 public:
  // Started, or done with the reload that was announced.
  void Ready() const;
  // For people who look. `text` may be a stranger's, and is escaped (featuregates/printable.h): a
  // line break would begin a message of its own.
  void Status(absl::string_view text) const;
  // A reload begins now; Ready() ends it.
  void Reloading() const;
  // Ends soon, of its own will.
  void Stopping() const;
};

// The sockets that the service manager opened for this process and holds open while it does not run
// (sd_listen_fds(3), a .socket unit of systemd). Empty where there are none, and at the second
// call. Changes the environment: call it before there are other threads.
std::vector<OwnedFd> TakePassedSockets();

}  // namespace kipt::agent

#endif  // KIPT_AGENT_PROCESS_SERVICE_MANAGER_H_
