// SPDX-License-Identifier: Apache-2.0
#include "agent/process/command.h"

#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <thread>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "agent/process/files.h"

namespace kipt::agent {
namespace {

using SteadyClock = std::chrono::steady_clock;

struct Channel {
  OwnedFd ours;
  OwnedFd childs;
};

// Sockets, because writing to a pipe that the child does not read would raise SIGPIPE here; send(2)
// can suppress it. Neither end is one of the descriptors 0 to 2, which a host program may have
// closed, because the child's ends are copied onto those.
absl::StatusOr<Channel> OpenChannel() {
  std::array<int, 2> ends = {-1, -1};
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()) != 0) {
    return absl::ErrnoToStatus(errno, "socketpair");
  }
  Channel channel{OwnedFd(ends[0]), OwnedFd(ends[1])};
  for (OwnedFd* end : {&channel.ours, &channel.childs}) {
    if (end->get() > STDERR_FILENO) continue;
    OwnedFd higher(fcntl(end->get(), F_DUPFD_CLOEXEC, STDERR_FILENO + 1));
    if (!higher.valid()) return absl::ErrnoToStatus(errno, "fcntl(F_DUPFD_CLOEXEC)");
    *end = std::move(higher);
  }
  return channel;
}

std::vector<char*> Pointers(std::vector<std::string>& words) {
  std::vector<char*> pointers;
  pointers.reserve(words.size() + 1);
  for (std::string& word : words) pointers.push_back(word.data());
  pointers.push_back(nullptr);
  return pointers;
}

// Starts a program in a process group of its own, with default signal handling and the standard
// `streams`; nothing else is open in it. Returns 0 or an errno.
//
// The child shares our memory until it executes the program, so starting it costs the same however
// large we are, and it stays in the namespaces of this thread.
int Spawn(std::vector<std::string> words, std::vector<std::string> environment,
          const std::array<Channel, 3>& streams, pid_t& child) {
  posix_spawnattr_t how = {};
  posix_spawn_file_actions_t actions = {};
  posix_spawnattr_init(&how);
  posix_spawn_file_actions_init(&actions);
  sigset_t none;
  sigset_t all;
  sigemptyset(&none);
  sigfillset(&all);
  posix_spawnattr_setflags(&how,
                           POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
  posix_spawnattr_setpgroup(&how, 0);
  posix_spawnattr_setsigmask(&how, &none);
  posix_spawnattr_setsigdefault(&how, &all);
  int refused = 0;
  for (int fd = STDIN_FILENO; refused == 0 && fd <= STDERR_FILENO; ++fd) {
    const int childs = streams[static_cast<size_t>(fd)].childs.get();
    refused = posix_spawn_file_actions_adddup2(&actions, childs, fd);
  }
  if (refused == 0) refused = posix_spawn_file_actions_addclosefrom_np(&actions, STDERR_FILENO + 1);
  if (refused == 0) {
    refused = posix_spawn(&child, words.front().c_str(), &actions, &how, Pointers(words).data(),
                          Pointers(environment).data());
  }
  posix_spawn_file_actions_destroy(&actions);
  posix_spawnattr_destroy(&how);
  return refused;
}

// One program, from its start until it is reaped.
class Execution {
 public:
  explicit Execution(const CommandRequest& request)
      : request_(request),
        words_(request.arguments),
        end_(SteadyClock::now() + absl::ToChronoMilliseconds(request.deadline)) {
    words_.insert(words_.begin(), request.program);
    name_ = absl::StrJoin(words_, " ");
  }
  // Kills and reaps what was started.
  ~Execution() {
    if (child_ < 0) return;
    // The number is still the group's, because the child is not reaped yet.
    kill(-child_, SIGKILL);
    while (waitpid(child_, nullptr, 0) < 0 && errno == EINTR) {
    }
  }
  Execution(const Execution&) = delete;
  Execution& operator=(const Execution&) = delete;

  absl::StatusOr<CommandResult> Run() {
    if (!absl::StartsWith(request_.program, "/")) {
      return absl::InvalidArgumentError(absl::StrCat(name_, ": not an absolute path"));
    }
    absl::Status status = Start();
    while (status.ok() && (streams_[1].ours.valid() || streams_[2].ours.valid())) {
      status = Exchange();
    }
    if (status.ok()) status = AwaitExit();
    if (!status.ok()) return status;
    return std::move(result_);
  }

 private:
  absl::Status Start() {
    for (Channel& stream : streams_) {
      absl::StatusOr<Channel> opened = OpenChannel();
      if (!opened.ok()) return opened.status();
      stream = *std::move(opened);
    }
    const int refused = Spawn(words_, request_.environment, streams_, child_);
    for (Channel& stream : streams_) stream.childs.Close();
    if (refused == 0) return absl::OkStatus();
    child_ = -1;
    const std::string why = ErrorText(refused);
    if (refused == E2BIG) return Failure(refused, "its arguments are too long");
    if (refused == ENOMEM || refused == EAGAIN) {
      return absl::ResourceExhaustedError(absl::StrCat(name_, ": could not be started: ", why));
    }
    return absl::NotFoundError(absl::StrCat(name_, ": cannot be executed: ", why));
  }

  // Waits until bytes can be moved, at most until the deadline, and moves them.
  absl::Status Exchange() {
    auto& [input, output, errors] = streams_;
    if (written_ == request_.input.size()) input.ours.Close();
    std::array<pollfd, 3> waits = {{{.fd = input.ours.get(), .events = POLLOUT, .revents = 0},
                                    {.fd = output.ours.get(), .events = POLLIN, .revents = 0},
                                    {.fd = errors.ours.get(), .events = POLLIN, .revents = 0}}};
    const int left = MillisecondsLeft();
    if (left == 0) return Late();
    const int ready = poll(waits.data(), waits.size(), left);
    if (ready < 0 && errno != EINTR) return Failure(errno, "poll");
    if (ready <= 0) return absl::OkStatus();
    absl::Status status;
    if (waits[0].revents != 0) status = Write(input.ours);
    if (waits[1].revents != 0) status.Update(Take(output.ours, result_.output, "standard output"));
    if (waits[2].revents != 0) status.Update(Take(errors.ours, result_.errors, "standard error"));
    return status;
  }

  absl::Status Write(OwnedFd& to) {
    const ssize_t sent = send(to.get(), request_.input.data() + written_,
                              request_.input.size() - written_, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent >= 0) {
      written_ += static_cast<size_t>(sent);
    } else if (errno == EPIPE || errno == ECONNRESET) {
      // The program has closed its input, which it need not read to the end.
      to.Close();
    } else if (errno != EAGAIN && errno != EINTR) {
      // An error, because the program would take a part for the whole.
      return Failure(errno, "writing its standard input");
    }
    return absl::OkStatus();
  }

  absl::Status Take(OwnedFd& from, std::string& into, absl::string_view what) {
    std::array<char, 65536> buffer;
    const ssize_t got = recv(from.get(), buffer.data(), buffer.size(), MSG_DONTWAIT);
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) return absl::OkStatus();
    // ECONNRESET: the other end was closed with bytes unread.
    if (got < 0 && errno != ECONNRESET) return Failure(errno, absl::StrCat("reading its ", what));
    if (got <= 0) {
      from.Close();
      return absl::OkStatus();
    }
    if (&into == &result_.output && request_.take_output) {
      return request_.take_output({buffer.data(), static_cast<size_t>(got)});
    }
    if (static_cast<size_t>(got) > request_.output_limit - into.size()) {
      return absl::ResourceExhaustedError(absl::StrCat(name_, ": printed more than ",
                                                       request_.output_limit, " bytes on ", what,
                                                       " and was killed"));
    }
    into.append(buffer.data(), static_cast<size_t>(got));
    return absl::OkStatus();
  }

  // The outputs are closed, so the exit follows at once, unless the program goes on without them.
  absl::Status AwaitExit() {
    streams_[0].ours.Close();
    for (std::chrono::microseconds pause{20};;
         pause = std::min(pause * 2, std::chrono::microseconds(10'000))) {
      int status = 0;
      const pid_t reaped = waitpid(child_, &status, WNOHANG);
      if (reaped == child_) {
        child_ = -1;
        result_.exit_code = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
        return absl::OkStatus();
      }
      if (reaped < 0 && errno != EINTR) {
        child_ = -1;
        return Failure(
            ECHILD,
            "its exit code is lost, because this process ignores SIGCHLD or reaps every child");
      }
      if (MillisecondsLeft() == 0) return Late();
      std::this_thread::sleep_for(pause);
    }
  }

  int MillisecondsLeft() const {
    const auto left =
        std::chrono::ceil<std::chrono::milliseconds>(end_ - SteadyClock::now()).count();
    return static_cast<int>(std::clamp<int64_t>(left, 0, 3'600'000));
  }
  absl::Status Late() const {
    return absl::DeadlineExceededError(absl::StrCat(name_, ": did not end within ",
                                                    absl::FormatDuration(request_.deadline),
                                                    " and was killed"));
  }
  absl::Status Failure(int error_number, absl::string_view action) const {
    return absl::ErrnoToStatus(error_number, absl::StrCat(name_, ": ", action));
  }

  const CommandRequest& request_;
  std::vector<std::string> words_;
  std::string name_;
  SteadyClock::time_point end_;
  pid_t child_ = -1;
  // Standard input, output and error.
  std::array<Channel, 3> streams_;
  size_t written_ = 0;
  CommandResult result_;
};

struct PosixCommandRunner : CommandRunner {
  absl::StatusOr<CommandResult> Run(const CommandRequest& request) override {
    return Execution(request).Run();
  }
};

}  // namespace

std::unique_ptr<CommandRunner> NewCommandRunner() { return std::make_unique<PosixCommandRunner>(); }

}  // namespace kipt::agent
