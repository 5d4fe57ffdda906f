// SPDX-License-Identifier: Apache-2.0
#include "agent/node/node.h"

#include <type_traits>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "agent/detect/device_marks.h"
#include "agent/detect/host_files.h"
#include "agent/detect/routing.h"
#include "agent/loop/reconciler.h"

namespace kipt::agent {
namespace {

using Visited = std::optional<VisitedNamespace>;

// What `work`, a Status or StatusOr, returns in the namespace, or why it was not done.
template <typename Work>
std::invoke_result_t<Work> Inside(const Visited& visited, const Work& work) {
  if (!visited) return work();
  std::invoke_result_t<Work> result = absl::UnknownError("");
  absl::Status status = visited->Visit([&] { result = work(); });
  if (!status.ok()) return status;
  return result;
}

class VisitingMonitor : public netlink::Monitor {
 public:
  VisitingMonitor(std::unique_ptr<netlink::Monitor> inner, const Visited& visited)
      : inner_(std::move(inner)), visited_(visited) {}

  int fd() const override { return inner_->fd(); }
  absl::StatusOr<netlink::RulesetChanges> Drain() override {
    return Inside(visited_, [&] { return inner_->Drain(); });
  }

 private:
  std::unique_ptr<netlink::Monitor> inner_;
  const Visited& visited_;
};

// Calls `inner` inside the namespace: for iptables-legacy, whose programs run in the namespace of
// the thread that starts them. (The sockets of nf_tables stay in that in which they were created.)
class VisitingBackend : public netlink::Backend {
 public:
  VisitingBackend(std::unique_ptr<netlink::Backend> inner, const Visited& visited)
      : inner_(std::move(inner)), visited_(visited) {}

  netlink::BackendKind kind() const override { return inner_->kind(); }
  bool spans_families() const override { return inner_->spans_families(); }
  std::string caveat() override { return inner_->caveat(); }

  absl::StatusOr<netlink::Snapshot> Read(absl::Span<const netlink::ChainQuery> queries,
                                         const netlink::NativeTable* native) override {
    return Inside(visited_, [&] { return inner_->Read(queries, native); });
  }
  absl::StatusOr<netlink::Survey> TakeSurvey(const netlink::SurveyFilter& keep) override {
    return Inside(visited_, [&] { return inner_->TakeSurvey(keep); });
  }
  absl::StatusOr<netlink::Survey> SiftSurvey(netlink::SurveySieve& sieve) override {
    return Inside(visited_, [&] { return inner_->SiftSurvey(sieve); });
  }
  absl::Status Apply(const netlink::Transaction& transaction) override {
    return Inside(visited_, [&] { return inner_->Apply(transaction); });
  }
  absl::StatusOr<std::unique_ptr<netlink::Monitor>> Watch(netlink::WatchMode mode) override {
    auto monitor = Inside(visited_, [&] { return inner_->Watch(mode); });
    if (!monitor.ok()) return monitor.status();
    return std::make_unique<VisitingMonitor>(*std::move(monitor), visited_);
  }

 private:
  std::unique_ptr<netlink::Backend> inner_;
  const Visited& visited_;
};

}  // namespace

Node::Node(Config config, IptablesLegacyOptions legacy, std::optional<VisitedNamespace> visited,
           absl::Duration patience)
    : config_(std::move(config)),
      runner_(NewCommandRunner()),
      visited_(std::move(visited)),
      sources_(SystemModeSources(config_.host_root, runner_.get(), std::move(legacy))),
      clock_(SteadyClock(patience)) {}

Node::Node(Config config, ModeSources sources, absl::Duration patience)
    : config_(std::move(config)), sources_(std::move(sources)), clock_(SteadyClock(patience)) {}

absl::Status Node::InNamespace(absl::FunctionRef<void()> work) const {
  if (visited_) return visited_->Visit(work);
  work();
  return absl::OkStatus();
}

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

netlink::BackendKind Node::KindInUse() const {
  return (mode_ ? mode_ : config_.iptables_mode) == IptablesMode::kLegacy
             ? netlink::BackendKind::kIptablesLegacy
             : netlink::BackendKind::kNft;
}

bool Node::Retires() const {
  return config_.stale_chains == StaleChains::kRetire && config_.mode != Mode::kOff;
}

CniConfigs Node::ReadCniConfigs() const {
  return ReadNodeCniConfigs(sources_.host_root, config_.cni_conf_dirs);
}

RouteLocalnet Node::ReadRouteLocalnet() const {
  using Setting = absl::StatusOr<RouteLocalnet>;
  const Setting setting = Inside(visited_, [] { return Setting(agent::ReadRouteLocalnet()); });
  return setting.ok() ? *setting : RouteLocalnet{.unread = std::string(setting.status().message())};
}

std::string Node::WhoDropsMartians() const {
  return Inside(visited_,
                [&] { return absl::StatusOr<std::string>(ReadWhoDropsMartians(sources_)); })
      .value_or("");
}

PolicyInput Node::Input() const {
  return {.mode = config_.mode,
          .families = config_.families,
          .bits = config_.bits,
          .labels = LabelsFor(config_.gates, config_.mode, config_.labels),
          .hint = config_.hint_policy};
}

void Node::SetConfig(Config config) {
  config_ = std::move(config);
  support_->ReadAgain();
}

BackendOrError Node::Open(bool read_only, Purpose purpose) {
  BackendOrError backend = Inside(visited_, [&] {
    return ChooseBackend({.flag = mode_ ? mode_ : config_.iptables_mode,
                          .families = config_.families,
                          .off = config_.mode == Mode::kOff && purpose != Purpose::kRetire,
                          .read_only = read_only},
                         sources_);
  });
  if (!backend.ok()) return backend;
  const bool legacy = (*backend)->kind() == netlink::BackendKind::kIptablesLegacy;
  mode_ = legacy ? IptablesMode::kLegacy : IptablesMode::kNft;
  if (legacy && visited_) {
    return std::make_unique<VisitingBackend>(*std::move(backend), visited_);
  }
  return backend;
}

absl::StatusOr<std::string> Node::ModeChange() const {
  if (config_.iptables_mode || config_.mode == Mode::kOff || !mode_) return "";
  std::vector<FamilyMode> modes;
  const absl::StatusOr<IptablesMode> now = Inside(visited_, [&] {
    modes = DetectModes(config_.families, std::nullopt, sources_, Thoroughness::kAgain);
    return ChooseMode(modes);
  });
  const auto contradicts = [](const FamilyMode& mode) { return mode.contradiction; };
  if (!now.ok() && absl::c_none_of(modes, contradicts)) return absl::UnknownError("");
  if (!now.ok()) return now.status();
  const auto agrees = [&](const FamilyMode& mode) { return mode.mode == *now; };
  if (*now == *mode_ || !absl::c_all_of(modes, agrees)) return "";
  return absl::StrCat("the node's iptables is now ", IptablesModeName(*now), ", not ",
                      IptablesModeName(*mode_));
}

absl::Status Node::ConfirmMode(const Config& next) const {
  const bool begins = (config_.mode == Mode::kOff && next.mode != Mode::kOff) ||
                      (config_.observe && !next.observe) ||
                      absl::c_any_of(next.families, [&](netlink::Family family) {
                        return !absl::c_linear_search(config_.families, family);
                      });
  if (!begins || next.iptables_mode || !mode_) return absl::OkStatus();
  const absl::StatusOr<IptablesMode> now = Inside(visited_, [&] {
    return ChooseMode(
        DetectModes(next.families, std::nullopt, sources_, Thoroughness::kUntilDecided));
  });
  if (now.ok() && *now == *mode_) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat(
      "the new configuration writes more, so a start must decide the iptables mode again: it was ",
      IptablesModeName(*mode_), ", and now ",
      now.ok() ? absl::StrCat("is ", IptablesModeName(*now)) : now.status().message()));
}

RetirementSources Node::Dependents(netlink::BackendKind other) {
  const auto survey = [this, other](DependentsCollector& collector) {
    return VisitMode(other, netlink::kFamilies, sources_, [&](netlink::Backend& backend) {
      // A rule that is read twice, or is removed before the second read, adds no claim that
      // matters.
      return RetryAborted(clock_, [&] {
        const absl::StatusOr<netlink::Survey> read = backend.TakeSurvey(collector.OtherMode());
        if (read.ok()) collector.NoteOtherMode(*read);
        return read.status();
      });
    });
  };
  return {.cni = [this] { return ReadCniConfigs(); },
          .route_localnet = [this] { return ReadRouteLocalnet(); },
          .other_mode =
              [this, survey, other](DependentsCollector& collector) {
                const absl::Status status = Inside(visited_, [&] { return survey(collector); });
                if (status.ok()) return;
                collector.OtherModeUnreadable(
                    absl::StrCat("rules of iptables ", netlink::BackendKindName(other),
                                 ", which cannot be read: ", status.message()));
              },
          .without_rules =
              [this] {
                using Markings = absl::StatusOr<std::vector<Marking>>;
                Markings read =
                    Inside(visited_, [] { return Markings(ReadMarkingsWithoutRules()); });
                if (read.ok()) return *std::move(read);
                return MarkingsOf({.problems = {std::string(read.status().message())}}, {});
              }};
}

NodeQuestions Node::Questions(Purpose purpose) {
  one_attempt_ = purpose == Purpose::kSync;
  symbols_ = one_attempt_ ? KernelSymbols::kSkip : KernelSymbols::kRead;
  NodeQuestions node = {.support = support_,
                        .who_drops_martians = [this] { return WhoDropsMartians(); }};
  if (purpose != Purpose::kRetire && !Retires()) return node;
  node.retire = Dependents(OtherThan(KindInUse()));
  node.retire_other = [this](bool martians_dropped, bool apply) {
    return RetireOther(martians_dropped, apply);
  };
  return node;
}

ControlLoopOptions Node::MakeLoopOptions() {
  symbols_ = config_.observe ? KernelSymbols::kRead : KernelSymbols::kSkip;
  ControlLoopOptions options = {.input = Input(),
                                .support = support_.get(),
                                .emulated_version = config_.emulated_version,
                                .watch = config_.watch,
                                .observe = config_.observe,
                                .sync_period = config_.iptables_sync_period,
                                .writers = {},
                                .retire = {},
                                .route_localnet = [this] { return ReadRouteLocalnet(); },
                                .who_drops_martians = [this] { return WhoDropsMartians(); },
                                .foreign_rules = {},
                                .patience = clock_.patience};
  if (config_.foreign_rules == ForeignRulesPolicy::kReport ||
      (config_.foreign_rules == ForeignRulesPolicy::kAuto && mode_ == IptablesMode::kNft)) {
    options.foreign_rules = config_.expected_rules;
  }
  // What was missing might no longer be needed.
  if (mode_ && !support_->known().all()) {
    support_->ReadOnce(KindInUse(), options.input.labels.has_value());
  }
  if (mode_ && Retires() && !config_.observe) {
    options.retire = Dependents(OtherThan(KindInUse()));
  }
  return options;
}

OtherMode Node::ReadOther() const { return ReadOtherMode(KindInUse(), config_.families, sources_); }

absl::StatusOr<std::optional<RetireReport>> Node::RetireOtherFirst(netlink::Backend& backend) {
  if (!Retires() || config_.observe) return std::nullopt;
  const SyncReport synced = Reconciler(&backend, clock_, support_.get()).Sync(Input());
  // A finding of the first round reports it.
  support_->TakeNews();
  if (!synced.FirstError().ok()) return synced.FirstError();
  const bool protects = MartianProtectionExists(synced.plan.martians, synced.applied);
  return Inside(visited_, [&]() -> absl::StatusOr<std::optional<RetireReport>> {
    return RetireOther(protects, /*apply=*/true);
  });
}

std::optional<RetireReport> Node::RetireOther(bool martians_dropped, bool apply) {
  const netlink::BackendKind in_use = KindInUse();
  const netlink::BackendKind other = OtherThan(in_use);
  RetireRequest request = {.input = {.mode = Mode::kOff, .families = config_.families},
                           .sources = Dependents(in_use),
                           .options = {.canaries = true, .when_off = true, .hints = true},
                           .apply = apply};
  // What is removed here may be all that drops them, so the managed mode must drop each one.
  if (martians_dropped) {
    request.sources.route_localnet = [this, in_use] {
      return ReadWhoDropsMartians(sources_, {in_use}).empty() ? ReadRouteLocalnet()
                                                              : RouteLocalnet();
    };
  }
  std::optional<RetireReport> report;
  const absl::Status status =
      VisitMode(other, config_.families, sources_, [&](netlink::Backend& backend) {
        report = Retire(backend, clock_, request);
        return absl::OkStatus();
      });
  if (status.ok()) return report;
  return RetireReport{.iptables_mode = std::string(netlink::BackendKindName(other)),
                      .status = status};
}

absl::StatusOr<Config> ResolveConfigIn(const std::string& netns, const Flags& flags) {
  absl::StatusOr<VisitedNamespace> visited = VisitedNamespace::Open(netns);
  if (!visited.ok()) return visited.status();
  return Inside(Visited(*std::move(visited)), [&] { return ResolveConfig(flags); });
}

}  // namespace kipt::agent
