// SPDX-License-Identifier: Apache-2.0
//
// Signals are for the threads of the host program, or of the event loop.
#ifndef KIPT_AGENT_PROCESS_SIGNAL_MASK_H_
#define KIPT_AGENT_PROCESS_SIGNAL_MASK_H_

#include <pthread.h>

#include <csignal>

namespace kipt::agent {

// Blocks every signal in this thread as long as it lives. A thread that is started meanwhile
// inherits that, and runs no handler.
class AllSignalsBlocked {
 public:
  AllSignalsBlocked() {
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before_);
  }
  AllSignalsBlocked(const AllSignalsBlocked&) = delete;
  AllSignalsBlocked& operator=(const AllSignalsBlocked&) = delete;
  ~AllSignalsBlocked() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }

 private:
  sigset_t before_;
};

}  // namespace kipt::agent

#endif  // KIPT_AGENT_PROCESS_SIGNAL_MASK_H_
