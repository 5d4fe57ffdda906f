// SPDX-License-Identifier: Apache-2.0
//
// Counts the nf_tables transactions of a network namespace, with the names of their programs.
#ifndef KIPT_TESTS_SUPPORT_GENERATION_LISTENER_H_
#define KIPT_TESTS_SUPPORT_GENERATION_LISTENER_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

struct mnl_socket;

namespace kipt::testing {

// One NFT_MSG_NEWGEN: the kernel sends it once for each transaction that changed something
// (net/netfilter/nf_tables_api.c, nf_tables_gen_notify).
struct GenerationChange {
  uint32_t generation = 0;
  uint32_t pid = 0;     // of the writer, in the initial PID namespace
  std::string process;  // the writer's name, at most 15 characters
};

class GenerationListener {
 public:
  // Listens in the calling thread's network namespace from now on.
  static absl::StatusOr<std::unique_ptr<GenerationListener>> Create();

  // The transactions since the last call. The kernel reports a transaction before the writer's send
  // returns, so those of a program that has ended are all here.
  //
  // ResourceExhausted: so many that some were lost.
  absl::StatusOr<std::vector<GenerationChange>> Drain();

  // Readable when there is something to drain.
  int fd() const;

 private:
  explicit GenerationListener(mnl_socket* socket);
  std::unique_ptr<mnl_socket, int (*)(mnl_socket*)> socket_;
};

}  // namespace kipt::testing

#endif  // KIPT_TESTS_SUPPORT_GENERATION_LISTENER_H_
