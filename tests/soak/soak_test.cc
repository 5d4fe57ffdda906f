// SPDX-License-Identifier: Apache-2.0
//
// Random damage for as long as one likes, by several writers at once, while the daemon is reloaded,
// stopped and killed. README.md has the criteria, and why they need no exceptions.
#include <atomic>
#include <cstdlib>
#include <iostream>
#include <random>

#include "tests/interop/daemon_fixture.h"
#include "tests/interop/packet_world.h"
#include "tests/soak/writers.h"
#include "tests/support/figures.h"
#include "tests/support/lock_holder.h"
#include "tests/support/process_cost.h"

namespace kipt::testing {
namespace {

constexpr int kPerSecond = 300;
constexpr absl::Duration kPhase = absl::Seconds(5);
// From the last damage until everything is in place: what waits out a fight takes longest.
constexpr absl::Duration kInPlaceBound = absl::Seconds(10);
// What is only to be removed waits ten times as long as an attempt that another program interrupts.
constexpr absl::Duration kRetiredBound = absl::Minutes(1);
constexpr int64_t kGrowthKib = 1024;
constexpr int kDescriptorGrowth = 2;

// Martian packets must not arrive, and need filter only. Those to the receiver must arrive with the
// node's address, and need nat only. Those that a third party marks must not arrive, and need both.
struct Stream {
  const char* name;
  uint16_t port;
  uint32_t destination;
  std::vector<std::string> tables;
  bool arrives;
};
const Stream kStreams[] = {{"martian", 4001, kLoopback, {"filter"}, false},
                           {"masqueraded", 4002, kReceiver, {"nat"}, true},
                           {"dropped", 4003, kNodeOutside, {"filter", "nat"}, false}};

// Of the daemon, once after each phase.
struct Sample {
  int64_t anonymous_kib = 0;
  int descriptors = 0;
  size_t threads = 0;
};

std::string JudgeGrowth(const std::vector<Sample>& samples) {
  if (samples.size() < 2) return "";
  const Sample& first = samples[samples.size() / 4];
  const Sample& last = samples.back();
  if (last.anonymous_kib <= first.anonymous_kib + kGrowthKib &&
      last.descriptors <= first.descriptors + kDescriptorGrowth && last.threads <= first.threads) {
    return "";
  }
  return absl::StrCat("grown from ", first.anonymous_kib, " KiB, ", first.descriptors,
                      " descriptors, ", first.threads, " threads to ", last.anonymous_kib, ", ",
                      last.descriptors, ", ", last.threads);
}

struct Course {
  IptablesMode mode = IptablesMode::kNft;
  absl::Duration length = absl::Minutes(1);
  uint32_t seed = 1;
};

class SoakTest : public DaemonTest {
 protected:
  struct Counted {
    uint64_t sent = 0;
    uint64_t judged = 0;
    uint64_t lost = 0;
  };

  Iptables Ip4() const { return {.mode = course_.mode}; }

  Course course_;
  Random random_;
  bool cleanup_ = false;
  bool may_kill_ = true;
  const TemporaryFile file_{""};
  const NoCniUser no_cni_;
  std::optional<PacketWorld> world_;
  // Their threads use this test's mount namespace, so TearDown ends them first.
  std::vector<std::unique_ptr<PacketTaker>> takers_;
  std::atomic<bool> policy_changed_ = false;
  // For the summary.
  std::map<std::string, int> done_;
  std::map<std::string, Counted> packets_;
  Figures in_place_;
  std::vector<Sample> samples_;

  void WriteConfig(int period_seconds = 1) const {
    std::ofstream(file_.path()) << kConfigHead << "featureGates: {IPTablesOwnershipCleanup: "
                                << (cleanup_ ? "true" : "false")
                                << "}\niptablesSyncPeriod: " << period_seconds
                                << "s\nstaleChains: retire\n";
  }

  void StartDaemon() {
    StartProgram({AgentProgram(), "run", "--config=" + file_.path(),
                  "--cni-conf-dir=" + no_cni_.root(),
                  absl::StrCat("--iptables-mode=", NameOf(course_.mode))});
  }

  std::vector<std::string> PlanArguments() const {
    return {"plan", "--config=" + file_.path(), "--cni-conf-dir=" + no_cni_.root(),
            absl::StrCat("--iptables-mode=", NameOf(course_.mode))};
  }

  // Other programs that lead packets to kubelet's chains, in chains of their own.
  void PutThirdParties() {
    const auto put = [&](const char* chain, const char* target, uint16_t port) {
      Ip4().Run({"-w", "-t", "nat", "-N", chain});
      Ip4().Run({"-w", "-t", "nat", "-F", chain});
      const ProgramResult added = Ip4().Run({"-w", "-t", "nat", "-A", chain, "-p", "udp", "--dport",
                                             absl::StrCat(port), "-j", target});
      ASSERT_EQ(added.exit_code, 0) << added;
      for (const char* what : {"-C", "-A"}) {
        if (Ip4().Run({"-w", "-t", "nat", what, "PREROUTING", "-j", chain}).exit_code == 0) return;
      }
      FAIL() << "no jump to " << chain;
    };
    put("THIRD-MASQ", "KUBE-MARK-MASQ", kStreams[1].port);
    put("THIRD-DROP", "KUBE-MARK-DROP", kStreams[2].port);
  }

  std::string Prepare() {
    world_.emplace();
    // Or an early connection would decide for the packets of later phases, and ports run out.
    SetSysctl("netfilter/nf_conntrack_udp_timeout", "1");
    for (const Stream& stream : kStreams) {
      std::optional<InNetns> inside;
      if (stream.destination == kReceiver) inside.emplace(world_->receiver());
      takers_.push_back(std::make_unique<PacketTaker>(
          stream.destination == kReceiver ? 0 : stream.destination, stream.port));
    }
    // Without rules all of them arrive: what is judged can fail.
    for (size_t i = 0; i < std::size(kStreams); ++i) {
      if (!world_->Reaches(*takers_[i], kStreams[i].destination, kStreams[i].port)) {
        return absl::StrCat("harness: no packet arrives, ", kStreams[i].name);
      }
    }
    WriteConfig();
    StartDaemon();
    WaitUntil(IsReady, absl::Seconds(5));
    PutThirdParties();
    return "";
  }

  std::vector<Act> ActsOf(const std::string& damaged) {
    std::vector<Act> acts = {Storm(course_.mode)};
    if (damaged != "filter") acts.push_back(Policy(course_.mode, policy_changed_));
    if (damaged.empty()) return acts;
    for (int i = 0; i < 2; ++i) acts.push_back(DamageTo(damaged, course_.mode, cleanup_));
    // Nothing puts back what only legacy mode makes.
    if (!cleanup_) acts.push_back(WreckageOf(damaged, course_.mode));
    return acts;
  }

  void Flip() {
    cleanup_ = !cleanup_;
    WriteConfig();
    const auto done = [&] {
      return Metric("kube_iptables_agent_mode_info",
                    cleanup_ ? ",mode=\"cleanup\"" : ",mode=\"legacy\"") == 1;
    };
    WaitUntil(done);
    ++done_["flips of the gate"];
  }

  void Disturb(bool may_flip) {
    switch (Draw(random_, 7)) {
      case 0:
        WriteConfig(1 + Draw(random_, 3));
        daemon().Signal(SIGHUP);
        ++done_["reloads"];
        return;
      case 1:
        std::ofstream(file_.path()) << "kind: Nonsense\n";
        daemon().Signal(SIGHUP);
        absl::SleepFor(absl::Milliseconds(200));
        WriteConfig();
        ++done_["invalid configurations"];
        return;
      case 2: {
        daemon().Stop();
        absl::SleepFor(absl::Milliseconds(Draw(random_, 1000)));
        daemon().Signal(SIGCONT);
        ++done_["stops"];
        return;
      }
      case 3: {
        const LockHolder held("/run/xtables.lock", absl::Milliseconds(Draw(random_, 1000)));
        ++done_["locks held"];
        return;
      }
      case 4:
      case 5:
        if (may_flip) Flip();
        return;
      default:
        if (!may_kill_) return;
        Stop(Draw(random_, 2) == 0 ? SIGKILL : SIGTERM);
        StartDaemon();
        BecomesReady();
        ++done_["kills and ends"];
    }
  }

  std::string JudgePackets(const std::string& damaged, std::vector<uint64_t> sent) {
    for (size_t i = 0; i < std::size(kStreams); ++i) {
      const Stream& stream = kStreams[i];
      const Received received = takers_[i]->received();
      Counted& counted = packets_[stream.name];
      counted.sent += sent[i];
      if (std::count(stream.tables.begin(), stream.tables.end(), damaged) != 0) continue;
      counted.judged += sent[i];
      const std::string of =
          absl::StrCat(stream.name, " packets, damage to ", damaged.empty() ? "nothing" : damaged,
                       ", ", cleanup_ ? "cleanup" : "legacy", " mode: ");
      if (!stream.arrives && received.packets != 0) {
        return absl::StrCat(of, received.packets, " of ", sent[i], " arrived");
      }
      if (!stream.arrives) continue;
      for (const auto& [source, packets] : received.sources) {
        if (source != kNodeInside) return absl::StrCat(of, packets, " arrived without masquerade");
      }
      counted.lost += sent[i] - std::min(sent[i], received.packets);
      if (received.packets < sent[i] * 99 / 100) {
        return absl::StrCat(of, received.packets, " of ", sent[i], " arrived");
      }
    }
    return "";
  }

  // `damaged`: the one table that is damaged meanwhile; "" for none. Packets that do not need it
  // must fare all the time as if nothing happened.
  std::string Phase(const std::string& damaged) {
    PutThirdParties();
    PortMapper mapper(course_.mode, damaged == "mangle" ? "nat" : "mangle");
    // Not 1.28, which empties KUBE-FIREWALL itself.
    BackgroundProgram proxy(
        {KIPT_KUBE_PROXY_LIKE, NameOf(course_.mode), KIPT_KUBE_PROXY_INPUTS, "1.24", "0.5"});
    absl::SleepFor(absl::Milliseconds(1200));
    std::vector<std::unique_ptr<PacketSender>> senders;
    for (const auto& taker : takers_) taker->Forget();
    {
      const InNetns outside(world_->client());
      for (const Stream& stream : kStreams) {
        senders.push_back(std::make_unique<PacketSender>(
            PacketWorld::Path(stream.destination, stream.port), kPerSecond));
      }
    }
    {
      std::vector<std::unique_ptr<Writer>> writers;
      std::vector<Act> acts = ActsOf(damaged);
      acts.push_back(mapper.Acts());
      for (Act& act : acts) writers.push_back(std::make_unique<Writer>(std::move(act), random_()));
      const absl::Time end = absl::Now() + kPhase;
      while (absl::Now() < end) {
        Disturb(damaged.empty());
        absl::SleepFor(absl::Milliseconds(Draw(random_, 1500)));
      }
      for (const auto& writer : writers) done_["acts: " + writer->name()] += writer->acts();
    }
    std::vector<uint64_t> sent;
    for (const auto& sender : senders) sent.push_back(sender->Stop());
    proxy.Signal(SIGTERM);
    proxy.Wait();
    absl::SleepFor(absl::Milliseconds(100));
    if (std::string wrong = JudgePackets(damaged, std::move(sent)); !wrong.empty()) return wrong;
    if (policy_changed_) return "a policy of another program was changed";
    if (std::string fault = mapper.Fault(); !fault.empty()) return "port mapper: " + fault;
    return "";
  }

  // The writers pause. Then kubelet's own commands, which know nothing of the agent, find all of
  // it.
  std::string JudgeInPlace() {
    const absl::Time start = absl::Now();
    const auto clean = [&] { return Agent(PlanArguments()).exit_code == kExitOk && IsReady(); };
    if (!WaitUntil(clean, cleanup_ ? kRetiredBound : kInPlaceBound)) {
      return absl::StrCat("not in place: ", Agent(PlanArguments()).out, Readyz(),
                          daemon().Output());
    }
    in_place_.Add(absl::Now() - start);
    for (const IpFamily family : kBothFamilies) {
      const Iptables iptables = {.family = family, .mode = course_.mode};
      std::vector<KubeletStep> steps =
          KubeletSequence(cleanup_ ? KubeletForm::k1_27GateOn : KubeletForm::k1_27GateOff, family);
      // In cleanup mode the agent makes no canary.
      std::erase_if(steps, [&](const KubeletStep& step) {
        return cleanup_ && step.chain == "KUBE-KUBELET-CANARY";
      });
      const KubeletRun run = RunKubelet(iptables, steps);
      if (!run.error.empty() || run.chains_created + run.rules_added > 0) {
        return absl::StrCat("kubelet had to make ", run.chains_created, " chains and ",
                            run.rules_added, " rules ", run.error);
      }
      const std::vector<std::string> doubled = SavedRules::Of(iptables).DoubledRules();
      if (!doubled.empty()) return "twice: " + doubled.front();
    }
    const Memory memory = MemoryOf(daemon().pid());
    const Sample sample = {memory.anonymous_kib, DescriptorsOf(daemon().pid()),
                           ThreadCosts(daemon().pid()).size()};
    if (!may_kill_) samples_.push_back(sample);
    return "";
  }

  // Ends with the first violation; "" where there is none.
  std::string Soak(const Course& course) {
    course_ = course;
    random_.seed(course.seed);
    std::string violation = Prepare();
    const absl::Time start = absl::Now();
    for (int i = 0; violation.empty() && absl::Now() < start + course.length; ++i) {
      // The last half is one process, so that it can be seen to grow.
      may_kill_ = absl::Now() < start + course.length / 2;
      const char* const in_legacy[] = {"", "nat", "filter", "mangle"};
      const char* const in_cleanup[] = {"", "", "filter", "mangle"};
      violation = Phase((cleanup_ ? in_cleanup : in_legacy)[i % 4]);
      if (violation.empty()) violation = JudgeInPlace();
      ++done_["phases"];
    }
    if (violation.empty()) violation = JudgeGrowth(samples_);
    daemon().Signal(SIGCONT);
    const int code = Stop(SIGTERM);
    if (violation.empty() && code != 0) violation = absl::StrCat("SIGTERM: exit code ", code);
    takers_.clear();
    std::cout << Summary();
    if (violation.empty()) return "";
    return absl::StrCat("seed ", course.seed, ", ", NameOf(course.mode), ": ", violation);
  }

  std::string Summary() const {
    std::string text = absl::StrCat("| ", NameOf(course_.mode), " | |\n|---|---|\n");
    absl::StrAppend(&text, "| seed | ", course_.seed, " |\n");
    for (const auto& [name, count] : done_)
      absl::StrAppend(&text, "| ", name, " | ", count, " |\n");
    for (const auto& [name, counted] : packets_) {
      absl::StrAppend(&text, "| ", name, " packets: sent, judged, lost | ", counted.sent, ", ",
                      counted.judged, ", ", counted.lost, " |\n");
    }
    absl::StrAppend(&text, "| until all was in place: median, longest | ",
                    absl::FormatDuration(in_place_.Median()), ", ",
                    absl::FormatDuration(in_place_.Quantile(1)), " |\n");
    if (!samples_.empty()) {
      absl::StrAppend(&text, "| RssAnon, first and last | ", samples_.front().anonymous_kib,
                      " KiB, ", samples_.back().anonymous_kib, " KiB |\n");
    }
    return text + "\n";
  }
};

// tests/soak/run sets both.
absl::Duration Length() {
  const char* minutes = std::getenv("KIPT_SOAK_MINUTES");
  return minutes == nullptr ? absl::Seconds(40) : absl::Minutes(std::atoi(minutes));
}
uint32_t Seed() {
  const char* seed = std::getenv("KIPT_SOAK_SEED");
  return seed == nullptr ? std::random_device()()
                         : static_cast<uint32_t>(std::strtoul(seed, nullptr, 10));
}

class SoakOfModeTest : public SoakTest, public ::testing::WithParamInterface<IptablesMode> {};

TEST_P(SoakOfModeTest, EverythingIsBackAndNoPacketPasses) {
  EXPECT_EQ(Soak({.mode = GetParam(), .length = Length(), .seed = Seed()}), "");
}
INSTANTIATE_TEST_SUITE_P(Modes, SoakOfModeTest, ::testing::ValuesIn(kBothModes),
                         [](const auto& mode) { return TestNameOf(mode.param); });

TEST(SoakGrowthTest, MayBeAsLargeAsTheLimitAndNoLarger) {
  const Sample first = {.anonymous_kib = 1500, .descriptors = 20, .threads = 3};
  EXPECT_EQ(JudgeGrowth({first, {1500 + kGrowthKib, 20 + kDescriptorGrowth, 3}}), "");
  EXPECT_THAT(JudgeGrowth({first, {1501 + kGrowthKib, 20, 3}}), HasSubstr("grown"));
  EXPECT_THAT(JudgeGrowth({first, {1500, 21 + kDescriptorGrowth, 3}}), HasSubstr("grown"));
  EXPECT_THAT(JudgeGrowth({first, {1500, 20, 4}}), HasSubstr("grown"));
}

}  // namespace
}  // namespace kipt::testing
