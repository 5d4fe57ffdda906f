// SPDX-License-Identifier: Apache-2.0
//
// Debian's Prometheus in the calling thread's network namespace, and its HTTP interface.
#ifndef KIPT_TESTS_MONITORING_PROMETHEUS_SERVER_H_
#define KIPT_TESTS_MONITORING_PROMETHEUS_SERVER_H_

#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "tests/support/background_program.h"
#include "tests/support/temporary_tree.h"

namespace kipt::testing {

class PrometheusServer {
 public:
  // `config` is its configuration file; `files` stand beside it, by name.
  explicit PrometheusServer(const std::string& config,
                            const std::map<std::string, std::string>& files = {});

  // It answers; in time.
  bool BecomesReady();
  std::string Output() const { return program_->Output(); }

  // The series that `expr` has now. InvalidArgument: what Prometheus says against it.
  absl::StatusOr<nlohmann::json> Query(const std::string& expr) const;
  // The values that `label` has in the series of `selector`.
  absl::StatusOr<nlohmann::json> LabelValues(const std::string& selector,
                                             const std::string& label) const;
  // "data" of any other answer: "/api/v1/rules".
  absl::StatusOr<nlohmann::json> Get(const std::string& path) const;

  // Whether `expr` has a series with a number in it; of one, the number of the first.
  bool Has(const std::string& expr) const;
  double Number(const std::string& expr) const;

 private:
  const TemporaryTree tree_;
  std::optional<BackgroundProgram> program_;
};

// Whether there is any value at all, and one that is a number: a quantile of nothing is NaN.
bool HasNumber(const nlohmann::json& result);

}  // namespace kipt::testing

#endif  // KIPT_TESTS_MONITORING_PROMETHEUS_SERVER_H_
