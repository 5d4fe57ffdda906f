// SPDX-License-Identifier: Apache-2.0
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "tests/skew/matrix/run_cell.h"
#include "tests/support/child.h"
#include "tests/support/private_run.h"

namespace kipt::skew {
namespace {

struct Worker {
  size_t cell = 0;
  pid_t pid = -1;
  // What it writes, a file without a name.
  std::FILE* output = nullptr;
  absl::Time deadline;
  bool late = false;
};

[[noreturn]] void Work(const Cell& cell, const CellRunner& run, std::FILE* output, pid_t parent) {
  testing::DieWithParent(parent);
  {
    const testing::PrivateRun private_run;
    std::fputs(CellJson(run(cell)).c_str(), output);
    std::fflush(output);
  }
  _exit(0);
}

std::string TakeText(std::FILE* file) {
  std::rewind(file);
  std::string text;
  char buffer[65536];
  while (const size_t count = std::fread(buffer, 1, sizeof(buffer), file))
    text.append(buffer, count);
  return text;
}

// Of a cell of which nothing came back.
CellReport Lost(const Cell& cell, std::string problem) {
  CellReport report = ReportOf(cell);
  report.problem = std::move(problem);
  return report;
}

}  // namespace

std::vector<CellReport> RunCells(const std::vector<Cell>& cells, int jobs, absl::Duration deadline,
                                 const CellRunner& run,
                                 const std::function<void(const CellReport&)>& done) {
  std::vector<CellReport> reports(cells.size());
  std::vector<Worker> workers;
  const auto start = [&](size_t cell) {
    Worker worker = {.cell = cell, .output = std::tmpfile(), .deadline = absl::Now() + deadline};
    const pid_t parent = getpid();
    if (worker.output != nullptr) worker.pid = fork();
    if (worker.pid == 0) Work(cells[cell], run, worker.output, parent);
    if (worker.pid > 0) return workers.push_back(worker);
    reports[cell] = Lost(cells[cell], absl::StrCat("no process: ", std::strerror(errno)));
    done(reports[cell]);
  };
  const auto is_over = [&](Worker& worker) {
    if (absl::Now() > worker.deadline && !worker.late) {
      worker.late = true;
      kill(worker.pid, SIGKILL);
    }
    int status = 0;
    const Cell& cell = cells[worker.cell];
    CellReport& report = reports[worker.cell];
    if (waitpid(worker.pid, &status, WNOHANG) == 0) return false;
    if (worker.late) {
      report = Lost(cell, absl::StrCat("was not done after ", absl::FormatDuration(deadline)));
    } else if (WIFSIGNALED(status)) {
      report = Lost(cell, absl::StrCat("its process was ended by signal ", WTERMSIG(status)));
    } else {
      absl::StatusOr<CellReport> parsed = ParseCellReport(TakeText(worker.output));
      report = parsed.ok() ? *std::move(parsed) : Lost(cell, parsed.status().ToString());
    }
    std::fclose(worker.output);
    done(report);
    return true;
  };
  for (size_t next = 0; next < cells.size() || !workers.empty();) {
    while (next < cells.size() && workers.size() < static_cast<size_t>(jobs)) start(next++);
    absl::SleepFor(absl::Milliseconds(10));
    std::erase_if(workers, is_over);
  }
  return reports;
}

}  // namespace kipt::skew
