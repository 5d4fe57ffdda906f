// SPDX-License-Identifier: Apache-2.0
//
// A kubelet and a kube-proxy program as actors. Between acts each is stopped (SIGSTOP), so it does
// nothing while the node is asked. The iptables that it finds in PATH is this machine's, of one
// mode.
#include <algorithm>
#include <csignal>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "tests/skew/actors/actors.h"
#include "tests/skew/actors/iptables_calls.h"
#include "tests/skew/api_server/api_server.h"
#include "tests/support/background_program.h"
#include "tests/support/run_program.h"
#include "tests/support/scratch_directory.h"

namespace kipt::skew {
namespace {

using testing::IpFamily;

// Links to iptables in `directory`; false if they cannot be made.
bool LinkIptables(const testing::ScratchDirectory& directory, testing::IptablesMode mode) {
  if (!directory.MakeDirectory("bin")) return false;
  for (const char* family : {"iptables", "ip6tables"}) {
    for (const char* suffix : {"", "-save", "-restore"}) {
      std::error_code error;
      std::filesystem::create_symlink(
          absl::StrCat("/usr/sbin/", family, "-", testing::NameOf(mode), suffix),
          directory.Path(absl::StrCat("bin/", family, suffix)), error);
      if (error) return false;
    }
  }
  return true;
}

// PATH with these links first.
std::vector<std::string> PathWith(const testing::ScratchDirectory& directory) {
  return {absl::StrCat("PATH=", directory.Path("bin"), ":/usr/sbin:/usr/bin:/sbin:/bin")};
}

// It is killed when this object goes, or the thread that started it.
class StoppedProgram {
 public:
  void Start(const std::vector<std::string>& argv, const std::vector<std::string>& environment) {
    program_ = std::make_unique<testing::BackgroundProgram>(argv, environment);
  }

  // It continues until `done`, and is stopped again. Not ok: it has ended, or `done` does not
  // become true in time, which `complaint` reports.
  Act RunUntil(const std::function<bool()>& done, absl::Duration patience,
               const std::string& complaint) {
    if (program_ == nullptr) return {.ok = false, .error = "not started"};
    program_->Signal(SIGCONT);
    const bool over = testing::WaitUntil([&] { return !program_->Running() || done(); }, patience);
    const bool ended = !program_->Running();
    if (!ended) program_->Signal(SIGSTOP);
    if (over && !ended) return {};
    const std::string what = ended ? absl::StrCat("ended with ", program_->Wait()) : complaint;
    return {.ok = false, .error = absl::StrCat(what, ": ", LastLines(program_->Output()))};
  }
  void Kill() { program_ = nullptr; }

 private:
  std::unique_ptr<testing::BackgroundProgram> program_;
};

// ---- kubelet ----

// A kubelet makes its canaries last, after each of its syncs. So they are removed before it starts,
// and when they are back it has synced.
constexpr char kCanary[] = "KUBE-KUBELET-CANARY";
// It checks its canary once a minute.
constexpr absl::Duration kPatience = absl::Minutes(2);

class ProgramKubelet : public NodeAgent {
 public:
  ProgramKubelet(std::string program, const KubeletSettings& settings)
      : program_(std::move(program)), settings_(settings) {
    for (const IpFamily family : testing::kBothFamilies) {
      if (family == IpFamily::kIpv6 && !Does(settings.version.version, Trait::kKubeletIpv6)) {
        continue;
      }
      families_.push_back(family);
    }
  }

  Act Start() override {
    if (!LinkIptables(directory_, settings_.iptables.mode)) {
      return {.ok = false, .error = "no directory of its own in /run"};
    }
    for (const IpFamily family : families_) {
      for (const char* table : {"mangle", "nat", "filter"}) {
        settings_.iptables.Of(family).Run({"-w", "5", "-t", table, "-X", kCanary});
      }
    }
    kubelet_.Start({program_}, PathWith(directory_));
    Act act = Tick();
    if (act.ok) act.done.push_back(absl::StrCat(program_, " has synced"));
    return act;
  }

  Act Tick() override {
    return kubelet_.RunUntil([this] { return HasCanaries(); }, kPatience,
                             "its canaries do not come back");
  }

  Act Stop() override {
    kubelet_.Kill();
    return {};
  }

 private:
  bool HasCanaries() const {
    return std::all_of(families_.begin(), families_.end(), [this](IpFamily family) {
      const std::string rules = settings_.iptables.Of(family).Save().out;
      return testing::CountOf(absl::StrCat(":", kCanary, " "), rules) == 3;
    });
  }

  const std::string program_;
  const KubeletSettings settings_;
  const testing::ScratchDirectory directory_;
  std::vector<IpFamily> families_;
  StoppedProgram kubelet_;
};

using testing::BackgroundProgram;

// ---- kube-proxy ----

// How one knows what a kube-proxy program has done, without sleeping and hoping:
//
//   * After all services of a sync comes a marker, with an address and an endpoint that no earlier
//     one had. When the kernel's rules have both, they have all that came before.
//   * A sync period, in which it repairs lost canaries, is one second. The canaries come back last.

constexpr char kNodeName[] = "node";
constexpr absl::Duration kSyncPatience = absl::Minutes(1);
constexpr absl::Duration kCleanupPatience = absl::Seconds(60);
constexpr int kMarkers = 250;

// Endpoints of documentation's networks: nobody sends anything there.
ServicePort Marker(IpFamily family, int number) {
  const bool four = family == IpFamily::kIpv4;
  ServicePort port;
  port.service = absl::StrCat("zz-marker/marker-", number);
  port.port_name = "tcp";
  port.cluster_ip = four ? absl::StrCat("172.30.255.", number)
                         : absl::StrCat("fd00:30::ff", absl::Hex(number, absl::kZeroPad2));
  port.port = 9;
  port.endpoints = {
      {four ? absl::StrCat("203.0.113.", number) : absl::StrCat("2001:db8::", absl::Hex(number)), 9,
       false}};
  return port;
}

// The iptables that a program finds in PATH, and its configuration.
class Surroundings {
 public:
  explicit Surroundings(const ProxyActorSettings& settings) : settings_(settings) {}

  bool Make(int api_port) const {
    if (!LinkIptables(directory_, settings_.iptables.mode)) return false;
    return directory_.WriteFile("kubeconfig", KubeConfig(api_port)) &&
           directory_.WriteFile("config.yaml", Config());
  }

  std::vector<std::string> Environment() const { return PathWith(directory_); }
  std::string ConfigPath() const { return directory_.Path("config.yaml"); }

 private:
  static std::string KubeConfig(int api_port) {
    return absl::StrCat(
        "apiVersion: v1\nkind: Config\n"
        "clusters: [{name: c, cluster: {server: \"http://127.0.0.1:",
        api_port,
        "\"}}]\n"
        "contexts: [{name: c, context: {cluster: c, user: u}}]\n"
        "users: [{name: u, user: {}}]\ncurrent-context: c\n");
  }

  std::string Config() const {
    const Version version = settings_.version.version;
    return absl::StrCat(
        "apiVersion: kubeproxy.config.k8s.io/v1alpha1\nkind: KubeProxyConfiguration\n"
        "mode: ",
        settings_.version.mode == ProxyMode::kNftables ? "nftables" : "iptables",
        "\nclientConnection: {kubeconfig: \"", directory_.Path("kubeconfig"),
        "\", contentType: application/json}\n"
        "hostnameOverride: ",
        kNodeName, "\nclusterCIDR: \"", settings_.pod_cidr_v4, ",", settings_.pod_cidr_v6,
        "\"\n"
        "healthzBindAddress: 127.0.0.1:10256\nmetricsBindAddress: 127.0.0.1:10249\n"
        // The machine's, not the node's.
        "conntrack: {maxPerCore: 0, min: 0, tcpEstablishedTimeout: 0s, tcpCloseWaitTimeout: 0s}\n",
        settings_.version.mode == ProxyMode::kNftables ? "nftables" : "iptables",
        ": {masqueradeBit: ", settings_.masquerade_bit, ", syncPeriod: 1s, minSyncPeriod: 10ms}\n",
        // Later it is on.
        version < Version{1, 21} ? "featureGates: {IPv6DualStack: true}\n" : "");
  }

  const ProxyActorSettings settings_;
  const testing::ScratchDirectory directory_;
};

class ProgramProxy : public ServiceProxy {
 public:
  ProgramProxy(std::string program, const ProxyActorSettings& settings)
      : program_(std::move(program)), settings_(settings), surroundings_(settings) {}

  Act Start(const std::vector<ServicePort>& ipv4, const std::vector<ServicePort>& ipv6) override {
    absl::StatusOr<std::unique_ptr<ApiServer>> server = ApiServer::Start();
    if (!server.ok()) return Failure(std::string(server.status().message()));
    server_ = *std::move(server);
    if (!surroundings_.Make(server_->port())) return Failure("no directory of its own in /run");
    // Rules of an earlier one may still name its last marker.
    while (marker_ < kMarkers && HasMarker(IpFamily::kIpv4)) ++marker_;
    SetObjects(ipv4, ipv6);
    proxy_.Start({program_, "--config=" + surroundings_.ConfigPath(), "-v=2"},
                 surroundings_.Environment());
    return AwaitMarker();
  }

  Act Sync(const std::vector<ServicePort>& ipv4, const std::vector<ServicePort>& ipv6) override {
    if (server_ == nullptr) return Failure("not started");
    ++marker_;
    SetObjects(ipv4, ipv6);
    return AwaitMarker();
  }

  Act Tick() override {
    return proxy_.RunUntil([this] { return HasCanaries(); }, kSyncPatience,
                           "its canaries do not come back");
  }

 private:
  static Act Failure(std::string error) { return {.ok = false, .error = std::move(error)}; }

  void SetObjects(std::vector<ServicePort> ipv4, std::vector<ServicePort> ipv6) {
    ipv4.push_back(Marker(IpFamily::kIpv4, marker_));
    ipv6.push_back(Marker(IpFamily::kIpv6, marker_));
    server_->Set(
        ObjectsOf({.node_name = kNodeName,
                   .node_ips = {settings_.node_ip_v4, settings_.node_ip_v6},
                   .pod_cidrs = {settings_.pod_cidr_v4, settings_.pod_cidr_v6},
                   .service_cidrs = {settings_.service_cidr_v4, settings_.service_cidr_v6}},
                  ipv4, ipv6));
  }

  Act AwaitMarker() {
    Act act =
        proxy_.RunUntil([this] { return HasMarker(IpFamily::kIpv4) && HasMarker(IpFamily::kIpv6); },
                        kSyncPatience, "its rules do not have all services");
    if (act.ok) act.done.push_back(absl::StrCat(program_, " has synced"));
    return act;
  }

  std::string RulesOf(IpFamily family) const {
    if (settings_.version.mode == ProxyMode::kNftables) {
      return testing::RunProgram(
                 {kNft, "list", "table", family == IpFamily::kIpv4 ? "ip" : "ip6", "kube-proxy"})
          .out;
    }
    return settings_.iptables.Of(family).Save().out;
  }

  bool HasMarker(IpFamily family) const {
    const ServicePort marker = Marker(family, marker_);
    const std::string rules = RulesOf(family);
    const std::string& endpoint = marker.endpoints.front().address;
    return absl::StrContains(rules, marker.cluster_ip) &&
           (absl::StrContains(rules, endpoint + ":") || absl::StrContains(rules, endpoint + "]:") ||
            absl::StrContains(rules, endpoint + " "));
  }

  bool HasCanaries() const {
    if (settings_.version.mode == ProxyMode::kNftables) return true;
    return std::all_of(std::begin(testing::kBothFamilies), std::end(testing::kBothFamilies),
                       [this](IpFamily family) {
                         return testing::CountOf(":KUBE-PROXY-CANARY ", RulesOf(family)) == 3;
                       });
  }

  const std::string program_;
  const ProxyActorSettings settings_;
  const Surroundings surroundings_;
  int marker_ = 1;
  // Outlives the program, which asks it.
  std::unique_ptr<ApiServer> server_;
  StoppedProgram proxy_;
};

}  // namespace

std::unique_ptr<NodeAgent> NewProgramKubelet(const std::string& program,
                                             const KubeletSettings& settings) {
  return std::make_unique<ProgramKubelet>(program, settings);
}

std::unique_ptr<ServiceProxy> NewProgramProxy(const std::string& program,
                                              const ProxyActorSettings& settings) {
  return std::make_unique<ProgramProxy>(program, settings);
}

Act CleanUpByProgram(const std::string& program, const ProxyActorSettings& settings) {
  const Surroundings surroundings(settings);
  if (!surroundings.Make(0)) return {.ok = false, .error = "no directory of its own in /run"};
  BackgroundProgram cleanup({program, "--config=" + surroundings.ConfigPath(), "--cleanup"},
                            surroundings.Environment());
  const int code = cleanup.Wait(kCleanupPatience);
  if (code == 0) return {.done = {program + " --cleanup"}};
  return {.ok = false,
          .error = absl::StrCat("--cleanup: exit code ", code, ": ", LastLines(cleanup.Output()))};
}

}  // namespace kipt::skew
