// SPDX-License-Identifier: Apache-2.0
#include "agent/node/node.h"

#include <type_traits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "agent/detect/host_files.h"
#include "agent/detect/mode_evidence.h"
#include "agent/detect/routing.h"
#include "agent/loop/clock.h"
#include "agent/loop/plan.h"

namespace kipt::agent {
namespace {

// What `work` returns, or why it could not be done.
template <typename Work>
std::invoke_result_t<Work> VisitAndReturn(const VisitedNamespace& visited, const Work& work) {
  std::invoke_result_t<Work> result = absl::UnknownError("");
  absl::Status status = visited.Visit([&] { result = work(); });
  if (!status.ok()) return status;
  return result;
}

class VisitingMonitor : public netlink::Monitor {
 public:
  VisitingMonitor(std::unique_ptr<netlink::Monitor> inner, const VisitedNamespace& visited)
      : inner_(std::move(inner)), visited_(visited) {}

  int fd() const override { return inner_->fd(); }
  absl::StatusOr<netlink::RulesetChanges> Drain() override {
    return VisitAndReturn(visited_, [&] { return inner_->Drain(); });
  }

 private:
  std::unique_ptr<netlink::Monitor> inner_;
  const VisitedNamespace& visited_;
};

// `inner`, called inside the namespace only, whichever namespace its caller is in: for
// iptables-legacy, whose programs run where the thread is that starts them. (nf_tables needs none
// of it: its sockets stay where they were made.)
class VisitingBackend : public netlink::Backend {
 public:
  VisitingBackend(std::unique_ptr<netlink::Backend> inner, const VisitedNamespace& visited)
      : inner_(std::move(inner)), visited_(visited) {}

  netlink::BackendKind kind() const override { return inner_->kind(); }
  bool spans_families() const override { return inner_->spans_families(); }
  std::string caveat() const override { return inner_->caveat(); }

  absl::StatusOr<netlink::Snapshot> Read(absl::Span<const netlink::ChainQuery> queries) override {
    return VisitAndReturn(visited_, [&] { return inner_->Read(queries); });
  }
  absl::StatusOr<netlink::Survey> TakeSurvey(const netlink::SurveyFilter& keep) override {
    return VisitAndReturn(visited_, [&] { return inner_->TakeSurvey(keep); });
  }
  absl::StatusOr<netlink::NativeReading> ReadNativeTable(
      const netlink::NativeTable& table) override {
    return VisitAndReturn(visited_, [&] { return inner_->ReadNativeTable(table); });
  }
  absl::Status Apply(const netlink::Transaction& transaction) override {
    return VisitAndReturn(visited_, [&] { return inner_->Apply(transaction); });
  }
  absl::StatusOr<std::unique_ptr<netlink::Monitor>> Watch(netlink::WatchMode mode) override {
    auto monitor = VisitAndReturn(visited_, [&] { return inner_->Watch(mode); });
    if (!monitor.ok()) return monitor.status();
    return std::make_unique<VisitingMonitor>(*std::move(monitor), visited_);
  }

 private:
  std::unique_ptr<netlink::Backend> inner_;
  const VisitedNamespace& visited_;
};

}  // namespace

PolicyInput InputOf(const Config& config) {
  return {.mode = config.mode,
          .families = config.families,
          .bits = config.bits,
          .labels = LabelsFor(config.gates, config.mode, config.labels),
          .hint = config.hint_policy};
}

std::vector<std::string> RouteLocalnetOrNone() {
  return ReadRouteLocalnet().value_or(std::vector<std::string>());
}

Node::Node(Config config, IptablesLegacyOptions legacy, std::optional<VisitedNamespace> visited)
    : config_(std::move(config)),
      runner_(NewCommandRunner()),
      visited_(std::move(visited)),
      sources_(SystemModeSources(config_.host_root, runner_.get(), std::move(legacy))) {}

Node::Node(Config config, ModeSources sources)
    : config_(std::move(config)), sources_(std::move(sources)) {}

std::shared_ptr<SupportSource> Node::MakeSupport() {
  return std::make_shared<SupportSource>(
      [this] {
        XtCompatReading reading = sources_.xt_compat(symbols_);
        if (one_attempt_ && reading.compat == XtCompat::kPresent) {
          reading.compat = XtCompat::kUnknown;
        }
        return reading;
      },
      [this] { return sources_.conn_label_match(symbols_); });
}

absl::Status Node::Inside(absl::FunctionRef<void()> work) const {
  if (visited_) return visited_->Visit(work);
  work();
  return absl::OkStatus();
}

netlink::BackendKind Node::KindInUse() const {
  const std::optional<IptablesMode> known = mode_ ? mode_ : config_.iptables_mode;
  return known ? BackendKindOf(*known).value_or(netlink::BackendKind::kNft)
               : netlink::BackendKind::kNft;
}

bool Node::Retires() const {
  return config_.stale_chains == StaleChains::kRetire && config_.mode != Mode::kOff;
}

// No interface is known where the namespace cannot be entered any more.
std::vector<std::string> Node::RouteLocalnet() const {
  std::vector<std::string> interfaces;
  Inside([&] { interfaces = RouteLocalnetOrNone(); }).IgnoreError();
  return interfaces;
}

void Node::SetConfig(Config config) {
  config_ = std::move(config);
  support_->LookAnew();
}

BackendOrError Node::Open(bool read_only) {
  BackendOrError backend;
  const absl::Status status = Inside([&] {
    backend = ChooseBackend({.flag = mode_ ? mode_ : config_.iptables_mode,
                             .families = config_.families,
                             .off = config_.mode == Mode::kOff,
                             .read_only = read_only},
                            sources_);
  });
  if (!status.ok()) return status;
  if (!backend.ok()) return backend;
  const bool legacy = (*backend)->kind() == netlink::BackendKind::kIptablesLegacy;
  mode_ = legacy ? IptablesMode::kLegacy : IptablesMode::kNft;
  if (legacy && visited_) {
    return std::make_unique<VisitingBackend>(*std::move(backend), *visited_);
  }
  return backend;
}

std::optional<std::string> Node::ModeChange() const {
  if (config_.iptables_mode || config_.mode == Mode::kOff || !mode_) return std::nullopt;
  std::vector<FamilyMode> modes;
  const absl::Status status = Inside([&] {
    modes = DetectModes(config_.families, std::nullopt, sources_, Thoroughness::kUntilDecided);
  });
  if (!status.ok()) return std::nullopt;
  const absl::StatusOr<IptablesMode> now = ChooseMode(modes);
  if (!now.ok()) return std::nullopt;
  if (*now == *mode_) return "";
  for (const FamilyMode& mode : modes) {
    if (mode.mode != *now) return "";
  }
  return absl::StrCat("the node's iptables is now ", IptablesModeName(*now), ", not ",
                      IptablesModeName(*mode_));
}

RetirementSources Node::Dependents(netlink::BackendKind other) {
  return {.cni = [this] { return ReadNodeCniConfigs(sources_.host_root, config_.cni_conf_dirs); },
          .route_localnet = [this] { return RouteLocalnet(); },
          .other_mode =
              [this, other](DependentsCollector& collector) {
                const absl::Status status = Inside([&] { Survey(other, collector); });
                if (status.ok()) return;
                collector.OtherModeUnreadable(
                    absl::StrCat("rules of the other iptables mode: ", status.message()));
              }};
}

void Node::Survey(netlink::BackendKind kind, DependentsCollector& collector) const {
  const absl::Status status =
      VisitMode(kind, netlink::kFamilies, sources_, [&](netlink::Backend& backend) {
        // A rule that is seen twice, or is gone by the second time, adds no claim that matters.
        return RetryAborted(SteadyClock(),
                            [&] { return backend.TakeSurvey(collector.OtherMode()).status(); });
      });
  if (status.ok()) return;
  collector.OtherModeUnreadable(absl::StrCat("rules of iptables ", netlink::BackendKindName(kind),
                                             ", which cannot be read: ", status.message()));
}

NodeQuestions Node::Questions(Errand errand) {
  one_attempt_ = errand == Errand::kSync;
  symbols_ = one_attempt_ ? KernelSymbols::kSkip : KernelSymbols::kRead;
  NodeQuestions node = {.support = support_};
  if (errand != Errand::kRetire && !Retires()) return node;
  node.retire = Dependents(OtherThan(KindInUse()));
  node.retire_other = [this](bool martians_dropped, bool apply) {
    return RetireOther(martians_dropped, apply);
  };
  return node;
}

AgentOptions Node::MakeAgentOptions() {
  symbols_ = config_.observe ? KernelSymbols::kRead : KernelSymbols::kSkip;
  AgentOptions options = {.input = InputOf(config_),
                          .support = support_.get(),
                          .emulated_version = config_.emulated_version,
                          .watch = config_.watch,
                          .observe = config_.observe,
                          .sync_period = config_.iptables_sync_period,
                          .writers = {},
                          .retire = {},
                          .route_localnet = [this] { return RouteLocalnet(); }};
  // What was missing may not be needed any more.
  if (mode_ && !support_->known().all()) {
    support_->LookOnce(KindInUse(), options.input.labels.has_value());
  }
  if (mode_ && Retires() && !config_.observe) {
    options.retire = Dependents(OtherThan(KindInUse()));
  }
  return options;
}

OtherMode Node::ReadOther() const { return ReadOtherMode(KindInUse(), config_.families, sources_); }

absl::StatusOr<std::optional<RetireReport>> Node::RetireOtherFirst(netlink::Backend& backend) {
  if (!Retires() || config_.observe) return std::nullopt;
  const SyncReport synced =
      Reconciler(&backend, SteadyClock(), support_.get()).Sync(InputOf(config_));
  // The first round's finding reports it.
  support_->TakeNews();
  if (!synced.FirstError().ok()) return synced.FirstError();
  std::optional<RetireReport> other;
  const bool protects = MartianProtectionStands(synced.plan.martians, synced.applied);
  absl::Status entered = Inside([&] { other = RetireOther(protects, /*apply=*/true); });
  if (!entered.ok()) return entered;
  return other;
}

std::optional<RetireReport> Node::RetireOther(bool martians_dropped, bool apply) {
  const netlink::BackendKind in_use = KindInUse();
  const netlink::BackendKind other = OtherThan(in_use);
  RetireRequest request = {.input = {.mode = Mode::kOff, .families = config_.families},
                           .sources = Dependents(in_use),
                           .options = {.canaries = true, .when_off = true, .hints = true},
                           .apply = apply};
  if (martians_dropped) request.sources.route_localnet = [] { return std::vector<std::string>(); };
  std::optional<RetireReport> report;
  const absl::Status status =
      VisitMode(other, config_.families, sources_, [&](netlink::Backend& backend) {
        report = Retire(backend, SteadyClock(), request);
        return absl::OkStatus();
      });
  if (!status.ok()) {
    return RetireReport{.iptables_mode = std::string(netlink::BackendKindName(other)),
                        .status = status};
  }
  return report;
}

}  // namespace kipt::agent
