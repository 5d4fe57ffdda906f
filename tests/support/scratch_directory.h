// SPDX-License-Identifier: Apache-2.0
//
// Files that a program must be given.
#ifndef KIPT_TESTS_SUPPORT_SCRATCH_DIRECTORY_H_
#define KIPT_TESTS_SUPPORT_SCRATCH_DIRECTORY_H_

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

namespace kipt::testing {

// A directory of one's own, gone with the object. It is made in /run: where that is a PrivateRun's,
// nothing is left behind even by a process that was killed.
class ScratchDirectory {
 public:
  ScratchDirectory() {
    std::string pattern = "/run/kipt-scratch-XXXXXX";
    if (mkdtemp(pattern.data()) != nullptr) path_ = pattern;
  }
  ~ScratchDirectory() {
    std::error_code ignored;
    if (!path_.empty()) std::filesystem::remove_all(path_, ignored);
  }
  ScratchDirectory(const ScratchDirectory&) = delete;
  ScratchDirectory& operator=(const ScratchDirectory&) = delete;

  // False where there is no place for it: nothing can be written then.
  bool made() const { return !path_.empty(); }
  std::string Path(const std::string& name) const { return path_ + "/" + name; }

  bool MakeDirectory(const std::string& name) const {
    std::error_code error;
    return made() && std::filesystem::create_directory(Path(name), error);
  }
  bool WriteFile(const std::string& name, const std::string& text, bool executable = false) const {
    if (!made()) return false;
    std::ofstream file(Path(name));
    file << text;
    file.close();
    std::error_code error;
    if (executable) {
      std::filesystem::permissions(Path(name), std::filesystem::perms::owner_exec,
                                   std::filesystem::perm_options::add, error);
    }
    return file.good() && !error;
  }

 private:
  std::string path_;
};

}  // namespace kipt::testing

#endif  // KIPT_TESTS_SUPPORT_SCRATCH_DIRECTORY_H_
