// SPDX-License-Identifier: Apache-2.0
//
// Replaces a file of the system in this test's mount namespace (private_run.h).
#ifndef KIPT_TESTS_SUPPORT_IN_PLACE_OF_H_
#define KIPT_TESTS_SUPPORT_IN_PLACE_OF_H_

#include <gtest/gtest.h>
#include <sys/mount.h>

#include <string>
#include <utility>

namespace kipt::testing {

class InPlaceOf {
 public:
  InPlaceOf(const std::string& source, std::string target) : target_(std::move(target)) {
    EXPECT_EQ(mount(source.c_str(), target_.c_str(), nullptr, MS_BIND, nullptr), 0) << target_;
  }
  ~InPlaceOf() { Undo(); }
  InPlaceOf(const InPlaceOf&) = delete;
  InPlaceOf& operator=(const InPlaceOf&) = delete;

  void Undo() {
    if (target_.empty()) return;
    EXPECT_EQ(umount2(target_.c_str(), MNT_DETACH), 0) << target_;
    target_.clear();
  }

 private:
  std::string target_;
};

}  // namespace kipt::testing

#endif  // KIPT_TESTS_SUPPORT_IN_PLACE_OF_H_
