# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=dash
#
# The programs that came along, which are tests: all of their tests that apply to this kernel, as the
# table not-applicable says. One that ends its program is a failed one; the others still run.
# lists: yes
# tree: tests/agent/testdata/rulesets
. /guest.sh

# A guest is emulated.
export KIPT_TEST_PATIENCE=10
mkdir -p /sys/fs/cgroup
mount -t cgroup2 cgroup2 /sys/fs/cgroup

# Of what googletest prints, the tests that failed or did not end.
failed_only() {
  awk '/^\[ RUN      \]/ { text = ""; inside = 1 }
    inside { text = text $0 "\n" }
    /^\[       OK \]/ { inside = 0 }
    /^\[  FAILED  \]/ && inside { printf "%s", text; inside = 0 }
    END { if (inside) printf "%s\n(the program ended there)\n", text }'
}

for file in /filters/*; do
  program=${file##*/}
  started=$(date +%s)
  filter=$(cat "$file")
  : >/tmp/all
  while :; do
    timeout "$(cat /deadline)" "$program" --gtest_filter="$filter" >/tmp/out 2>&1
    code=$?
    failed_only </tmp/out
    cat /tmp/out >>/tmp/all
    if grep -q '^\[==========\] .* ran\.' /tmp/out; then break; fi
    grep -q '^\[ RUN      \]' /tmp/out || break
    echo "$program ended with exit code $code; it goes on with the next test"
    case $filter in *:-*) ;; *) filter="$filter:-" ;; esac
    filter=$filter:$(sed -n 's/^\[ RUN      \] //p' /tmp/out | paste -sd :)
  done
  passed=$(grep -c '^\[       OK \]' /tmp/all)
  ran=$(grep -c '^\[ RUN      \]' /tmp/all)
  awk -v name="$program" '/^\[ RUN      \]/ { left[$4] = 1 } /^\[       OK \]/ { delete left[$4] }
    END { for (test in left) print "not passed: " name " " test }' /tmp/all
  if [ "$ran" = 0 ]; then
    cat /tmp/out
    bad "$program ran no test"
  fi
  echo "result: $program passed $passed failed $((ran - passed)) seconds $(($(date +%s) - started))"
  [ "$passed" = "$ran" ] || bad "$((ran - passed)) of $program"
  dmesg -c | grep -E "WARNING:|BUG:|Oops"
done
finish
