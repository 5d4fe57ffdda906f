// SPDX-License-Identifier: Apache-2.0
//
// Linked into the test programs of tests/mutants/run. KIPT_MUTANT_TOLD names a file, to which goes
// what the tests do, a line each:
//   begin TEST           it runs
//   end TEST MS N N...   it passed, in so many milliseconds; it reached these mutants
//   static N N...        before the first test
//   failed TEST          it did not pass; the process ends at once: no other needs to
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <string>

#include "tests/mutants/mutant.h"

namespace kipt_mutants {

int active = -1;
unsigned char* reached = nullptr;

namespace {

// Before any table is filled. Shared with the processes that a test forks, whose tests' places
// count.
__attribute__((constructor(101))) void ReadActive() {
  void* const memory =
      mmap(nullptr, kMost + 1, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) _exit(2);
  reached = static_cast<unsigned char*>(memory);
  if (const char* text = std::getenv("KIPT_MUTANT")) active = std::atoi(text);
}

std::string TakeReached() {
  std::string numbers;
  for (int i = 0; i <= kMost; ++i) {
    if (reached[i] != 0) numbers += " " + std::to_string(i);
  }
  std::memset(reached, 0, kMost + 1);
  return numbers;
}

class Told : public testing::EmptyTestEventListener {
 public:
  explicit Told(int file) : file_(file) {}

  void OnTestProgramStart(const testing::UnitTest&) override { Say("static" + TakeReached()); }
  void OnTestStart(const testing::TestInfo& test) override {
    running_ = Name(test);
    Say("begin " + running_);
  }
  // GoogleTest holds its lock here, so it cannot be asked which test runs.
  void OnTestPartResult(const testing::TestPartResult& result) override {
    if (!result.failed()) return;
    Say("failed " + running_);
    _exit(1);
  }
  void OnTestEnd(const testing::TestInfo& test) override {
    Say("end " + Name(test) + " " + std::to_string(test.result()->elapsed_time()) + TakeReached());
  }

 private:
  static std::string Name(const testing::TestInfo& test) {
    return std::string(test.test_suite_name()) + "." + test.name();
  }
  void Say(const std::string& text) const {
    const std::string line = text + "\n";
    if (write(file_, line.data(), line.size()) < 0) _exit(2);
  }

  int file_;
  std::string running_ = "(outside of a test)";
};

const bool added = [] {
  const char* path = std::getenv("KIPT_MUTANT_TOLD");
  if (path == nullptr) return false;
  const int file = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
  if (file < 0) _exit(2);
  testing::UnitTest::GetInstance()->listeners().Append(new Told(file));
  return true;
}();

}  // namespace
}  // namespace kipt_mutants
