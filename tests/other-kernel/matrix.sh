# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash disable=SC2154
#
# Every guest and every kernel test program on every kernel with every set of modules, one after
# another: run --matrix. Sourced by run, which has here, build, kernels, sets, whole and report.

test_programs=(kernel_test kernel_martian_test kernel_node_agent_test kernel_privileges_test)

# The guests that bring their own modules.
own_guests() {
  grep -LE '^# (tree|once):' "$here"/guests/*.sh | sed 's,.*/,,; s,\.sh$,,'
}

all_sets() { grep -v '^#' "$here/module-sets" | awk 'NF { print $1 }'; }

# tests_of PROGRAM FILTER: how many these are.
tests_of() {
  run_program "$build/tests/kernel/$1" --gtest_list_tests --gtest_filter="$2" | grep -c '^  ' || true
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

# joined: the lines of its input, in one cell of a table.
joined() { tr '|' '/' | paste -sd ';' | sed 's/;/; /g'; }

guest_cell() {
  local kernel=$1 guest=$2 log=$logs/$1-$2.log passed failed names
  cell "$kernel" "guest $guest" "$log" \
    --program="$build/tests/kernel/kernel_martian_test" "$guest"
  passed=$(grep -c '^ok: ' "$log" || true)
  failed=$(grep -c '^FAILED: ' "$log" || true)
  names=$(sed -n 's/^FAILED: //p' "$log" | joined)
  # A guest that did not come to its end has failed, whatever it had printed.
  if ((cell_code != 0 && failed == 0)); then
    failed=1
    names="exit code $cell_code"
  fi
  row "$(kernel_release "$kernel")" "$guest's own" "guest $guest" $((passed + failed)) "$passed" \
    "$failed" 0 "$cell_seconds" "$names" >>"$cells"
}

programs_cell() {
  local kernel=$1 set=$2 log=$logs/$1-$2.log program all apply result names failed=0 arguments=()
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
    names=
    # What applies and neither passed nor failed has not run.
    if (($1 != apply)); then
      failed=1
      names=$({
        sed -n "s/^not passed: $program //p" "$log"
        (($1 + $2 == apply)) || echo "$((apply - $1 - $2)) did not run"
      } | joined)
      echo "    $program: $1 of $apply tests passed; failed: $names"
      ((cell_code != 0)) || failed_logs+=("$log")
    fi
    row "$(kernel_release "$kernel")" "$set" "$program" "$apply" "$1" $((apply - $1)) \
      $((all - apply)) "$3" "$names" >>"$cells"
  done
  # A cell that failed is in the table even if every program passed.
  ((cell_code == 0 || failed > 0)) ||
    row "$(kernel_release "$kernel")" "$set" programs 1 0 1 0 0 "exit code $cell_code" >>"$cells"
}

# The rows of the table not-applicable, without those of other architectures than the guest's.
not_applicable_rows() {
  awk -v architecture="$architecture" '/^#/ || NF == 0 { next } $1 ~ /^[*0-9]/ || $1 == architecture' \
    "$here/not-applicable"
}

# Rows that fit no test any more.
check_not_applicable() {
  local set program patterns pattern list
  while read -r _ set program patterns _; do
    [[ $set == '*' ]] || module_set "$set" >/dev/null
    IFS=: read -ra list <<<"$patterns"
    for pattern in "${list[@]}"; do
      (($(tests_of "$program" "$pattern") > 0)) ||
        fail "not-applicable: $program has no test $pattern"
    done
  done < <(not_applicable_rows)
}

# The tests for one reason in one row.
list_not_applicable() {
  local kernel set program pattern reason
  while read -r kernel set program pattern reason; do
    printf '%s\t' "${kernel/\*/all}" "${set/\*/all}" "$program" "$(tests_of "$program" "$pattern")"
    echo "$reason"
  done < <(not_applicable_rows) |
    awk -F'\t' '{ key = $1 " | " $2 " | " $3; row = key "\t" $5; count[row] += $4 }
      !(row in seen) { seen[row]; order[++rows] = row }
      END { for (i = 1; i <= rows; ++i) { split(order[i], part, "\t")
            print "| " part[1] " | " count[order[i]] " | " part[2] " |" } }'
}

begin_cells() {
  echo "# The agent on other kernels, cell by cell"
  echo
  echo "Written by \`tests/other-kernel/run --matrix\`. A guest's tests are its lines; a program's are"
  echo "its googletests. Seconds include booting for a guest, and do not for a program."
  echo
  echo "Measured with $("$here/../stamp") on Linux $(uname -r) with $(nproc) CPUs; $(run_program iptables --version)," \
    "$(run_program nft --version | sed 's/ (.*//'), $("${qemu[0]}" --version | head -n 1 | sed 's/ (.*//')."
  echo
  row kernel modules what tests passed failed "not applicable" seconds "failed tests"
  row --- --- --- ---: ---: ---: ---: ---: ---
}

end_cells() {
  echo
  echo "## Not applicable"
  echo
  echo "The table \`tests/other-kernel/not-applicable\` names these tests; no test decides it for itself."
  echo
  row kernel modules program tests because
  row --- --- --- ---: ---
  list_not_applicable
}

# From rows of the cells to one row for the guests of a kernel, and for each set of modules on it.
summary_rows() {
  row kernel modules tests passed failed "not applicable" seconds
  row --- --- ---: ---: ---: ---: ---:
  awk -F' *[|] *' '
    function add(key) {
      if (!(key in tests)) order[++keys] = key
      tests[key] += $5; passed[key] += $6; failed[key] += $7; others[key] += $8; seconds[key] += $9
    }
    { add($2 " | " ($4 ~ /^guest / ? "the guests\047 own" : $3)); total[NR] = $0 }
    END { for (i in total) { $0 = total[i]; add("all | all") }
      for (i = 1; i <= keys; ++i) { key = order[i]
        print "| " key " | " tests[key] " | " passed[key] " | " failed[key] " | " others[key] \
              " | " seconds[key] " |" } }'
}

# summarise CELLS: the report that is committed.
summarise() {
  local stamp rows
  stamp=$(grep '^Measured with ' "$1") || fail "$1 names no version"
  rows=$(sed '/^## /,$d' "$1" | grep '^| [0-9]') || fail "$1 has no rows"
  awk -F'|' 'NF != 11 { exit 1 }' <<<"$rows" || fail "$1 has a row that is not of nine columns"
  echo "# The agent on other kernels"
  echo
  echo "Written by \`tests/other-kernel/run --matrix\`: Debian's cloud kernels under qemu's software"
  echo "emulation (one CPU, 1 GiB). The run leaves every guest and program in \`other-kernel/cells.md\` in"
  echo "the build directory."
  echo
  echo "$stamp"
  echo
  summary_rows <<<"$rows"
  echo
  echo "## Failed"
  echo
  awk -F' *[|] *' '
    $7 > 0 { ++count; print "* " $2 ", " $3 ", " $4 ": " $7 " of " $5 ($10 == "" ? "" : ": " $10) }
    END { if (!count) print "None." }' <<<"$rows"
}

run_matrix() {
  local kernel set guest started=$SECONDS
  logs=$build/other-kernel
  cells=$logs/cells.md
  failed_logs=()
  [[ -x $build/tests/kernel/kernel_test ]] || fail "there is no $build/tests/kernel/kernel_test"
  mkdir -p "$logs"
  check_not_applicable
  begin_cells >"$cells"
  for kernel in "${kernels[@]}"; do
    if ((${#sets[@]} == 0)); then
      for guest in $(own_guests); do guest_cell "$kernel" "$guest"; done
    fi
    # shellcheck disable=SC2046
    for set in ${sets[@]+"${sets[@]}"} $([[ ${#sets[@]} -gt 0 ]] || all_sets); do
      programs_cell "$kernel" "$set"
    done
  done
  end_cells >>"$cells"
  summarise "$cells" >"$logs/summary.md"
  if [[ $whole == yes ]]; then cp -- "$logs/summary.md" "$report"; else cat "$logs/summary.md"; fi
  echo "other-kernel: $((SECONDS - started)) s; every cell in $cells, the consoles are next to it"
  ((${#failed_logs[@]} == 0)) || fail "failed: ${failed_logs[*]}"
}
