// SPDX-License-Identifier: Apache-2.0
#include "agent/endpoints/served_addresses.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "agent/config/value_texts.h"

namespace kipt::agent {

ServedAddresses::ServedAddresses(std::vector<Endpoint> endpoints, Handlers handlers)
    : handlers_(std::move(handlers)) {
  for (Endpoint& endpoint : endpoints) slots_.push_back({.endpoint = std::move(endpoint)});
}

absl::StatusOr<std::unique_ptr<ServedAddresses>> ServedAddresses::Create(
    EventLoop& loop, std::vector<Endpoint> endpoints, Handlers handlers) {
  std::unique_ptr<ServedAddresses> served(
      new ServedAddresses(std::move(endpoints), std::move(handlers)));
  absl::StatusOr<std::unique_ptr<EventSource>> timer =
      loop.AddTimer([raw = served.get()] { raw->TryAgain(); });
  if (!timer.ok()) return timer.status();
  served->timer_ = *std::move(timer);
  return served;
}

void ServedAddresses::Listen(std::vector<OwnedFd> passed) {
  for (OwnedFd& fd : passed) {
    absl::StatusOr<HttpListener> adopted = HttpListener::Adopt(std::move(fd));
    if (!adopted.ok()) {
      handlers_.notice(
          absl::LogSeverity::kWarning,
          absl::StrCat("A socket that systemd passed is not used: ", adopted.status().message()));
      continue;
    }
    const auto slot = std::find_if(slots_.begin(), slots_.end(), [&](const Slot& one) {
      const absl::StatusOr<BindAddress> wanted = ParseBindAddress(one.endpoint.address);
      return !one.listener && wanted.ok() && ToString(*wanted) == adopted->address();
    });
    if (slot != slots_.end()) {
      slot->listener = *std::move(adopted);
      continue;
    }
    handlers_.notice(absl::LogSeverity::kWarning,
                     absl::StrCat("The socket ", adopted->address(),
                                  ", which systemd passed, is not used: no address is configured "
                                  "so; change ListenStream= of the .socket unit"));
  }
  for (Slot& slot : slots_) {
    if (!slot.listener) Bind(slot);
  }
}

void ServedAddresses::Serve() {
  for (Slot& slot : slots_) {
    if (slot.listener) Start(slot);
  }
  TryAgainLater();
}

std::string ServedAddresses::problem() const {
  std::vector<absl::string_view> problems;
  for (const Slot& slot : slots_) {
    if (!slot.failure.ok()) problems.push_back(slot.failure.message());
  }
  return absl::StrJoin(problems, "; ");
}

void ServedAddresses::Bind(Slot& slot) {
  absl::StatusOr<HttpListener> listener = HttpListener::Bind(slot.endpoint.address);
  if (!listener.ok()) return Failed(slot, listener.status());
  slot.listener = *std::move(listener);
}

void ServedAddresses::Start(Slot& slot) {
  absl::StatusOr<std::unique_ptr<HttpServer>> server =
      HttpServer::Start(*std::exchange(slot.listener, std::nullopt), slot.endpoint.handler);
  if (!server.ok()) return Failed(slot, server.status());
  slot.server = *std::move(server);
  slot.failure = absl::OkStatus();
  handlers_.notice(absl::LogSeverity::kInfo,
                   absl::StrCat("Listening on http://", slot.server->address()));
}

void ServedAddresses::Failed(Slot& slot, absl::Status status) {
  if (status == slot.failure) return;
  slot.failure = std::move(status);
  handlers_.notice(absl::LogSeverity::kWarning,
                   absl::StrCat(slot.failure.message(),
                                "; rules are kept in place without it, and "
                                "it is tried again every ",
                                absl::FormatDuration(kListenAgainAfter)));
}

void ServedAddresses::TryAgain() {
  const std::string before = problem();
  for (Slot& slot : slots_) {
    if (slot.server != nullptr) continue;
    Bind(slot);
    if (slot.listener) Start(slot);
  }
  TryAgainLater();
  if (problem() != before) handlers_.changed();
}

void ServedAddresses::TryAgainLater() {
  if (problem().empty()) return;
  if (absl::Status status = timer_->FireAfter(kListenAgainAfter); !status.ok()) {
    handlers_.notice(absl::LogSeverity::kWarning,
                     absl::StrCat("No address is tried again: ", status.message()));
  }
}

}  // namespace kipt::agent
