// SPDX-License-Identifier: Apache-2.0
//
// File: agent/xtables/conn_label_names.h
//
// iptables-save prints a connection's label by the name that connlabel.conf gives it, where it has
// one. Rules are compared by numbers, so names are put back into numbers first. Not installed.
#ifndef KIPT_AGENT_XTABLES_CONN_LABEL_NAMES_H_
#define KIPT_AGENT_XTABLES_CONN_LABEL_NAMES_H_

#include <map>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace kipt::agent {

// Labels by name.
using ConnLabelNames = std::map<std::string, int>;

// What libnetfilter_conntrack makes of the file's text (its src/conntrack/labels.c): a line is a
// number (of any base that strtoul knows) and a name; those that begin with "#" and those that it
// does not understand are left out. Of two lines with one name, or of one label, the first counts.
ConnLabelNames ParseConnLabelNames(absl::string_view text);

// The names in the file at `path`. None where there is no such file: an administrator has to write
// one. FailedPrecondition, with what to do, where it cannot be read and where it has more than 64
// KiB.
absl::StatusOr<ConnLabelNames> ReadConnLabelNames(const std::string& path);

// Why no rule about labels may be made because of the file at `path`, and what to do; empty where
// one may. Where iptables opens a file that names nothing, it fails whenever it prints such a rule,
// and iptables-save shows no rules any more. Where it cannot open the file it prints numbers. Where
// the file is too large for us, we could not read our rules back.
std::string ConnLabelNamesProblem(const std::string& path);

// Whether `saved`, the text of iptables-save, has a name: a label without one is printed as its
// plain number.
bool HasConnLabelNames(absl::string_view saved);

// `saved` with numbers, as where nothing has a name: `-m connlabel --label "NAME"` becomes
// `-m connlabel --label "114"`. A name that looks like a number is one only where the label of that
// number is printed by a name of its own. Everything else is unchanged, byte for byte; so is what
// follows a rule whose quotes do not close.
std::string WithConnLabelNumbers(absl::string_view saved, const ConnLabelNames& names);

}  // namespace kipt::agent

#endif  // KIPT_AGENT_XTABLES_CONN_LABEL_NAMES_H_
