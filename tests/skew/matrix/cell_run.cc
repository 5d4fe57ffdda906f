// SPDX-License-Identifier: Apache-2.0
#include "tests/skew/matrix/cell_run.h"

#include <filesystem>
#include <fstream>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "tests/skew/actors/actors.h"
#include "tests/skew/kube_proxy/proxy_rules.h"
#include "tests/support/run_program.h"

namespace kipt::skew {
namespace {

using testing::IpFamily;
using testing::IptablesMode;

constexpr char kNoMarkDrop[] =
    "kube-proxy up to 1.19 jumps to KUBE-MARK-DROP and does not make it (kubernetes #80462); its "
    "filter rules, which come first, are in place, and its nat rules are refused";

constexpr char kForeignJump[] =
    "from 1.34 on kube-proxy deletes KUBE-MARK-MASQ with all its chains of nat in one restore, "
    "which "
    "fails while another program's chain jumps to it";
constexpr char kMarkMasq[] = "KUBE-MARK-MASQ";
constexpr char kSharedChain[] =
    "kube-proxy also deletes KUBE-POSTROUTING, its only chain that exists; the agent repairs the "
    "jump, because without kube-proxy's other chains it recognises a cleanup only by the writer";
constexpr char kFails[] =
    "kube-proxy 1.27 deletes the jump to KUBE-POSTROUTING only after it has tried to delete that "
    "chain with all others of nat";
constexpr char kPostrouting[] = "KUBE-POSTROUTING";

}  // namespace

void CellRun::Done::Take(const Act& act, const KnownError& known) {
  for (const std::string& line : act.done) step.done.push_back(line);
  if (act.ok && (!known.MustFail() || known.may_succeed)) return;
  const std::string text =
      act.ok ? absl::StrCat("it succeeded and should have failed: ", known.because) : act.error;
  // One that was expected does not hide one that was not.
  const bool expected = !act.ok && known.MustFail() && Explains(known, act.error);
  step.error_expected = expected && (step.error.empty() || step.error_expected);
  step.error = step.error.empty() ? text : absl::StrCat(step.error, "\n", text);
  if (expected) step.error_because = known.because;
}

CellRun::CellRun(const Cell& cell, std::vector<StepReport>& steps)
    : cell_(cell), steps_(steps), mode_(cell.mode), facts_(2) {
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
  absl::StatusOr<std::unique_ptr<Battery>> battery =
      Battery::Create(*node_, TestListeners(), UsesNftables(cell_));
  if (!battery.ok()) return battery.status();
  battery_ = *std::move(battery);
  on_node_.emplace(node_->At(Place::kNode));
  std::error_code error;
  std::filesystem::create_directories(kCniConfDir, error);
  if (error) return absl::UnavailableError(absl::StrCat(kCniConfDir, ": ", error.message()));
  std::ofstream(absl::StrCat(kCniConfDir, "/00-net.conf")) << "{}";
  return absl::OkStatus();
}

absl::Status CellRun::Step(const std::string& name, const std::function<void(Done)>& act) {
  StepReport& step = steps_.emplace_back();
  step.name = name;
  const std::vector<FamilyFacts> before = facts_;
  flushed_in_this_step_ = false;
  moved_in_this_step_ = false;
  proxy_changed_mode_in_this_step_ = false;
  act({step});
  AgentActsByItself();
  if (agent_ != nullptr) Done{step}.Take(agent_->Settle());
  JudgeStreams(before, /*afterwards=*/false, step);
  absl::Status status = StartStreams();
  if (status.ok()) status = Ask(step);
  JudgeStreams(facts_, /*afterwards=*/true, step);
  step.rules = Rules();
  return status;
}

std::vector<ServicePort> CellRun::Services(IpFamily family) const {
  if (!services_) return {};
  std::vector<ServicePort> services = TestServices(family);
  for (ServicePort& port : StreamServices(family)) services.push_back(std::move(port));
  return services;
}

void CellRun::StartKubelet(const KubeletVersion& version, Done done) {
  kubelet_version_ = version;
  if (cell_.actor == Actor::kKubelet) {
    agent_ = NewKubelet({version, {mode_, ""}});
    for (FamilyFacts& facts : facts_) KubeletSyncs(version, facts);
  } else {
    agent_ = NewAgentDaemon(
        {.program = cell_.program, .version = version, .mode = mode_, .cni_conf_dir = kCniConfDir});
    for (FamilyFacts& facts : facts_) AgentSyncs(version, facts);
    AgentRetiresWhatItMay();
  }
  kubelet_canary_gone_ = false;
  done.Take(agent_->Start());
}

KnownError CellRun::FactsOfFullSync() {
  KnownError known = {.because = kNoMarkDrop, .missing_chain = "KUBE-MARK-DROP"};
  for (size_t family = 0; family < facts_.size(); ++family) {
    known.families[family] = !ProxySyncsFully(proxy_version_, services_, facts_[family]);
  }
  proxy_must_start_over_ = known.MustFail();
  return known;
}

KnownError CellRun::FactsOfStart() {
  // The gate is off: kubelet has these chains too.
  KnownError shared = {.because = kSharedChain, .busy_chain = kPostrouting, .may_succeed = true};
  const bool keeps = cell_.actor == Actor::kAgent && !CleansUp(kubelet_version_);
  for (size_t family = 0; family < facts_.size(); ++family) {
    shared.families[family] = keeps && proxy_version_.mode == ProxyMode::kNftables &&
                              !facts_[family].proxy_nat.has_value();
  }
  KnownError left = {.because = kForeignJump, .busy_chain = kMarkMasq};
  for (size_t family = 0; family < facts_.size(); ++family) {
    left.families[family] = !ProxyStarts(proxy_version_, facts_[family]);
  }
  KnownError known = FactsOfFullSync();
  if (known.MustFail()) return known;
  return left.MustFail() ? left : shared;
}

KnownError CellRun::FactsOfCleanup() {
  KnownError left = {.because = kForeignJump, .busy_chain = kMarkMasq};
  if (Does(proxy_version_.version, Trait::kCleanupFails)) {
    left = {.because = kFails, .busy_chain = kPostrouting};
  }
  for (size_t family = 0; family < facts_.size(); ++family) {
    left.families[family] = !ProxyCleansUp(proxy_version_.version, facts_[family]);
  }
  return left;
}

KnownError CellRun::FactsOfSync() {
  if (!Does(proxy_version_.version, Trait::kPartialSyncs) || proxy_must_start_over_)
    return FactsOfFullSync();
  for (FamilyFacts& facts : facts_) ProxySyncsPartly(proxy_version_, services_, facts);
  return {};
}

ProxyActorSettings CellRun::SettingsOf(const ProxyVersion& version) const {
  return {.version = version,
          .iptables = {mode_, ""},
          .pod_cidr_v4 = PodCidr(IpFamily::kIpv4),
          .pod_cidr_v6 = PodCidr(IpFamily::kIpv6),
          .masquerade_bit = cell_.company == Company::kOtherBit ? 20 : 14,
          .node_ip_v4 = AddressOf(Place::kNode, IpFamily::kIpv4),
          .node_ip_v6 = AddressOf(Place::kNode, IpFamily::kIpv6),
          .service_cidr_v4 = ServiceCidr(IpFamily::kIpv4),
          .service_cidr_v6 = ServiceCidr(IpFamily::kIpv6)};
}

void CellRun::StartProxy(const ProxyVersion& version, Done done) {
  proxy_changed_mode_in_this_step_ = proxy_ != nullptr && version.mode != proxy_version_.mode;
  proxy_version_ = version;
  proxy_ = NewKubeProxy(SettingsOf(version));
  done.Take(proxy_->Start(Services(IpFamily::kIpv4), Services(IpFamily::kIpv6)), FactsOfStart());
  if (version.mode != ProxyMode::kIpvs) return;
  for (const IpFamily family : testing::kBothFamilies) {
    const testing::ProgramResult added =
        testing::RunProgram({kIpset, "-exist", "restore"}, HairpinSetElements(family));
    if (added.exit_code != 0) done.Take({.ok = false, .error = added.err}, {});
  }
}

void CellRun::SyncProxy(Done done) {
  done.Take(proxy_->Sync(Services(IpFamily::kIpv4), Services(IpFamily::kIpv6)), FactsOfSync());
}

// The agent repairs what others change, kubelet does not.
void CellRun::AgentActsByItself() {
  if (cell_.actor != Actor::kAgent || agent_ == nullptr) return;
  for (FamilyFacts& facts : facts_) AgentSyncs(kubelet_version_, facts);
}

void CellRun::AgentRetiresWhatItMay() {
  if (cell_.actor != Actor::kAgent) return;
  for (FamilyFacts& facts : facts_) AgentRetires(kubelet_version_, facts);
}

absl::Status CellRun::StartBoth(const Pair& pair, bool services) {
  services_ = services && pair.proxy.mode != ProxyMode::kIpvs;
  return Step(absl::StrCat("the node boots: kubelet ", ToString(pair.kubelet), ", kube-proxy ",
                           ToString(pair.proxy)),
              [&](Done done) {
                StartKubelet(pair.kubelet, done);
                StartProxy(pair.proxy, done);
              });
}

absl::Status CellRun::ReplaceKubelet(const KubeletVersion& version) {
  return Step(absl::StrCat("kubelet ", ToString(kubelet_version_), " becomes ", ToString(version)),
              [&](Done done) {
                done.Take(agent_->Stop());
                StartKubelet(version, done);
              });
}

absl::Status CellRun::ReplaceProxy(const ProxyVersion& version) {
  return Step(absl::StrCat("kube-proxy ", ToString(proxy_version_), " becomes ", ToString(version)),
              [&](Done done) {
                if (version.mode == ProxyMode::kNftables && proxy_version_.mode != version.mode) {
                  AuditBeforeNftables(done);
                }
                StartProxy(version, done);
              });
}

absl::Status CellRun::ServicesAppear() {
  services_ = proxy_version_.mode != ProxyMode::kIpvs;
  return Step("services appear", [&](Done done) { SyncProxy(done); });
}

absl::Status CellRun::CleanUpProxy() {
  return Step("kube-proxy ends, and its --cleanup runs", [&](Done done) {
    proxy_ = nullptr;
    done.Take(CleanUpKubeProxy(SettingsOf(proxy_version_)), FactsOfCleanup());
  });
}

absl::Status CellRun::StartProxyAgain() {
  return Step("kube-proxy starts again", [&](Done done) { StartProxy(proxy_version_, done); });
}

absl::Status CellRun::MinutePasses() {
  return Step("a minute passes", [&](Done done) {
    if (cell_.actor == Actor::kKubelet && kubelet_canary_gone_) {
      for (FamilyFacts& facts : facts_) KubeletSyncs(kubelet_version_, facts);
      kubelet_canary_gone_ = false;
    }
    AgentRetiresWhatItMay();
    done.Take(agent_->Tick());
    if (proxy_ == nullptr) return;
    done.Take(proxy_->Tick(), proxy_must_start_over_ ? FactsOfFullSync() : KnownError{});
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
    done.Take(Flush({mode_, ""}));
  });
}

absl::Status CellRun::MoveToNft() {
  return Step("all components move to nft", [&](Done done) {
    done.Take(agent_->Stop());
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
        "kubelet's chain that it names does not exist, so iptables refuses it";
    KnownError no_drop = {.because = kMissing, .missing_chain = "KUBE-MARK-DROP"};
    KnownError no_masq = {.because = kMissing, .missing_chain = "KUBE-MARK-MASQ"};
    for (size_t family = 0; family < facts_.size(); ++family) {
      const UsersAdded now = UsersAdd(facts_[family]);
      JudgePrediction(facts_[family], now.masq, done);
      no_drop.families[family] = !now.drop;
      no_masq.families[family] = !now.masq;
    }
    const IptablesChoice iptables = {mode_, ""};
    done.Take(AddUserOfMarkDrop(iptables, kUserDropPort), no_drop);
    done.Take(AddUserOfMarkMasq(iptables, kUserMasqPort), no_masq);
    done.Take(WriteCniConfig(kCniConfDir));
  });
}

}  // namespace kipt::skew
