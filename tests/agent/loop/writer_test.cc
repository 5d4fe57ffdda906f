// SPDX-License-Identifier: Apache-2.0
#include "agent/loop/writer.h"

#include <sys/stat.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <system_error>
#include <thread>

#include "absl/strings/str_cat.h"
#include "tests/support/matchers.h"
#include "tests/support/temporary_tree.h"

namespace kipt::testing {
namespace {

using namespace ::kipt::agent;  // NOLINT(google-build-using-namespace): its vocabulary
using namespace std::string_literals;

constexpr char kInitialNamespace[] = "pid:[4026531836]";
const std::string kId =
    "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";  // a container's
const std::string kUid = "12345678-1234-5678-9abc-123456789abc";         // a pod's
const std::string kUid_ = "12345678_1234_5678_9abc_123456789abc";

class WriterTest : public ::testing::Test {
 protected:
  WriterTest() {
    tree_.Link("pid_namespace", kInitialNamespace);
    Process("nft", "nft\0flush\0ruleset\0"s, "0::/user.slice/user-0.slice/session-3.scope\n");
    tree_.Write("proc/4200/comm", "bash\n");
  }

  void Process(const std::string& comm, const std::string& cmdline, const std::string& cgroup) {
    tree_.Write("proc/4242/comm", comm + "\n");
    tree_.Write("proc/4242/cmdline", cmdline);
    tree_.Write("proc/4242/cgroup", cgroup);
    tree_.Write("proc/4242/stat", "4242 (" + comm + ") S 4200 4242 4200 0 -1 4194304 89 0 0 0\n");
  }

  Writer Identify(const std::string& command = "nft", uint32_t pid = 4242) const {
    return IdentifyWriter(
        {.generation = 7, .pid = pid, .command = command},
        {.proc = tree_.Path("proc"), .pid_namespace = tree_.Path("pid_namespace")});
  }

  TemporaryTree tree_;
};

TEST_F(WriterTest, HasAllThatProcKnows) {
  const Writer writer = Identify();
  EXPECT_EQ(writer, (Writer{.pid = 4242,
                            .command = "nft",
                            .command_line = "nft flush ruleset",
                            .unit = "session-3.scope",
                            .parent_pid = 4200,
                            .parent_command = "bash"}));
  EXPECT_EQ(ToString(writer),
            "nft (PID 4242: \"nft flush ruleset\"; in session-3.scope; started by bash, PID 4200)");
  EXPECT_EQ(ToString(Writer{.pid = 1, .command = "sh", .command_line = "sh -c \"x\""}),
            R"(sh (PID 1: "sh -c \"x\""))");
}

TEST_F(WriterTest, KnowsKubeProxyByItsNameAndWhetherItStillRuns) {
  const auto among = [this](const std::vector<Writer>& writers) {
    return KubeProxyAmong(writers, {.proc = tree_.Path("proc")});
  };
  const Writer of_bash = Identify();
  EXPECT_EQ(among({}), std::nullopt);
  EXPECT_EQ(among({of_bash}), std::nullopt);
  tree_.Write("proc/4200/comm", "kube-proxy\n");
  const Writer of_kube_proxy = Identify();
  EXPECT_EQ(among({of_kube_proxy, of_bash}), true);
  Writer of_ended = of_kube_proxy;
  of_ended.parent_pid = 4100;
  EXPECT_EQ(among({of_ended}), false);
  EXPECT_EQ(among({of_ended, of_kube_proxy}), true);
  EXPECT_EQ(among({of_kube_proxy, of_ended}), true);
}

TEST_F(WriterTest, LeavesOutWhatIsNotKnown) {
  EXPECT_EQ(ToString(Writer()), "unknown");
  EXPECT_EQ(ToString(Writer{.command = "nft"}), "nft");
  EXPECT_EQ(ToString(Writer{.pid = 1, .command = "nft"}), "nft (PID 1)");
  EXPECT_EQ(ToString(Writer{.pid = 1, .command = "nft", .unit = "a.service"}),
            "nft (PID 1; in a.service)");
  EXPECT_EQ(ToString(Writer{.pid = 2, .command = "nft", .parent_pid = 1}),
            "nft (PID 2; started by PID 1)");
}

TEST_F(WriterTest, OfAnEndedWriterOnlyTheCommandIsKnown) {
  const Writer only_command{.pid = 4242, .command = "iptables-nft-re"};
  EXPECT_EQ(Identify("iptables-nft-re"), only_command) << "the ID is another process' by now";
  tree_.Remove("proc/4242");
  EXPECT_EQ(Identify("iptables-nft-re"), only_command) << "it is gone";
  tree_.Remove("proc");
  EXPECT_EQ(Identify("iptables-nft-re"), only_command) << "there is no /proc";
}

TEST_F(WriterTest, IsUnknownWhereTheKernelReportsNothing) {
  EXPECT_EQ(Identify("", 0), Writer());
  EXPECT_EQ(Identify("nft", 0), (Writer{.command = "nft"}));
  EXPECT_EQ(Identify("", 4242), (Writer{.pid = 4242}));
}

TEST_F(WriterTest, IsNotLookedUpFromAnotherPidNamespace) {
  for (const char* target : {"pid:[4026532198]", "pid:[402653183]", "pid:[40265318360]", ""}) {
    tree_.Remove("pid_namespace");
    if (*target != '\0') tree_.Link("pid_namespace", target);
    EXPECT_EQ(Identify(), (Writer{.pid = 4242, .command = "nft"})) << target;
  }
}

TEST_F(WriterTest, DoesWithWhatIsThere) {
  for (const char* name : {"cmdline", "cgroup", "stat"})
    tree_.Remove(absl::StrCat("proc/4242/", name));
  EXPECT_EQ(Identify(), (Writer{.pid = 4242, .command = "nft"}));
  Process("nft", "", "");  // a zombie
  tree_.Remove("proc/4200");
  EXPECT_EQ(Identify(), (Writer{.pid = 4242, .command = "nft", .parent_pid = 4200}));
  for (const char* stat : {"", "4242", "4242 (nft", "4242 (nft)", "4242 (nft) S",
                           "4242 (nft) S x 1", "4242 (nft) S -1 1", ")"}) {
    tree_.Write("proc/4242/stat", stat);
    EXPECT_EQ(Identify().parent_pid, 0) << stat;
  }
  tree_.Write("proc/4242/stat", "4242 (nft) S 4200");
  EXPECT_EQ(Identify().parent_pid, 4200U);
}

TEST_F(WriterTest, AreTheSameWithOneIdAndOneCommand) {
  const Writer writer = {.pid = 1, .command = "nft"};
  EXPECT_TRUE(writer.IsSame({.pid = 1, .command = "nft", .command_line = "nft flush ruleset"}));
  EXPECT_FALSE(writer.IsSame({.pid = 2, .command = "nft"}));
  EXPECT_FALSE(writer.IsSame({.pid = 1, .command = "iptables"}));
}

// A read that lasts: `name` of the process is a FIFO, fed when `meanwhile` has been done.
template <typename F>
Writer IdentifyWhile(const TemporaryTree& tree, const std::string& name, F meanwhile,
                     const std::string& text = "0::/a.service\n") {
  tree.Remove(name);
  EXPECT_EQ(mkfifo(tree.Path(name).c_str(), 0600), 0);
  Writer writer;
  std::thread identifying([&] {
    writer =
        IdentifyWriter({.pid = 4242, .command = "nft"},
                       {.proc = tree.Path("proc"), .pid_namespace = tree.Path("pid_namespace")});
  });
  std::ofstream fifo(tree.Path(name));  // returns when it is being read
  meanwhile();
  fifo << text;
  fifo.close();
  identifying.join();
  return writer;
}

TEST_F(WriterTest, TakesNothingFromAProcessThatBecomesAnotherMeanwhile) {
  EXPECT_EQ(IdentifyWhile(tree_, "proc/4242/cgroup", [] {}).unit, "a.service");
  const Writer writer = IdentifyWhile(tree_, "proc/4242/cgroup",
                                      [&] { tree_.Write("proc/4242/comm", "innocent\n"); });
  EXPECT_EQ(writer, (Writer{.pid = 4242, .command = "nft"}));
}

TEST_F(WriterTest, TakesNothingFromAnotherProcessThatEndsMeanwhile) {
  const Writer writer = IdentifyWhile(
      tree_, "proc/4242/comm", [&] { tree_.Remove("proc/4242/comm"); }, "innocent\n");
  EXPECT_EQ(writer, (Writer{.pid = 4242, .command = "nft"}));
}

TEST_F(WriterTest, RemembersWhatAProcessWasThatEndsMeanwhile) {
  const Writer writer =
      IdentifyWhile(tree_, "proc/4242/cgroup", [&] { tree_.Remove("proc/4242/comm"); });
  EXPECT_EQ(writer.command_line, "nft flush ruleset");
  EXPECT_EQ(writer.unit, "a.service");
}

TEST_F(WriterTest, StaysWithTheProcessWhenItsIdIsReused) {
  const Writer writer = IdentifyWhile(tree_, "proc/4242/cmdline", [&] {
    std::error_code error;
    std::filesystem::rename(tree_.Path("proc/4242"), tree_.Path("ended"), error);
    EXPECT_FALSE(error);
    Process("nft", "nft\0of\0another", "0::/another.service\n");
  });
  EXPECT_EQ(writer.unit, "session-3.scope");
}

struct HostileComm {
  const char* name;
  std::string comm;
  std::string shown;
};

TEST_F(WriterTest, EscapesWhatAProcessCallsItself) {
  const HostileComm rows[] = {
      {"newline", "a\nb", "a\\nb"},
      {"parentheses and numbers", "x) R 1 1 (y", "x) R 1 1 (y"},
      {"terminal escape", "\x1b[2J", "\\x1b[2J"},
      {"invalid UTF-8", "\xff\xc3", "\\xff\\xc3"},
      {"right-to-left override",
       "\xe2\x80\xae"
       "abc",
       "\\u202eabc"},
  };
  for (const HostileComm& row : rows) {
    Process(row.comm, "nft", "");
    tree_.Write("proc/4200/comm", row.comm + "\n");
    const Writer writer = Identify(row.comm);
    EXPECT_EQ(writer.command, row.shown) << row.name;
    EXPECT_EQ(writer.parent_command, row.shown) << row.name;
    EXPECT_EQ(writer.parent_pid, 4200) << row.name;
  }
}

struct CommandLineRow {
  const char* name;
  std::string cmdline;
  std::string shown;
};

TEST_F(WriterTest, ShowsArgumentsInOneLine) {
  const CommandLineRow rows[] = {
      {"a shell's", "sh\0-c\0iptables-nft -F\0"s, "sh -c 'iptables-nft -F'"},
      {"an empty argument", "nft\0\0list\0"s, "nft '' list"},
      {"quotes", "a\0it's \"x\"\0"s, "a 'it\\'s \\\"x\\\"'"},
      {"newlines", "nft\0add table x\nadd table y\n\0"s, "nft 'add table x\\nadd table y\\n'"},
      {"invalid UTF-8", "a\0\xff\xfe\x80\0"s, "a \\xff\\xfe\\x80"},
      {"a title with its padding", "nft: worker"s + std::string(2000, '\0'), "'nft: worker'"},
      {"without the last NUL", "nft", "nft"},
      {"one byte", "x", "x"},
      {"nothing", "", ""},
      {"only NULs", std::string(5, '\0'), ""},
      {"256 bytes", std::string(256, 'a'), std::string(256, 'a')},
      {"257 bytes", std::string(257, 'a'), std::string(253, 'a') + "..."},
      {"a megabyte", std::string(1 << 20, 'b'), std::string(253, 'b') + "..."},
      {"no half escapes", "aa" + std::string(100, '\x01'),
       "aa" + absl::StrCat("\\x01\\x01") +
           [] {
             std::string text;
             for (int i = 0; i < 60; ++i) text += "\\x01";
             return text;
           }() +
           "..."},
      {"a megabyte of NULs before it ends", "x"s + std::string(1 << 20, '\0') + "y", "x"},
  };
  for (const CommandLineRow& row : rows) {
    Process("nft", row.cmdline, "");
    const std::string shown = Identify().command_line;
    EXPECT_EQ(shown, row.shown) << row.name;
    EXPECT_LE(shown.size(), 256) << row.name;
  }
}

struct CgroupRow {
  const char* name;
  std::string cgroup;
  std::string unit;
};

TEST_F(WriterTest, NamesTheInnermostUnitContainerOrPod) {
  const std::string container = "container 0123456789ab";
  const std::string in_pod = container + " of pod " + kUid;
  const std::string slices = "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod";
  const CgroupRow rows[] = {
      {"a service", "0::/system.slice/firewalld.service\n", "firewalld.service"},
      {"a user's service", "0::/user.slice/user-1000.slice/user@1000.service/app.slice/x.service\n",
       "x.service"},
      {"below a service", "0::/system.slice/a.service/worker\n", "a.service"},
      {"a service removed", "0::/system.slice/a.service (deleted)\n", "a.service"},
      {"containerd, systemd", "0::" + slices + kUid_ + ".slice/cri-containerd-" + kId + ".scope\n",
       in_pod},
      {"CRI-O, systemd", "0::" + slices + kUid_ + ".slice/crio-" + kId + ".scope/container\n",
       in_pod},
      {"cgroupfs", "0::/kubepods/burstable/pod" + kUid + "/" + kId + "\n", in_pod},
      {"CRI-O, cgroupfs", "0::/kubepods/besteffort/pod" + kUid + "/crio-" + kId + "\n", in_pod},
      {"a static pod", "0::/kubepods/podd8e8fca2dc0f896fd7cb4cb0031ba249/" + kId + "\n",
       container + " of pod d8e8fca2dc0f896fd7cb4cb0031ba249"},
      {"containerd without systemd below a kubelet with it",
       "0::/system.slice/containerd.service/kubepods-burstable-pod" + kUid_ +
           ".slice:cri-containerd:" + kId + "\n",
       in_pod},
      {"from another cgroup namespace",
       "0::/../../kubepods-burstable-pod" + kUid_ + ".slice/cri-containerd-" + kId + ".scope\n",
       in_pod},
      {"the pod's own", "0::" + slices + kUid_ + ".slice\n", "pod " + kUid},
      {"docker, systemd", "0::/system.slice/docker-" + kId + ".scope\n", container},
      {"a container in a container", "0::/docker/" + std::string(64, 'f') + "/docker/" + kId + "\n",
       container},
      {"a service inside of a container", "0::/docker/" + kId + "/system.slice/a.service\n",
       "a.service"},
      {"version 1",
       "12:memory:/user.slice\n11:devices:/system.slice/ssh.service\n"
       "1:name=systemd:/user.slice/user-0.slice/session-3.scope\n0::/\n",
       "session-3.scope"},
      {"version 1, where another hierarchy comes after systemd's",
       "2:name=systemd:/user.slice/session-3.scope\n1:cpu:/system.slice/ssh.service\n",
       "session-3.scope"},
      {"both versions", "0::/system.slice/a.service\n1:cpu:/system.slice/b.service\n", "a.service"},
      {"version 1, a container without systemd",
       "12:memory:/docker/" + kId + "\n2:cpu,cpuacct:/docker/" + kId + "\n1:name=systemd:/\n",
       container},
      {"slices only", "0::/system.slice\n", ""},
      {"the root", "0::/\n", ""},
      {"63 digits", "0::/docker/" + kId.substr(1) + "\n", ""},
      {"a pod's digits alone", "0::/user.slice/" + kUid + "\n", ""},
      {"almost a pod", "0::/kubepods/pod1234/podman/pod\n", ""},
      {"no cgroup line", "nonsense\n:\n::\n\n", ""},
      {"a hostile name", "0::/user.slice/\x1b[2J\xff.service\n", "\\x1b[2J\\xff.service"},
      {"a path longer than any", "0::/" + std::string(100000, 'x') + "/a.service\n", ""},
  };
  for (const CgroupRow& row : rows) {
    Process("nft", "nft", row.cgroup);
    EXPECT_EQ(Identify().unit, row.unit) << row.name;
  }
}

}  // namespace
}  // namespace kipt::testing
