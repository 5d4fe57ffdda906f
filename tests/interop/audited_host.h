// SPDX-License-Identifier: Apache-2.0
//
// The host that a daemon of a test audits: no CNI configurations of this machine, and lists of the
// kernel's modules.
#ifndef KIPT_TESTS_INTEROP_AUDITED_HOST_H_
#define KIPT_TESTS_INTEROP_AUDITED_HOST_H_

#include <sys/utsname.h>

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/support/temporary_tree.h"

namespace kipt::testing {

class AuditedHost {
 public:
  // Without lists of modules each audit would read the kernel's symbols, which takes most of its
  // processor time, and so the next one would come much later.
  AuditedHost() {
    utsname kernel = {};
    uname(&kernel);
    files_.Write(absl::StrCat("lib/modules/", kernel.release, "/modules.builtin"),
                 "kernel/nft_compat.ko\nkernel/xt_comment.ko\nkernel/xt_conntrack.ko\n"
                 "kernel/xt_mark.ko\nkernel/xt_nat.ko\n");
  }

  // Of a daemon that audits this host so often.
  std::vector<std::string> Flags(const std::string& period) const {
    return {"--audit-period=" + period, "--cni-conf-dir=" + files_.root(),
            "--host-root=" + files_.root()};
  }
  const TemporaryTree& files() const { return files_; }

 private:
  const TemporaryTree files_;
};

}  // namespace kipt::testing

#endif  // KIPT_TESTS_INTEROP_AUDITED_HOST_H_
