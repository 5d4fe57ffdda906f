// SPDX-License-Identifier: Apache-2.0
//
// One thing fails under the real program, each time it happens: README.md. The tests of the default
// run take some of the faults; those named Long take all of them.
#include <fcntl.h>
#include <unistd.h>

#include <cstdlib>

#include "tests/faults/judges.h"
#include "tests/interop/damage_rows.h"
#include "tests/support/lock_holder.h"

namespace kipt::testing {
namespace {

using Arguments = Words;

// In the /run of each test (PrivateRun).
constexpr char kTrace[] = "/run/trace";
constexpr char kConfig[] = "/run/config.yaml";
constexpr char kStarts[] = "/run/starts";
constexpr char kStandIns[] = "/run/stand-ins";
constexpr char kLock[] = "/run/xtables.lock";
// The first call of main(). The dynamic loader's come before.
constexpr char kMain[] = " fcntl(0, F_GETFD";

// A program that hangs is ended after 60 s, and may be tried again.
constexpr absl::Duration kSyncPatience = absl::Seconds(220);
// The daemon's deadline for an answer is 5 s, for a program 20 s; it may meet each more than once.
constexpr absl::Duration kDaemonPatience = absl::Seconds(30);
constexpr absl::Duration kRest = absl::Milliseconds(100);
constexpr absl::Duration kHeld = absl::Milliseconds(700);

// ---- the faults

// Where a fault happens.
enum Place : unsigned { kNftSync = 1, kLegacySync = 2, kNftDaemon = 4, kLegacyDaemon = 8 };
constexpr unsigned kNft = kNftSync | kNftDaemon;
constexpr unsigned kLegacy = kLegacySync | kLegacyDaemon;
constexpr unsigned kDaemon = kNftDaemon | kLegacyDaemon;

struct Fault {
  // A system call; or a program of iptables-legacy, which then is a `script` for /bin/sh.
  std::string call;
  // "EIO", or "retval=1": the call does nothing and returns that. Of a program: what it does.
  std::string effect;
  // Those that the default run tries.
  unsigned sample = 0;
  unsigned places = 0;
  // "$real" "$@" is the program.
  std::string script = {};
  // What may be done where `sync` ends in an error on iptables-legacy.
  Unit unit = Unit::kFamily;

  // Each run takes minutes. It is then tried where the rules are damaged only.
  bool slow() const { return absl::StartsWith(effect, "hangs"); }
};

struct CallRow {
  const char* call;
  // The first one in `sample`, too.
  std::vector<const char*> effects;
  unsigned places;
  unsigned sample = 0;
};

const CallRow kCalls[] = {
    {"socket", {"EMFILE", "ENOMEM", "EPERM"}, kNft, kNftSync},
    {"bind", {"ENOMEM"}, kNft, kNftSync},
    {"getsockname", {"ENOBUFS"}, kNft},
    {"setsockopt", {"EPERM", "ENOMEM"}, kNft},
    {"getsockopt", {"ENOBUFS"}, kNftDaemon},
    {"sendto",
     {"ENOBUFS", "EINTR", "EAGAIN", "ENOMEM", "EPERM", "ECONNREFUSED"},
     kNft | kLegacy,
     kNftSync},
    // The request is lost: the kernel never answers.
    {"sendto", {"retval=1"}, kNft},
    {"recvmmsg", {"ENOBUFS", "EINTR", "EAGAIN", "ENOMEM", "EIO"}, kNft, kNft},
    {"recvfrom", {"EINTR", "EAGAIN", "EIO"}, kLegacy},
    {"socketpair", {"EMFILE", "ENOMEM"}, kLegacy},
    // Under its filter, the daemon's C library takes clone for clone3.
    {"clone3", {"EAGAIN", "ENOMEM"}, kLegacySync, kLegacySync},
    {"clone", {"EAGAIN", "ENOMEM"}, kLegacyDaemon},
    {"poll", {"EINTR", "ENOMEM"}, kLegacy},
    {"wait4", {"ECHILD", "EINTR"}, kLegacy, kLegacy},
    {"openat", {"EMFILE", "EACCES", "EIO"}, kNft | kLegacy},
    {"read", {"EINTR", "EIO"}, kNft | kLegacy},
    {"newfstatat", {"EACCES", "ENOMEM"}, kNft | kLegacy},
    {"access", {"EACCES", "ENOMEM"}, kNft | kLegacy, kNftSync},
    {"flock", {"ENOLCK", "EINTR", "EAGAIN"}, kLegacy, kLegacySync},
    {"getdents64", {"EIO"}, kDaemon},
    {"epoll_create1", {"EMFILE"}, kDaemon},
    {"epoll_wait", {"EINTR"}, kDaemon},
    {"epoll_ctl", {"ENOMEM"}, kDaemon},
    {"timerfd_create", {"EMFILE"}, kDaemon},
    {"signalfd4", {"EMFILE"}, kDaemon},
    {"inotify_init1", {"EMFILE"}, kDaemon},
    {"inotify_add_watch", {"ENOSPC"}, kDaemon},
};

// What takes longest comes first.
const Fault kPrograms[] = {
    {"program", "hangs", 0, kLegacySync, "trap '' TERM; sleep 600"},
    {"program", "hangs_after_its_work", 0, kLegacySync,
     "\"$real\" \"$@\"; trap '' TERM; sleep 600"},
    {"program", "ends_with_1", 0, kLegacySync, "exit 1"},
    {"program", "ends_with_2", 0, kLegacySync, "exit 2"},
    {"program", "ends_with_3", 0, kLegacySync, "exit 3"},
    {"program", "ends_with_4", kLegacySync, kLegacySync, "exit 4"},
    {"program", "is_killed_before_its_work", 0, kLegacySync, "kill -KILL $$"},
    {"program", "is_killed_after_its_work", kLegacySync, kLegacySync,
     "\"$real\" \"$@\"; kill -SEGV $$"},
    {"program", "is_killed_after_one_table", kLegacySync, kLegacySync,
     "sed '/^COMMIT/q' | \"$real\" \"$@\"; kill -KILL $$", Unit::kTable},
    {"program", "ends_with_1_after_its_work", 0, kLegacySync, "\"$real\" \"$@\"; exit 1"},
    {"program", "ends_with_4_after_its_work", 0, kLegacySync, "\"$real\" \"$@\"; exit 4"},
    {"program", "prints_nothing", 0, kLegacySync, "\"$real\" \"$@\" >/dev/null"},
    {"program", "prints_half", kLegacySync, kLegacySync,
     "out=$(\"$real\" \"$@\"); printf %s \"$out\" | head --bytes=$((${#out} / 2))"},
    {"program", "prints_one_table", 0, kLegacySync, "\"$real\" \"$@\" | sed '/^COMMIT/q'"},
    {"program", "prints_garbage", 0, kLegacySync, "\"$real\" \"$@\" | tr '\\n-z' '\\201-\\360'"},
    {"program", "prints_megabytes", 0, kLegacySync, "\"$real\" \"$@\"; head --bytes=8M /dev/zero"},
    {"program", "prints_to_standard_error", 0, kLegacySync, "\"$real\" \"$@\" >&2"},
};

std::string NameOf(const Fault& fault) {
  return absl::StrCat(fault.call, "_", fault.effect == "retval=1" ? "lost" : fault.effect);
}

const std::vector<Fault>& Faults() {
  static const std::vector<Fault> faults = [] {
    std::vector<Fault> all(std::begin(kPrograms), std::end(kPrograms));
    for (const CallRow& row : kCalls) {
      for (const char* effect : row.effects) {
        all.push_back({row.call, effect, effect == row.effects[0] ? row.sample : 0, row.places});
      }
    }
    return all;
  }();
  return faults;
}

struct FaultCase {
  const Fault* fault;
  IptablesMode mode;
};

// Of the faults that are tried at the places `nft` and `legacy`.
std::vector<FaultCase> Cases(unsigned Fault::*places, Place nft, Place legacy) {
  std::vector<FaultCase> cases;
  for (const Fault& fault : Faults()) {
    if ((fault.*places & nft) != 0) cases.push_back({&fault, IptablesMode::kNft});
    if ((fault.*places & legacy) != 0) cases.push_back({&fault, IptablesMode::kLegacy});
  }
  return cases;
}

// ---- the kernel and the program

// Of others, in a table of their own.
constexpr char kForeignTable[] =
    "add table inet foreign\n"
    "add chain inet foreign input { type filter hook input priority 10; }\n"
    "add rule inet foreign input tcp dport 7 drop comment \"foreign\"\n";

absl::Status Done(const ProgramResult& result) {
  if (result.exit_code == kExitOk) return absl::OkStatus();
  return absl::InternalError(absl::StrCat("exit code ", result.exit_code, ": ", result.err));
}

absl::Status Restore(IptablesMode mode, IpFamily family, const std::string& text) {
  return Done(Iptables{.family = family, .mode = mode}.Restore(text));
}

absl::Status PutForeignRules(IptablesMode mode) {
  absl::Status status = Netns::MoveToNew();
  for (const IpFamily family : kBothFamilies) status.Update(Restore(mode, family, kForeignRules));
  if (mode == IptablesMode::kNft)
    status.Update(Done(RunProgram({"nft", "-f", "-"}, kForeignTable)));
  return status;
}

// `-D`: strace is no parent of the program, so that signals and exit code are the program's own.
// `-b execve`: programs that the agent starts are not traced.
Arguments Traced(const std::string& call, const Arguments& inject = {}) {
  std::filesystem::remove(kTrace);
  if (call == "program") return {};
  return Arguments{"strace", "-D", "-f",   "-b", "execve",
                   "-qq",    "-o", kTrace, "-e", absl::StrCat("trace=fcntl,", call)} +
         inject;
}

// The agent finds its programs there before those in /usr/sbin. The start number `nth` is bad.
void PutStandIns(const std::string& script, int nth) {
  std::filesystem::create_directory(kStarts);
  for (const char* name : {"iptables", "ip6tables"}) {
    for (const char* suffix : {"", "-save", "-restore"}) {
      const std::string path = absl::StrCat(kStandIns, "/", name, "-legacy", suffix);
      std::ofstream(path) << "#!/bin/sh\nreal=/usr/sbin/${0##*/}\nn=1\n"
                          << "[ -d " << kStarts << " ] || exec \"$real\" \"$@\"\n"
                          << "until mkdir " << kStarts << "/$n 2>/dev/null; do n=$((n + 1)); done\n"
                          << "[ $n = " << nth << " ] || exec \"$real\" \"$@\"\n"
                          << script << "\n";
      std::filesystem::permissions(path, std::filesystem::perms(0755));
    }
  }
}

// What comes before the agent's command line, for the fault to happen at its occurrence `nth`.
Arguments With(const Fault& fault, int nth) {
  if (!fault.script.empty()) PutStandIns(fault.script, nth);
  const bool returns = absl::StartsWith(fault.effect, "retval=");
  return Traced(fault.call, {"-e", absl::StrCat("inject=", fault.call, returns ? ":" : ":error=",
                                                fault.effect, ":when=", nth)});
}

// Whether the fault of the last run happened. Ends it for programs that run later.
bool Happened(const Fault& fault, int nth) {
  const bool started = std::filesystem::exists(absl::StrCat(kStarts, "/", nth));
  std::filesystem::remove_all(kStarts);
  if (!fault.script.empty()) return started;
  return WaitUntil([] { return absl::StrContains(FileText(kTrace), "(INJECTED)"); }, kRest);
}

// How often the first thread of `trace` makes `call`.
int CallsOf(const std::string& call, absl::string_view trace) {
  const absl::string_view thread = trace.substr(0, trace.find(' '));
  int calls = 0;
  for (absl::string_view line : absl::StrSplit(trace, '\n')) {
    // strace pads short numbers with spaces.
    if (!absl::ConsumePrefix(&line, absl::StrCat(thread, " "))) continue;
    calls += absl::StartsWith(absl::StripLeadingAsciiWhitespace(line), absl::StrCat(call, "("));
  }
  return calls;
}

// LeakSanitizer traces its process, which it cannot where strace does.
const Arguments kEnvironment = {"ASAN_OPTIONS=detect_leaks=0"};

// What the kernel has before and after a run without a fault, and which call of a name is the first
// that is to fail.
struct Baseline {
  KernelText before;
  KernelText desired;
  int first = 1;
};

// ---- `sync`

enum class StartState { kCold, kWarm, kDamaged };

struct Scene {
  IptablesMode iptables = IptablesMode::kNft;
  bool cleanup = true;
  StartState state = StartState::kDamaged;
};

Arguments SyncFlags(const Scene& scene) {
  const Arguments flags = {
      "sync", absl::StrCat("--feature-gates=IPTablesOwnershipCleanup=", scene.cleanup)};
  // Where rules of ours exist, the program has to find out.
  if (scene.state != StartState::kCold) return flags;
  return flags + Arguments{absl::StrCat("--iptables-mode=", NameOf(scene.iptables))};
}

absl::Status DamageRules(const Scene& scene, IpFamily family) {
  std::string text = "*mangle\n-X KUBE-IPTABLES-HINT\nCOMMIT\n";
  if (!scene.cleanup || family == IpFamily::kIpv4) {
    absl::StrAppend(&text,
                    "*filter\n-D KUBE-FIREWALL 1\n-D INPUT -j KUBE-FIREWALL\n"
                    "-A FORWARD -p tcp -m tcp --dport 9 -j FOREIGN\nCOMMIT\n");
  }
  if (!scene.cleanup) absl::StrAppend(&text, "*nat\n-F KUBE-POSTROUTING\nCOMMIT\n");
  return Restore(scene.iptables, family, text);
}

absl::Status Prepare(const Scene& scene) {
  absl::Status status = PutForeignRules(scene.iptables);
  if (scene.state == StartState::kCold) return status;
  const Scene cold = {scene.iptables, scene.cleanup, StartState::kCold};
  status.Update(Done(RunProgram(Arguments{KIPT_AGENT_PROGRAM} + SyncFlags(cold))));
  if (scene.state == StartState::kWarm) return status;
  for (const IpFamily family : kBothFamilies) status.Update(DamageRules(scene, family));
  return status;
}

SyncEnd RunSync(const Scene& scene, const Arguments& program) {
  BackgroundProgram sync(program + SyncFlags(scene), kEnvironment);
  const int exit_code = sync.Wait(kSyncPatience);
  return {.exit_code = exit_code, .output = sync.Output(), .now = ReadKernel(scene.iptables)};
}

// Leaves the scene prepared.
Baseline MeasureSync(const Scene& scene, const std::string& call) {
  EXPECT_EQ(Prepare(scene), absl::OkStatus());
  Baseline baseline = {.before = ReadKernel(scene.iptables)};
  const SyncEnd end = RunSync(scene, Traced(call) + Arguments{KIPT_AGENT_PROGRAM});
  EXPECT_EQ(end.exit_code, kExitOk) << end.output;
  baseline.desired = end.now;
  EXPECT_EQ(baseline.before == baseline.desired, scene.state == StartState::kWarm);
  const std::string trace = FileText(kTrace);
  baseline.first += CallsOf(call, absl::string_view(trace).substr(0, trace.find(kMain)));
  EXPECT_EQ(Prepare(scene), absl::OkStatus());
  return baseline;
}

struct Tally {
  int runs = 0;
  int in_place = 0;
};

// The end of a `sync`, after which one without a fault must put everything in place.
void Judge(const Scene& scene, const Baseline& baseline, const SyncEnd& end, Unit unit,
           Tally& tally) {
  ++tally.runs;
  const absl::StatusOr<End> verdict = JudgeSync(end, baseline.before, baseline.desired, unit);
  ASSERT_TRUE(verdict.ok()) << verdict.status();
  tally.in_place += *verdict == End::kInPlace ? 1 : 0;
  if (*verdict == End::kInPlace) return;
  const SyncEnd again = RunSync(scene, {KIPT_AGENT_PROGRAM});
  EXPECT_EQ(again.exit_code, kExitOk) << again.output;
  EXPECT_EQ(Difference(again.now, baseline.desired), "") << "after: " << end.output;
}

// Each time that it can happen in `scene`.
void TrySync(const Scene& scene, const Fault& fault, Tally& tally) {
  const Baseline baseline = MeasureSync(scene, fault.call);
  const Unit unit = scene.iptables == IptablesMode::kNft ? Unit::kKernel : fault.unit;
  for (int nth = baseline.first; !::testing::Test::HasFailure(); ++nth) {
    SCOPED_TRACE(absl::StrCat(NameOf(fault), " number ", nth));
    ASSERT_EQ(Prepare(scene), absl::OkStatus());
    const SyncEnd end = RunSync(scene, With(fault, nth) + Arguments{KIPT_AGENT_PROGRAM});
    if (!Happened(fault, nth)) return;
    Judge(scene, baseline, end, unit, tally);
  }
}

// ---- the daemon

struct Incident {
  const char* name;
  IptablesMode iptables = IptablesMode::kNft;
  // Null: it is started where no rule of ours exists.
  absl::Status (*strike)(pid_t daemon) = nullptr;
};

absl::Status WriteConfig(bool cleanup) {
  std::ofstream file(kConfig);
  file << "apiVersion: kube-iptables-agent/v1alpha1\nkind: KubeIPTablesAgentConfiguration\n"
          "featureGates:\n  IPTablesOwnershipCleanup: "
       << (cleanup ? "true\n" : "false\n");
  file.close();
  return file ? absl::OkStatus() : absl::InternalError("the configuration cannot be written");
}

absl::Status FlushRuleset(pid_t /*daemon*/) {
  return Done(RunProgram({"nft", "flush", "ruleset"}));
}

absl::Status FlipGate(pid_t daemon) {
  absl::Status written = WriteConfig(/*cleanup=*/false);
  kill(daemon, SIGHUP);
  return written;
}

// Another process damages legacy rules and holds the lock for a while. (It damages them under a
// lock of its own, or the daemon might be quicker than we.)
absl::Status HoldLock(pid_t /*daemon*/) {
  const LockHolder holder(kLock, absl::InfiniteDuration());
  absl::Status status = Done(RunProgram(
      {"env", "XTABLES_LOCKFILE=/run/another.lock", "iptables-legacy-restore", "--noflush"},
      "*filter\n-D KUBE-FIREWALL 1\nCOMMIT\n"));
  // Closing the lock file wakes the daemon.
  close(open(kLock, O_RDONLY | O_CLOEXEC));
  absl::SleepFor(kHeld);
  return status;
}

const Incident kStarted = {"Started"};
const Incident kRulesetFlushed = {"RulesetFlushed", IptablesMode::kNft, FlushRuleset};
const Incident kGateFlipped = {"GateFlipped", IptablesMode::kNft, FlipGate};
const Incident kLockHeld = {"LockHeld", IptablesMode::kLegacy, HoldLock};

absl::Status PrepareDaemon(const Incident& incident) {
  absl::Status status = PutForeignRules(incident.iptables);
  status.Update(WriteConfig(/*cleanup=*/true));
  return status;
}

Arguments DaemonFlags(const Incident& incident) {
  return {absl::StrCat("--config=", kConfig),
          absl::StrCat("--iptables-mode=", NameOf(incident.iptables))};
}

Arguments DaemonCommand(const Incident& incident) {
  return Arguments{KIPT_AGENT_PROGRAM, "run", "--iptables-sync-period=3s"} + DaemonFlags(incident);
}

// Until the kernel has `desired`, or the daemon has ended. When that was asked last in vain.
absl::Time LastMissing(IptablesMode mode, const KernelText& desired, BackgroundProgram& daemon) {
  absl::Time last = absl::Now();
  WaitUntil(
      [&] {
        const absl::Time asked = absl::Now();
        if (ReadKernel(mode) == desired) return true;
        last = asked;
        absl::SleepFor(kRest / 2);
        return !daemon.Running();
      },
      kDaemonPatience);
  return last;
}

// Until all is in place and it waits for events, or has ended.
void WaitForStart(BackgroundProgram& daemon) {
  WaitUntil(
      [&] {
        const std::string log = daemon.Output();
        return !daemon.Running() || (absl::StrContains(log, "] ip is in place") &&
                                     absl::StrContains(log, "] ip6 is in place") &&
                                     absl::StrContains(log, "Watching: "));
      },
      kDaemonPatience);
  absl::SleepFor(kRest);
}

// `first` of what it returns is the first call after the incident, on nftables.
Baseline MeasureIncident(const Incident& incident, const std::string& call) {
  EXPECT_EQ(PrepareDaemon(incident), absl::OkStatus());
  Baseline baseline = {.before = ReadKernel(incident.iptables)};
  BackgroundProgram daemon(Traced(call) + DaemonCommand(incident), kEnvironment);
  WaitForStart(daemon);
  std::string trace = FileText(kTrace);
  // On iptables-legacy other threads make calls, too, and strace counts those from 1.
  const bool legacy = incident.iptables == IptablesMode::kLegacy;
  if (legacy || incident.strike == nullptr) trace.resize(trace.find(kMain));
  baseline.first += CallsOf(call, trace);
  if (incident.strike != nullptr) EXPECT_EQ(incident.strike(daemon.pid()), absl::OkStatus());
  const Arguments plan = Arguments{KIPT_AGENT_PROGRAM, "plan"} + DaemonFlags(incident);
  EXPECT_TRUE(WaitUntil([&] { return RunProgram(plan).exit_code == kExitOk; }));
  baseline.desired = ReadKernel(incident.iptables);
  return baseline;
}

// An agent that ends during its start must leave the kernel unchanged. Another one must put all in
// place.
std::string AfterItsEnd(const Incident& incident, const Baseline& baseline, bool at_start) {
  const bool nft = incident.iptables == IptablesMode::kNft;
  std::string half;
  if (at_start) {
    half = HalfDone(ReadKernel(incident.iptables), baseline.before, baseline.desired,
                    nft ? Unit::kKernel : Unit::kFamily);
  }
  BackgroundProgram again(DaemonCommand(incident), kEnvironment);
  LastMissing(incident.iptables, baseline.desired, again);
  return absl::StrCat(half, Difference(ReadKernel(incident.iptables), baseline.desired));
}

DaemonEnd RunIncident(const Incident& incident, const Arguments& tracer, const Baseline& baseline) {
  EXPECT_EQ(PrepareDaemon(incident), absl::OkStatus());
  DaemonEnd end;
  absl::Time struck = absl::Now();
  BackgroundProgram daemon(tracer + DaemonCommand(incident), kEnvironment);
  if (incident.strike != nullptr) WaitForStart(daemon);
  end.at_start = incident.strike == nullptr || !daemon.Running();
  if (!end.at_start) {
    struck = absl::Now();
    EXPECT_EQ(incident.strike(daemon.pid()), absl::OkStatus());
  }
  end.missing = LastMissing(incident.iptables, baseline.desired, daemon) - struck;
  end.difference = Difference(ReadKernel(incident.iptables), baseline.desired);
  // Faults of the event loop come just after.
  absl::SleepFor(kRest);
  end.ended = !daemon.Running();
  daemon.Signal(SIGTERM);
  end.exit_code = daemon.Wait(kDaemonPatience);
  end.log = daemon.Output();
  if (end.ended) end.difference = AfterItsEnd(incident, baseline, end.at_start);
  return end;
}

// Each time that it can happen in the incident, until SIGTERM ends the daemon.
void TryDaemon(const Incident& incident, const Fault& fault, Tally& tally) {
  const Baseline baseline = MeasureIncident(incident, fault.call);
  for (int nth = baseline.first; !::testing::Test::HasFailure(); ++nth) {
    SCOPED_TRACE(absl::StrCat(incident.name, ", ", NameOf(fault), " number ", nth));
    const DaemonEnd end = RunIncident(incident, With(fault, nth), baseline);
    if (!Happened(fault, nth)) return;
    ++tally.runs;
    const absl::StatusOr<End> verdict = JudgeDaemon(end);
    ASSERT_TRUE(verdict.ok()) << verdict.status();
    tally.in_place += *verdict == End::kInPlace ? 1 : 0;
  }
}

// ---- the tests

class FaultTest : public ::testing::TestWithParam<FaultCase> {
 protected:
  FaultTest() {
    std::filesystem::create_directory(kStandIns);
    stand_ins_.emplace(kStandIns, "/usr/local/sbin");
  }

  // tests/faults/run makes a table of it.
  static void Report(const std::string& subject, const Fault& fault, const Tally& tally) {
    EXPECT_GT(tally.runs, 0) << "the fault never happened";
    if (const char* path = std::getenv("KIPT_FAULT_RUNS"); path != nullptr && !HasFailure()) {
      std::ofstream(path, std::ios::app) << subject << '\t' << NameOf(fault) << '\t' << tally.runs
                                         << '\t' << tally.in_place << '\n';
    }
  }

 private:
  const PrivateRun run_;
  std::optional<InPlaceOf> stand_ins_;
};

class SyncFaultsTest : public FaultTest {};
class SyncFaultsLongTest : public FaultTest {};
class DaemonFaultsTest : public FaultTest {};
class DaemonFaultsLongTest : public FaultTest {};
class FaultHappensTest : public FaultTest {};

TEST_P(SyncFaultsTest, ArePutRightOrReportedWhereRulesAreDamaged) {
  Tally tally;
  TrySync({.iptables = GetParam().mode}, *GetParam().fault, tally);
  Report("sync", *GetParam().fault, tally);
}

TEST_P(SyncFaultsLongTest, ArePutRightOrReportedEverywhere) {
  Tally tally;
  for (const bool cleanup : {true, false}) {
    for (const StartState state : {StartState::kDamaged, StartState::kWarm, StartState::kCold}) {
      TrySync({GetParam().mode, cleanup, state}, *GetParam().fault, tally);
      if (GetParam().fault->slow()) return Report("sync", *GetParam().fault, tally);
    }
  }
  Report("sync", *GetParam().fault, tally);
}

TEST_P(DaemonFaultsTest, AreSurvivedInOneIncident) {
  Tally tally;
  TryDaemon(GetParam().mode == IptablesMode::kNft ? kRulesetFlushed : kLockHeld, *GetParam().fault,
            tally);
  Report("daemon", *GetParam().fault, tally);
}

TEST_P(DaemonFaultsLongTest, AreSurvivedInEveryIncident) {
  Tally tally;
  for (const Incident& incident : {kStarted, kRulesetFlushed, kGateFlipped, kLockHeld}) {
    if (incident.iptables == GetParam().mode) TryDaemon(incident, *GetParam().fault, tally);
  }
  Report("daemon", *GetParam().fault, tally);
}

const auto kCaseName = [](const auto& row) {
  return absl::StrCat(NameOf(row.param.mode), "_", NameOf(*row.param.fault));
};
INSTANTIATE_TEST_SUITE_P(Some, SyncFaultsTest,
                         ::testing::ValuesIn(Cases(&Fault::sample, kNftSync, kLegacySync)),
                         kCaseName);
INSTANTIATE_TEST_SUITE_P(All, SyncFaultsLongTest,
                         ::testing::ValuesIn(Cases(&Fault::places, kNftSync, kLegacySync)),
                         kCaseName);
INSTANTIATE_TEST_SUITE_P(Some, DaemonFaultsTest,
                         ::testing::ValuesIn(Cases(&Fault::sample, kNftDaemon, kLegacyDaemon)),
                         kCaseName);
INSTANTIATE_TEST_SUITE_P(All, DaemonFaultsLongTest,
                         ::testing::ValuesIn(Cases(&Fault::places, kNftDaemon, kLegacyDaemon)),
                         kCaseName);

TEST_F(FaultHappensTest, WhatIsInjectedIsWhatTheProgramReports) {
  const Fault fault = {"socket", "EMFILE"};
  const Baseline baseline = MeasureSync({}, fault.call);
  const SyncEnd end = RunSync({}, With(fault, baseline.first) + Arguments{KIPT_AGENT_PROGRAM});
  EXPECT_THAT(end.output, HasSubstr("Too many open files"));
  EXPECT_TRUE(Happened(fault, baseline.first));
}

TEST_F(FaultHappensTest, ACallThatIsNeverMadeIsNoRun) {
  Tally tally;
  TrySync({}, {"swapon", "EPERM"}, tally);
  EXPECT_EQ(tally.runs, 0) << "which Report() takes for a failure";
}

struct ImpostorRow {
  std::string name;
  // In the agent's place; "$agent" "$@" is the agent.
  std::string script;
  std::string why;
};

class ImpostorTest : public ::testing::TestWithParam<ImpostorRow> {
  const PrivateRun run_;
};

TEST_P(ImpostorTest, IsFound) {
  const Baseline baseline = MeasureSync({}, "socket");
  std::ofstream("/run/impostor") << "#!/bin/sh\nagent=" << KIPT_AGENT_PROGRAM << "\n"
                                 << GetParam().script << "\n";
  std::filesystem::permissions("/run/impostor", std::filesystem::perms(0755));
  const absl::StatusOr<End> verdict =
      JudgeSync(RunSync({}, {"/run/impostor"}), baseline.before, baseline.desired, Unit::kKernel);
  ASSERT_FALSE(verdict.ok());
  EXPECT_THAT(std::string(verdict.status().message()), HasSubstr(GetParam().why));
}

// An error after `done`; a success after all of it and `damage` to it.
std::string Refused(const std::string& done) {
  return done + "\necho 'Error: the kernel refused the transaction' >&2; exit 1";
}
std::string Damaged(const std::string& damage) {
  return "\"$agent\" \"$@\"; iptables-nft " + damage;
}

INSTANTIATE_TEST_SUITE_P(
    All, ImpostorTest,
    ::testing::ValuesIn(std::vector<ImpostorRow>{
        {"SuccessWithNothingDone", "exit 0", "exit code 0, but not in place"},
        {"AForeignRuleGone", Damaged("-F FOREIGN"), "not in place"},
        {"AnotherOrder",
         Damaged("-D INPUT -j KUBE-FIREWALL; iptables-nft -A INPUT -j KUBE-FIREWALL"),
         "not in place"},
        {"APolicy", Damaged("-P FORWARD DROP"), "not in place"},
        {"AnErrorInSilence", "exit 1", "no clear error"},
        {"ALibrarysError", "echo 'Error: basic_filebuf::underflow error reading'; exit 1",
         "a library's"},
        {"AnotherExitCode", "echo 'Error: the kernel refused it' >&2; exit 3", "exit code 3"},
        {"ACrash", "kill -SEGV $$", "crashed, 139"},
        {"ASanitizersReport", "echo 'AddressSanitizer: heap-use-after-free'; exit 1", "crashed, 1"},
        {"AnErrorWithHalfOfItDone", Refused("iptables-nft -N HALF-DONE"),
         "neither as before nor as desired"},
        {"AnErrorWithAllOfItDone", Refused("\"$agent\" \"$@\""), "an error, but all is done"}}),
    [](const auto& row) { return row.param.name; });

}  // namespace
}  // namespace kipt::testing
