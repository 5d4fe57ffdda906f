// SPDX-License-Identifier: Apache-2.0
//
// A file of the last few records, which outlives the process. Each record has a place and a
// checksum, so the file never grows, and a torn write loses one record.
#ifndef KIPT_AGENT_PROCESS_RECORD_FILE_H_
#define KIPT_AGENT_PROCESS_RECORD_FILE_H_

#include <pthread.h>

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "agent/process/files.h"

namespace kipt::agent {

// The records in the file, newest first. What is torn, or no record, is left out. Errors are
// ReadFile's, and FailedPrecondition where the file is another program's.
absl::StatusOr<std::vector<std::string>> ReadRecords(const std::string& path);

class RecordFile {
 public:
  static constexpr size_t kRecords = 10;
  static constexpr size_t kRecordBytes = 4096;
  // The most that a record may have: printable, in one line.
  static constexpr size_t kMostBytes = kRecordBytes - 64;

  // Makes the file where it is missing, with all the space that it will need: call it while the
  // process may do so. `failed` is called on another thread, once, if a record cannot be written;
  // none is from then on.
  //
  // NotFound: its directory is missing. FailedPrecondition: another process keeps it, or it holds
  // something else. Other errors as absl::ErrnoToStatus.
  static absl::StatusOr<std::unique_ptr<RecordFile>> Open(
      const std::string& path, std::function<void(const absl::Status&)> failed);
  // Waits until everything is written, for as long as a disk may hang.
  ~RecordFile();
  RecordFile(const RecordFile&) = delete;
  RecordFile& operator=(const RecordFile&) = delete;

  // Those that were in it when it was opened, newest first.
  const std::vector<std::string>& earlier() const { return earlier_; }
  // Does not wait for the disk: a thread writes, once a second at most.
  void Add(std::string record);
  // Writes what is left; the last call. False: the disk hangs, so that is not done after
  // `patience`; then the process must end without this object's destructor.
  bool Finish(absl::Duration patience);

 private:
  RecordFile(OwnedFd file, std::function<void(const absl::Status&)> failed)
      : file_(std::move(file)), failed_(std::move(failed)) {}

  absl::Status Write(uint64_t number, const std::string& record) const;
  void WriteAll();

  const OwnedFd file_;
  const std::function<void(const absl::Status&)> failed_;
  std::vector<std::string> earlier_;
  // The newest record's.
  uint64_t number_ = 0;

  std::mutex mutex_;  // guards all below
  std::condition_variable changed_;
  // What is to be written, by its place.
  std::map<size_t, std::pair<uint64_t, std::string>> pending_;
  bool ending_ = false;
  bool has_failed_ = false;

  pthread_t thread_ = {};
  bool has_thread_ = false;
};

}  // namespace kipt::agent

#endif  // KIPT_AGENT_PROCESS_RECORD_FILE_H_
