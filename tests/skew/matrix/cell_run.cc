// SPDX-License-Identifier: Apache-2.0
#include "tests/skew/matrix/cell_run.h"

#include <cmath>
#include <filesystem>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "tests/skew/actors/third_parties.h"
#include "tests/skew/matrix/expectations.h"

namespace kipt::skew {
namespace {

using testing::IpFamily;
using testing::IptablesMode;

constexpr IpFamily kFamilies[] = {IpFamily::kIpv4, IpFamily::kIpv6};
// The worker's own /run.
constexpr char kCniConfDir[] = "/run/cni/net.d";

// What of the packets themselves was wrong, though the outcome was right.
std::string Complaint(const Question& question, const ProbeResult& result) {
  if (question.balanced_over == 0) return "";
  const int receivers = static_cast<int>(result.receivers.size());
  if (receivers != question.balanced_over) {
    return absl::StrCat("went to ", receivers, " endpoints, not ", question.balanced_over);
  }
  if (question.balanced_over == 1) return "";
  const double share = 1.0 / question.balanced_over;
  const double mean = result.sent * share;
  const double deviation = std::sqrt(result.sent * share * (1 - share));
  for (const auto& [place, count] : result.receivers) {
    if (std::abs(count - mean) > 5 * deviation) {
      return absl::StrCat(place, " got ", count, " of ", result.sent, " connections");
    }
  }
  return "";
}

}  // namespace

void CellRun::Done::Take(const Act& act, const char* must_fail_because) {
  for (const std::string& line : act.done) step.done.push_back(line);
  const bool must_fail = must_fail_because != nullptr;
  if (act.ok && !must_fail) return;
  const std::string text =
      act.ok ? absl::StrCat("it went well, and should not have: ", must_fail_because) : act.error;
  // One that was expected does not hide one that was not.
  const bool expected = !act.ok && must_fail;
  step.error_expected = expected && (step.error.empty() || step.error_expected);
  step.error = step.error.empty() ? text : absl::StrCat(step.error, "\n", text);
  if (expected) step.error_because = must_fail_because;
}

CellRun::CellRun(const Cell& cell, const HarnessOptions& options, std::vector<StepReport>& steps)
    : cell_(cell), options_(options), steps_(steps), mode_(cell.mode), facts_(2) {
  if (cell.path == Path::kToNft) mode_ = IptablesMode::kLegacy;
  facts_[1].family = IpFamily::kIpv6;
}

CellRun::~CellRun() {
  if (agent_ != nullptr) agent_->Stop();
}

absl::Status CellRun::Prepare() {
  absl::StatusOr<std::unique_ptr<TestNode>> node = TestNode::Create();
  if (!node.ok()) return node.status();
  node_ = *std::move(node);
  absl::StatusOr<std::unique_ptr<Battery>> battery = Battery::Create(*node_, TestListeners());
  if (!battery.ok()) return battery.status();
  battery_ = *std::move(battery);
  on_node_.emplace(node_->At(Place::kNode));
  std::filesystem::create_directories(kCniConfDir);
  return absl::OkStatus();
}

absl::Status CellRun::Step(const std::string& name, const std::function<void(Done)>& act) {
  StepReport& step = steps_.emplace_back();
  step.name = name;
  const std::vector<FamilyFacts> before = facts_;
  flushed_in_this_step_ = false;
  moved_in_this_step_ = false;
  act({step});
  AgentActsByItself();
  if (agent_ != nullptr) Done{step}.Take(agent_->Settle(), nullptr);
  JudgeStreams(before, step);
  absl::Status status = Ask(step);
  step.rules = Rules();
  return status;
}

absl::Status CellRun::Ask(StepReport& step) {
  std::vector<Question> questions;
  const auto add = [&questions](const std::vector<Question>& more) {
    questions.insert(questions.end(), more.begin(), more.end());
  };
  for (const IpFamily family : kFamilies) {
    add(DirectQuestions(family));
    if (services_) add(ServiceQuestions(family));
    if (users_) add(UserQuestions(family));
  }
  for (const Question& question : MartianQuestions()) {
    if (services_ || question.about == About::kMartian) questions.push_back(question);
  }
  std::vector<Probe> probes;
  probes.reserve(questions.size());
  for (const Question& question : questions) probes.push_back(question.probe);
  const absl::StatusOr<std::vector<ProbeResult>> results = battery_->Ask(probes, mode_);
  if (!results.ok()) return results.status();
  for (size_t i = 0; i < questions.size(); ++i) {
    const bool v6 = questions[i].probe.family == IpFamily::kIpv6;
    const Expectation expectation = Expect(facts_[v6 ? 1 : 0], questions[i]);
    Check check;
    check.probe = questions[i].probe;
    check.result = (*results)[i];
    check.sound = expectation.sound;
    check.expected = expectation.expected;
    check.because = expectation.because;
    if (check.result.outcome == check.sound) {
      check.complaint = Complaint(questions[i], check.result);
    }
    step.checks.push_back(std::move(check));
  }
  return absl::OkStatus();
}

void CellRun::JudgeStreams(const std::vector<FamilyFacts>& before, StepReport& step) {
  if (streams_ == nullptr) return;
  const std::vector<StreamCount> counts = streams_->Take();
  for (size_t i = 0; i < counts.size(); ++i) {
    const StreamQuestion& question = stream_questions_[i];
    const size_t family = question.probe.family == IpFamily::kIpv6 ? 1 : 0;
    StreamCheck check;
    check.count = counts[i];
    check.rule = question.rule;
    check.bad = question.about == About::kService
                    ? check.count.sent - check.count.served_masqueraded
                    : check.count.reached_host + check.count.forwarded + check.count.served +
                          check.count.served_masqueraded;
    check.because = StreamFails(before[family], question);
    if (check.because.empty()) check.because = StreamFails(facts_[family], question);
    if (!check.because.empty()) {
      check.allowed = check.count.sent;
    } else if (flushed_in_this_step_ && question.about == About::kMartian) {
      // The kernel tells the agent of the flush once it has been done.
      check.allowed = static_cast<uint64_t>(options_.stream_rate) / 4;
      check.because = "flushed by somebody else, until the agent has put it back";
    } else if (moved_in_this_step_ && cell_.actor == Actor::kKubelet) {
      // The agent writes all of them in one transaction.
      check.allowed = static_cast<uint64_t>(options_.stream_rate) / 4;
      check.because =
          "kubelet adds the rules of KUBE-POSTROUTING one by one: while the last is missing the mark "
          "is cleared, and the legacy rules that come next see none";
    }
    step.streams.push_back(std::move(check));
  }
}

absl::Status CellRun::StartStreams() {
  if (streams_ != nullptr || !services_) return absl::OkStatus();
  std::vector<Probe> probes;
  for (const IpFamily family : kFamilies) {
    for (StreamQuestion& question : StreamQuestions(family)) {
      probes.push_back(question.probe);
      stream_questions_.push_back(std::move(question));
    }
  }
  absl::StatusOr<std::unique_ptr<Streams>> streams =
      Streams::Start(*node_, probes, StreamListeners(), options_.stream_rate);
  if (!streams.ok()) return streams.status();
  streams_ = *std::move(streams);
  return absl::OkStatus();
}

std::vector<ServicePort> CellRun::Services(IpFamily family) const {
  if (!services_) return {};
  std::vector<ServicePort> services = TestServices(family);
  for (ServicePort& port : StreamServices(family)) services.push_back(std::move(port));
  return services;
}

void CellRun::StartKubelet(const KubeletVersion& version, Done done) {
  kubelet_version_ = version;
  const std::string chroot = ChrootOf(cell_.company);
  const bool own_iptables =
      cell_.company == Company::kKubelet1_8_7 || cell_.company == Company::kKubelet1_8_11;
  if (cell_.actor == Actor::kKubelet) {
    KubeletSettings settings;
    settings.version = version;
    settings.iptables.mode = mode_;
    if (own_iptables) {
      settings.iptables.chroot_dir = absl::StrCat(options_.chroot_dir, "/", chroot);
    }
    agent_ = NewKubelet(settings);
    for (FamilyFacts& facts : facts_) KubeletSyncs(version, facts);
  } else {
    AgentDaemonSettings settings;
    settings.program = options_.agent_program;
    settings.version = version;
    settings.mode = mode_;
    settings.retire = options_.retire;
    settings.cni_conf_dir = kCniConfDir;
    agent_ = NewAgentDaemon(settings);
    for (FamilyFacts& facts : facts_) {
      AgentSyncs(version, facts);
      if (options_.retire) AgentRetires(version, facts);
    }
  }
  kubelet_canary_gone_ = false;
  done.Take(agent_->Start(), nullptr);
}

bool CellRun::ProxySyncsFullyInFacts() {
  bool all = true;
  for (FamilyFacts& facts : facts_) all = ProxySyncsFully(proxy_version_, services_, facts) && all;
  proxy_must_start_over_ = !all;
  return all;
}

namespace {

constexpr char kNoMarkDrop[] =
    "kube-proxy up to 1.19 jumps to KUBE-MARK-DROP and does not make it (kubernetes #80462): its "
    "nat "
    "rules are refused, its filter rules, which come first, are in place";

}  // namespace

void CellRun::StartProxy(const ProxyVersion& version, Done done) {
  proxy_version_ = version;
  ProxyActorSettings settings;
  settings.version = version;
  settings.iptables.mode = mode_;
  // In a round trip it is kube-proxy's container whose iptables does it (kubernetes #112477).
  if (*ChrootOf(cell_.company) != '\0' && cell_.company != Company::kKubelet1_8_7 &&
      cell_.company != Company::kKubelet1_8_11) {
    settings.iptables.chroot_dir = absl::StrCat(options_.chroot_dir, "/", ChrootOf(cell_.company));
  }
  if (cell_.company == Company::kOtherBit) settings.masquerade_bit = 20;
  settings.pod_cidr_v4 = PodCidr(IpFamily::kIpv4);
  settings.pod_cidr_v6 = PodCidr(IpFamily::kIpv6);
  proxy_ = NewKubeProxy(settings);
  const bool well = ProxySyncsFullyInFacts();
  done.Take(proxy_->Start(Services(IpFamily::kIpv4), Services(IpFamily::kIpv6)),
            well ? nullptr : kNoMarkDrop);
}

void CellRun::SyncProxy(Done done) {
  const bool partly = proxy_version_.version >= Version{1, 27} && !proxy_must_start_over_;
  bool well = true;
  if (partly) {
    for (FamilyFacts& facts : facts_) ProxySyncsPartly(proxy_version_, facts);
  } else {
    well = ProxySyncsFullyInFacts();
  }
  done.Take(proxy_->Sync(Services(IpFamily::kIpv4), Services(IpFamily::kIpv6)),
            well ? nullptr : kNoMarkDrop);
}

// The agent repairs what others change, kubelet does not.
void CellRun::AgentActsByItself() {
  if (cell_.actor != Actor::kAgent || agent_ == nullptr) return;
  for (FamilyFacts& facts : facts_) AgentSyncs(kubelet_version_, facts);
}

absl::Status CellRun::StartBoth(const Pair& pair, bool services) {
  services_ = services && pair.proxy.mode == ProxyMode::kIptables;
  const absl::Status status = Step(absl::StrCat("the node boots: kubelet ", ToString(pair.kubelet),
                                                ", kube-proxy ", ToString(pair.proxy)),
                                   [&](Done done) {
                                     StartKubelet(pair.kubelet, done);
                                     StartProxy(pair.proxy, done);
                                   });
  if (!status.ok()) return status;
  return StartStreams();
}

absl::Status CellRun::ReplaceKubelet(const KubeletVersion& version) {
  return Step(absl::StrCat("kubelet ", ToString(kubelet_version_), " becomes ", ToString(version)),
              [&](Done done) {
                done.Take(agent_->Stop(), nullptr);
                StartKubelet(version, done);
              });
}

absl::Status CellRun::ReplaceProxy(const ProxyVersion& version) {
  return Step(absl::StrCat("kube-proxy ", ToString(proxy_version_), " becomes ", ToString(version)),
              [&](Done done) { StartProxy(version, done); });
}

absl::Status CellRun::ServicesAppear() {
  services_ = proxy_version_.mode == ProxyMode::kIptables;
  const absl::Status status = Step("services appear", [&](Done done) { SyncProxy(done); });
  if (!status.ok()) return status;
  return StartStreams();
}

absl::Status CellRun::MinutePasses() {
  return Step("a minute passes", [&](Done done) {
    if (cell_.actor == Actor::kKubelet && kubelet_canary_gone_) {
      for (FamilyFacts& facts : facts_) KubeletSyncs(kubelet_version_, facts);
      kubelet_canary_gone_ = false;
    }
    if (cell_.actor == Actor::kAgent && options_.retire) {
      for (FamilyFacts& facts : facts_) AgentRetires(kubelet_version_, facts);
    }
    done.Take(agent_->Tick(), nullptr);
    bool well = true;
    if (proxy_must_start_over_) well = ProxySyncsFullyInFacts();
    done.Take(proxy_->Tick(), well ? nullptr : kNoMarkDrop);
    // Some object changes once a minute; that is when what others did is written over.
    SyncProxy(done);
  });
}

absl::Status CellRun::FlushEverything() {
  return Step("a firewall flushes all tables", [&](Done done) {
    for (FamilyFacts& facts : facts_) Flushed(facts);
    flushed_in_this_step_ = true;
    kubelet_canary_gone_ = true;
    proxy_must_start_over_ = true;
    done.Take(skew::FlushEverything({mode_, ""}), nullptr);
  });
}

absl::Status CellRun::MoveToNft() {
  return Step("everybody moves to nft", [&](Done done) {
    done.Take(agent_->Stop(), nullptr);
    mode_ = IptablesMode::kNft;
    moved_in_this_step_ = true;
    StartKubelet(kubelet_version_, done);
    StartProxy(proxy_version_, done);
  });
}

absl::Status CellRun::ThirdPartiesAdd() {
  users_ = true;
  return Step("third parties add their rules", [&](Done done) {
    constexpr char kMissing[] =
        "the chain of kubelet's that it names does not exist, so iptables refuses it";
    UsersAdded added;
    bool drop = true;
    bool masq = true;
    for (FamilyFacts& facts : facts_) {
      const UsersAdded now = UsersAdd(facts);
      drop = drop && now.drop;
      masq = masq && now.masq;
      added.host_port = added.host_port || now.host_port;
    }
    const IptablesChoice iptables = {mode_, ""};
    done.Take(AddUserOfMarkDrop(iptables, kUserDropPort), drop ? nullptr : kMissing);
    done.Take(AddUserOfMarkMasq(iptables, kUserMasqPort), masq ? nullptr : kMissing);
    done.Take(WriteCniConfig(kCniConfDir), nullptr);
    PortMapping mapping;
    mapping.host_port = kHostPort;
    mapping.pod_address = AddressOf(Place::kPodA, IpFamily::kIpv4);
    mapping.pod_port = kHostPortTarget;
    done.Take(AddPortmap(iptables, mapping, node_->At(Place::kPodA).Path()),
              added.host_port ? nullptr : kMissing);
  });
}

absl::Status CellRun::RoundTrip() {
  return Step("a container's iptables saves and restores all rules", [&](Done done) {
    // The agent writes what every iptables reads.
    if (cell_.company == Company::kRoundTrip1_8_7 && cell_.actor == Actor::kKubelet) {
      for (FamilyFacts& facts : facts_) RoundTripBy187(facts);
    }
    done.Take(
        SaveAndRestore({mode_, absl::StrCat(options_.chroot_dir, "/", ChrootOf(cell_.company))}),
        nullptr);
  });
}

std::string CellRun::Rules() const {
  std::string text;
  for (const IptablesMode mode : {IptablesMode::kNft, IptablesMode::kLegacy}) {
    // Looking makes no tables, but legacy ones are shown only where they are used.
    const bool legacy_used = cell_.mode == IptablesMode::kLegacy || cell_.path == Path::kToNft;
    if (mode == IptablesMode::kLegacy && !legacy_used) continue;
    if (mode == IptablesMode::kNft && mode_ == IptablesMode::kLegacy) continue;
    for (const IpFamily family : kFamilies) {
      const testing::ProgramResult saved = testing::Iptables{family, "", mode}.Save();
      absl::StrAppend(&text, family == IpFamily::kIpv4 ? "# IPv4, " : "# IPv6, ",
                      testing::NameOf(mode), "\n");
      for (absl::string_view line : absl::StrSplit(saved.out, '\n')) {
        if (!line.empty() && line[0] != '#') absl::StrAppend(&text, line, "\n");
      }
    }
  }
  return text;
}

}  // namespace kipt::skew
