// SPDX-License-Identifier: Apache-2.0
#include "tests/skew/probes/message.h"

#include <cstring>
#include <random>

namespace kipt::skew {
namespace {

template <typename Bytes, typename Value>
Bytes Copy(const Value& value) {
  Bytes bytes = {};
  std::memcpy(bytes.data(), &value, sizeof(value));
  return bytes;
}

template <typename Value>
std::optional<Value> ValueIn(const void* bytes, size_t size) {
  if (size != sizeof(Value)) return std::nullopt;
  Value value;
  std::memcpy(&value, bytes, sizeof(value));
  return value;
}

}  // namespace

MessageBytes BytesOf(const Message& message) { return Copy<MessageBytes>(message); }

std::optional<Message> MessageIn(const void* bytes, size_t size) {
  return ValueIn<Message>(bytes, size);
}

StreamMessageBytes BytesOf(const StreamMessage& message) {
  return Copy<StreamMessageBytes>(message);
}

std::optional<StreamMessage> StreamMessageIn(const void* bytes, size_t size) {
  return ValueIn<StreamMessage>(bytes, size);
}

uint64_t FreshNumber() {
  std::random_device device;
  return static_cast<uint64_t>(device()) << 32 | device();
}

}  // namespace kipt::skew
