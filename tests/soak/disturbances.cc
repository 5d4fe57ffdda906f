// SPDX-License-Identifier: Apache-2.0
#include "tests/soak/disturbances.h"

#include <algorithm>
#include <csignal>
#include <memory>
#include <mutex>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "tests/soak/golden.h"
#include "tests/soak/writer.h"
#include "tests/support/background_program.h"
#include "tests/support/foreign_writer.h"
#include "tests/support/lock_holder.h"
#include "tests/support/netns.h"

namespace kipt::soak {
namespace {

constexpr absl::Duration kPause = absl::Seconds(3);
// Of a machine with much else to do.
constexpr absl::Duration kPatience = absl::Minutes(1);
constexpr int kOverflowCommits = 3000;
constexpr char kReloaded[] = "Using the new configuration";

class Disturber {
 public:
  Disturber(Node& node, Daemon& daemon)
      : node_(node), daemon_(daemon), golden_(node), random_(node.RandomOf("disturbances")) {}

  void StartFirst() {
    daemon_.Start();
    if (!daemon_.BecomesReady(kPatience)) {
      node_.journal.Violate(node_.name(), "daemon", "not ready: " + daemon_.LastWords(),
                            "ready within " + absl::FormatDuration(kPatience));
    }
    node_.windows.DaemonIsBack();
  }

  void Act() {
    const std::lock_guard<std::mutex> turn(node_.daemon_turn);
    if (node_.options().cripple != Cripple::kNone) Count("crippled");
    if (node_.options().cripple == Cripple::kStopped) return daemon_.Signal(SIGSTOP);
    if (node_.options().cripple == Cripple::kObserving) {
      return daemon_.WriteConfig(node_.settings.FileText() + "observe: true\n");
    }
    int drawn = Draw(random_, 16);
    // From the second quarter on it is one and the same process, so that it shows whether it grows.
    const bool may_end = node_.Soaked() < node_.options().length / 4;
    if (may_end && Draw(random_, 4) == 0) drawn = 9 + Draw(random_, 3);
    if (!may_end && drawn >= 9 && drawn < 12) drawn -= 8;
    // Its first look at everybody's rules leaves half a megabyte with malloc, once.
    if (!may_end && !has_retired_) drawn = 4;
    std::string done;
    if (drawn < 2) {
      done = ReloadPeriod();
    } else if (drawn < 4) {
      done = ReloadBits();
    } else if (drawn < 8) {
      done = Flip();
    } else if (drawn < 9) {
      done = Invalid();
    } else if (drawn < 11) {
      done = Restart(SIGKILL);
    } else if (drawn < 12) {
      done = Restart(SIGTERM);
    } else if (drawn < 14) {
      done = StopAndContinue();
    } else {
      done = node_.nft() ? Overflow() : HoldLock();
    }
    if (done.empty()) return;
    node_.journal.Event(node_.name(), "disturbance: " + done);
  }

 private:
  void Count(const char* what) { node_.journal.Count(node_.name(), what); }
  absl::Duration UpTo(absl::Duration longest) {
    return longest * (static_cast<double>(Draw(random_, 1000)) / 1000);
  }

  // The daemon must say that it has taken what is in its file; as often by SIGHUP as without.
  void ExpectReload(int before) {
    if (Draw(random_, 2) == 0) daemon_.Signal(SIGHUP);
    std::string fault;
    const auto is_right = [&] {
      fault = ReloadFault(before, daemon_.Says(kReloaded), true);
      return fault.empty();
    };
    if (testing::WaitUntil(is_right, kPatience)) return;
    node_.journal.Violate(
        node_.name(), "reload", absl::StrCat(fault, ": ", daemon_.LastWords()),
        absl::StrCat("\"", kReloaded, "\" within ", absl::FormatDuration(kPatience)));
  }

  std::string ReloadPeriod() {
    const Alone settings(node_.settings_gate);
    const int before = daemon_.Says(kReloaded);
    node_.settings.period_seconds = 1 + (node_.settings.period_seconds + Draw(random_, 3)) % 4;
    daemon_.WriteConfig();
    ExpectReload(before);
    Count("reloads of the period");
    return absl::StrCat("period ", node_.settings.period_seconds, " s");
  }

  std::string ReloadBits() {
    const Alone settings(node_.settings_gate);
    if (node_.settings.cleanup) return "";
    // Legacy iptables commits table by table: between two of them packets have one bit and the rule
    // that drops them has another.
    const Announcement announcement(node_.windows, node_.nft() ? 0 : Bit(kDrop4) | Bit(kDrop6));
    const int before = daemon_.Says(kReloaded);
    testing::KubeletBits& bits = node_.settings.bits;
    const Shared foreign(node_.foreign_gate);
    if (Draw(random_, 2) == 0 || node_.proxy) {
      bits.drop = bits.drop == 15 ? 21 : 15;
    } else {
      bits.masquerade = bits.masquerade == 14 ? 20 : 14;
    }
    daemon_.WriteConfig();
    ExpectReload(before);
    // It reports the configuration first and writes the rules afterwards.
    if (!testing::WaitUntil([this] { return DropBitIsWritten(); }, kPatience)) {
      node_.journal.Violate(node_.name(), "reload", "the rules have not the new drop bit",
                            absl::StrCat("within ", absl::FormatDuration(kPatience)));
    }
    Count("reloads of bits");
    return absl::StrCat("bits ", bits.masquerade, " and ", bits.drop);
  }

  // By KUBE-MARK-DROP and by the rule that drops, of both families.
  bool DropBitIsWritten() {
    const testing::InNetns inside(node_.netns());
    const std::string mark = absl::StrFormat("0x%x", 1U << node_.settings.bits.drop);
    const std::string sets = absl::StrCat("--set-xmark ", mark, "/", mark);
    const std::string drops = absl::StrCat("--mark ", mark, "/", mark, " -j DROP");
    for (const testing::IpFamily family : testing::kBothFamilies) {
      const testing::Iptables iptables = node_.Of(family);
      const std::string nat = iptables.Run({"-w", "-t", "nat", "-S", "KUBE-MARK-DROP"}).out;
      const std::string filter = iptables.Run({"-w", "-S", "KUBE-FIREWALL"}).out;
      if (!absl::StrContains(nat, sets) || !absl::StrContains(filter, drops)) return false;
    }
    return true;
  }

  std::string Flip() {
    Alone settings(node_.settings_gate, std::defer_lock);
    Alone foreign(node_.foreign_gate, std::defer_lock);
    // What is missing when the gate goes on stays so: first all must be there.
    const bool ready = testing::WaitUntil(
        [&] {
          settings.lock();
          foreign.lock();
          if (node_.settings.cleanup || AllIsInPlace()) return true;
          foreign.unlock();
          settings.unlock();
          absl::SleepFor(absl::Milliseconds(50));
          return false;
        },
        absl::Seconds(5));
    if (!ready) return "";
    const int before = daemon_.Says(kReloaded);
    node_.settings.cleanup = !node_.settings.cleanup;
    if (node_.settings.cleanup) {
      // A kube-proxy that empties KUBE-FIREWALL leaves nobody there who would drop marked packets.
      const bool drops_stay = !node_.proxy || node_.proxy->minor < 27;
      node_.users = {.masq = Draw(random_, 3) != 0, .drop = drops_stay && Draw(random_, 2) == 0};
      SomeUsersLeave();
    }
    daemon_.WriteConfig();
    ExpectReload(before);
    if (!node_.settings.cleanup) UsersComeBack();
    Count("flips");
    if (node_.Soaked() >= node_.options().length / 4) has_retired_ = true;
    return absl::StrCat("flip to ", node_.settings.Text(), ", ", node_.users.Text());
  }

  // Alone at both gates. The rules themselves, too: of a jump of one family no stream may depend.
  bool AllIsInPlace() {
    if (node_.users_are_due || node_.proxy_is_due || !node_.windows.all_stand() ||
        !daemon_.IsReady()) {
      return false;
    }
    const testing::InNetns inside(node_.netns());
    const absl::StatusOr<Rules> golden = golden_.Get();
    const absl::StatusOr<Rules> rules = SavedRules(node_.mode());
    return golden.ok() && rules.ok() && DifferencesOf(*rules, *golden, node_.ledger).empty();
  }

  void SomeUsersLeave() {
    GuardSet expected = Bit(kMartian);
    if (node_.users.masq) expected |= Bit(kMasq4) | Bit(kMasq6);
    if (node_.users.drop) expected |= Bit(kDrop4) | Bit(kDrop6);
    node_.windows.Expect(expected);
    const testing::InNetns inside(node_.netns());
    TakeUsersAway(node_.Choice(), node_.users);
  }

  void UsersComeBack() {
    node_.users = UserSet();
    const testing::InNetns inside(node_.netns());
    const bool back = testing::WaitUntil([&] { return PutUsersBack(node_); }, kPatience);
    if (!back) {
      node_.journal.Violate(node_.name(), "in place", "no rule can jump to kubelet's chains",
                            "they stand again once the gate is off");
    }
    testing::WaitUntil([&] { return node_.windows.everything_stands(); }, kPatience);
    node_.windows.Expect(kAllGuards);
  }

  std::string Invalid() {
    const Shared settings(node_.settings_gate);
    const int before = daemon_.Says(kReloaded);
    daemon_.WriteConfig(node_.settings.FileText() + "nonsense: [\n");
    absl::SleepFor(absl::Milliseconds(300) + UpTo(absl::Milliseconds(500)));
    const std::string fault = ReloadFault(before, daemon_.Says(kReloaded), false);
    if (!fault.empty()) {
      node_.journal.Violate(node_.name(), "reload", fault, "it is refused, and the old one stays");
    }
    daemon_.WriteConfig();
    Count("invalid configurations");
    return "an invalid configuration";
  }

  std::string Restart(int signal) {
    const Shared settings(node_.settings_gate);
    node_.windows.DaemonIsAway();
    const std::string fault = ExitFault(daemon_.End(signal), signal);
    if (!fault.empty()) {
      node_.journal.Violate(node_.name(), "daemon", fault, "0, or death by SIGKILL");
    }
    absl::SleepFor(UpTo(absl::Seconds(1.5)));
    daemon_.Start();
    node_.windows.DaemonIsBack();
    Count(signal == SIGKILL ? "kills" : "terminations");
    return signal == SIGKILL ? "SIGKILL, and started again" : "SIGTERM, and started again";
  }

  std::string StopAndContinue() {
    node_.windows.DaemonIsAway();
    daemon_.Signal(SIGSTOP);
    absl::SleepFor(UpTo(absl::Seconds(3)));
    daemon_.Signal(SIGCONT);
    node_.windows.DaemonIsBack();
    Count("stops");
    return "SIGSTOP, then SIGCONT";
  }

  // More commits than the socket of one who does not read has room for.
  std::string Overflow() {
    const testing::InNetns inside(node_.netns());
    const auto writer = testing::ForeignWriter::Create();
    if (!writer.ok()) return "";
    node_.windows.DaemonIsAway();
    daemon_.Signal(SIGSTOP);
    {
      // Alone: the storm's chain has the same name.
      const Alone foreign(node_.foreign_gate);
      CommitOften(**writer, kOverflowCommits);
    }
    daemon_.Signal(SIGCONT);
    node_.windows.DaemonIsBack();
    Count("overflows");
    return absl::StrCat(kOverflowCommits, " transactions while it was stopped");
  }

  std::string HoldLock() {
    node_.windows.DaemonIsAway();
    {
      const testing::LockHolder holder("/run/xtables.lock", absl::InfiniteDuration());
      absl::SleepFor(UpTo(absl::Seconds(2)));
    }
    node_.windows.DaemonIsBack();
    Count("locks held");
    return "xtables.lock held";
  }

  Node& node_;
  Daemon& daemon_;
  Golden golden_;
  Random random_;
  // The process that lives to the end has been told to retire.
  bool has_retired_ = false;
};

}  // namespace

std::string ExitFault(int exit_code, int signal) {
  if (exit_code == (signal == SIGKILL ? 128 + SIGKILL : 0)) return "";
  return absl::StrCat("exit code ", exit_code, " on signal ", signal);
}

std::string ReloadFault(int taken_before, int taken_after, bool valid) {
  if (valid) return taken_after > taken_before ? "" : "a valid configuration was not taken";
  return taken_after == taken_before ? "" : "an invalid configuration was taken";
}

void Disturb(Node& node, Daemon& daemon, std::atomic<bool>& started) {
  Disturber disturber(node, daemon);
  disturber.StartFirst();
  started = true;
  Random random = node.RandomOf("pauses");
  while (!node.ended) {
    const absl::Duration pause =
        kPause / 2 + kPause * (static_cast<double>(Draw(random, 1000)) / 1000);
    // A crippled daemon has nothing to wait for.
    const bool crippled = node.options().cripple != Cripple::kNone;
    const absl::Time next = absl::Now() + (crippled ? absl::ZeroDuration() : pause);
    if (node.Soaked() == absl::ZeroDuration()) {
      absl::SleepFor(absl::Milliseconds(50));
      continue;
    }
    while (!node.ended && absl::Now() < next) absl::SleepFor(absl::Milliseconds(50));
    if (!node.ended) disturber.Act();
    // Once is enough.
    while (crippled && !node.ended) absl::SleepFor(absl::Milliseconds(50));
  }
  if (node.options().cripple == Cripple::kStopped) daemon.Signal(SIGCONT);
  const std::string fault = ExitFault(daemon.End(SIGTERM), SIGTERM);
  if (!fault.empty()) node.journal.Violate(node.name(), "daemon", fault + " at the end", "0");
}

}  // namespace kipt::soak
