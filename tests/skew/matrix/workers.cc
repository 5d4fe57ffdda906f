// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstring>
#include <map>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "agent/process/files.h"
#include "tests/skew/matrix/run_cell.h"
#include "tests/support/child.h"
#include "tests/support/private_run.h"

namespace kipt::skew {
namespace {

using agent::OwnedFd;

// Of a cell of which nothing came back.
CellReport Lost(const Cell& cell, std::string problem) {
  CellReport report = ReportOf(cell);
  report.problem = std::move(problem);
  return report;
}

void WriteAll(const OwnedFd& fd, const std::string& text) {
  size_t written = 0;
  while (written < text.size()) {
    const ssize_t count = write(fd.get(), text.data() + written, text.size() - written);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return;
    written += static_cast<size_t>(count);
  }
}

struct Worker {
  size_t cell = 0;
  pid_t pid = -1;
  OwnedFd output;
  std::string text;
  absl::Time deadline;
  bool late = false;
};

class Pool {
 public:
  Pool(const std::vector<Cell>& cells, absl::Duration deadline, const CellRunner& run)
      : cells_(cells), deadline_(deadline), run_(run) {}

  void Start(size_t cell) {
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0) {
      broken_[cell] = absl::StrCat("pipe: ", std::strerror(errno));
      return;
    }
    OwnedFd read_end(ends[0]);
    const OwnedFd write_end(ends[1]);
    const pid_t parent = getpid();
    const pid_t pid = fork();
    if (pid == 0) Work(cell, write_end, parent);
    if (pid < 0) {
      broken_[cell] = absl::StrCat("fork: ", std::strerror(errno));
      return;
    }
    Worker worker;
    worker.cell = cell;
    worker.pid = pid;
    worker.output = std::move(read_end);
    worker.deadline = absl::Now() + deadline_;
    workers_.push_back(std::move(worker));
  }

  // Those that are over by now, waiting a little for the first.
  std::vector<std::pair<size_t, CellReport>> Finished() {
    std::vector<std::pair<size_t, CellReport>> finished;
    for (const auto& [cell, problem] : broken_)
      finished.emplace_back(cell, Lost(cells_[cell], problem));
    broken_.clear();
    std::vector<pollfd> polled;
    polled.reserve(workers_.size());
    for (const Worker& worker : workers_) polled.push_back({worker.output.get(), POLLIN, 0});
    poll(polled.data(), polled.size(), 100);
    for (size_t i = workers_.size(); i-- > 0;) {
      if (absl::Now() > workers_[i].deadline && !workers_[i].late) {
        workers_[i].late = true;
        kill(workers_[i].pid, SIGKILL);
      }
      if (polled[i].revents == 0 || ReadMore(workers_[i])) continue;
      finished.emplace_back(workers_[i].cell, End(workers_[i]));
      workers_.erase(workers_.begin() + static_cast<std::ptrdiff_t>(i));
    }
    return finished;
  }

  size_t busy() const { return workers_.size() + broken_.size(); }

 private:
  [[noreturn]] void Work(size_t cell, const OwnedFd& output, pid_t parent) {
    testing::DieWithParent(parent);
    {
      const testing::PrivateRun private_run;
      WriteAll(output, CellJson(run_(cells_[cell])));
    }
    _exit(0);
  }

  // False at the end of what it writes.
  static bool ReadMore(Worker& worker) {
    char buffer[65536];
    const ssize_t count = read(worker.output.get(), buffer, sizeof(buffer));
    if (count < 0) return errno == EINTR || errno == EAGAIN;
    worker.text.append(buffer, static_cast<size_t>(count));
    return count > 0;
  }

  CellReport End(Worker& worker) {
    worker.output.Close();
    int status = 0;
    while (waitpid(worker.pid, &status, 0) < 0 && errno == EINTR) {
    }
    const Cell& cell = cells_[worker.cell];
    if (worker.late) {
      return Lost(cell, absl::StrCat("was not done after ", absl::FormatDuration(deadline_)));
    }
    if (WIFSIGNALED(status)) {
      return Lost(cell, absl::StrCat("its process was ended by signal ", WTERMSIG(status)));
    }
    absl::StatusOr<CellReport> report = ParseCellReport(worker.text);
    if (!report.ok()) return Lost(cell, report.status().ToString());
    return *std::move(report);
  }

  const std::vector<Cell>& cells_;
  const absl::Duration deadline_;
  const CellRunner& run_;
  std::vector<Worker> workers_;
  std::map<size_t, std::string> broken_;
};

}  // namespace

std::vector<CellReport> RunCells(const std::vector<Cell>& cells, int jobs, absl::Duration deadline,
                                 const CellRunner& run,
                                 const std::function<void(const CellReport&)>& done) {
  std::vector<CellReport> reports(cells.size());
  Pool pool(cells, deadline, run);
  size_t next = 0;
  while (next < cells.size() || pool.busy() > 0) {
    while (next < cells.size() && pool.busy() < static_cast<size_t>(jobs)) pool.Start(next++);
    for (auto& [cell, report] : pool.Finished()) {
      done(report);
      reports[cell] = std::move(report);
    }
  }
  return reports;
}

}  // namespace kipt::skew
