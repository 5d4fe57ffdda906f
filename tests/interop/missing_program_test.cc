// SPDX-License-Identifier: Apache-2.0
//
// A test that lacks a program says which package brings it, and tests/run installs that package.
#include <stdlib.h>

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "tests/support/child.h"
#include "tests/support/matchers.h"
#include "tests/support/run_program.h"

namespace kipt::testing {
namespace {

using ::testing::Eq;

class MissingProgramTest : public ::testing::TestWithParam<ProgramPackage> {};

TEST_P(MissingProgramTest, IsNamedWithItsPackage) {
  const std::string path = getenv("PATH");
  ASSERT_EQ(setenv("PATH", "/nonexistent", 1), 0);
  const ProgramResult result = RunProgram({GetParam().program});
  ASSERT_EQ(setenv("PATH", path.c_str(), 1), 0);
  EXPECT_EQ(result.exit_code, 127);
  EXPECT_THAT(result.err, HasSubstr(absl::StrCat("; Debian's package ", GetParam().package, " ")));
}

TEST_P(MissingProgramTest, IsBroughtByThatPackage) {
  const ProgramResult result = RunProgram({"/usr/bin/dpkg", "--listfiles", GetParam().package});
  EXPECT_THAT(std::vector<std::string>(absl::StrSplit(result.out, '\n')),
              Contains(EndsWith(absl::StrCat("bin/", GetParam().program))))
      << result;
}

INSTANTIATE_TEST_SUITE_P(Rows, MissingProgramTest, ::testing::ValuesIn(kProgramPackages),
                         [](const auto& row) {
                           std::string name = row.param.program;
                           for (char& c : name) c = c == '-' ? '_' : c;
                           return name;
                         });

TEST(MissingProgramsTest, AreInstalledByTestsRun) {
  const ProgramResult listed =
      RunProgram({KIPT_INSTALL_PACKAGES, "--list", "build", "look", "skew", "test", "monitoring"});
  const std::vector<std::string> packages = absl::StrSplit(listed.out, '\n');
  for (const ProgramPackage& row : kProgramPackages) {
    const std::string package = row.package;
    EXPECT_THAT(packages, Contains(Eq(package == "python3-minimal" ? "python3" : package)));
  }
}

}  // namespace
}  // namespace kipt::testing
