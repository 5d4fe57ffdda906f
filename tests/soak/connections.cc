// SPDX-License-Identifier: Apache-2.0
//
// TCP: a connection every 50 ms of each kind and family, from the client outside.
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <deque>
#include <string>
#include <utility>
#include <vector>

#include "absl/time/clock.h"
#include "agent/process/files.h"
#include "tests/skew/probes/sockets.h"
#include "tests/soak/traffic.h"

namespace kipt::soak {
namespace {

using agent::OwnedFd;
using skew::Place;
using skew::SocketAddress;
using testing::InNetns;
using testing::IpFamily;

// Before the kernel sends its SYN again, which would meet other rules.
constexpr absl::Duration kGivenUpAfter = absl::Milliseconds(700);
constexpr int kBacklog = 128;

struct Attempt {
  OwnedFd fd;
  absl::Time at;
};

class Connections {
 public:
  Connections(Node& node, TrafficJudge& judge, Guard guard, IpFamily family)
      : node_(node),
        judge_(judge),
        guard_(guard),
        family_(family),
        masqueraded_(guard == kMasq4 || guard == kMasq6),
        listener_(Listen()) {}

  bool listens() const { return listener_.valid(); }

  void Turn() {
    Connect();
    Accept();
    while (!attempts_.empty() && attempts_.front().at < absl::Now() - kGivenUpAfter) {
      const Attempt& attempt = attempts_.front();
      if (masqueraded_) {
        const bool came = IsConnected(attempt.fd);
        // Its SYN meets the rules of that moment alone.
        judge_.Note(kTcp, guard_,
                    {attempt.at - kBetweenConnections, attempt.at + kBetweenConnections},
                    {.sent = 1, .right = came ? 1 : 0, .lost = came ? 0 : 1});
      }
      // Packets of a connection that is given up say so at once: nothing of it lingers.
      attempts_.pop_front();
    }
  }

 private:
  // Also where the other end, which closes at once, has closed.
  static bool IsConnected(const OwnedFd& fd) {
    tcp_info info = {};
    socklen_t size = sizeof(info);
    return getsockopt(fd.get(), SOL_TCP, TCP_INFO, &info, &size) == 0 &&
           info.tcpi_state != TCP_SYN_SENT && info.tcpi_state != TCP_CLOSE;
  }

  OwnedFd Listen() const {
    const InNetns inside(node_.place().At(masqueraded_ ? Place::kPodA : Place::kNode));
    OwnedFd fd(socket(skew::DomainOf(family_), SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    const int on = 1;
    if (family_ == IpFamily::kIpv6) {
      setsockopt(fd.get(), SOL_IPV6, IPV6_V6ONLY, &on, sizeof(on));
    }
    const SocketAddress any = skew::AnyAddress(family_, masqueraded_ ? kMasqPort : kDropPort);
    if (bind(fd.get(), any.get(), any.size) != 0 || listen(fd.get(), kBacklog) != 0) {
      return OwnedFd();
    }
    return fd;
  }

  void Connect() {
    const Place to = masqueraded_ ? Place::kPodA : Place::kNode;
    const auto address =
        skew::AddressAt(family_, AddressOf(to, family_), masqueraded_ ? kMasqPort : kDropPort);
    const InNetns inside(node_.place().At(Place::kRefusedClient));
    OwnedFd fd(socket(skew::DomainOf(family_), SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    const linger at_once = {.l_onoff = 1, .l_linger = 0};
    setsockopt(fd.get(), SOL_SOCKET, SO_LINGER, &at_once, sizeof(at_once));
    if (connect(fd.get(), address->get(), address->size) != 0 && errno != EINPROGRESS) return;
    const absl::Time now = absl::Now();
    attempts_.push_back({std::move(fd), now});
    // Of what must come it is known when it is given up.
    if (!masqueraded_)
      judge_.Note(kTcp, guard_, {now - kBetweenConnections, now}, {.sent = 1, .right = 1});
  }

  void Accept() {
    for (;;) {
      SocketAddress peer;
      const OwnedFd fd(accept4(listener_.get(), peer.get(), &peer.size, SOCK_CLOEXEC));
      if (!fd.valid()) break;
      const std::vector<std::string>& node = node_.place().NodeAddresses(family_);
      const bool by_node = std::find(node.begin(), node.end(), peer.Text()) != node.end();
      if (masqueraded_ && by_node) continue;
      judge_.Note(kTcp, guard_, {accepted_, absl::Now()}, {.right = -1, .wrong = 1});
    }
    accepted_ = absl::Now();
  }

  Node& node_;
  TrafficJudge& judge_;
  const Guard guard_;
  const IpFamily family_;
  const bool masqueraded_;
  const OwnedFd listener_;
  std::deque<Attempt> attempts_;
  // Whoever comes now was let in since then.
  absl::Time accepted_ = absl::Now();
};

}  // namespace

void MakeConnections(Node& node, TrafficJudge& judge) {
  std::deque<Connections> all;
  all.emplace_back(node, judge, kMasq4, IpFamily::kIpv4);
  all.emplace_back(node, judge, kMasq6, IpFamily::kIpv6);
  all.emplace_back(node, judge, kDrop4, IpFamily::kIpv4);
  all.emplace_back(node, judge, kDrop6, IpFamily::kIpv6);
  for (const Connections& one : all) {
    if (one.listens()) continue;
    node.journal.Violate(node.name(), "harness", "a port cannot be listened at", "it can");
    return;
  }
  while (!node.ended) {
    const absl::Time next = absl::Now() + kBetweenConnections;
    for (Connections& one : all) one.Turn();
    absl::SleepFor(next - absl::Now());
  }
}

}  // namespace kipt::soak
