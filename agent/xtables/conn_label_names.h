// SPDX-License-Identifier: Apache-2.0
//
// iptables-save prints a connection's label by its name in connlabel.conf. Rules are compared by
// numbers, so names are converted to numbers first. Not installed.
#ifndef KIPT_AGENT_XTABLES_CONN_LABEL_NAMES_H_
#define KIPT_AGENT_XTABLES_CONN_LABEL_NAMES_H_

#include <map>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace kipt::agent {

using ConnLabelNames = std::map<std::string, int>;

// Reads the file's text as libnetfilter_conntrack does (src/conntrack/labels.c): a line is a number
// (of any base that strtoul knows) and a name; comments ("#") and lines that it does not understand
// are left out. The first line of a name, or of a label, counts.
ConnLabelNames ParseConnLabelNames(absl::string_view text);

// The names in the file at `path`; none if there is no such file. FailedPrecondition, with what to
// do, if it cannot be read or has more than 64 KiB.
absl::StatusOr<ConnLabelNames> ReadConnLabelNames(const std::string& path);

// Why the file at `path` forbids rules about labels, and what to do; empty if it does not. If the
// file names nothing, iptables fails whenever it prints such a rule, and iptables-save shows no
// rules any more. If it is too large for us, we could not read our rules back. If iptables cannot
// open it, it prints numbers.
std::string ConnLabelNamesProblem(const std::string& path);

// `saved`, the text of iptables-save, with numbers: `-m connlabel --label "NAME"` becomes
// `-m connlabel --label "114"`. A name that looks like a number is one only if the label of that
// number has a name of its own. Everything else is unchanged, byte for byte, and so is what follows
// a rule whose quotes do not close.
//
// The status of `names` if that is an error and `saved` has a label that is not a plain number.
absl::StatusOr<std::string> WithConnLabelNumbers(absl::string_view saved,
                                                 const absl::StatusOr<ConnLabelNames>& names);

}  // namespace kipt::agent

#endif  // KIPT_AGENT_XTABLES_CONN_LABEL_NAMES_H_
