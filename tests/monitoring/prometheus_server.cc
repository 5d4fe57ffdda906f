// SPDX-License-Identifier: Apache-2.0
#include "tests/monitoring/prometheus_server.h"

#include <cmath>
#include <cstdlib>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "tests/support/http_get.h"

namespace kipt::testing {
namespace {

constexpr int kPort = 9090;

std::string PercentEncoded(const std::string& text) {
  std::string encoded;
  for (const char c : text) {
    if (absl::ascii_isalnum(static_cast<unsigned char>(c))) {
      encoded += c;
    } else {
      absl::StrAppendFormat(&encoded, "%%%02X", static_cast<unsigned char>(c));
    }
  }
  return encoded;
}

// A body in pieces, each behind a line with its length (RFC 9112, section 7.1).
std::string Joined(const std::string& pieces) {
  std::string body;
  size_t at = 0;
  for (;;) {
    const size_t line_end = pieces.find("\r\n", at);
    if (line_end == std::string::npos) return body;
    const size_t length = std::strtoul(pieces.c_str() + at, nullptr, 16);
    if (length == 0) return body;
    body.append(pieces, line_end + 2, length);
    at = line_end + 2 + length + 2;
  }
}

bool IsNumber(const nlohmann::json& sample) {
  const auto& text = sample.at(1).get_ref<const std::string&>();
  return std::isfinite(std::atof(text.c_str()));
}

}  // namespace

PrometheusServer::PrometheusServer(const std::string& config,
                                   const std::map<std::string, std::string>& files) {
  tree_.Write("prometheus.yaml", config);
  for (const auto& [name, text] : files) tree_.Write(name, text);
  program_.emplace(std::vector<std::string>{
      "prometheus", "--config.file=" + tree_.Path("prometheus.yaml"),
      "--storage.tsdb.path=" + tree_.Path("data"),
      absl::StrCat("--web.listen-address=127.0.0.1:", kPort), "--log.level=warn"});
}

bool PrometheusServer::BecomesReady() {
  return WaitUntil(
             [&] { return HttpGet(kPort, "/-/ready").status == 200 || !program_->Running(); }) &&
         program_->Running();
}

absl::StatusOr<nlohmann::json> PrometheusServer::Get(const std::string& path) const {
  const HttpAnswer answer = HttpGet(kPort, path);
  const bool in_pieces =
      absl::StrContains(absl::AsciiStrToLower(answer.headers), "transfer-encoding: chunked");
  const auto json = nlohmann::json::parse(in_pieces ? Joined(answer.body) : answer.body, nullptr,
                                          /*allow_exceptions=*/false);
  if (!json.is_object()) return absl::UnavailableError(absl::StrCat(path, ": ", answer.status));
  if (json.value("status", "") == "success") return json.at("data");
  return absl::InvalidArgumentError(json.value("error", "no success, and no error"));
}

absl::StatusOr<nlohmann::json> PrometheusServer::Query(const std::string& expr) const {
  auto data = Get("/api/v1/query?query=" + PercentEncoded(expr));
  if (!data.ok()) return data.status();
  return data->at("result");
}

absl::StatusOr<nlohmann::json> PrometheusServer::LabelValues(const std::string& selector,
                                                             const std::string& label) const {
  return Get(absl::StrCat("/api/v1/label/", label, "/values?match[]=", PercentEncoded(selector)));
}

bool PrometheusServer::Has(const std::string& expr) const {
  const auto result = Query(expr);
  return result.ok() && HasNumber(*result);
}

double PrometheusServer::Number(const std::string& expr) const {
  const auto result = Query(expr);
  if (!result.ok() || !HasNumber(*result)) return std::nan("");
  return std::atof(result->at(0).at("value").at(1).get_ref<const std::string&>().c_str());
}

bool HasNumber(const nlohmann::json& result) {
  for (const auto& series : result) {
    if (series.contains("value") && IsNumber(series.at("value"))) return true;
  }
  return false;
}

}  // namespace kipt::testing
