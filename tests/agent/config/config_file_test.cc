// SPDX-License-Identifier: Apache-2.0
#include <sys/stat.h>

#include <string>
#include <vector>

#include "agent/config/load_config.h"
#include "agent/config/yaml_document.h"
#include "tests/agent/config/config_files.h"
#include "tests/agent/process/without_capabilities.h"
#include "tests/support/matchers.h"
#include "tests/support/status_matchers.h"
#include "tests/support/temporary_tree.h"

namespace kipt::agent::config_file_test {
namespace {

// sigs.k8s.io/yaml takes them, and what is not read cannot be wrong.
TEST(ConfigFileTest, TakesSharedValuesInIgnoredFieldsOfAKubeletConfiguration) {
  const auto file =
      ParseConfigFile("k.yaml", Kubelet("x-shared: &shared {a: &a 1}\n"
                                        "evictionHard: &hard\n"
                                        "  <<: *shared\n"
                                        "  memory.available: 100Mi\n"
                                        "evictionSoft: *hard\n"
                                        "makeIPTablesUtilChains: &make false\n"
                                        "list: [&i one, *i, {*i : *a}, &n]\n"
                                        "featureGates: {IPTablesOwnershipCleanup: false}\n"
                                        "iptablesDropBit: 9\n"));
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_FALSE(file->feature_gates.at("IPTablesOwnershipCleanup"));
  ASSERT_TRUE(file->given.iptables_drop_bit);
  EXPECT_EQ(file->given.iptables_drop_bit, 9);
}

// Its strict decoder refuses some of it; then it logs that and decodes again, leniently.
TEST(ConfigFileTest, AcceptsAKubeletConfigurationThatKubeletAccepts) {
  struct Row {
    const char* name;
    std::string text;          // after a bit
    const char* warning = "";  // the beginning
  };
  const Row rows[] = {
      {"a duplicate field", "maxPods: 1\nmaxPods: 2\n",
       "k.yaml:5: duplicate key \"maxPods\", already set in line 4; accepted, because kubelet"},
      {"a marker at the end", "---\n", "k.yaml:4: a second document begins here"},
      {"a marker after a field without a value", "x:\n---\n", "k.yaml:5: a second document"},
      {"a second document", "---\niptablesDropBit: 5\nx: [1, {y: z}]\n", "k.yaml:4: a second doc"},
      {"a second document that is no YAML", "---\n{{ .Values }}\n@\n", "k.yaml:4: a second doc"},
      {"text after the end", "...\niptablesDropBit: 5\n", "k.yaml:5: a second document"},
      {"a field that kubelet does not know", "unknownToKubelet: {a: [1]}\n"},
      {"tabs around comments", "a: 1\t# one\nb:\t2 \t# two\n"},
      {"Windows line ends", "a: 1\r\nb:\r\n  c: |\r\n    text\r\n---\r\n",
       "k.yaml:8: a second document"},
      {"a flow value without indentation", "a: {\nb: 1,\nc: [\n2,\n],\n}\n"},
      {"a comment right after a value", "a: \"x\" #c\n#d\n"},
      {"other types of keys", "1: a\ntrue: b\n1.5: c\n"},
  };
  for (const Row& row : rows) {
    SCOPED_TRACE(row.name);
    const auto file =
        ParseConfigFile("k.yaml", "\xef\xbb\xbf" + Kubelet("iptablesDropBit: 9\n" + row.text));
    ASSERT_TRUE(file.ok()) << file.status();
    EXPECT_EQ(file->given.iptables_drop_bit, 9);
    EXPECT_THAT(file->warnings, *row.warning == '\0' ? Matcher<std::vector<std::string>>(IsEmpty())
                                                     : ElementsAre(StartsWith(row.warning)));
  }
}

TEST(ConfigFileTest, ReadsAKubeletConfigurationHoweverItIsWritten) {
  struct Row {
    std::string text;
    int bit = 9;  // -1: not set
    featuregates::GateValues gates = {};
  };
  const std::string kubelet = Kubelet("");
  const Row rows[] = {
      {kubelet + "x: &b 9\niptablesDropBit: *b\n"},
      {kubelet + "x: &g true\nfeatureGates:\n  B: false\n  A: *g\n",
       -1,
       {{"A", true}, {"B", false}}},
      {kubelet + "x: &g A\nfeatureGates:\n  *g : true\n", -1, {{"A", true}}},
      {kubelet + "x: &g {A: true, B: true}\nfeatureGates: {<<: *g, B: false}\n",
       -1,
       {{"A", true}, {"B", false}}},
      {kubelet + "x: [&a {A: true}, &b {A: false, B: true}]\nfeatureGates:\n  <<: [*a, *b]\n",
       -1,
       {{"A", true}, {"B", true}}},
      {kubelet + "<<: {iptablesDropBit: 9}\n"},
      {kubelet + "<<: {iptablesDropBit: 8}\niptablesDropBit: 9\n"},
      {kubelet + "x: &n iptablesDropBit\n*n : 9\n"},
      {kubelet + "x: &n\niptablesDropBit: *n\n", -1},
      {kubelet + "emulatedVersion: [1]\nipFamilies: {a: 1}\n", -1},
      {"{\n\t\"kind\": \"KubeletConfiguration\",\n\t\"apiVersion\": "
       "\"kubelet.config.k8s.io/v1beta1\",\n\t\"iptablesDropBit\": 9\n}\n"},
  };
  for (const Row& row : rows) {
    SCOPED_TRACE(row.text);
    const auto file = ParseConfigFile("k.yaml", row.text);
    ASSERT_TRUE(file.ok()) << file.status();
    EXPECT_EQ(file->given.iptables_drop_bit.value_or(-1), row.bit);
    EXPECT_EQ(file->feature_gates, row.gates);
    EXPECT_FALSE(file->given.emulated_version || file->given.ip_families);
    EXPECT_THAT(file->warnings, IsEmpty());
  }
}

struct BadText {
  std::string text;
  std::string start;      // of the message
  std::string part = {};  // of the message: what to do
};

TEST(RefusedConfigFileTest, NamesFileLineAndWhatIsAccepted) {
  const BadText rows[] = {
      {Agent("iptablesSyncPeriod: '60'\n"),
       "c.yaml:3: iptablesSyncPeriod: time: missing unit in duration \"60\"",
       "write it as 1m0s or 90s"},
      {"", "c.yaml:1: the file holds no configuration",
       "kind KubeIPTablesAgentConfiguration of apiVersion kube-iptables-agent/v1alpha1"},
      {"- a\n", "c.yaml:1: the file must hold a map of fields", "accepted are"},
      {"apiVersion: kube-iptables-agent/v1alpha1\n", "c.yaml:1: kind is missing",
       "kind KubeletConfiguration of apiVersion "},
      {"apiVersion: v1\nkind: [a]\n", "c.yaml:2: kind: found a list", "must be a string"},
      {"kind: Pod\napiVersion: v1\n",
       "c.yaml:2: this kind of file is not known: apiVersion \"v1\", kind \"Pod\"",
       "accepted are kind KubeIPTablesAgentConfiguration"},
      {Agent("iptablesDropbit: 15\n"), "c.yaml:3: unknown field \"iptablesDropbit\"",
       "iptablesDropBit"},
      {Agent("emulatedVersion: 1.30\n"), "c.yaml:3: emulatedVersion: found the number 1.30",
       "in quotes: \"1.30\""},
      {Agent("featureGates: AllAlpha=true\n"), "c.yaml:3: featureGates: must be a map",
       "IPTablesOwnershipCleanup: false"},
      {Kubelet("iptablesDropBit: 1\niptablesDropBit: 1\n"),
       "c.yaml:4: duplicate key \"iptablesDropBit\""},
      {Kubelet("featureGates:\n  A: true\n  A: true\n"), "c.yaml:5: duplicate key \"A\""},
      {Agent("---\n"), "c.yaml:3: a second document begins here"},
      {Kubelet("iptablesDropBit: 1\n<<: {iptablesDropBit: 9}\n"),
       "c.yaml:4: duplicate key \"iptablesDropBit\", already set in line 3"},
      {Kubelet("<<: word\n"), "c.yaml:3: a merge key (<<) needs a map"},
      {Kubelet("x: &x [*x]\n"), "c.yaml:3: an alias inside the value of its own anchor"},
      {Kubelet("a: &a [1,1,1,1,1,1,1,1,1]\nb: &b [*a,*a,*a,*a,*a,*a,*a,*a,*a]\n"
               "c: &c [*b,*b,*b,*b,*b,*b,*b,*b,*b]\nd: &d [*c,*c,*c,*c,*c,*c,*c,*c,*c]\n"
               "e: [*d,*d,*d,*d,*d,*d,*d,*d,*d]\n"),
       "c.yaml:7: the file holds more than 50000 values"},
      {Agent("iptablesDropBit: &b 9\n"), "c.yaml:3: anchors (&name)", "write the value out"},
      {Agent("<<: {iptablesDropBit: 9}\n"), "c.yaml:3: merge keys (<<)", "write the fields out"},
      {"---\n---\n" + Kubelet(""), "c.yaml:2: a second document begins here"},
      {Kubelet("evictionHard: {a: b\n"), "c.yaml:", "not well-formed YAML"},
  };
  for (const BadText& row : rows) {
    SCOPED_TRACE(row.text);
    const auto file = ParseConfigFile("c.yaml", row.text);
    EXPECT_THAT(file, StatusIs(absl::StatusCode::kInvalidArgument,
                               AllOf(StartsWith(row.start), HasSubstr(row.part))));
  }
}

class ConfigFileOnDiskTest : public ::testing::Test {
 protected:
  std::string Write(const std::string& name, const std::string& text) const {
    tree_.Write(name, text);
    return tree_.Path(name);
  }

  static std::string ErrorOf(const std::string& path) {
    const auto file = ReadConfigFile(path);
    EXPECT_THAT(file, StatusIs(absl::StatusCode::kInvalidArgument));
    return std::string(file.status().message());
  }

  TemporaryTree tree_;
};

// Users and groups: RefusalTest, which is root.
TEST_F(ConfigFileOnDiskTest, NamesThePathThatAnyUserCanWrite) {
  const std::string path = Write("c.yaml", Agent(""));
  const std::string directory = tree_.root();
  const struct {
    mode_t file;
    mode_t directory;
    std::string warning;
  } rows[] = {
      {0644, 0755, ""},
      {0646, 0755, path + " can be written by every user"},
      {0644, 0757, directory + "/ can be written by every user"},
      {0644, 01757, ""},
  };
  for (const auto& row : rows) {
    ASSERT_EQ(chmod(path.c_str(), row.file), 0);
    ASSERT_EQ(chmod(directory.c_str(), row.directory), 0);
    const auto file = ReadConfigFile(path);
    ASSERT_TRUE(file.ok()) << file.status();
    EXPECT_THAT(file->warnings, row.warning.empty() ? Matcher<std::vector<std::string>>(IsEmpty())
                                                    : ElementsAre(StartsWith(row.warning)));
  }
}

TEST_F(ConfigFileOnDiskTest, AnOptionalFileMayBeMissing) {
  const auto file = ReadConfigFile(tree_.Path("none.yaml"), /*may_be_missing=*/true);
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_EQ(file->path, "");
}

// None of them is waited for, or read to its end.
TEST_F(ConfigFileOnDiskTest, WhatIsNoReadableFileIsNamedWithWhatToDo) {
  const std::string directory = tree_.root();
  ASSERT_EQ(mkfifo(tree_.Path("pipe").c_str(), 0600), 0);
  const std::pair<std::string, std::string> rows[] = {
      {"", "--config is empty; "},
      {directory, ": it is a directory; give the path of a regular file in --config"},
      {directory + "/none.yaml",
       ": No such file or directory; create it, or give another path in --config"},
      {directory + "/pipe", ": it is not a regular file; "},
      {"/dev/zero", ": it is not a regular file; "},
      {Write("large", std::string(kMaxYamlBytes + 1, '#')), ": it is larger than 1048576 bytes; "},
      // Address 0 of this process: an I/O error, for root too.
      {"/proc/self/mem", ": Input/output error; give the path of a readable file in --config"},
  };
  for (const auto& [path, message] : rows) EXPECT_THAT(ErrorOf(path), HasSubstr(message));
  EXPECT_FALSE(ReadConfigFile(directory, /*may_be_missing=*/true).ok());
}

TEST_F(ConfigFileOnDiskTest, ReportsMissingPermission) {
  const std::string path = Write("c.yaml", Agent(""));
  ASSERT_EQ(chmod(path.c_str(), 0), 0);
  // Root reads everything.
  absl::StatusOr<ConfigFile> file;
  kipt::testing::WithoutCapabilities([&] { file = ReadConfigFile(path); });
  EXPECT_THAT(
      file,
      StatusIs(absl::StatusCode::kInvalidArgument,
               HasSubstr(": Permission denied; let the agent's user read it and its directory")));
}

}  // namespace
}  // namespace kipt::agent::config_file_test
