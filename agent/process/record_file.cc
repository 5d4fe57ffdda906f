// SPDX-License-Identifier: Apache-2.0
#include "agent/process/record_file.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <ctime>
#include <exception>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/strip.h"
#include "absl/time/clock.h"

namespace kipt::agent {
namespace {

constexpr size_t kFileBytes = RecordFile::kRecords * RecordFile::kRecordBytes;
constexpr absl::string_view kHead = "kube-iptables-agent ";
constexpr std::chrono::seconds kBetweenWrites(1);

using Records = std::map<uint64_t, std::string>;  // by their numbers

// FNV-1a. It finds torn records; no program gains from a forged one.
uint64_t Checksum(absl::string_view text) {
  uint64_t sum = 0xcbf29ce484222325;
  for (const char byte : text) sum = (sum ^ static_cast<unsigned char>(byte)) * 0x100000001b3;
  return sum;
}

// "kube-iptables-agent CHECKSUM NUMBER TEXT", spaces, and a line feed.
std::string Encoded(uint64_t number, const std::string& text) {
  const std::string body = absl::StrCat(number, " ", text);
  return absl::StrFormat("%s%016x %-*s\n", kHead, Checksum(body),
                         static_cast<int>(RecordFile::kRecordBytes - kHead.size() - 18), body);
}

void Decode(absl::string_view place, Records& records) {
  const absl::string_view all = place.substr(0, place.find_last_not_of(" \n") + 1);
  absl::string_view text = all;
  uint64_t sum = 0;
  uint64_t number = 0;
  if (!absl::ConsumePrefix(&text, kHead) || !absl::SimpleHexAtoi(text.substr(0, 16), &sum)) return;
  text.remove_prefix(std::min<size_t>(text.size(), 17));
  const size_t space = text.find(' ');
  if (Checksum(text) != sum || space == text.npos) return;
  if (absl::SimpleAtoi(text.substr(0, space), &number)) {
    records[number] = std::string(text.substr(space + 1));
  }
}

Records DecodeAll(absl::string_view content) {
  Records records;
  for (size_t at = 0; at < content.size(); at += RecordFile::kRecordBytes) {
    Decode(content.substr(at, RecordFile::kRecordBytes), records);
  }
  return records;
}

std::vector<std::string> NewestFirst(const Records& records) {
  std::vector<std::string> texts;
  for (auto record = records.rbegin(); record != records.rend(); ++record) {
    texts.push_back(record->second);
  }
  return texts;
}

// Zeros, as after a crash, or a record that may be torn. Pages for people, such as /statusz, begin
// with the same name.
bool IsEmptyOrRecord(absl::string_view place) {
  if (absl::c_all_of(place, [](char byte) { return byte == '\0'; })) return true;
  return absl::ConsumePrefix(&place, kHead) && place.size() > 16 && place[16] == ' ' &&
         absl::c_all_of(place.substr(0, 16), absl::ascii_isxdigit);
}

// Another program's file must not be overwritten. One whole record shows that the file is ours.
bool MayBeReplaced(absl::string_view content) {
  if (!DecodeAll(content).empty()) return true;
  for (size_t at = 0; at < content.size(); at += RecordFile::kRecordBytes) {
    if (!IsEmptyOrRecord(content.substr(at, RecordFile::kRecordBytes))) return false;
  }
  return true;
}

absl::Status HoldsSomethingElse(const std::string& path) {
  return absl::FailedPreconditionError(
      absl::StrCat(path, ": it holds something else: choose another file, or remove it"));
}

}  // namespace

absl::StatusOr<std::vector<std::string>> ReadRecords(const std::string& path) {
  const absl::StatusOr<std::string> content = ReadFile(path, kFileBytes);
  if (!content.ok()) return content.status();
  if (!MayBeReplaced(*content)) return HoldsSomethingElse(path);
  return NewestFirst(DecodeAll(*content));
}

absl::StatusOr<std::unique_ptr<RecordFile>> RecordFile::Open(
    const std::string& path, std::function<void(const absl::Status&)> failed) {
  constexpr int kFlags = O_RDWR | O_CREAT | O_CLOEXEC | O_NOCTTY | O_NONBLOCK | O_NOFOLLOW;
  OwnedFd file(open(path.c_str(), kFlags, 0600));
  struct stat about {};
  if (!file.valid() || fstat(file.get(), &about) != 0) {
    return absl::ErrnoToStatus(errno, absl::StrCat("opening ", path));
  }
  const auto refuse = [&](absl::string_view why) {
    return absl::FailedPreconditionError(absl::StrCat(path, ": ", why));
  };
  if (!S_ISREG(about.st_mode)) return refuse("it is no regular file");
  if (flock(file.get(), LOCK_EX | LOCK_NB) != 0) {
    if (errno == EWOULDBLOCK) return refuse("another process keeps it");
    return absl::ErrnoToStatus(errno, absl::StrCat("locking ", path));
  }
  const absl::StatusOr<std::string> content = ReadToEnd(file.get(), path, kFileBytes);
  const bool too_large = absl::IsResourceExhausted(content.status());
  if (!content.ok() && !too_large) return content.status();
  if (too_large || !MayBeReplaced(*content)) return HoldsSomethingElse(path);
  if (const int error = posix_fallocate(file.get(), 0, kFileBytes); error != 0) {
    return absl::ErrnoToStatus(error, absl::StrCat("making room in ", path));
  }
  const Records records = DecodeAll(*content);
  std::unique_ptr<RecordFile> made(new RecordFile(std::move(file), std::move(failed)));
  made->earlier_ = NewestFirst(records);
  if (!records.empty()) made->number_ = records.rbegin()->first;
  return made;
}

RecordFile::~RecordFile() { Finish(absl::InfiniteDuration()); }

bool RecordFile::Finish(absl::Duration patience) {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    ending_ = true;
  }
  changed_.notify_all();
  if (!has_thread_) return true;
  const timespec until = absl::ToTimespec(absl::Now() + patience);
  const bool forever = patience == absl::InfiniteDuration();
  if ((forever ? pthread_join(thread_, nullptr) : pthread_timedjoin_np(thread_, nullptr, &until)) !=
      0) {
    return false;
  }
  has_thread_ = false;
  return true;
}

void RecordFile::Add(std::string record) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (has_failed_ || record.size() > kMostBytes) return;
  ++number_;
  pending_[number_ % kRecords] = {number_, std::move(record)};
  if (has_thread_) return changed_.notify_all();
  const auto run = [](void* self) -> void* {
    static_cast<RecordFile*>(self)->WriteAll();
    return nullptr;
  };
  // Where no thread can be made now, the next record tries again.
  has_thread_ = pthread_create(&thread_, nullptr, run, this) == 0;
}

absl::Status RecordFile::Write(uint64_t number, const std::string& record) const {
  const std::string bytes = Encoded(number, record);
  const auto place = static_cast<off_t>(number % kRecords * kRecordBytes);
  ssize_t written = -1;
  // Neither a rename nor another file: what the process may open is given up by then.
  if (lseek(file_.get(), place, SEEK_SET) == place) {
    written = write(file_.get(), bytes.data(), bytes.size());
  }
  if (written == static_cast<ssize_t>(bytes.size())) return absl::OkStatus();
  return absl::ErrnoToStatus(written < 0 ? errno : ENOSPC, "writing a record");
}

void RecordFile::WriteAll() {
  std::unique_lock<std::mutex> lock(mutex_);
  while (!has_failed_) {
    changed_.wait(lock, [this] { return ending_ || !pending_.empty(); });
    if (pending_.empty()) return;
    const auto taken = std::exchange(pending_, {});
    lock.unlock();
    absl::Status status;
    try {
      for (const auto& [place, record] : taken) status.Update(Write(record.first, record.second));
    } catch (const std::exception& error) {
      status = absl::ResourceExhaustedError(error.what());
    }
    if (!status.ok()) failed_(status);
    lock.lock();
    has_failed_ = !status.ok();
    changed_.wait_for(lock, kBetweenWrites, [this] { return ending_; });
  }
}

}  // namespace kipt::agent
