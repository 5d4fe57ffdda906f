// SPDX-License-Identifier: Apache-2.0
//
// An interpreter of a filter's program, for any machine.
#ifndef KIPT_TESTS_AGENT_PROCESS_FILTER_PROGRAM_H_
#define KIPT_TESTS_AGENT_PROCESS_FILTER_PROGRAM_H_

#include <endian.h>
#include <gtest/gtest.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <seccomp.h>
#include <sys/mman.h>
#include <unistd.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <ostream>
#include <string>
#include <vector>

#include "agent/process/files.h"
#include "agent/process/syscall_filter.h"

namespace kipt::testing {

struct Machine {
  std::string name;  // as libseccomp has it
  uint32_t audit;    // what the kernel reports, from linux/audit.h
  bool big_endian = false;
  bool bits32 = false;
};
inline void PrintTo(const Machine& machine, std::ostream* out) { *out << machine.name; }

// What the kernel would be given, in the byte order of that machine.
inline std::vector<sock_filter> ProgramOf(const agent::SyscallFilter& filter) {
  const agent::OwnedFd file(memfd_create("filter", MFD_CLOEXEC));
  EXPECT_EQ(seccomp_export_bpf(filter.get(), file.get()), 0);
  std::vector<sock_filter> program(static_cast<size_t>(lseek(file.get(), 0, SEEK_END)) /
                                   sizeof(sock_filter));
  const size_t size = program.size() * sizeof(sock_filter);
  EXPECT_EQ(pread(file.get(), program.data(), size, 0), static_cast<ssize_t>(size));
  return program;
}

// The 32-bit words of linux/seccomp.h's seccomp_data, as a program of that machine loads them.
inline std::array<uint32_t, sizeof(seccomp_data) / 4> Words(
    const Machine& machine, int number, const std::vector<uint64_t>& arguments) {
  std::array<uint32_t, sizeof(seccomp_data) / 4> words{};
  words[0] = static_cast<uint32_t>(number);
  words[1] = machine.audit;
  for (size_t i = 0; i < arguments.size(); ++i) {
    const auto low = static_cast<uint32_t>(arguments[i]);
    const auto high = static_cast<uint32_t>(arguments[i] >> 32);
    words[4 + 2 * i] = machine.big_endian ? high : low;
    words[5 + 2 * i] = machine.big_endian ? low : high;
  }
  return words;
}

// What the program returns; 0, which no filter of ours does, where it is no program.
inline uint32_t Interpret(std::vector<sock_filter> program, bool big_endian,
                          const std::array<uint32_t, sizeof(seccomp_data) / 4>& data) {
  for (sock_filter& one : program) {
    one.code = big_endian ? be16toh(one.code) : le16toh(one.code);
    one.k = big_endian ? be32toh(one.k) : le32toh(one.k);
  }
  uint32_t accumulator = 0;
  for (size_t at = 0; at < program.size(); ++at) {
    const sock_filter& one = program[at];
    const auto jump = [&](bool holds) { at += holds ? one.jt : one.jf; };
    switch (one.code) {
      case BPF_LD | BPF_W | BPF_ABS:
        if (one.k / 4 >= data.size()) return 0;
        accumulator = data[one.k / 4];
        break;
      case BPF_ALU | BPF_AND | BPF_K:
        accumulator &= one.k;
        break;
      case BPF_JMP | BPF_JA:
        at += one.k;
        break;
      case BPF_JMP | BPF_JEQ | BPF_K:
        jump(accumulator == one.k);
        break;
      case BPF_JMP | BPF_JGE | BPF_K:
        jump(accumulator >= one.k);
        break;
      case BPF_JMP | BPF_JGT | BPF_K:
        jump(accumulator > one.k);
        break;
      case BPF_JMP | BPF_JSET | BPF_K:
        jump((accumulator & one.k) != 0);
        break;
      case BPF_RET | BPF_K:
        return one.k;
      default:
        ADD_FAILURE() << "instruction " << one.code;
        return 0;
    }
  }
  return 0;
}

}  // namespace kipt::testing

#endif  // KIPT_TESTS_AGENT_PROCESS_FILTER_PROGRAM_H_
