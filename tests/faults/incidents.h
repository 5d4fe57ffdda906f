// SPDX-License-Identifier: Apache-2.0
//
// What happens on a node while the daemon runs there.
#ifndef KIPT_TESTS_FAULTS_INCIDENTS_H_
#define KIPT_TESTS_FAULTS_INCIDENTS_H_

#include <sys/types.h>

#include <string>
#include <vector>

#include "tests/faults/world.h"

namespace kipt::testing {

// The daemon that it happens to.
struct Site {
  pid_t daemon = -1;
  std::string config_path;
};

struct Incident {
  const char* name;
  const char* text;
  IptablesMode iptables;
  // What the configuration file says at the start.
  bool cleanup;
  // The incident has happened when this returns. Empty, or why it could not be made to happen.
  // Null: the daemon's start is the incident.
  std::string (*strike)(const Site& site);
};

// All eleven.
const std::vector<Incident>& Incidents();

// The configuration file that asks for this mode.
std::string ConfigFor(bool cleanup);
// Empty where it was written.
std::string WriteFile(const std::string& path, const std::string& text);

}  // namespace kipt::testing

#endif  // KIPT_TESTS_FAULTS_INCIDENTS_H_
