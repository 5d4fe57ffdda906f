// SPDX-License-Identifier: Apache-2.0
#include <sys/stat.h>

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "agent/detect/host_files.h"
#include "tests/support/matchers.h"
#include "tests/support/status_matchers.h"
#include "tests/support/temporary_tree.h"

namespace kipt::testing {
namespace {

using namespace ::kipt::agent;  // NOLINT(google-build-using-namespace): its vocabulary

constexpr char kPortmap[] = R"({"cniVersion": "0.4.0", "name": "net", "plugins": [
  {"type": "bridge", "bridge": "cni0"},
  {"type": "portmap", "capabilities": {"portMappings": true},
   "externalSetMarkChain": "KUBE-MARK-MASQ"}]})";

constexpr char kPlugin[] = R"({"type": "portmap", "externalSetMarkChain": "KUBE-MARK-MASQ"})";

CniReference Portmap(const std::string& file) {
  return {.file = file, .plugin = "portmap", .chain = "KUBE-MARK-MASQ"};
}

CniConfigs ReadCniConfigs(const std::vector<std::string>& directories) {
  return ReadNodeCniConfigs({}, directories);
}

TEST(CniConfigTest, FindsTheChainThatAPluginNames) {
  struct Row {
    std::string text;
    std::vector<CniReference> expected = {};
  };
  const Row rows[] = {
      {kPortmap, {Portmap("f")}},
      {R"({"plugins": [{"type": "portmap"}]})"},
      {R"({"plugins": [{"externalSetMarkChain": "X"}]})", {{"f", "", "X"}}},
      {R"({"plugins": [{"type": "a", "externalSetMarkChain": "X"},
                       {"type": "b", "externalSetMarkChain": "Y"}]})",
       {{"f", "a", "X"}, {"f", "b", "Y"}}},
      {R"({"type": "multus", "delegates": [{"plugins": [
           {"type": "portmap", "externalSetMarkChain": "KUBE-MARK-MASQ"}]}]})",
       {Portmap("f")}},
      {R"({"type": "portmap", "ExternalSetMarkCHAIN": "KUBE-MARK-MASQ"})", {Portmap("f")}},
      {R"({"type": "a", "externalSetMarkChain": "X", "ExternalSetMarkChain": "Y"})",
       {{"f", "a", "Y"}, {"f", "a", "X"}}},
      {R"({"type": "portmap", "externalSetMarkChain": ""})"},
      {R"({"type": "\"externalSetMarkChain\": \"X\""})"},
      {R"({"type": 7, "externalSetMarkChain": "X"})", {{"f", "", "X"}}},
      {R"({"cni": {"chainingMode": ["x", 1, true, null]}, "plugins": 3})"},
  };
  for (const Row& row : rows) {
    EXPECT_THAT(ParseCniConfig("f", row.text), IsOkAndHolds(row.expected)) << row.text;
  }
}

TEST(CniConfigTest, RefusesWhatItCannotUnderstand) {
  const std::pair<std::string, std::string> rows[] = {
      {"", "f is not JSON"},
      {R"({"plugins": [)", "f is not JSON"},
      {"{} {}", "f is not JSON"},
      {std::string("\xff\x00\xfe", 3), "f is not JSON"},
      {"[]", "f is not a CNI configuration"},
      {"null", "f is not a CNI configuration"},
      {R"({"externalSetMarkChain": 7})", "externalSetMarkChain is not text"},
      {R"({"plugins": [{"externalSetMarkChain": ["X"]}]})", "externalSetMarkChain is not text"},
  };
  for (const auto& [text, message] : rows) {
    EXPECT_THAT(ParseCniConfig("f", text),
                StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(message)))
        << text;
  }
}

// On an 8 MiB stack, half a million levels of recursion would overflow.
TEST(CniConfigTest, SurvivesDeepNesting) {
  const std::string open(500'000, '[');
  const std::string close(500'000, ']');
  EXPECT_THAT(ParseCniConfig("f", open), StatusIs(absl::StatusCode::kInvalidArgument));
  EXPECT_THAT(ParseCniConfig("f", open + close), StatusIs(absl::StatusCode::kInvalidArgument));
  EXPECT_THAT(ParseCniConfig("f", absl::StrCat(R"({"a": )", open,
                                               R"({"externalSetMarkChain": "X"})", close, "}")),
              IsOkAndHolds(ElementsAre(CniReference{"f", "", "X"})));
  std::string objects;
  for (int i = 0; i < 100'000; ++i) objects += "{\"a\":";
  EXPECT_THAT(ParseCniConfig("f", objects + "1" + std::string(100'000, '}')),
              IsOkAndHolds(IsEmpty()));
}

TEST(CniConfigsTest, ReadsTheFilesThatLibcniReads) {
  const TemporaryTree tree;
  tree.Write("net.d/10-a.conflist", kPortmap);
  tree.Write("net.d/20-b.conf", R"({"type": "b", "externalSetMarkChain": "B"})");
  tree.Write("net.d/30-c.json", R"({"type": "c", "externalSetMarkChain": "C"})");
  tree.Write("net.d/40-d.conflist.bak", kPortmap);
  tree.Write("net.d/README", "no JSON");
  tree.Directory("net.d/50-e.conf");
  tree.Write("net.d/multus.d/60-f.conf", kPortmap);
  const CniConfigs configs = ReadCniConfigs({tree.Path("net.d")});
  EXPECT_EQ(configs, (CniConfigs{.directories = {tree.Path("net.d")},
                                 .references = {Portmap(tree.Path("net.d/10-a.conflist")),
                                                {tree.Path("net.d/20-b.conf"), "b", "B"},
                                                {tree.Path("net.d/30-c.json"), "c", "C"}},
                                 .problems = {}}));
}

TEST(CniConfigsTest, ReportsWhatItCannotReadAndReadsTheOthers) {
  const TemporaryTree tree;
  tree.Write("net.d/10-bad.conf", "{");
  tree.Write("net.d/20-large.conf", std::string((1 << 20) - 2, ' ') + "{}" + " ");
  tree.Write("net.d/21-largest.conf", std::string((1 << 20) - 2, ' ') + "{}");
  ASSERT_EQ(mkfifo(tree.Path("net.d/30-fifo.conf").c_str(), 0600), 0);
  tree.Link("net.d/40-device.conf", "/dev/zero");
  tree.Link("net.d/50-dangling.conf", "nowhere");
  tree.Link("net.d/51-loop.conf", "51-loop.conf");
  tree.Write("net.d/60-good.conflist", kPortmap);
  tree.Write("plain", "a file");
  const CniConfigs configs = ReadCniConfigs({tree.Path("plain"), tree.Path("net.d")});
  EXPECT_THAT(configs.directories, ElementsAre(tree.Path("net.d")));
  EXPECT_THAT(configs.references, ElementsAre(Portmap(tree.Path("net.d/60-good.conflist"))));
  const auto about = [&](const char* name, const char* what) {
    return AllOf(HasSubstr(tree.Path(name)), HasSubstr(what));
  };
  EXPECT_THAT(configs.problems, ElementsAre(about("plain", "Not a directory"),
                                            about("net.d/10-bad.conf", "is not JSON"),
                                            about("net.d/20-large.conf", "larger than 1 MiB"),
                                            about("net.d/30-fifo.conf", "is no regular file"),
                                            about("net.d/40-device.conf", "is no regular file"),
                                            about("net.d/50-dangling.conf", "No such file"),
                                            about("net.d/51-loop.conf", "symbolic links")));
}

// CNI 1.1 (libcni 1.3): a list's plugins may each be a file of its own.
TEST(CniConfigsTest, ReadsTheSubFolderThatIsNamedAsTheNetwork) {
  const TemporaryTree tree;
  tree.Write("net.d/10-pods.conflist", R"({"cniVersion": "1.1.0", "name": "pod.net-1_a"})");
  tree.Write("net.d/pod.net-1_a/10-bridge.conf", R"({"type": "bridge"})");
  tree.Write("net.d/pod.net-1_a/20-portmap.conf", kPlugin);
  tree.Write("net.d/pod.net-1_a/30-list.conflist", kPortmap);
  tree.Write("net.d/pod.net-1_a/40-old.json", kPlugin);
  tree.Directory("net.d/pod.net-1_a/50-directory.conf");
  tree.Write("net.d/pod.net-1_a/deeper/60-portmap.conf", kPlugin);
  tree.Write("net.d/another/70-portmap.conf", kPlugin);
  // Two lists of one name have one sub-folder.
  tree.Write("net.d/20-again.conflist", R"({"name": "pod.net-1_a", "plugins": [{"type": "x"}]})");
  const CniConfigs configs = ReadCniConfigs({tree.Path("net.d")});
  EXPECT_EQ(configs,
            (CniConfigs{.directories = {tree.Path("net.d")},
                        .references = {Portmap(tree.Path("net.d/pod.net-1_a/20-portmap.conf"))},
                        .problems = {}}));
}

// As libcni decides it: libcni/conf.go, NetworkConfFromFile and NetworkConfFromBytes.
TEST(CniConfigsTest, ReadsTheSubFolderWhereverLibcniWould) {
  const auto read_with = [](const std::string& text, const std::string& file) {
    const TemporaryTree tree;
    tree.Write("net.d/" + file, text);
    tree.Write("net.d/net/20-portmap.conf", kPlugin);
    const CniConfigs configs = ReadCniConfigs({tree.Path("net.d")});
    EXPECT_THAT(configs.problems, IsEmpty()) << text;
    return !configs.references.empty();
  };
  for (const char* text : {R"({"name": "net"})", R"({"name": "net", "plugins": [{"type": "x"}]})",
                           R"({"name": "net", "loadOnlyInlinedPlugins": false})",
                           R"({"name": "net", "loadOnlyInlinedPlugins": "False"})",
                           R"({"name": "net", "loadonlyinlinedplugins": true})"}) {
    EXPECT_TRUE(read_with(text, "10.conflist")) << text;
  }
  for (const char* text :
       {R"({"name": "net", "loadOnlyInlinedPlugins": true, "plugins": [{"type": "x"}]})",
        R"({"name": "net", "loadOnlyInlinedPlugins": "tRUE", "plugins": [{"type": "x"}]})",
        R"({"plugins": [{"type": "x"}]})", R"({"name": ["net"]})", R"({"name": "Net"})"}) {
    EXPECT_FALSE(read_with(text, "10.conflist")) << text;
  }
  EXPECT_FALSE(read_with(R"({"name": "net", "type": "x"})", "10.conf"));
  EXPECT_FALSE(read_with(R"({"name": "net", "plugins": []})", "10.json")) << "a list by its fields";
}

// libcni refuses to use a network of such a name (utils.ValidateNetworkName), and a path that it
// would lead to is not read here.
TEST(CniConfigsTest, FollowsNoNameThatIsNoNetworks) {
  for (const std::string name : {"..", ".", "../outside", "a/b", ".hidden", "-net", "net ", ""}) {
    SCOPED_TRACE(name);
    const TemporaryTree tree;
    tree.Write("net.d/10.conflist", absl::StrCat(R"({"name": ")", name, R"("})"));
    for (const std::string folder :
         {".", "net.d", "net.d/a/b", "outside", "net.d/.hidden", "net.d/-net", "net.d/net "}) {
      tree.Write(folder + "/20-portmap.conf", kPlugin);
    }
    const CniConfigs configs = ReadCniConfigs({tree.Path("net.d")});
    // That of net.d itself, as ever.
    EXPECT_THAT(configs.references, ElementsAre(Portmap(tree.Path("net.d/20-portmap.conf"))));
    EXPECT_THAT(configs.problems, ElementsAre(AllOf(HasSubstr("10.conflist"),
                                                    HasSubstr("not a valid network name"))));
  }
}

TEST(CniConfigsTest, ReportsASubFolderThatItCannotRead) {
  const TemporaryTree tree;
  tree.Write("net.d/10-a.conflist", R"({"name": "file"})");
  tree.Write("net.d/20-b.conflist", R"({"name": "loop"})");
  tree.Write("net.d/30-c.conflist", R"({"name": "net"})");
  tree.Write("net.d/40-d.conflist", R"({"name": "none"})");
  tree.Write("net.d/file", "");
  tree.Link("net.d/loop", "loop");
  tree.Write("elsewhere/10-bad.conf", "{");
  tree.Directory("elsewhere/really");
  tree.Link("elsewhere/20-directory.conf", "really");
  tree.Write("elsewhere/30-portmap.conf", kPlugin);
  tree.Link("net.d/net", "../elsewhere");
  const CniConfigs configs = ReadCniConfigs({tree.Path("net.d")});
  EXPECT_THAT(configs.references, ElementsAre(Portmap(tree.Path("net.d/net/30-portmap.conf"))));
  const auto about = [&](const char* name, const char* what) {
    return AllOf(HasSubstr(tree.Path(name)), HasSubstr(what));
  };
  EXPECT_THAT(
      configs.problems,
      ElementsAre(about("net.d/file", "Not a directory"), about("net.d/loop", "symbolic links"),
                  about("net.d/net/10-bad.conf", "is not JSON"),
                  about("net.d/net/20-directory.conf", "is no regular file")));
}

TEST(CniConfigsTest, ReadsTheKnownDirectoriesOfANode) {
  const TemporaryTree tree;
  CniConfigs expected;
  for (const char* const directory :
       {"etc/cni/net.d", "var/lib/rancher/k3s/agent/etc/cni/net.d",
        "var/lib/rancher/rke2/agent/etc/cni/net.d", "var/snap/microk8s/current/args/cni-network",
        "etc/kubernetes/cni/net.d", "run/multus/cni/net.d", "etc/cni/multus/net.d",
        "etc/cni/net.mk"}) {
    const std::string file = absl::StrCat(directory, "/10-a.conflist");
    tree.Write(file, kPortmap);
    expected.directories.push_back(tree.Path(directory));
    expected.references.push_back(Portmap(tree.Path(file)));
  }
  const CniConfigs configs = ReadNodeCniConfigs({tree.root(), ""});
  EXPECT_EQ(configs, expected);
  EXPECT_EQ(ReadNodeCniConfigs({tree.root() + "/", ""}), configs);
}

// A container sees the node's files under a directory, so absolute links must be resolved below it.
TEST(CniConfigsTest, FollowsANodesLinksWithinItsRoot) {
  const TemporaryTree tree;
  tree.Write("host/opt/net/10-a.conflist", kPortmap);
  tree.Link("host/etc/cni/net.d", "/opt/net");
  tree.Link("host/opt/net/20-b.conf", "/opt/net/10-a.conflist");
  tree.Write("outside.conf", R"({"type": "x", "externalSetMarkChain": "OUTSIDE"})");
  tree.Link("host/opt/net/30-c.conf", "../../../outside.conf");
  tree.Link("host/opt/net/40-d.conf", tree.Path("outside.conf"));
  tree.Link("host/opt/net/50-e.conf", "../../opt/net/10-a.conflist");
  tree.Link("host/etc/cni/net.mk", "/opt/no-such-directory-here");
  const CniConfigs configs = ReadNodeCniConfigs({tree.Path("host"), ""});
  EXPECT_THAT(configs.directories, ElementsAre(tree.Path("host/etc/cni/net.d")));
  EXPECT_THAT(configs.references,
              ElementsAre(Portmap(tree.Path("host/etc/cni/net.d/10-a.conflist")),
                          Portmap(tree.Path("host/etc/cni/net.d/20-b.conf")),
                          Portmap(tree.Path("host/etc/cni/net.d/50-e.conf"))));
  EXPECT_THAT(configs.problems, ElementsAre(HasSubstr("30-c.conf: No such file"),
                                            HasSubstr("40-d.conf: No such file")));
}

TEST(CniConfigsTest, ReportsInaccessibleFilesOfANode) {
  const CniConfigs unseen = ReadNodeCniConfigs({"", "not on the host"});
  EXPECT_THAT(unseen.problems, ElementsAre(HasSubstr("not on the host")));
  EXPECT_THAT(ReadNodeCniConfigs({"/no/such/root", ""}).problems,
              ElementsAre(HasSubstr("/no/such/root")));
  const TemporaryTree empty;
  empty.Write("file", "");
  EXPECT_THAT(ReadNodeCniConfigs({empty.Path("file"), ""}).problems,
              ElementsAre(HasSubstr(empty.Path("file"))));
  EXPECT_EQ(ReadNodeCniConfigs({empty.root(), ""}), CniConfigs{});
  empty.Write("net.d/10.conflist", R"({"name": "net", "plugins": []})");
  empty.Link("net.d/net", "/no/such/folder");
  EXPECT_THAT(ReadCniConfigs({empty.Path("net.d")}).problems,
              ElementsAre(HasSubstr("net.d/net: its link leads nowhere")));
  EXPECT_THAT(ReadCniConfigs({empty.Path("none")}).problems,
              ElementsAre(AllOf(HasSubstr(empty.Path("none")), HasSubstr("No such file"))));
  // Helm's chart makes the folder that it is given.
  EXPECT_THAT(ReadCniConfigs({empty.root()}).problems,
              ElementsAre(absl::StrCat(empty.root(),
                                       " has no CNI configuration: is it where this "
                                       "node keeps them?")));
}

}  // namespace
}  // namespace kipt::testing
