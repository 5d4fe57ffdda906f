# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash disable=SC2154
#
# Every guest and every kernel test program on every kernel with every set of modules, one after
# another: run --matrix. Sourced by run, which has here, build, kernels, sets, whole and report.

test_programs=(kernel_test kernel_martian_test kernel_node_agent_test kernel_privileges_test)

# The guests that bring their own modules.
own_guests() {
  grep -L '^# tree:' "$here"/guests/*.sh | sed 's,.*/,,; s,\.sh$,,'
}

all_sets() { grep -v '^#' "$here/module-sets" | awk 'NF { print $1 }'; }

# tests_of PROGRAM FILTER: how many these are.
tests_of() {
  "$build/tests/kernel/$1" --gtest_list_tests --gtest_filter="$2" | grep -c '^  ' || true
}

row() { printf '| %s |\n' "$(printf '%s | ' "$@" | sed 's/ | $//')"; }

# cell KERNEL WHAT LOG ARGUMENT...: one guest. Its console is in LOG; it is not the end of the run
# where it fails.
cell() {
  local kernel=$1 what=$2 log=$3
  shift 3
  printf '%(%H:%M:%S)T %s, %s: ' -1 "$kernel" "$what"
  cell_started=$SECONDS
  cell_code=0
  "$here/run" --agent="$build/agent/kube-iptables-agent" --kernel="$kernel" "$@" >"$log" 2>&1 ||
    cell_code=$?
  cell_seconds=$((SECONDS - cell_started))
  echo "exit code $cell_code, $cell_seconds s"
  ((cell_code == 0)) || failed_logs+=("$log")
}

guest_cell() {
  local kernel=$1 guest=$2 log=$logs/$1-$2.log passed failed
  cell "$kernel" "guest $guest" "$log" \
    --program="$build/tests/kernel/kernel_martian_test" "$guest"
  passed=$(grep -c '^ok: ' "$log" || true)
  failed=$(grep -c '^FAILED: ' "$log" || true)
  # A guest that did not come to its end has failed, whatever it had printed.
  ((cell_code == 0 || failed > 0)) || failed=1
  row "$(kernel_release "$kernel")" "$guest's own" "guest $guest" $((passed + failed)) "$passed" \
    "$failed" 0 "$cell_seconds" >>"$rows"
}

programs_cell() {
  local kernel=$1 set=$2 log=$logs/$1-$2.log program all apply result arguments=()
  for program in "${test_programs[@]}"; do
    arguments+=(--program="$build/tests/kernel/$program")
  done
  cell "$kernel" "set $set" "$log" --set="$set" "${arguments[@]}" programs
  for program in "${test_programs[@]}"; do
    all=$(tests_of "$program" '*')
    apply=$(tests_of "$program" "$(applicable_filter "$kernel" "$set" "$program")")
    result=$(awk -v name="$program" '$1 == "result:" && $2 == name { print $4, $6, $8 }' "$log")
    # shellcheck disable=SC2086
    set -- ${result:-0 0 0}
    # What applies and neither passed nor failed has not run.
    row "$(kernel_release "$kernel")" "$set" "$program" "$apply" "$1" $((apply - $1)) \
      $((all - apply)) "$3" >>"$rows"
    if (($1 != apply)); then
      echo "    $program: $1 of $apply tests passed, $2 failed, $((apply - $1 - $2)) did not run"
      ((cell_code != 0)) || failed_logs+=("$log")
    fi
  done
}

# Rows of the table not-applicable that fit no test any more.
check_not_applicable() {
  local set program patterns pattern list
  while read -r _ set program patterns _; do
    [[ $set == '*' ]] || module_set "$set" >/dev/null
    IFS=: read -ra list <<<"$patterns"
    for pattern in "${list[@]}"; do
      (($(tests_of "$program" "$pattern") > 0)) ||
        fail "not-applicable: $program has no test $pattern"
    done
  done < <(grep -v -e '^#' -e '^$' "$here/not-applicable")
}

# The tests for one reason in one row.
list_not_applicable() {
  local kernel set program pattern reason
  while read -r kernel set program pattern reason; do
    printf '%s\t' "${kernel/\*/all}" "${set/\*/all}" "$program" "$(tests_of "$program" "$pattern")"
    echo "$reason"
  done < <(grep -v -e '^#' -e '^$' "$here/not-applicable") |
    awk -F'\t' '{ key = $1 " | " $2 " | " $3; row = key "\t" $5; count[row] += $4 }
      !(row in seen) { seen[row]; order[++rows] = row }
      END { for (i = 1; i <= rows; ++i) { split(order[i], part, "\t")
            print "| " part[1] " | " count[order[i]] " | " part[2] " |" } }'
}

write_rows() {
  row kernel modules what tests passed failed "not applicable" seconds
  row --- --- --- ---: ---: ---: ---: ---:
  cat "$rows"
  echo
  awk -F'|' '{ tests += $5; passed += $6; failed += $7; na += $8 }
    END { printf "In all: %d tests, %d passed, %d failed, %d not applicable.\n",
          tests, passed, failed, na }' "$rows"
}

write_report() {
  echo "# The agent on other kernels"
  echo
  echo "Made by \`tests/other-kernel/run --matrix\`: Debian's cloud kernels under qemu's software"
  echo "emulation (one CPU, 1 GiB), on Linux $(uname -r) with $(nproc) CPUs; $(iptables --version),"
  echo "$(nft --version | sed 's/ (.*//'), $(qemu-system-x86_64 --version | head -n 1 | sed 's/ (.*//')."
  echo "A guest's tests are its lines; a program's are its googletests. Seconds include booting for a"
  echo "guest, and do not for a program."
  echo
  write_rows
  echo
  echo "## Not applicable"
  echo
  echo "Decided by the table \`tests/other-kernel/not-applicable\`, which names them, and never by a test."
  echo
  row kernel modules program tests because
  row --- --- --- ---: ---
  list_not_applicable
  if ((${#failed_logs[@]} > 0)); then
    echo
    echo "## Failed"
    echo
    # The log's name says which kernel and which modules.
    grep -H -e '^not passed: ' -e '^FAILED: ' -e 'did not come to its end' "${failed_logs[@]}" |
      sed "s,^$logs/,* ,; s,\\.log:,: ," || true
  fi
}

run_matrix() {
  local kernel set guest started=$SECONDS
  logs=$build/other-kernel
  rows=$logs/rows
  failed_logs=()
  [[ -x $build/tests/kernel/kernel_test ]] || fail "there is no $build/tests/kernel/kernel_test"
  mkdir -p "$logs"
  : >"$rows"
  check_not_applicable
  for kernel in "${kernels[@]}"; do
    if ((${#sets[@]} == 0)); then
      for guest in $(own_guests); do guest_cell "$kernel" "$guest"; done
    fi
    # shellcheck disable=SC2046
    for set in ${sets[@]+"${sets[@]}"} $([[ ${#sets[@]} -gt 0 ]] || all_sets); do
      programs_cell "$kernel" "$set"
    done
  done
  if [[ $whole == yes ]]; then
    write_report >"$report.new"
    mv -- "$report.new" "$report"
  else
    write_rows
  fi
  echo "other-kernel: $((SECONDS - started)) s; consoles in $logs"
  ((${#failed_logs[@]} == 0)) || fail "failed: ${failed_logs[*]}"
}
