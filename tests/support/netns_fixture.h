// SPDX-License-Identifier: Apache-2.0
//
// Nothing a test does to nf_tables can reach the machine's own rules: a fixture that gets no
// namespace of its own fails, it does not go on and it does not skip.
#ifndef KIPT_TESTS_SUPPORT_NETNS_FIXTURE_H_
#define KIPT_TESTS_SUPPORT_NETNS_FIXTURE_H_

#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <vector>

#include "tests/support/netns.h"
#include "tests/support/private_run.h"

namespace kipt::testing {

// A fresh namespace; fails the test and ends the program where there is none to be had, for without
// it what comes next would be done to the machine's own.
Netns NewNetns();

// Of the calling thread's network namespace: "ipv4/ip_forward".
void SetSysctl(const std::string& name, const std::string& value);

// A program that fails fails the test.
void MustRun(const std::vector<std::string>& argv, const std::string& input = "");

// Each test runs in a fresh network namespace of its own, loopback up. For tests of one thread: a
// namespace belongs to a thread.
class NetnsTest : public ::testing::Test {
 protected:
  void SetUp() override;
};

// With a /run of its own, too.
class PrivateRunTest : public NetnsTest {
 protected:
  void SetUp() override;

 private:
  std::optional<PrivateRun> private_run_;
};

}  // namespace kipt::testing

#endif  // KIPT_TESTS_SUPPORT_NETNS_FIXTURE_H_
