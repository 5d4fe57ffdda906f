// SPDX-License-Identifier: Apache-2.0
#include "agent/process/record_file.h"

#include <sys/resource.h>
#include <sys/stat.h>

#include <atomic>
#include <csignal>
#include <filesystem>
#include <fstream>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "tests/support/background_program.h"
#include "tests/support/matchers.h"
#include "tests/support/status_matchers.h"
#include "tests/support/temporary_tree.h"

namespace kipt::agent {
namespace {

constexpr size_t kFileBytes = RecordFile::kRecords * RecordFile::kRecordBytes;

class RecordFileTest : public ::testing::Test {
 protected:
  absl::StatusOr<std::unique_ptr<RecordFile>> Open() {
    return RecordFile::Open(path_, [](const absl::Status& status) { FAIL() << status; });
  }
  // Returns when they are written.
  void Add(const std::vector<std::string>& records) {
    auto file = Open();
    ASSERT_THAT(file, IsOk());
    for (const std::string& record : records) (*file)->Add(record);
  }
  std::string Content() { return FileText(path_); }
  void Write(const std::string& content) { std::ofstream(path_, std::ios::binary) << content; }

  TemporaryTree tree_;
  const std::string path_ = tree_.Path("incidents");
};

TEST_F(RecordFileTest, TheLastTenOutliveTheProcessInAFileThatNeverGrows) {
  for (int i = 1; i <= 25; ++i) {
    Add({absl::StrCat("{\"number\": ", i, "}")});
    EXPECT_EQ(std::filesystem::file_size(path_), kFileBytes);
  }
  const auto records = ReadRecords(path_);
  ASSERT_THAT(records, IsOk());
  ASSERT_THAT(*records, SizeIs(RecordFile::kRecords));
  EXPECT_EQ(records->front(), "{\"number\": 25}");
  EXPECT_EQ(records->back(), "{\"number\": 16}");
  EXPECT_EQ((*Open())->earlier(), *records);
}

TEST_F(RecordFileTest, ATornRecordIsLostAlone) {
  Add({"first", "second", "third"});
  const std::string whole = Content();
  const size_t second = whole.find("second");
  for (const std::string& torn :
       {std::string(whole).replace(second, 3, "SEC"), std::string(whole).replace(second - 8, 4, ""),
        std::string(whole).replace(second, 6, 6, '\0')}) {
    Write(torn);
    EXPECT_THAT(ReadRecords(path_), IsOkAndHolds(Not(Contains("second"))));
    EXPECT_THAT(ReadRecords(path_), IsOkAndHolds(Contains("first")));
    EXPECT_THAT(Open(), IsOk());
  }
  Write(whole.substr(0, second + 2));
  EXPECT_THAT(ReadRecords(path_), IsOkAndHolds(ElementsAre("first")));
  Add({"fourth"});
  EXPECT_THAT(ReadRecords(path_), IsOkAndHolds(ElementsAre("fourth", "first")));
}

// A crash may leave the room without the records.
TEST_F(RecordFileTest, AnEmptyFileAndOneOfZerosAreUsed) {
  for (const size_t size : {size_t{0}, size_t{100}, kFileBytes}) {
    Write(std::string(size, '\0'));
    EXPECT_THAT(ReadRecords(path_), IsOkAndHolds(IsEmpty()));
    Add({"one"});
    EXPECT_THAT(ReadRecords(path_), IsOkAndHolds(ElementsAre("one")));
  }
}

TEST_F(RecordFileTest, WhatHoldsSomethingElseIsLeftAlone) {
  for (const std::string& other :
       {std::string("root:x:0:0\n"), std::string("# read `kube-iptables-agent plan` first\n"),
        std::string("kube-iptables-agent statusz\nFor people\n"),
        std::string(8192, 'x') + "kube-iptables-agent 0123456789abcdef 1 {}",
        std::string(kFileBytes + 1, 'x'), std::string(3 * kFileBytes, '\0')}) {
    Write(other);
    EXPECT_THAT(Open(), StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr(path_)));
    EXPECT_THAT(ReadRecords(path_), Not(IsOk()));
    EXPECT_EQ(Content(), other);
  }
  std::filesystem::remove(path_);
  ASSERT_EQ(mkfifo(path_.c_str(), 0600), 0);
  EXPECT_THAT(Open(), StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("regular")));
  std::filesystem::remove(path_);
  tree_.Write("secret", "");
  std::filesystem::create_symlink(tree_.Path("secret"), path_);
  EXPECT_FALSE(Open().ok()) << "no link is followed";
  std::filesystem::remove(path_);
  std::filesystem::create_directory(path_);
  EXPECT_FALSE(Open().ok());
}

TEST_F(RecordFileTest, TwoProcessesDoNotShareAFile) {
  const auto first = Open();
  ASSERT_THAT(first, IsOk());
  EXPECT_THAT(Open(),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("another process")));
}

TEST_F(RecordFileTest, OnlyItsOwnerMayReadIt) {
  Add({"one"});
  EXPECT_EQ(std::filesystem::status(path_).permissions(),
            std::filesystem::perms::owner_read | std::filesystem::perms::owner_write);
}

TEST_F(RecordFileTest, WhatDoesNotFitIsLeftOut) {
  const std::string longest(RecordFile::kMostBytes, 'x');
  Add({longest, longest + "x"});
  EXPECT_THAT(ReadRecords(path_), IsOkAndHolds(ElementsAre(longest)));
}

// The thread hangs in the report of a failed write, as it would in a write.
TEST_F(RecordFileTest, TheEndWaitsOnlySoLongForAThreadThatHangs) {
  std::atomic<bool> hangs = false;
  std::atomic<bool> release = false;
  auto file = RecordFile::Open(path_, [&](const absl::Status&) {
    hangs = true;
    while (!release) absl::SleepFor(absl::Milliseconds(5));
  });
  ASSERT_THAT(file, IsOk());
  // As on a file system that is full or read-only: IncidentsTest of interop.
  std::signal(SIGXFSZ, SIG_IGN);
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
  const rlimit none = {.rlim_cur = 0, .rlim_max = before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &none), 0);
  (*file)->Add("one");
  EXPECT_TRUE(kipt::testing::WaitUntil([&] { return hangs.load(); }));
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &before), 0);
  const absl::Time begin = absl::Now();
  EXPECT_FALSE((*file)->Finish(absl::Milliseconds(50)));
  EXPECT_LT(absl::Now() - begin, absl::Seconds(5));
  release = true;
  EXPECT_TRUE((*file)->Finish(absl::Seconds(30)));
}

}  // namespace
}  // namespace kipt::agent
