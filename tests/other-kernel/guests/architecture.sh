# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=dash
#
# What the order of bytes and the numbers of system calls decide: the daemon under its own system call
# filter, with both iptables, and what the agent reads from captured rulesets. The sums of what it prints
# must be the same on every architecture (tests/architectures/run compares them).
# modules: nf_tables nft_counter? nft_compat nft_ct nft_chain_nat iptable_filter iptable_nat iptable_mangle ip6table_filter ip6table_nat ip6table_mangle xt_comment xt_conntrack xt_connlabel xt_mark xt_MASQUERADE xt_nat xt_addrtype xt_recent xt_statistic xt_tcpudp xt_multiport xt_physdev? ipt_REJECT? ip6t_REJECT? veth
# tree: tests/agent/testdata/rulesets
. /guest.sh

# Both families' rules, without counters.
saved() {
  for family in iptables ip6tables; do "$family-$1-save" 2>/dev/null | sed '/^#/d; s/ \[.*//'; done
}
get() { wget -q -O - "http://127.0.0.1:$1"; }
ready() { [ "$(get 10270/readyz 2>/dev/null)" = ok ]; }
has_rules() { [ "$(saved "$mode")" = "$before" ]; }
counts_repairs() { get 10271/metrics | grep -q '^kube_iptables_agent_repair_latency_seconds_count [1-9]'; }

for mode in nft legacy; do
  kube-iptables-agent run --iptables-mode=$mode --feature-gates=IPTablesOwnershipCleanup=false \
    >/tmp/daemon 2>&1 &
  daemon=$!
  expect until_true ready
  expect_same "$mode: system call filter" "$(sed -n 's/^Seccomp:\t//p' /proc/$daemon/status)" 2
  expect_not grep -q "Continuing without a system call filter" /tmp/daemon
  before=$(saved $mode)
  iptables-$mode -F KUBE-FIREWALL
  ip6tables-$mode -t nat -F KUBE-POSTROUTING
  expect until_true has_rules
  expect until_true counts_repairs
  kill -HUP "$daemon"
  sleep 1
  expect ready
  kill "$daemon"
  wait "$daemon"
  expect_same "$mode: the daemon's exit code" "$?" 0
  expect_not grep -q "not permitted" /tmp/daemon
  show_if_failed /tmp/daemon
  for family in iptables ip6tables; do
    for table in filter nat mangle; do
      "$family-$mode" -t "$table" -F
      "$family-$mode" -t "$table" -X
    done
  done
done

rulesets=$(dirname "$(find / -xdev -name 'kube-proxy-*-A-v4.save' | head -n 1)")
# sums MODE FILE: the file's rules by that iptables, and what the agent prints of them
sums() {
  family=iptables
  case $2 in *-v6*) family=ip6tables ;; esac
  expect_exit 0 "$family-$1-restore" "$2"
  for command in audit marks; do
    agent $command --iptables-mode="$1" --output=json --host-root=/ --cni-conf-dir=/tmp >/tmp/out 2>&1
    [ $? -le 2 ] || bad "$command of $1 $2"
    echo "sum: $1/${2##*/} $command $(md5sum </tmp/out | cut -c 1-32)"
  done
  echo "sum: $1/${2##*/} iptables $(saved "$1" | md5sum | cut -c 1-32)"
  "$family-$1-restore" <<EMPTY
*filter
COMMIT
*nat
COMMIT
*mangle
COMMIT
EMPTY
}
for version in 1.17 1.28; do
  for file in "$rulesets/kube-proxy-$version"-*.save; do sums nft "$file"; done
  for file in "$rulesets/kube-proxy-$version"-A-*.save; do sums legacy "$file"; done
done

# seconds COMMAND...: of 20 runs, in hundredths.
now() { sed 's/^\([0-9]*\)\.\([0-9]*\) .*/\1\2/' /proc/uptime; }
start=$(now)
for _ in $(seq 20); do kube-iptables-agent version >/dev/null; done
echo "start: $((($(now) - start) / 2)) ms"
finish
