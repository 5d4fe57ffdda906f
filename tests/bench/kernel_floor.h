// SPDX-License-Identifier: Apache-2.0
//
// The least that nf_tables itself takes for a question and for a commit, with as little of our own
// around it as there can be: what no program can go below.
#ifndef KIPT_TESTS_BENCH_KERNEL_FLOOR_H_
#define KIPT_TESTS_BENCH_KERNEL_FLOOR_H_

#include <memory>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "netlink/backend.h"
#include "netlink/batch.h"
#include "netlink/nft_requests.h"
#include "netlink/socket.h"

namespace kipt::testing {

class KernelFloor {
 public:
  // In the calling thread's network namespace.
  static absl::StatusOr<std::unique_ptr<KernelFloor>> Create();
  ~KernelFloor();
  KernelFloor(const KernelFloor&) = delete;
  KernelFloor& operator=(const KernelFloor&) = delete;

  // One send and one receive of NFT_MSG_GETGEN.
  absl::Status AskGeneration() const;
  // What a look of the agent's asks, in its own two calls for each question, the generation before
  // and after; nothing of the answers is read.
  absl::Status AskForEverything();
  // A batch of nothing, and a look for errors.
  absl::Status CommitNothing() const;

  // Builds, untimed, what Commit() sends: an empty chain of filter that comes or goes; a rule (its
  // verdict RETURN) in a chain of nat that nothing jumps to, for which the kernel walks through all
  // of nat.
  absl::Status PrepareChain();
  absl::Status PrepareRule();
  absl::Status Commit();

 private:
  KernelFloor(int fd, std::unique_ptr<netlink::Backend> backend,
              std::unique_ptr<netlink::Socket> socket);
  absl::Status Prepare(std::vector<netlink::Operation> operations);
  absl::Status Ask(const netlink::Requests& requests);

  const int fd_;
  std::unique_ptr<netlink::Backend> backend_;
  std::unique_ptr<netlink::Socket> socket_;
  netlink::Transaction transaction_;
  std::optional<netlink::Batch> batch_;
  // Of AskForEverything(); without the rules of chains that are not there.
  std::vector<netlink::ChainQuery> questions_;
};

}  // namespace kipt::testing

#endif  // KIPT_TESTS_BENCH_KERNEL_FLOOR_H_
