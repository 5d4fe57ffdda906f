// SPDX-License-Identifier: Apache-2.0
#include "tests/skew/probes/stream.h"

#include <sys/epoll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <map>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "agent/process/files.h"
#include "tests/skew/probes/callers.h"
#include "tests/skew/probes/packets.h"

namespace kipt::skew {
namespace {

using agent::OwnedFd;
using testing::InNetns;
using testing::IpFamily;

constexpr absl::Duration kBetweenBursts = absl::Milliseconds(4);
// What could not be sent in time is not made up for beyond this: queues of a thousand packets
// (net.core.netdev_max_backlog) would run over, which no rule is to blame for.
constexpr uint64_t kLargestBurst = 64;

// Beyond node ports. One comes again after a minute, when the node has forgotten its connection.
constexpr uint64_t kFirstPort = 33000;
constexpr uint64_t kPorts = 27000;

constexpr int kReceiveBuffer = 4 << 20;

struct Stream {
  Probe probe;
  FrameSender sender;
  FrameEnds ends;
  // Not those of earlier streams on this node: their connections are still known there.
  uint64_t port_offset = FreshNumber() % kPorts;
  // The next packet's: of the thread alone, which is why `fates` is not asked.
  uint64_t number = 0;
  // Guarded by the mutex.
  StreamFates fates = {};
};

struct Late {
  absl::Duration longest;
  absl::Duration sum;
};

uint64_t Milliseconds(absl::Duration duration) {
  return static_cast<uint64_t>(absl::ToInt64Milliseconds(duration));
}

struct Receiver {
  Place place;
  OwnedFd fd;
};

absl::StatusOr<Stream> MakeStream(const TestNode& node, const Probe& probe) {
  const bool martian = probe.kind == ProbeKind::kMartian;
  if (probe.protocol != Protocol::kUdp || (martian && probe.family != IpFamily::kIpv4)) {
    return absl::InvalidArgumentError(
        absl::StrCat(probe.name, ": streams are of UDP, martian ones of IPv4"));
  }
  absl::StatusOr<FrameSender> sender =
      martian ? FrameSender::OnWire(node, probe.from)
              : FrameSender::Routed(node, probe.from, probe.family, probe.address);
  if (!sender.ok()) return sender.status();
  const FrameEnds ends = {probe.family, AddressOf(probe.from, probe.family), probe.address, 0,
                          static_cast<uint16_t>(probe.port)};
  return Stream{.probe = probe, .sender = *std::move(sender), .ends = ends};
}

class RealStreams : public Streams {
 public:
  RealStreams(const TestNode& node, PacketBarrier barrier, int per_second)
      : node_(node), barrier_(std::move(barrier)), per_second_(per_second) {}

  ~RealStreams() override {
    stopped_ = true;
    if (thread_.joinable()) thread_.join();
  }

  absl::Status Open(const std::vector<Probe>& probes, const std::vector<ListenerPorts>& listeners) {
    if (!epoll_.valid()) return absl::ErrnoToStatus(errno, "epoll_create1");
    for (const Probe& probe : probes) {
      absl::StatusOr<Stream> stream = MakeStream(node_, probe);
      if (!stream.ok()) return stream.status();
      streams_.push_back(*std::move(stream));
    }
    for (const ListenerPorts& ports : listeners) {
      const InNetns inside(node_.At(ports.place));
      for (const int port : ports.ports) {
        for (const IpFamily family : {IpFamily::kIpv4, IpFamily::kIpv6}) {
          absl::StatusOr<OwnedFd> fd = BoundSocket(family, SOCK_DGRAM, port);
          if (!fd.ok()) return fd.status();
          if (setsockopt(fd->get(), SOL_SOCKET, SO_RCVBUFFORCE, &kReceiveBuffer,
                         sizeof(kReceiveBuffer)) != 0) {
            return absl::ErrnoToStatus(errno, "SO_RCVBUFFORCE");
          }
          if (absl::Status status = Receive(ports.place, *std::move(fd)); !status.ok()) {
            return status;
          }
        }
      }
    }
    thread_ = std::thread([this] { Run(); });
    return absl::OkStatus();
  }

  std::vector<StreamCount> Take() override {
    std::vector<uint64_t> ends;
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      for (const Stream& stream : streams_) ends.push_back(stream.fates.sent());
    }
    // Then the thread takes what has come: in a turn that has begun since. A barrier that does not
    // open means that packets are late, not what became of them: they count as not received.
    barrier_.Pass().IgnoreError();
    const uint64_t turn = turns_ + 2;
    while (turns_ < turn) absl::SleepFor(absl::Milliseconds(1));
    const std::lock_guard<std::mutex> lock(mutex_);
    const Late late = std::exchange(late_, {});
    std::vector<StreamCount> counts;
    for (size_t i = 0; i < streams_.size(); ++i) {
      counts.push_back(streams_[i].fates.Take(ends[i]));
      counts.back().probe = streams_[i].probe.name;
      counts.back().late_milliseconds = Milliseconds(late.longest);
      counts.back().late_in_all_milliseconds = Milliseconds(late.sum);
    }
    return counts;
  }

 private:
  absl::Status Receive(Place place, OwnedFd fd) {
    if (absl::Status status = Watch(epoll_.get(), fd.get(), EPOLLIN); !status.ok()) return status;
    const int key = fd.get();
    receivers_.insert_or_assign(key, Receiver{place, std::move(fd)});
    return absl::OkStatus();
  }

  void Run() {
    const absl::Time start = absl::Now();
    absl::Time next = start;
    uint64_t done = 0;
    while (!stopped_) {
      const absl::Time now = absl::Now();
      NoteLate(now - next);
      next = now + kBetweenBursts;
      const auto due = static_cast<uint64_t>(absl::ToDoubleSeconds(now - start) * per_second_);
      const uint64_t burst = std::min(due - std::min(due, done), kLargestBurst);
      for (Stream& stream : streams_) SendBurst(stream, burst);
      done = due;
      std::array<epoll_event, 64> events = {};
      const int wait = static_cast<int>(absl::ToInt64Milliseconds(kBetweenBursts));
      const int count = epoll_wait(epoll_.get(), events.data(), events.size(), wait);
      for (size_t i = 0; static_cast<int>(i) < count; ++i) {
        Receive(receivers_.at(events[i].data.fd));
      }
      absl::SleepFor(next - absl::Now());
      ++turns_;
    }
  }

  void NoteLate(absl::Duration late) {
    const std::lock_guard<std::mutex> lock(mutex_);
    late_.longest = std::max(late_.longest, late);
    late_.sum += late;
  }

  void SendBurst(Stream& stream, uint64_t burst) {
    for (uint64_t i = 0; i < burst; ++i) {
      stream.ends.source_port =
          static_cast<uint16_t>(kFirstPort + (stream.port_offset + stream.number) % kPorts);
      const StreamMessageBytes bytes =
          BytesOf(StreamMessage{.streams = label_,
                                .stream = static_cast<uint32_t>(&stream - streams_.data()),
                                .number = static_cast<uint32_t>(stream.number)});
      if (!stream.sender.Send(UdpFrame(stream.ends, bytes.data(), bytes.size()))) return;
      ++stream.number;
      const std::lock_guard<std::mutex> lock(mutex_);
      stream.fates.Sent();
    }
  }

  void Receive(const Receiver& receiver) {
    const std::lock_guard<std::mutex> lock(mutex_);
    for (;;) {
      std::array<uint8_t, kStreamMessageBytes + 1> bytes = {};
      SocketAddress source;
      const ssize_t size =
          recvfrom(receiver.fd.get(), bytes.data(), bytes.size(), 0, source.get(), &source.size);
      if (size < 0) return;
      const std::optional<StreamMessage> message =
          MessageIn<StreamMessage>(bytes.data(), static_cast<size_t>(size));
      if (!message.has_value() || message->streams != label_) continue;
      if (message->stream >= streams_.size()) continue;
      Stream& stream = streams_[message->stream];
      const std::vector<std::string>& node = node_.NodeAddresses(stream.probe.family);
      stream.fates.Received(message->number,
                            OutcomeAt(receiver.place, source.Text(), stream.ends.source, node));
    }
  }

  const TestNode& node_;
  const PacketBarrier barrier_;
  const int per_second_;
  const uint64_t label_ = FreshNumber();
  const OwnedFd epoll_{epoll_create1(EPOLL_CLOEXEC)};
  // By descriptor.
  std::map<int, Receiver> receivers_;
  std::vector<Stream> streams_;
  std::mutex mutex_;
  // Since the last Take(); guarded by the mutex.
  Late late_;
  std::atomic<bool> stopped_ = false;
  // How often the thread has sent and received.
  std::atomic<uint64_t> turns_ = 0;
  std::thread thread_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Streams>> Streams::Start(const TestNode& node,
                                                        const std::vector<Probe>& probes,
                                                        const std::vector<ListenerPorts>& listeners,
                                                        int per_second) {
  absl::StatusOr<PacketBarrier> barrier = PacketBarrier::Create();
  if (!barrier.ok()) return barrier.status();
  auto streams = std::make_unique<RealStreams>(node, *std::move(barrier), per_second);
  if (absl::Status status = streams->Open(probes, listeners); !status.ok()) return status;
  return streams;
}

void StreamFates::Received(uint64_t number, Outcome fate) {
  if (number < first_ || number >= sent()) return;
  Outcome& known = fates_[static_cast<size_t>(number - first_)];
  if (known == Outcome::kLost) known = fate;
}

StreamCount StreamFates::Take(uint64_t number) {
  StreamCount count;
  uint64_t gap = 0;
  const auto end = fates_.begin() + static_cast<ptrdiff_t>(std::min(number, sent()) - first_);
  for (auto fate = fates_.begin(); fate != end; ++fate) {
    ++count.sent;
    if (*fate == Outcome::kServed) ++count.served;
    if (*fate == Outcome::kServedMasqueraded) ++count.served_masqueraded;
    if (*fate == Outcome::kReachedHost) ++count.reached_host;
    if (*fate == Outcome::kForwarded) ++count.forwarded;
    if (*fate == Outcome::kOther) ++count.other;
    const bool served = *fate == Outcome::kServed || *fate == Outcome::kServedMasqueraded;
    gap = served ? 0 : gap + 1;
    count.longest_gap = std::max(count.longest_gap, gap);
  }
  first_ += count.sent;
  fates_.erase(fates_.begin(), end);
  return count;
}

}  // namespace kipt::skew
