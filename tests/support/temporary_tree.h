// SPDX-License-Identifier: Apache-2.0
//
// A directory tree for one test: files, directories and links, removed with the object.
#ifndef KIPT_TESTS_SUPPORT_TEMPORARY_TREE_H_
#define KIPT_TESTS_SUPPORT_TEMPORARY_TREE_H_

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>

#include "absl/strings/string_view.h"

namespace kipt::testing {

// "" where it cannot be read.
inline std::string FileText(const std::string& path) {
  std::ostringstream text;
  text << std::ifstream(path, std::ios::binary).rdbuf();
  return text.str();
}

class TemporaryTree {
 public:
  TemporaryTree() {
    std::string pattern = ::testing::TempDir() + "/kipt-tree-XXXXXX";
    EXPECT_NE(mkdtemp(pattern.data()), nullptr);
    root_ = pattern;
  }
  ~TemporaryTree() {
    std::error_code ignored;
    std::filesystem::remove_all(root_, ignored);
  }
  TemporaryTree(const TemporaryTree&) = delete;
  TemporaryTree& operator=(const TemporaryTree&) = delete;

  std::string root() const { return root_.string(); }
  // Of what is at `name` inside the tree.
  std::string Path(const std::string& name) const { return (root_ / name).string(); }

  // Each makes the directories on the way.
  void Write(const std::string& name, absl::string_view text) const {
    MakeParent(name);
    // A link may lead to a file of this machine.
    ASSERT_FALSE(std::filesystem::is_symlink(Path(name))) << name;
    std::ofstream file(Path(name), std::ios::binary);
    file << text;
    file.close();
    EXPECT_TRUE(file.good()) << name;
  }
  void Directory(const std::string& name) const {
    std::filesystem::create_directories(root_ / name);
  }
  // `target` is written into the link unchanged.
  void Link(const std::string& name, const std::string& target) const {
    MakeParent(name);
    std::filesystem::create_symlink(target, root_ / name);
  }
  void Remove(const std::string& name) const { std::filesystem::remove_all(root_ / name); }

 private:
  void MakeParent(const std::string& name) const {
    std::filesystem::create_directories((root_ / name).parent_path());
  }

  std::filesystem::path root_;
};

// A directory of CNI configurations, none of which names a chain.
class NoCniUser : public TemporaryTree {
 public:
  NoCniUser() { Write("10-net.conf", "{}"); }
};

}  // namespace kipt::testing

// Tests name these without a namespace.
namespace kipt {
using testing::FileText;
using testing::TemporaryTree;
}  // namespace kipt

#endif  // KIPT_TESTS_SUPPORT_TEMPORARY_TREE_H_
