// SPDX-License-Identifier: Apache-2.0
//
// A kernel that answers from a script. The linker puts it under netlink (`--wrap`, CMakeLists.txt):
// while a ScriptedKernel lives, what the product sends is discarded, and what it receives is the
// script. Otherwise calls reach the real kernel.
#ifndef KIPT_TESTS_FUZZ_SCRIPTED_KERNEL_H_
#define KIPT_TESTS_FUZZ_SCRIPTED_KERNEL_H_

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "tests/fuzz/wire_messages.h"

namespace kipt::testing {

// Frame::kind: how a datagram comes.
enum class Arrival : uint8_t {
  kFromKernel,
  // From another process, as a privileged one could send it.
  kFromProcess,
  // No datagram: the call fails with the errno that the first byte is.
  kError,
  // Longer than the buffer that it was received into.
  kCutOff,
  // No datagram: nothing more comes until something is sent again.
  kNoMore,
};
inline constexpr uint8_t kArrivals = 5;

class ScriptedKernel {
 public:
  // In each message of a datagram a sequence number below 2^16 counts from the first message that
  // was sent last (modulo their number and one beyond, which is foreign): the script cannot know
  // the numbers. After the end of the script no more datagrams come.
  explicit ScriptedKernel(std::vector<Frame> script);
  ~ScriptedKernel();
  ScriptedKernel(const ScriptedKernel&) = delete;
  ScriptedKernel& operator=(const ScriptedKernel&) = delete;

  // Errors, other than 0, that were delivered for a message of what was sent first.
  size_t refusals() const { return refusals_; }
  // Datagrams that the script still has.
  size_t left() const { return script_.size() - next_; }
  // The datagrams that were sent.
  const std::vector<std::vector<uint8_t>>& sent() const { return sent_; }

  // The next sends fail, with these errors.
  void FailSends(std::vector<int> errors) { send_errors_ = std::move(errors); }

  // What the wrapped calls do.
  int NextSendError();
  void Sent(FuzzBytes messages);
  // The next datagram in `buffer`, its size, and its sender; -1 with errno set.
  ptrdiff_t Receive(uint8_t* buffer, size_t room, uint32_t& sender, bool& cut_off);

 private:
  void Renumber(uint8_t* datagram, size_t size);

  std::vector<Frame> script_;
  size_t next_ = 0;
  uint32_t first_ = 0;
  uint32_t count_ = 1;
  std::vector<std::vector<uint8_t>> sent_;
  std::vector<int> send_errors_;
  size_t refusals_ = 0;
};

}  // namespace kipt::testing

#endif  // KIPT_TESTS_FUZZ_SCRIPTED_KERNEL_H_
