// SPDX-License-Identifier: Apache-2.0
//
// Those who receive a battery's packets, tell of it, and answer.
#ifndef KIPT_TESTS_SKEW_PROBES_LISTENERS_H_
#define KIPT_TESTS_SKEW_PROBES_LISTENERS_H_

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "agent/process/files.h"
#include "tests/skew/node/test_node.h"
#include "tests/skew/probes/battery.h"
#include "tests/skew/probes/packets.h"

namespace kipt::skew {

// A question that came to a place.
struct Receipt {
  Place place = Place::kNode;
  Message message;
  // As inet_ntop writes it.
  std::string source;
};

class Listeners {
 public:
  // At every address of those places. A place that forwards to itself what is of nobody else
  // (kBeyond) answers as who was asked.
  static absl::StatusOr<std::unique_ptr<Listeners>> Open(const TestNode& node,
                                                         const std::vector<ListenerPorts>& ports);

  // Readable when there is something to Serve().
  int poll_fd() const { return epoll_.get(); }
  // Receives and answers what has come; never waits. What of it was a question.
  std::vector<Receipt> Serve();
  // Ends connections whose callers have gone.
  void HangUp();

 private:
  enum class Kind {
    kDatagrams,
    // Accepts connections; one of them.
    kConnections,
    kConnection,
    // Sees SYNs that carry a message and have come through the node's input hook: of martian
    // probes, whose handshake nobody can complete.
    kSynWitness,
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

}  // namespace kipt::skew

#endif  // KIPT_TESTS_SKEW_PROBES_LISTENERS_H_
