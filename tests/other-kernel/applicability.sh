# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash disable=SC2154
#
# Which tests of the test programs do not apply to a kernel with a set of modules: the table
# not-applicable, so that no test decides it for itself. Sourced by run, which has `here`, after
# architecture.sh.

# not_applicable KERNEL SET PROGRAM: the patterns, one a line.
not_applicable() {
  awk -v kernel="$1" -v architecture="$architecture" -v set="$2" -v program="$3" '
    /^#/ || NF == 0 { next }
    ($1 == "*" || $1 == kernel || $1 == architecture) && ($2 == "*" || $2 == set) && $3 == program { print $4 }
  ' "$here/not-applicable"
}

# applicable_filter KERNEL SET PROGRAM [TESTS]: what --gtest_filter is to be.
applicable_filter() {
  local without
  without=$(not_applicable "$1" "$2" "$3" | paste -sd :)
  echo "${4:-*}${without:+:-$without}"
}
