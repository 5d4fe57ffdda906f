// SPDX-License-Identifier: Apache-2.0
#include "tests/faults/control.h"

#include <cerrno>

namespace kipt::testing {
namespace {

// Which subjects use a point.
enum class Users : uint8_t { kBoth, kDaemonOnly };

struct PointRow {
  const char* name;
  const char* text;
  Users users = Users::kBoth;
};

constexpr PointRow kPointRows[kPointCount] = {
    {"socket", "socket(2) of netfilter netlink"},
    {"bind", "bind(2) of it"},
    {"getsockname", "getsockname(2) of it"},
    {"setsockopt", "setsockopt(2) of it"},
    // Only a monitor of events asks for its losses.
    {"getsockopt", "getsockopt(2) of it", Users::kDaemonOnly},
    {"send", "a datagram sent to the kernel"},
    {"receive", "a call that receives from the kernel"},
    {"datagram", "a datagram of the kernel's"},
    {"message", "a message in such a datagram"},
    {"attribute", "the first attribute of such a message"},
    {"socketpair", "socketpair(2) for a program's streams"},
    {"program", "the start of a program, and the program"},
    {"feed", "a write to a program's standard input"},
    {"output", "a read of a program's output"},
    {"poll", "poll(2)"},
    {"waitpid", "waitpid(2)"},
    {"thread", "pthread_create(3)"},
    {"open", "open(2), openat(2), fopen(3)"},
    {"read", "read(2) of a file"},
    {"directory", "fdopendir(3)", Users::kDaemonOnly},
    {"stat", "stat(2), fstat(2)"},
    {"access", "access(2)"},
    {"flock", "flock(2)"},
    // The event loop and its timers; the watch over the configuration file.
    {"epoll_wait", "epoll_wait(2)", Users::kDaemonOnly},
    {"epoll_ctl", "epoll_ctl(2)", Users::kDaemonOnly},
    {"timer", "timerfd_create(2)", Users::kDaemonOnly},
    {"inotify", "inotify_init1(2), inotify_add_watch(2)", Users::kDaemonOnly},
};

// Of a netlink socket's answers: SO_RCVTIMEO. Of programs: the deadline of IptablesLegacyOptions.
constexpr int kAnswer = 5;
constexpr int kProgramEnd = 60;

}  // namespace

const FaultRow kFaults[] = {
    {Point::kSocket, "EMFILE", Kind::kErrno, EMFILE},
    {Point::kSocket, "ENOMEM", Kind::kErrno, ENOMEM},
    {Point::kSocket, "EPERM", Kind::kErrno, EPERM},
    {Point::kBind, "ENOMEM", Kind::kErrno, ENOMEM},
    {Point::kGetsockname, "ENOBUFS", Kind::kErrno, ENOBUFS},
    {Point::kSetsockopt, "EPERM", Kind::kErrno, EPERM},
    {Point::kSetsockopt, "ENOMEM", Kind::kErrno, ENOMEM},
    {Point::kGetsockopt, "ENOBUFS", Kind::kErrno, ENOBUFS},

    {Point::kSend, "EINTR", Kind::kErrno, EINTR},
    {Point::kSend, "EAGAIN", Kind::kErrno, EAGAIN},
    {Point::kSend, "ENOBUFS", Kind::kErrno, ENOBUFS},
    {Point::kSend, "ENOMEM", Kind::kErrno, ENOMEM},
    {Point::kSend, "EPERM", Kind::kErrno, EPERM},
    {Point::kSend, "ECONNREFUSED", Kind::kErrno, ECONNREFUSED},
    {Point::kSend, "half of it goes", Kind::kShort, 0, kAnswer},
    {Point::kSend, "lost on the way", Kind::kLost, 0, kAnswer},
    {Point::kReceive, "EINTR", Kind::kErrno, EINTR},
    {Point::kReceive, "EAGAIN", Kind::kErrno, EAGAIN},
    {Point::kReceive, "ENOBUFS", Kind::kErrno, ENOBUFS},
    {Point::kReceive, "ENOMEM", Kind::kErrno, ENOMEM},
    {Point::kReceive, "EIO", Kind::kErrno, EIO},
    {Point::kReceive, "overflow: all lost, ENOBUFS", Kind::kOverflow},

    {Point::kDatagram, "lost", Kind::kLost, 0, kAnswer},
    {Point::kDatagram, "cut off (MSG_TRUNC)", Kind::kTruncated},
    {Point::kDatagram, "another's in its place", Kind::kFromAnother, 0, kAnswer},
    {Point::kDatagram, "another's before it", Kind::kForged},
    {Point::kDatagram, "twice", Kind::kDuplicated},
    {Point::kMessage, "NLM_F_DUMP_INTR", Kind::kInterrupted},
    {Point::kMessage, "an error instead", Kind::kRefused, ENOMEM},
    {Point::kMessage, "another type", Kind::kWrongType, 0, kAnswer},
    {Point::kMessage, "another sequence number", Kind::kWrongSequence, 0, kAnswer},
    {Point::kMessage, "another port", Kind::kWrongPort},
    {Point::kMessage, "length beyond the end", Kind::kLengthLong, 0, kAnswer},
    {Point::kMessage, "length too short", Kind::kLengthShort, 0, kAnswer},
    {Point::kMessage, "length 0", Kind::kLengthZero, 0, kAnswer},
    {Point::kAttribute, "beyond the end", Kind::kAttributeLong},
    {Point::kAttribute, "of length 0", Kind::kAttributeZero},
    {Point::kAttribute, "of another type", Kind::kAttributeType},

    {Point::kSocketpair, "EMFILE", Kind::kErrno, EMFILE},
    {Point::kSocketpair, "ENOMEM", Kind::kErrno, ENOMEM},
    {Point::kProgram, "not there (ENOENT)", Kind::kErrno, ENOENT},
    {Point::kProgram, "not executable (EACCES)", Kind::kErrno, EACCES},
    {Point::kProgram, "no process (EAGAIN)", Kind::kErrno, EAGAIN},
    {Point::kProgram, "no memory (ENOMEM)", Kind::kErrno, ENOMEM},
    {Point::kProgram, "hangs, only SIGKILL ends it", Kind::kHang, 0, kProgramEnd},
    {Point::kProgram, "hangs when it is done", Kind::kHangAfter, 0, kProgramEnd},
    {Point::kProgram, "dies before it begins", Kind::kKilledBefore},
    {Point::kProgram, "dies behind its first table", Kind::kKilledBetween},
    {Point::kProgram, "dies when it is done", Kind::kKilledAfter},
    {Point::kProgram, "exit code 1", Kind::kExit, 1},
    {Point::kProgram, "exit code 2", Kind::kExit, 2},
    {Point::kProgram, "exit code 3", Kind::kExit, 3},
    {Point::kProgram, "exit code 4", Kind::kExit, 4},
    {Point::kProgram, "done, but exit code 1", Kind::kExitAfter, 1},
    {Point::kProgram, "done, but exit code 4", Kind::kExitAfter, 4},
    {Point::kProgram, "prints garbage", Kind::kGarbage},
    {Point::kProgram, "prints megabytes", Kind::kMegabytes},
    {Point::kProgram, "prints nothing", Kind::kNothing},
    {Point::kProgram, "prints half", Kind::kHalf},
    {Point::kProgram, "prints its first table only", Kind::kFirstTable},
    {Point::kProgram, "prints to standard error only", Kind::kErrorsOnly},
    {Point::kFeed, "EINTR", Kind::kErrno, EINTR},
    {Point::kFeed, "EAGAIN", Kind::kErrno, EAGAIN},
    {Point::kFeed, "ENOMEM", Kind::kErrno, ENOMEM},
    {Point::kFeed, "short", Kind::kShort},
    {Point::kOutput, "EINTR", Kind::kErrno, EINTR},
    {Point::kOutput, "EAGAIN", Kind::kErrno, EAGAIN},
    {Point::kOutput, "EIO", Kind::kErrno, EIO},
    {Point::kOutput, "short", Kind::kShort},
    {Point::kPoll, "EINTR", Kind::kErrno, EINTR},
    {Point::kPoll, "ENOMEM", Kind::kErrno, ENOMEM},
    {Point::kWaitpid, "EINTR", Kind::kErrno, EINTR},
    {Point::kWaitpid, "ECHILD", Kind::kErrno, ECHILD},
    {Point::kThread, "EAGAIN", Kind::kErrno, EAGAIN},

    {Point::kOpen, "EMFILE", Kind::kErrno, EMFILE},
    {Point::kOpen, "EACCES", Kind::kErrno, EACCES},
    {Point::kOpen, "EIO", Kind::kErrno, EIO},
    {Point::kRead, "EINTR", Kind::kErrno, EINTR},
    {Point::kRead, "EIO", Kind::kErrno, EIO},
    {Point::kRead, "short", Kind::kShort},
    {Point::kDirectory, "EMFILE", Kind::kErrno, EMFILE},
    {Point::kStat, "EACCES", Kind::kErrno, EACCES},
    {Point::kStat, "ENOMEM", Kind::kErrno, ENOMEM},
    {Point::kAccess, "EACCES", Kind::kErrno, EACCES},
    {Point::kAccess, "ENOMEM", Kind::kErrno, ENOMEM},
    {Point::kFlock, "EINTR", Kind::kErrno, EINTR},
    {Point::kFlock, "EWOULDBLOCK", Kind::kErrno, EWOULDBLOCK},
    {Point::kFlock, "ENOLCK", Kind::kErrno, ENOLCK},

    {Point::kEpollWait, "EINTR", Kind::kErrno, EINTR},
    {Point::kEpollCtl, "ENOMEM", Kind::kErrno, ENOMEM},
    {Point::kTimer, "EMFILE", Kind::kErrno, EMFILE},
    {Point::kInotify, "EMFILE", Kind::kErrno, EMFILE},
    {Point::kInotify, "ENOSPC", Kind::kErrno, ENOSPC},
};
const size_t kFaultCount = sizeof(kFaults) / sizeof(kFaults[0]);

const char* PointName(Point point) { return kPointRows[static_cast<size_t>(point)].name; }
const char* PointText(Point point) { return kPointRows[static_cast<size_t>(point)].text; }
const char* SubjectName(Subject subject) { return subject == Subject::kSync ? "sync" : "daemon"; }
bool Uses(Subject subject, Point point) {
  return subject == Subject::kDaemon ||
         kPointRows[static_cast<size_t>(point)].users == Users::kBoth;
}

}  // namespace kipt::testing
