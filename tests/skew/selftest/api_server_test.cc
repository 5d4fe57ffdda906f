// SPDX-License-Identifier: Apache-2.0
#include "tests/skew/api_server/api_server.h"

#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "tests/skew/matrix/test_services.h"
#include "tests/support/background_program.h"
#include "tests/support/http_get.h"
#include "tests/support/matchers.h"

namespace kipt::skew {
namespace {

using Json = nlohmann::json;
using testing::IpFamily;

const ClusterSettings kCluster = {.node_name = "node",
                                  .node_ips = {"192.168.50.2", "fd00:50::2"},
                                  .pod_cidrs = {"10.180.0.0/24", "fd00:180::/64"},
                                  .service_cidrs = {"172.30.0.0/16", "fd00:30::/112"}};

Objects TestObjects() {
  return ObjectsOf(kCluster, TestServices(IpFamily::kIpv4), TestServices(IpFamily::kIpv6));
}

// ---- objects ----

TEST(ObjectsOfTest, AreOneServiceOfBothFamiliesAndASliceForEachOfItsPorts) {
  const Objects objects = TestObjects();
  EXPECT_EQ(objects.at(Resource::kServices).size(), 10U);
  EXPECT_EQ(objects.at(Resource::kEndpointSlices).size(), 40U);
  const Json& routed = objects.at(Resource::kServices).at("skew/routed");
  EXPECT_EQ(routed["metadata"],
            Json::parse(R"({"namespace":"skew","name":"routed","uid":"skew/routed"})"));
  EXPECT_EQ(routed["spec"]["type"], "LoadBalancer");
  EXPECT_EQ(routed["spec"]["clusterIP"], "172.30.0.8");
  EXPECT_EQ(routed["spec"]["clusterIPs"], Json::parse(R"(["172.30.0.8","fd00:30::8"])"));
  EXPECT_EQ(routed["spec"]["ipFamilies"], Json::parse(R"(["IPv4","IPv6"])"));
  EXPECT_EQ(routed["spec"]["ports"],
            Json::parse(R"([{"name":"tcp","protocol":"TCP","port":80,"nodePort":30008},
                            {"name":"udp","protocol":"UDP","port":80,"nodePort":30008}])"));
  EXPECT_EQ(routed["spec"]["loadBalancerSourceRanges"].size(), 2U);
  EXPECT_EQ(routed["status"]["loadBalancer"]["ingress"].size(), 2U);
  const Json& slice = objects.at(Resource::kEndpointSlices).at("skew/web/web-ipv6-udp");
  EXPECT_EQ(slice["addressType"], "IPv6");
  EXPECT_EQ(slice["metadata"]["labels"]["kubernetes.io/service-name"], "web");
  EXPECT_EQ(slice["ports"], Json::parse(R"([{"name":"udp","protocol":"UDP","port":8001}])"));
  std::vector<std::string> nodes;
  for (const Json& endpoint : slice["endpoints"]) {
    nodes.push_back(endpoint["nodeName"]);
    EXPECT_EQ(endpoint["topology"]["kubernetes.io/hostname"], endpoint["nodeName"]);
  }
  EXPECT_THAT(nodes, ElementsAre("node", "node", "another-node"));
}

// ---- the server ----

class ApiServerTest : public ::testing::Test {
 protected:
  ApiServerTest() {
    absl::StatusOr<std::unique_ptr<ApiServer>> server = ApiServer::Start();
    EXPECT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
    server_->Set(TestObjects());
  }
  Json Get(const std::string& path, int status = 200) const {
    const testing::HttpAnswer answer = testing::HttpGet(server_->port(), path);
    EXPECT_EQ(answer.status, status) << path;
    EXPECT_THAT(answer.headers, HasSubstr("application/json"));
    return Json::parse(answer.body, nullptr, false);
  }

  std::unique_ptr<ApiServer> server_;
};

struct ListRow {
  const char* path;
  const char* kind;
  const char* api_version;
  size_t items;
};
const ListRow kLists[] = {
    {"/api/v1/nodes?fieldSelector=metadata.name%3Dnode&limit=500", "NodeList", "v1", 1},
    {"/api/v1/services?labelSelector=%21service.kubernetes.io%2Fheadless", "ServiceList", "v1", 10},
    {"/apis/discovery.k8s.io/v1/endpointslices", "EndpointSliceList", "discovery.k8s.io/v1", 40},
    {"/apis/discovery.k8s.io/v1beta1/endpointslices", "EndpointSliceList",
     "discovery.k8s.io/v1beta1", 40},
    {"/apis/networking.k8s.io/v1/servicecidrs", "ServiceCIDRList", "networking.k8s.io/v1", 1},
};

TEST_F(ApiServerTest, ListsWhatKubeProxyAsksFor) {
  for (const ListRow& row : kLists) {
    const Json list = Get(row.path);
    EXPECT_EQ(list["kind"], row.kind);
    EXPECT_EQ(list["apiVersion"], row.api_version);
    EXPECT_EQ(list["items"].size(), row.items) << row.path;
    EXPECT_EQ(list["metadata"]["resourceVersion"], "52") << row.path;
  }
}

TEST_F(ApiServerTest, GivesOneNodeAndSaysWhatItDoesNotHave) {
  const Json node = Get("/api/v1/nodes/node");
  EXPECT_EQ(node["apiVersion"], "v1");
  EXPECT_EQ(node["spec"]["podCIDRs"].size(), 2U);
  EXPECT_EQ(node["status"]["addresses"][1],
            Json::parse(R"({"type":"InternalIP","address":"192.168.50.2"})"));
  EXPECT_EQ(Get("/api/v1/nodes/another", 404)["reason"], "NotFound");
  EXPECT_EQ(Get("/api/v1/pods", 404)["kind"], "Status");
  EXPECT_EQ(testing::HttpGet(server_->port(), "/api/v1/namespaces/default/events", "POST").status,
            405);
}

// What a watch sends within a second. That it stays open is seen by stand_in_proxy
// (program_actors_test.cc).
std::string Watched(int port, const std::string& request) {
  return testing::HttpGet(port, request, "GET", absl::Seconds(1)).body;
}

TEST_F(ApiServerTest, SendsWhatHasChangedToAWatch) {
  std::vector<ServicePort> ipv4 = TestServices(IpFamily::kIpv4);
  std::vector<ServicePort> ipv6 = TestServices(IpFamily::kIpv6);
  for (std::vector<ServicePort>* ports : {&ipv4, &ipv6}) {
    std::erase_if(*ports, [](const ServicePort& port) { return port.service == "skew/web"; });
    for (ServicePort& port : *ports) {
      if (port.service == "skew/here") port.external_local = false;
    }
  }
  ipv4.push_back({.service = "skew/new", .cluster_ip = "172.30.0.99", .port = 1});
  server_->Set(ObjectsOf(kCluster, ipv4, ipv6));
  const std::string events =
      Watched(server_->port(), "/api/v1/services?watch=true&resourceVersion=52");
  std::vector<std::string> seen;
  for (const absl::string_view line : absl::StrSplit(events, '\n')) {
    const Json event = Json::parse(line, nullptr, false);
    if (!event.is_object()) continue;
    seen.push_back(absl::StrCat(event["type"].get<std::string>(), " ",
                                event["object"]["metadata"]["name"].get<std::string>()));
    EXPECT_EQ(event["object"]["apiVersion"], "v1");
  }
  EXPECT_THAT(seen, ElementsAre("DELETED web", "MODIFIED here", "ADDED new"));
}

TEST_F(ApiServerTest, BeginsAWatchWithEverythingWhereThatIsAskedFor) {
  const std::string events =
      Watched(server_->port(),
              "/apis/discovery.k8s.io/v1/endpointslices?watch=1&sendInitialEvents=true"
              "&allowWatchBookmarks=true&resourceVersionMatch=NotOlderThan");
  EXPECT_EQ(testing::CountOf("\"type\":\"ADDED\"", events), 40);
  EXPECT_THAT(events, HasSubstr("\"k8s.io/initial-events-end\":\"true\""));
}

}  // namespace
}  // namespace kipt::skew
