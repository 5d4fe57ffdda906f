// SPDX-License-Identifier: Apache-2.0
//
// Shared by the driver and the layer that is preloaded into the program under test: the points
// where a fault can happen, the faults, and the page of memory through which the two communicate.
#ifndef KIPT_TESTS_FAULTS_CONTROL_H_
#define KIPT_TESTS_FAULTS_CONTROL_H_

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace kipt::testing {

// Where. One call, or one thing received, is one occurrence.
enum class Point : uint32_t {
  kSocket,
  kBind,
  kGetsockname,
  kSetsockopt,
  kGetsockopt,
  kSend,       // a datagram to the kernel
  kReceive,    // a call that receives from the kernel
  kDatagram,   // a datagram that came from the kernel
  kMessage,    // a message in one of these
  kAttribute,  // the first attribute of such a message; a message without one does not count
  kSocketpair,
  kProgram,  // the start of a program, and the program
  kFeed,     // what is written to its standard input
  kOutput,   // what is read of its output
  kPoll,
  kWaitpid,
  kThread,
  kOpen,
  kRead,
  kDirectory,
  kStat,
  kAccess,
  kFlock,
  kEpollWait,
  kEpollCtl,
  kTimer,
  kInotify,
  kPoints,
};
inline constexpr size_t kPointCount = static_cast<size_t>(Point::kPoints);

// What. Where a call has done nothing yet unless said otherwise.
enum class Kind : uint32_t {
  kErrno,  // the call fails with FaultRow::number
  kShort,  // half of it, or one byte
  kLost,   // a send: nobody gets it; a datagram: it never came
  kOverflow,
  kTruncated,
  kFromAnother,
  kForged,
  kDuplicated,
  kInterrupted,
  kRefused,
  kWrongType,
  kWrongSequence,
  kWrongPort,
  kLengthLong,
  kLengthShort,
  kLengthZero,
  kAttributeLong,
  kAttributeZero,
  kAttributeType,
  // A stand-in takes the program's place: program.cc.
  kHang,
  kHangAfter,
  kKilledBefore,
  kKilledBetween,
  kKilledAfter,
  kExit,  // with FaultRow::number, having done nothing
  kExitAfter,
  kGarbage,
  kMegabytes,
  kNothing,
  kHalf,
  kFirstTable,
  kErrorsOnly,
  kKinds,
};

struct FaultRow {
  Point point;
  const char* name;
  Kind kind;
  int number = 0;
  // The program has to wait for a deadline of its own to notice; seconds.
  int waits = 0;
};

// Every fault there is, by point.
extern const FaultRow kFaults[];
extern const size_t kFaultCount;

// "receive", as in the report.
const char* PointName(Point point);
// What one occurrence is, for the report.
const char* PointText(Point point);

// What the faults are tried under.
enum class Subject : uint8_t { kSync, kDaemon };
// "sync", "daemon".
const char* SubjectName(Subject subject);
// Whether `subject` uses `point`. If it does, each fault of the point must be reached; if it does
// not, none may be: an entry that has become wrong fails a whole run (Tally::Problems).
bool Uses(Subject subject, Point point);

// A file that both map. All zero is a layer that does nothing.
struct Control {
  // Counts, and injects, while this is 1.
  std::atomic<uint32_t> armed;
  // The fault: its place in kFaults, and at which occurrence (from 1; 0 is never).
  std::atomic<uint32_t> row;
  std::atomic<uint32_t> nth;
  // Written by the layer.
  std::atomic<uint32_t> loaded;
  std::atomic<uint32_t> injected;
  std::atomic<uint32_t> occurrences[kPointCount];
  // The program that takes another's place.
  char stand_in[256];
};

// Environment variables: the file, for the layer; what to do and what to run, for the stand-in.
inline constexpr char kControlVariable[] = "KIPT_FAULT_CONTROL";
inline constexpr char kStandInKind[] = "KIPT_FAULT_KIND";
inline constexpr char kStandInNumber[] = "KIPT_FAULT_NUMBER";
inline constexpr char kStandInProgram[] = "KIPT_FAULT_PROGRAM";

}  // namespace kipt::testing

#endif  // KIPT_TESTS_FAULTS_CONTROL_H_
