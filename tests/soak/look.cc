// SPDX-License-Identifier: Apache-2.0
#include "tests/soak/look.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/inotify.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "agent/process/files.h"
#include "tests/support/generation_listener.h"

namespace kipt::soak {
namespace {

constexpr char kLock[] = "/run/xtables.lock";
// Reading iptables-legacy rules takes two programs.
constexpr absl::Duration kBetweenLegacyLooks = absl::Milliseconds(20);
constexpr absl::Duration kLongestWait = absl::Milliseconds(500);

class NftLooker : public Looker {
 public:
  NftLooker(std::unique_ptr<NftRuleReader> reader,
            std::unique_ptr<testing::GenerationListener> listener)
      : reader_(std::move(reader)), listener_(std::move(listener)) {}

  void Wait(absl::Duration patience) override {
    pollfd waiting = {listener_->fd(), POLLIN, 0};
    poll(&waiting, 1, static_cast<int>(absl::ToInt64Milliseconds(patience)));
    // Lost events mean the same: something has changed.
    listener_->Drain().IgnoreError();
  }
  absl::StatusOr<SeenChains> Look() override { return reader_->Read(); }

 private:
  const std::unique_ptr<NftRuleReader> reader_;
  const std::unique_ptr<testing::GenerationListener> listener_;
};

class LegacyLooker : public Looker {
 public:
  LegacyLooker(const Node& node, agent::OwnedFd events) : node_(node), events_(std::move(events)) {}

  void Wait(absl::Duration patience) override {
    absl::SleepFor(last_ + kBetweenLegacyLooks - absl::Now());
    pollfd waiting = {events_.get(), POLLIN, 0};
    poll(&waiting, 1, static_cast<int>(absl::ToInt64Milliseconds(patience)));
    std::array<char, 4096> buffer = {};
    while (read(events_.get(), buffer.data(), buffer.size()) > 0) continue;
    last_ = absl::Now();
  }
  absl::StatusOr<SeenChains> Look() override {
    const testing::InNetns inside(node_.netns());
    SeenChains chains;
    for (const testing::IpFamily family : testing::kBothFamilies) {
      const testing::ProgramResult saved = node_.Of(family).Save();
      // A program that replaces a table in the meantime makes the read fail.
      if (saved.exit_code != 0) return absl::AbortedError(saved.err);
      AddSavedRules(saved.out, family, chains);
    }
    return chains;
  }

 private:
  const Node& node_;
  const agent::OwnedFd events_;
  absl::Time last_ = absl::InfinitePast();
};

}  // namespace

absl::StatusOr<std::unique_ptr<Looker>> Looker::Create(const Node& node) {
  const testing::InNetns inside(node.netns());
  if (!node.nft()) {
    // Whoever comes first makes it.
    const agent::OwnedFd lock(open(kLock, O_RDONLY | O_CREAT | O_CLOEXEC, 0600));
    agent::OwnedFd events(inotify_init1(IN_NONBLOCK | IN_CLOEXEC));
    if (!lock.valid() || !events.valid() || inotify_add_watch(events.get(), kLock, IN_CLOSE) < 0) {
      return absl::ErrnoToStatus(errno, absl::StrCat("watching ", kLock));
    }
    return std::make_unique<LegacyLooker>(node, std::move(events));
  }
  absl::StatusOr<std::unique_ptr<NftRuleReader>> reader = NftRuleReader::Create();
  if (!reader.ok()) return reader.status();
  absl::StatusOr<std::unique_ptr<testing::GenerationListener>> listener =
      testing::GenerationListener::Create();
  if (!listener.ok()) return listener.status();
  return std::make_unique<NftLooker>(*std::move(reader), *std::move(listener));
}

void Watch(Node& node, Looker& looker) {
  bool all = false;
  while (!node.ended) {
    looker.Wait(all ? kLongestWait : absl::Milliseconds(10));
    const absl::Time begun = absl::Now();
    const absl::StatusOr<SeenChains> chains = looker.Look();
    all = false;
    if (absl::IsAborted(chains.status())) continue;
    if (!chains.ok()) {
      node.journal.Violate(node.name(), "harness", std::string(chains.status().message()),
                           "that the rules can be read");
      continue;
    }
    const Sight sight = SightOf(*chains);
    node.windows.See(sight, {begun, absl::Now()});
    all = sight.IsWhole();
  }
}

}  // namespace kipt::soak
