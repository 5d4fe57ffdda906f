// SPDX-License-Identifier: Apache-2.0
#include "agent/capi/kube_iptables_agent.h"

#include <poll.h>
#include <pthread.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <limits>
#include <memory>
#include <new>
#include <string>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "agent/capi/handles.h"
#include "agent/capi/options.h"
#include "agent/capi/reports.h"
#include "agent/loop/clock.h"
#include "agent/report/report.h"
#include "agent/text/printable.h"

namespace kipt::agent {
namespace {

// As strdup; null where memory ran out.
char* CopyText(absl::string_view text) {
  auto* const copy = static_cast<char*>(std::malloc(text.size() + 1));
  if (copy == nullptr) return nullptr;
  std::copy(text.begin(), text.end(), copy);
  copy[text.size()] = '\0';
  return copy;
}

int Return(const absl::Status& status, kube_iptables_agent_error* error) {
  const int code = status.raw_code();
  if (error != nullptr) {
    *error = {.code = code,
              .message = status.ok() ? nullptr : CopyText(Printable(status.message()))};
  }
  return code;
}

// Nothing of C++ comes out, neither a Status nor an exception, and no cancellation. This project
// throws nothing; the standard library does where memory runs out.
template <typename Work>
int Guarded(kube_iptables_agent_error* error, const Work& work) noexcept {
  // It would unwind the stack as an exception does.
  int before = PTHREAD_CANCEL_ENABLE;
  pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &before);
  const absl::Cleanup allowed = [&] { pthread_setcancelstate(before, nullptr); };
  try {
    return Return(work(), error);
  } catch (const std::bad_alloc&) {
    if (error != nullptr)
      *error = {.code = KUBE_IPTABLES_AGENT_RESOURCE_EXHAUSTED, .message = nullptr};
    return KUBE_IPTABLES_AGENT_RESOURCE_EXHAUSTED;
  } catch (...) {
    if (error != nullptr) *error = {.code = KUBE_IPTABLES_AGENT_INTERNAL, .message = nullptr};
    return KUBE_IPTABLES_AGENT_INTERNAL;
  }
}

absl::Status Create(const kube_iptables_agent_options* given,
                    const kube_iptables_agent_handlers* given_handlers, kube_iptables_agent** out) {
  if (out == nullptr) return absl::InvalidArgumentError("agent: NULL");
  absl::StatusOr<NodeAgentOptions> options = OptionsFrom(given);
  if (!options.ok()) return options.status();
  const absl::StatusOr<kube_iptables_agent_handlers> handlers = HandlersFrom(given_handlers);
  if (!handlers.ok()) return handlers.status();
  auto made = std::make_unique<kube_iptables_agent>();
  made->handlers = *handlers;
  made->wake = OwnedFd(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!made->wake.valid()) return absl::ErrnoToStatus(errno, "eventfd");
  NodeAgentHandlers ours;
  ours.round = [self = made.get()](const Event& event) {
    self->recent.Note(absl::Now(), event);
    if (self->handlers.event == nullptr) return;
    const std::string json = EventJson(absl::Now(), event);
    self->handlers.event(self->handlers.context, json.c_str(), json.size());
  };
  if (made->handlers.notice != nullptr) {
    ours.notice = [self = made.get()](absl::LogSeverity severity, absl::string_view text) {
      const std::string line = Printable(text);
      self->handlers.notice(self->handlers.context,
                            std::min(static_cast<int>(severity), int{KUBE_IPTABLES_AGENT_ERROR}),
                            line.c_str());
    };
  }
  absl::StatusOr<std::unique_ptr<NodeAgent>> agent =
      NodeAgent::Create(*std::move(options), std::move(ours));
  if (!agent.ok()) return agent.status();
  made->agent = *std::move(agent);
  *out = Handles::Of().Add(std::move(made));
  return absl::OkStatus();
}

absl::Status NotDispatching(const kube_iptables_agent& handle) {
  if (!handle.dispatching) return absl::OkStatus();
  return absl::FailedPreconditionError("a callback of this agent is running: return from it first");
}

// Until something is due, `wake` is readable, or the time is over.
absl::Status Wait(kube_iptables_agent& handle, int64_t timeout_ms) {
  std::array<pollfd, 2> readable = {{{.fd = handle.agent->fd(), .events = POLLIN, .revents = 0},
                                     {.fd = handle.wake.get(), .events = POLLIN, .revents = 0}}};
  const auto most = static_cast<int64_t>(std::numeric_limits<int>::max());
  const SteadyTime deadline = SteadyNow() + absl::Milliseconds(timeout_ms);
  while (poll(readable.data(), readable.size(), static_cast<int>(std::min(timeout_ms, most))) < 0) {
    if (errno != EINTR) return absl::ErrnoToStatus(errno, "poll");
    if (timeout_ms > 0) {
      timeout_ms = std::max<int64_t>(0, absl::ToInt64Milliseconds(deadline - SteadyNow()));
    }
  }
  uint64_t wakes = 0;
  // Empty is all right: the next wait is to wait.
  [[maybe_unused]] const ssize_t size = read(handle.wake.get(), &wakes, sizeof(wakes));
  return absl::OkStatus();
}

absl::Status Dispatch(kube_iptables_agent* handle, int64_t timeout_ms) {
  if (absl::Status status = Handles::Of().CheckOwned(handle); !status.ok()) return status;
  if (absl::Status status = NotDispatching(*handle); !status.ok()) return status;
  if (timeout_ms < -1) {
    return absl::InvalidArgumentError(absl::StrCat("timeout_ms: ", timeout_ms, " is below -1"));
  }
  absl::Status status = CheckNamespace(*handle->agent);
  if (status.ok()) status = Wait(*handle, handle->must_dispatch ? 0 : timeout_ms);
  if (!status.ok()) return status;
  handle->must_dispatch = false;
  handle->dispatching = true;
  const absl::Cleanup ended = [handle] { handle->dispatching = false; };
  return handle->agent->Dispatch();
}

absl::Status Store(const absl::StatusOr<std::string>& text, char** json) {
  if (!text.ok()) return text.status();
  char* const copy = CopyText(*text);
  if (copy == nullptr) throw std::bad_alloc();
  *json = copy;
  return absl::OkStatus();
}

absl::Status Sync(kube_iptables_agent* handle, char** json) {
  if (absl::Status status = Handles::Of().CheckOwned(handle); !status.ok()) return status;
  if (json == nullptr) return absl::InvalidArgumentError("json: NULL");
  if (absl::Status status = NotDispatching(*handle); !status.ok()) return status;
  handle->dispatching = true;
  const absl::Cleanup ended = [handle] { handle->dispatching = false; };
  // The round may have left something due.
  handle->must_dispatch = true;
  return Store(SyncJsonOf(*handle->agent), json);
}

absl::Status Free(kube_iptables_agent* handle) {
  if (handle == nullptr) return absl::OkStatus();
  if (absl::Status status = Handles::Of().CheckOwned(handle); !status.ok()) return status;
  if (absl::Status status = NotDispatching(*handle); !status.ok()) return status;
  Handles::Of().Remove(handle).reset();
  return absl::OkStatus();
}

absl::Status SetOptions(kube_iptables_agent* handle, const kube_iptables_agent_options* given) {
  if (absl::Status status = Handles::Of().CheckOwned(handle); !status.ok()) return status;
  const absl::StatusOr<NodeAgentOptions> options = OptionsFrom(given);
  if (!options.ok()) return options.status();
  if (absl::Status status = handle->agent->SetOptions(*options); !status.ok()) return status;
  handle->must_dispatch = true;
  return absl::OkStatus();
}

absl::Status Wake(kube_iptables_agent* handle) {
  return Handles::Of().WithAny(handle, [](kube_iptables_agent& agent) {
    const uint64_t one = 1;
    // Full is all right: it is readable then.
    [[maybe_unused]] const ssize_t size = write(agent.wake.get(), &one, sizeof(one));
  });
}

using MakeReport = absl::FunctionRef<absl::StatusOr<std::string>(NodeAgent&)>;
int GiveJson(kube_iptables_agent* handle, char** json, kube_iptables_agent_error* error,
             MakeReport make) {
  return Guarded(error, [&]() -> absl::Status {
    if (absl::Status status = Handles::Of().CheckOwned(handle); !status.ok()) return status;
    if (json == nullptr) return absl::InvalidArgumentError("json: NULL");
    return Store(make(*handle->agent), json);
  });
}

}  // namespace
}  // namespace kipt::agent

using namespace kipt::agent;  // NOLINT(google-build-using-namespace): C has none

void kube_iptables_agent_error_clear(kube_iptables_agent_error* error) {
  if (error == nullptr) return;
  std::free(error->message);
  *error = {};
}

const char* kube_iptables_agent_code_name(int code) {
  constexpr std::array<const char*, 17> kNames = {"OK",
                                                  "CANCELLED",
                                                  "UNKNOWN",
                                                  "INVALID_ARGUMENT",
                                                  "DEADLINE_EXCEEDED",
                                                  "NOT_FOUND",
                                                  "ALREADY_EXISTS",
                                                  "PERMISSION_DENIED",
                                                  "RESOURCE_EXHAUSTED",
                                                  "FAILED_PRECONDITION",
                                                  "ABORTED",
                                                  "OUT_OF_RANGE",
                                                  "UNIMPLEMENTED",
                                                  "INTERNAL",
                                                  "UNAVAILABLE",
                                                  "DATA_LOSS",
                                                  "UNAUTHENTICATED"};
  return code >= 0 && static_cast<size_t>(code) < kNames.size() ? kNames[static_cast<size_t>(code)]
                                                                : "UNKNOWN";
}

const char* kube_iptables_agent_version(void) { return KIPT_VERSION; }

void kube_iptables_agent_string_free(char* text) { std::free(text); }

int kube_iptables_agent_create(const kube_iptables_agent_options* options,
                               const kube_iptables_agent_handlers* handlers,
                               kube_iptables_agent** agent, kube_iptables_agent_error* error) {
  return Guarded(error, [&] { return Create(options, handlers, agent); });
}

int kube_iptables_agent_free(kube_iptables_agent* agent, kube_iptables_agent_error* error) {
  return Guarded(error, [&] { return Free(agent); });
}

int kube_iptables_agent_fd(kube_iptables_agent* agent) {
  int fd = -1;
  Guarded(nullptr, [&] {
    absl::Status status = Handles::Of().CheckOwned(agent);
    if (status.ok()) fd = agent->agent->fd();
    return status;
  });
  return fd;
}

int kube_iptables_agent_dispatch(kube_iptables_agent* agent, int64_t timeout_ms,
                                 kube_iptables_agent_error* error) {
  return Guarded(error, [&] { return Dispatch(agent, timeout_ms); });
}

int kube_iptables_agent_wake(kube_iptables_agent* agent, kube_iptables_agent_error* error) {
  return Guarded(error, [&] { return Wake(agent); });
}

int kube_iptables_agent_set_options(kube_iptables_agent* agent,
                                    const kube_iptables_agent_options* options,
                                    kube_iptables_agent_error* error) {
  return Guarded(error, [&] { return SetOptions(agent, options); });
}

int kube_iptables_agent_state_json(kube_iptables_agent* agent, char** json,
                                   kube_iptables_agent_error* error) {
  return GiveJson(agent, json, error, [agent](NodeAgent& inside) -> absl::StatusOr<std::string> {
    return DaemonStateJson({inside.state(), agent->recent});
  });
}

int kube_iptables_agent_report_json(kube_iptables_agent* agent, char** json,
                                    kube_iptables_agent_error* error) {
  return GiveJson(agent, json, error, ReportJsonOf);
}

int kube_iptables_agent_sync_json(kube_iptables_agent* agent, char** json,
                                  kube_iptables_agent_error* error) {
  return Guarded(error, [&] { return Sync(agent, json); });
}

int kube_iptables_agent_plan_json(kube_iptables_agent* agent, char** json,
                                  kube_iptables_agent_error* error) {
  return GiveJson(agent, json, error, PlanJsonOf);
}

int kube_iptables_agent_audit_json(kube_iptables_agent* agent, char** json,
                                   kube_iptables_agent_error* error) {
  return GiveJson(agent, json, error, AuditJsonOf);
}
