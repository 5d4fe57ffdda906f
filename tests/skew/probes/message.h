// SPDX-License-Identifier: Apache-2.0
//
// What packets of a battery and of streams carry, by which those who receive them know them again.
// Lengths matter: whose packets a rule has counted shows in its counter of bytes (drop_counters.h).
#ifndef KIPT_TESTS_SKEW_PROBES_MESSAGE_H_
#define KIPT_TESTS_SKEW_PROBES_MESSAGE_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>

namespace kipt::skew {

// Of a battery: one connection of a probe. Bytes only ever come back to this machine.
struct Message {
  // The battery, and how many rounds of questions it has asked.
  uint64_t battery = 0;
  uint32_t round = 0;
  uint32_t probe = 0;
  uint32_t connection = 0;
  // Of an answer: 1 + the Place that gives it. Of a question: 0.
  uint32_t answerer = 0;

  bool operator==(const Message&) const = default;
};
inline constexpr size_t kMessageBytes = sizeof(Message);
static_assert(kMessageBytes == 24);
using MessageBytes = std::array<uint8_t, kMessageBytes>;
MessageBytes BytesOf(const Message& message);
// Nothing where it is of another length.
std::optional<Message> MessageIn(const void* bytes, size_t size);

// Of a stream.
struct StreamMessage {
  uint64_t streams = 0;
  uint32_t stream = 0;
  uint32_t number = 0;
};
inline constexpr size_t kStreamMessageBytes = sizeof(StreamMessage);
static_assert(kStreamMessageBytes == 16);
using StreamMessageBytes = std::array<uint8_t, kStreamMessageBytes>;
StreamMessageBytes BytesOf(const StreamMessage& message);
std::optional<StreamMessage> StreamMessageIn(const void* bytes, size_t size);

// A number that no other battery or stream has, on any node.
uint64_t FreshNumber();

}  // namespace kipt::skew

#endif  // KIPT_TESTS_SKEW_PROBES_MESSAGE_H_
