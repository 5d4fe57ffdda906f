// SPDX-License-Identifier: Apache-2.0
#include "tests/soak/daemon.h"

#include <csignal>
#include <cstdio>
#include <fstream>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "tests/support/http_get.h"
#include "tests/support/netns.h"

namespace kipt::soak {

using testing::InNetns;

void Daemon::Start() {
  WriteConfig();
  const std::vector<std::string> argv = {node_.options().program, "run",
                                         "--config=" + node_.ConfigPath(),
                                         absl::StrCat("--iptables-mode=", NameOf(node_.mode())),
                                         "--cni-conf-dir=" + node_.CniDirectory()};
  const InNetns inside(node_.netns());
  auto program = std::make_unique<testing::BackgroundProgram>(argv);
  const std::lock_guard<std::mutex> lock(mutex_);
  program_ = std::move(program);
  started_ = absl::Now();
}

int Daemon::End(int signal) {
  if (program_ == nullptr) return -1;
  program_->Signal(signal);
  const int code = program_->Wait();
  CountRepairs();
  const std::lock_guard<std::mutex> lock(mutex_);
  program_.reset();
  return code;
}

void Daemon::CountRepairs() {
  const std::string log = program_->Output();
  if (!node_.options().log.empty()) {
    std::ofstream(absl::StrCat(node_.options().log, ".", node_.name()), std::ios::app) << log;
  }
  const auto count = [&](const char* what, const char* text) {
    node_.journal.Count(node_.name(), what, testing::CountOf(text, log));
  };
  count("repairs", "Repaired in");
  count("fights", "OwnershipFight");
  count("reloads", "Using the new configuration");
  count("retirements", "Retired");
}

void Daemon::Signal(int signal) {
  if (program_ != nullptr) program_->Signal(signal);
}

void Daemon::WriteConfig() { WriteConfig(node_.settings.FileText()); }

void Daemon::WriteConfig(const std::string& text) {
  const std::string path = node_.ConfigPath();
  std::ofstream(path + ".new") << text;
  std::rename((path + ".new").c_str(), path.c_str());
}

bool Daemon::IsReady() const {
  const InNetns inside(node_.netns());
  return testing::HttpGet(kHealthPort, "/readyz", "GET", absl::Seconds(2)).status == 200;
}

bool Daemon::BecomesReady(absl::Duration patience) const {
  return testing::WaitUntil([this] { return IsReady(); }, patience);
}

pid_t Daemon::pid() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return program_ == nullptr ? -1 : program_->pid();
}

absl::Time Daemon::started() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return started_;
}

int Daemon::Says(const std::string& text) const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return program_ == nullptr ? 0 : testing::CountOf(text, program_->Output());
}

std::string Daemon::LastWords() const {
  constexpr size_t kLength = 2000;
  const std::lock_guard<std::mutex> lock(mutex_);
  if (program_ == nullptr) return "";
  const std::string log = program_->Output();
  return log.size() <= kLength ? log : log.substr(log.size() - kLength);
}

}  // namespace kipt::soak
