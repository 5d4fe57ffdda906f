// SPDX-License-Identifier: Apache-2.0
//
// node-agent: keeps kubelet's iptables chains in place in several network namespaces at once, among
// its other duties, of which there is one: housekeeping. One process, one thread, the host's own
// event loop; SIGHUP reads the settings again, SIGTERM ends it and leaves the rules.
#include <unistd.h>

#include <array>
#include <csignal>
#include <iostream>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "host_log.h"
#include "host_loop.h"
#include "served_namespace.h"
#include "settings.h"

namespace node_agent {
namespace {

using Served = std::vector<std::unique_ptr<ServedNamespace>>;

// The host's own work, which must continue in its own namespace whatever the library does.
void Housekeeping() {
  std::array<char, 64> netns = {};
  const ssize_t size = readlink("/proc/thread-self/ns/net", netns.data(), netns.size() - 1);
  Log("housekeeping", absl::StrCat("in ", size > 0 ? netns.data() : "no namespace"));
}

void Reload(const std::string& path, const Served& served) {
  const absl::StatusOr<NodeSettings> settings = ReadSettings(path);
  if (!settings.ok()) {
    Log(absl::LogSeverity::kError, "settings", settings.status().message());
    return;
  }
  for (const std::unique_ptr<ServedNamespace>& each : served) each->Apply(*settings);
  Log("settings", "read again");
}

absl::StatusOr<Served> Serve(const CommandLine& command_line) {
  const absl::StatusOr<NodeSettings> settings = ReadSettings(command_line.settings_file);
  if (!settings.ok()) return settings.status();
  Served served;
  for (const Serving& serving : command_line.servings) {
    absl::StatusOr<std::unique_ptr<ServedNamespace>> one =
        ServedNamespace::Create(serving, *settings);
    if (!one.ok()) return one.status();
    served.push_back(*std::move(one));
  }
  return served;
}

absl::Status Run(const CommandLine& command_line) {
  absl::StatusOr<std::unique_ptr<HostLoop>> host = HostLoop::Create();
  if (!host.ok()) return host.status();
  absl::StatusOr<Served> served = Serve(command_line);
  if (!served.ok()) return served.status();

  absl::Status failure;
  const auto dispatch = [&](ServedNamespace& each) {
    failure.Update(each.Dispatch());
    if (!failure.ok()) (*host)->Stop();
  };
  const auto dispatch_all = [&] {
    for (const std::unique_ptr<ServedNamespace>& each : *served) dispatch(*each);
  };
  absl::Status status = (*host)->OnSignals({SIGHUP, SIGTERM}, [&](int signal) {
    if (signal == SIGTERM) return (*host)->Stop();
    Reload(command_line.settings_file, *served);
    // New options count from the next Dispatch on.
    dispatch_all();
  });
  status.Update((*host)->Every(command_line.housekeeping, Housekeeping));
  for (const std::unique_ptr<ServedNamespace>& each : *served) {
    status.Update((*host)->WatchReadable(each->fd(), [&, each = each.get()] { dispatch(*each); }));
  }
  if (!status.ok()) return status;
  dispatch_all();
  status.Update((*host)->Run());
  status.Update(failure);
  return status;
}

}  // namespace
}  // namespace node_agent

int main(int argc, char** argv) {
  const absl::StatusOr<node_agent::CommandLine> command_line =
      node_agent::ParseCommandLine(absl::MakeConstSpan(argv + 1, static_cast<size_t>(argc - 1)));
  if (!command_line.ok()) {
    std::cerr << "node-agent: " << command_line.status().message() << "\n";
    return 64;
  }
  node_agent::Housekeeping();
  const absl::Status status = node_agent::Run(*command_line);
  node_agent::Housekeeping();
  if (!status.ok()) {
    node_agent::Log(absl::LogSeverity::kFatal, "node-agent", status.ToString());
    return 1;
  }
  return 0;
}
