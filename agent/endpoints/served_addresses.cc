// SPDX-License-Identifier: Apache-2.0
#include "agent/endpoints/served_addresses.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/time.h"
#include "agent/config/value_texts.h"

namespace kipt::agent {
namespace {
constexpr absl::Duration kListenAgainAfter = absl::Seconds(5);
}  // namespace

ServedAddresses::ServedAddresses(EventLoop& loop, std::vector<Endpoint> endpoints,
                                 Handlers handlers)
    : loop_(loop), handlers_(std::move(handlers)) {
  for (Endpoint& endpoint : endpoints) slots_.push_back({.endpoint = std::move(endpoint)});
}

void ServedAddresses::Listen(std::vector<OwnedFd> passed) {
  for (OwnedFd& fd : passed) Adopt(std::move(fd));
  for (Slot& slot : slots_) {
    if (slot.server == nullptr) Bind(slot);
  }
}

void ServedAddresses::Warn(const std::string& sentence) const {
  handlers_.notice(absl::LogSeverity::kWarning, sentence);
}

void ServedAddresses::Adopt(OwnedFd fd) {
  absl::StatusOr<std::unique_ptr<HttpServer>> adopted = HttpServer::Adopt(std::move(fd));
  if (!adopted.ok()) {
    return Warn(
        absl::StrCat("A socket that systemd passed is not used: ", adopted.status().message()));
  }
  const std::string& address = (*adopted)->address();
  for (Slot& slot : slots_) {
    const absl::StatusOr<BindAddress> wanted = ParseBindAddress(slot.endpoint.address);
    if (slot.server == nullptr && wanted.ok() && ToString(*wanted) == address) {
      slot.server = *std::move(adopted);
      return;
    }
  }
  Warn(absl::StrCat("The socket ", address,
                    ", which systemd passed, is not used: no address is configured so; change "
                    "ListenStream= of the .socket unit"));
}

void ServedAddresses::Serve() {
  for (Slot& slot : slots_) {
    if (slot.server != nullptr) Start(slot);
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
  absl::StatusOr<std::unique_ptr<HttpServer>> server = HttpServer::Bind(slot.endpoint.address);
  if (!server.ok()) return Fail(slot, server.status());
  slot.server = *std::move(server);
}

void ServedAddresses::Start(Slot& slot) {
  if (absl::Status status = slot.server->Serve(slot.endpoint.handler); !status.ok()) {
    slot.server.reset();
    return Fail(slot, status);
  }
  slot.failure = absl::OkStatus();
  handlers_.notice(absl::LogSeverity::kInfo,
                   absl::StrCat("Listening on http://", slot.server->address()));
}

void ServedAddresses::Fail(Slot& slot, const absl::Status& status) {
  if (status == slot.failure) return;
  slot.failure = status;
  Warn(absl::StrCat(status.message(),
                    "; rules are kept in place without it, and it is tried again every ",
                    absl::FormatDuration(kListenAgainAfter)));
}

void ServedAddresses::TryAgain() {
  const std::string before = problem();
  for (Slot& slot : slots_) {
    if (slot.server != nullptr) continue;
    Bind(slot);
    if (slot.server != nullptr) Start(slot);
  }
  TryAgainLater();
  if (problem() != before) handlers_.changed();
}

void ServedAddresses::TryAgainLater() {
  if (problem().empty()) return;
  absl::Status status;
  if (timer_ == nullptr) {
    absl::StatusOr<std::unique_ptr<EventSource>> timer = loop_.AddTimer([this] { TryAgain(); });
    status = timer.status();
    if (timer.ok()) timer_ = *std::move(timer);
  }
  if (status.ok()) status = timer_->FireAfter(kListenAgainAfter);
  if (!status.ok()) Warn(absl::StrCat("No address is tried again: ", status.message()));
}

}  // namespace kipt::agent
