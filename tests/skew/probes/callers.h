// SPDX-License-Identifier: Apache-2.0
//
// Connections of probes and their outcomes, as reported by the callers and the receivers.
#ifndef KIPT_TESTS_SKEW_PROBES_CALLERS_H_
#define KIPT_TESTS_SKEW_PROBES_CALLERS_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "agent/process/files.h"
#include "tests/skew/node/test_node.h"
#include "tests/skew/probes/packets.h"
#include "tests/skew/probes/probe.h"

namespace kipt::skew {

// Programs that receive a battery's packets, report them, and answer.

// A question that came to a place.
struct Receipt {
  Place place = Place::kNode;
  Message message;
  // As inet_ntop writes it.
  std::string source;
};

// A socket that reports the address that a packet was sent to, and answers from there; transparent,
// because kBeyond has all addresses by a route only.
absl::StatusOr<agent::OwnedFd> BoundSocket(testing::IpFamily family, int type, int port);

class Listeners {
 public:
  // At every address of those places. A place that forwards other addresses' packets to itself
  // (kBeyond) answers from the address that was asked.
  static absl::StatusOr<std::unique_ptr<Listeners>> Open(const TestNode& node,
                                                         const std::vector<ListenerPorts>& ports);

  // Readable when there is something to Serve().
  int poll_fd() const { return epoll_.get(); }
  // Receives and answers what has come; never waits. What of it was a question.
  std::vector<Receipt> Serve();
  // Ends connections without a caller.
  void HangUp();

 private:
  enum class Kind {
    kDatagrams,
    // Accepts connections; one of them.
    kConnections,
    kConnection,
    // Sees SYNs that carry a message and have come through the node's input hook: of martian
    // probes, for which no handshake can complete.
    kSynObserver,
  };
  struct Socket {
    Kind kind = Kind::kDatagrams;
    Place place = Place::kNode;
    agent::OwnedFd fd;
  };

  Listeners() = default;
  absl::Status Listen(const TestNode& node, const ListenerPorts& ports);
  absl::Status WatchSyns(const TestNode& node);
  absl::Status Add(Kind kind, Place place, agent::OwnedFd fd);
  void ServeDatagrams(const Socket& socket, std::vector<Receipt>& receipts);
  void Accept(const Socket& socket);
  // False where the connection is over.
  bool ServeConnection(const Socket& socket, std::vector<Receipt>& receipts);
  void ServeSyns(const Socket& socket, std::vector<Receipt>& receipts);

  agent::OwnedFd epoll_;
  // By descriptor.
  std::map<int, Socket> sockets_;
};

struct Call {
  size_t probe = 0;
  int connection = 0;
  // Its own address and port as its socket has them, or its frame.
  std::string own_address = {};
  uint16_t own_port = 0;
  std::vector<Receipt> receipts = {};
  std::optional<Place> answered_by = {};
  // What the caller received: from a packet (RST, ICMP), or from its own kernel, which sent none.
  int error = 0;
  bool refused_at_home = false;
  // TCP's handshake was completed, with whom is not known by this.
  bool connected = false;

  bool Silent() const { return receipts.empty() && !answered_by && error == 0 && !connected; }
};

// What rounds have in common.
struct CallTools {
  std::unique_ptr<Listeners> listeners;
  PacketBarrier barrier;
  // Of the next call. No call has one that an earlier call had: for the node, whose connection
  // tracking remembers that, it would not be a new connection.
  uint32_t next_port = 0;
};

// One round of questions. Connections are closed with it.
class Round {
 public:
  // `node`, `probes` and `tools` must outlive it. `label`: what is the same in its messages.
  Round(const TestNode& node, const std::vector<Probe>& probes, CallTools& tools,
        const Message& label);
  ~Round();
  Round(const Round&) = delete;
  Round& operator=(const Round&) = delete;

  // Sends a call's first packet. Errors are of the harness, not of the packet.
  absl::Status Start(size_t probe, int connection);
  // Works until a call is over: that one. Null: all packets have arrived, and nothing is left to
  // report.
  absl::StatusOr<const Call*> Next();
  // After the last call: closes their sockets, so that no kernel repeats a packet for one that got
  // no answer, and awaits what is under way.
  absl::Status HangUp();

  const std::vector<std::unique_ptr<Call>>& calls() const { return calls_; }

 private:
  struct Caller {
    Call* call = nullptr;
    agent::OwnedFd fd;
    // Of TCP: the handshake is under way, or the answer.
    bool connecting = false;
  };

  absl::Status StartConnect(Call& call);
  absl::Status TakePort(const agent::OwnedFd& fd, Call& call);
  uint16_t NextPort();
  absl::Status StartMartian(Call& call);
  bool Serve();
  void Hear(Caller& caller);
  // Reads the caller's result. False: nothing yet.
  bool ReadAnswer(Caller& caller);
  void Receive();
  Call* CallOf(const Message& message);
  Message MessageOf(const Call& call) const;
  FrameBytes MartianFrame(const Call& call, uint8_t flags) const;

  const TestNode& node_;
  const std::vector<Probe>& probes_;
  CallTools& tools_;
  const Message label_;
  agent::OwnedFd epoll_;
  std::vector<std::unique_ptr<Call>> calls_;
  // By descriptor; those that still wait.
  std::map<int, Caller> callers_;
  // Over, and not yet returned by Next().
  std::vector<const Call*> over_;
};

}  // namespace kipt::skew

#endif  // KIPT_TESTS_SKEW_PROBES_CALLERS_H_
