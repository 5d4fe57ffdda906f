// SPDX-License-Identifier: Apache-2.0
//
// A node: a test sets the files, backends and lists from which its iptables mode is found.
#ifndef KIPT_TESTS_AGENT_DETECT_MODE_SOURCES_FIXTURE_H_
#define KIPT_TESTS_AGENT_DETECT_MODE_SOURCES_FIXTURE_H_

#include <memory>
#include <string>
#include <vector>

#include "agent/detect/mode_evidence.h"
#include "tests/support/borrowed_backend.h"
#include "tests/support/fake_backend.h"
#include "tests/support/matchers.h"
#include "tests/support/observed.h"
#include "tests/support/temporary_tree.h"

namespace kipt::agent {

// nf_tables and ip_tables are loaded, with nothing in either, and no host is to be seen.
class ModeSourcesTest : public ::testing::Test {
 protected:
  ModeSourcesTest() {
    tree_.Write("modules", "x_tables 1 - Live 0x0\nnf_tables 1 - Live 0x0\n");
    tree_.Write("version", "Linux");
    SetLegacyTables("");
    sources_.kernel.proc = tree_.Path("");
    sources_.kernel.sys_module = tree_.Path("sys");
    sources_.kernel.module_directories = {tree_.Path("lib")};
    sources_.table_names_path = tree_.Path("%s_tables_names");
    tree_.Write("dev", "");
    sources_.host_root.problem = "not seen";
    sources_.open_nft = [this] { return Open(nft_, nft_opened_, nft_status_); };
    sources_.open_legacy = [this] { return Open(legacy_, legacy_opened_, legacy_status_); };
    sources_.list_nft = [this](Family) -> ChainsOrError {
      ++nft_listed_;
      if (!nft_status_.ok()) return nft_status_;
      return nft_list_;
    };
    sources_.list_legacy = [this](Family) -> ChainsOrError {
      ++legacy_listed_;
      if (!legacy_list_status_.ok()) return legacy_list_status_;
      std::vector<netlink::ListedChain> listed;
      for (const auto& [id, chain] : legacy_.state().chains) {
        listed.push_back({id, chain.hooked, static_cast<uint32_t>(chain.rules.size())});
      }
      return listed;
    };
  }

  // Of both families.
  void SetLegacyTables(const std::string& names) const {
    tree_.Write("ip_tables_names", names);
    tree_.Write("ip6_tables_names", names);
  }
  BackendOrError Open(FakeBackend& backend, int& opened, const absl::Status& status) {
    ++opened;
    if (!status.ok()) return status;
    return std::make_unique<::kipt::testing::KeepsQueries>(&backend, &asked_);
  }
  int opened() const { return nft_opened_ + legacy_opened_; }

  TemporaryTree tree_;
  FakeBackend nft_{netlink::BackendKind::kNft};
  FakeBackend legacy_{netlink::BackendKind::kIptablesLegacy};
  std::vector<netlink::ListedChain> nft_list_;
  std::vector<netlink::ChainQuery> asked_;
  absl::Status nft_status_;
  absl::Status legacy_status_;
  absl::Status legacy_list_status_;
  int nft_opened_ = 0;
  int nft_listed_ = 0;
  int legacy_opened_ = 0;
  int legacy_listed_ = 0;
  ModeSources sources_;
};

}  // namespace kipt::agent

#endif  // KIPT_TESTS_AGENT_DETECT_MODE_SOURCES_FIXTURE_H_
