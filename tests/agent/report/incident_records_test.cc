// SPDX-License-Identifier: Apache-2.0
#include "agent/report/incident_records.h"

#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "absl/strings/str_cat.h"
#include "tests/support/matchers.h"

namespace kipt::agent {
namespace {

using Json = nlohmann::json;
constexpr size_t kMostBytes = 4032;
const absl::Time kThen = absl::FromUnixMillis(1'800'000'000'123);
const Origin kHere = {.boot_id = "b1",
                      .network_namespace = {.device = 4, .inode = 4026531840, .cookie = 1}};

Origin With(std::optional<std::string> boot_id, NetworkNamespaceId netns) {
  return {.boot_id = boot_id.value_or(kHere.boot_id), .network_namespace = netns};
}

std::string Record(const std::optional<Origin>& origin) {
  return IncidentRecord(kThen, {.latency = absl::Microseconds(5)}, origin, kMostBytes);
}

// How the one incident is marked with --all; empty: it is current.
std::string Mark(const std::string& record, const std::optional<Origin>& here) {
  const IncidentRecords incidents = {.records = {record}, .here = here};
  const std::string all = IncidentsText(incidents, /*all=*/true);
  const size_t begin = std::string("2027-01-15T08:00:00.123Z ").size();
  const size_t end = all.find("Repaired in 5 us");
  EXPECT_NE(end, all.npos) << all;
  const std::string mark = all.substr(begin, end - begin);
  const bool current = mark.empty();
  const Json json = Json::parse(IncidentsJson(incidents, /*all=*/true));
  EXPECT_EQ(json["incidents"][0]["current"], current) << json;
  EXPECT_EQ(json["otherCount"], current ? 0 : 1);
  EXPECT_THAT(CurrentIncidentLines(incidents), SizeIs(current ? 1 : 0));
  EXPECT_THAT(Json::parse(IncidentsJson(incidents, /*all=*/false))["incidents"],
              SizeIs(current ? 1 : 0));
  EXPECT_EQ(IncidentsText(incidents, /*all=*/false),
            current ? all : "1 incident of other boots or network namespaces: --all shows it\n");
  return mark;
}

TEST(IncidentRecordsTest, AreCurrentInTheirBootAndNetworkNamespace) {
  EXPECT_EQ(Mark(Record(kHere), kHere), "");
  const Origin without_cookies = With({}, {.device = 4, .inode = 4026531840});
  EXPECT_EQ(Mark(Record(without_cookies), without_cookies), "") << "Linux before 5.14";
}

TEST(IncidentRecordsTest, OthersAreMarked) {
  EXPECT_EQ(Mark(Record(With("b0", kHere.network_namespace)), kHere), "(an earlier boot) ");
  EXPECT_EQ(Mark(Record(With("b0", {.device = 4, .inode = 9})), kHere), "(an earlier boot) ");
  EXPECT_EQ(Mark(Record(With({}, {.device = 4, .inode = 4026532345, .cookie = 2})), kHere),
            "(network namespace 4026532345) ");
  EXPECT_EQ(Mark(Record(With({}, {.device = 5, .inode = 4026531840, .cookie = 1})), kHere),
            "(network namespace 4026531840) ");
  EXPECT_EQ(Mark(Record(With({}, {.device = 4, .inode = 4026531840, .cookie = 2})), kHere),
            "(network namespace 4026531840, which has ended) ");
}

TEST(IncidentRecordsTest, WhatIsUnknownMatchesNothing) {
  const std::string unknown = "(unknown boot and network namespace) ";
  EXPECT_EQ(Mark(Record(std::nullopt), kHere), unknown);
  EXPECT_EQ(Mark(Record(std::nullopt), std::nullopt), unknown);
  EXPECT_EQ(Mark(Record(kHere), std::nullopt), "(boot and network namespace not compared) ");
}

// The first is the format without an origin.
TEST(IncidentRecordsTest, OfADamagedOriginAreOfNone) {
  for (const char* origin :
       {"", R"(, "bootID": "b1")", R"(, "bootID": 1, "networkNamespace": {})",
        R"(, "bootID": "b1", "networkNamespace": "net:[4026531840]")",
        R"(, "bootID": "b1", "networkNamespace": {"device": -4, "inode": 4026531840})",
        R"(, "networkNamespace": {"device": 4, "inode": 4026531840, "cookie": 1})"}) {
    const std::string record = absl::StrCat(
        R"({"time": "2027-01-15T08:00:00.123Z", "text": "Repaired in 5 us")", origin, "}");
    EXPECT_EQ(Mark(record, kHere), "(unknown boot and network namespace) ") << record;
    const Json json = Json::parse(IncidentsJson({.records = {record}}, /*all=*/true));
    EXPECT_EQ(json["incidents"][0]["bootID"], nullptr);
    EXPECT_EQ(json["incidents"][0]["networkNamespace"], nullptr);
  }
}

TEST(IncidentRecordsTest, NameTheirOrigin) {
  const Json json = Json::parse(IncidentsJson({.records = {Record(kHere)}, .here = kHere}, false));
  const Json& incident = json["incidents"][0];
  EXPECT_EQ(incident["bootID"], "b1");
  EXPECT_EQ(incident["networkNamespace"],
            Json({{"device", 4}, {"inode", 4026531840}, {"cookie", 1}}));
  EXPECT_EQ(incident["repairMicroseconds"], 5);
}

TEST(IncidentRecordsTest, OthersAreCounted) {
  const IncidentRecords incidents = {
      .records = {Record(std::nullopt), Record(kHere), "no incident", Record(std::nullopt)},
      .here = kHere};
  EXPECT_THAT(IncidentsText(incidents, /*all=*/false),
              HasSubstr("\n2 incidents of other boots or network namespaces: --all shows them\n"));
  EXPECT_THAT(Json::parse(IncidentsJson(incidents, true))["incidents"], SizeIs(3));
  EXPECT_THAT(CurrentIncidentLines(incidents), ElementsAre(HasSubstr("Repaired")));
  EXPECT_THAT(IncidentsText({}, /*all=*/false), IsEmpty());
}

TEST(IncidentRecordsTest, FitWithTheirOrigin) {
  Incident incident;
  for (int i = 0; i < 1000; ++i) {
    incident.damage.push_back({{}, DamageKind::kRuleMissing, std::string(100, 'x')});
  }
  const std::string record = IncidentRecord(kThen, incident, kHere, kMostBytes);
  EXPECT_THAT(record, SizeIs(Le(kMostBytes)));
  EXPECT_THAT(CurrentIncidentLines({.records = {record}, .here = kHere}), SizeIs(1));
}

}  // namespace
}  // namespace kipt::agent
