# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=dash
#
# A kernel without nf_tables: legacy iptables is all there is.
# modules: iptable_filter iptable_nat iptable_mangle ip6table_filter ip6table_nat ip6table_mangle xt_comment xt_conntrack xt_mark xt_MASQUERADE xt_nat veth
# lists: yes
. /guest.sh

saved() {
  for family in iptables ip6tables; do "$family-legacy-save" | grep -v '^#'; done
}
has_martian_rule() {
  iptables-legacy -C KUBE-FIREWALL '!' -s 127.0.0.0/8 -d 127.0.0.0/8 -m comment \
    --comment "block incoming localnet connections" -m conntrack '!' \
    --ctstate RELATED,ESTABLISHED,DNAT -j DROP 2>/dev/null
}
hints() {
  for family in iptables ip6tables; do
    "$family-legacy" -t mangle -S KUBE-IPTABLES-HINT >/dev/null 2>&1 || return 1
  done
}
drops() { iptables-legacy -nvxL KUBE-FIREWALL | awk '/DROP/ { sum += $1 } END { print sum + 0 }'; }

# As Debian has it, whose iptables is nf_tables' and can do nothing here.
expect_exit 1 iptables -S
expect_exit 0 agent detect
expect_output legacy
iptables_is legacy
expect_exit 0 agent detect
expect_output legacy
expect_exit 1 agent sync --iptables-mode=nft
expect_output "this kernel has no"

expect_exit 2 agent plan
expect_exit 0 agent sync
expect has_martian_rule
expect hints
before=$(saved)
expect_exit 0 agent sync
expect_exit 0 agent plan
expect_exit 0 agent status
expect_exit 0 agent audit
expect_no_output "not supported"
expect_same "nothing is written where all is in place" "$(saved)" "$before"

drops=$(drops)
send_martian
expect_same "a martian is dropped" "$(drops)" "$((drops + 1))"

iptables-legacy -F KUBE-FIREWALL
expect_exit 2 agent plan
expect_exit 0 agent sync
expect has_martian_rule

expect_exit 0 agent sync --feature-gates=IPTablesOwnershipCleanup=false
for family in iptables ip6tables; do
  expect_exit 0 "$family-legacy" -t nat -C KUBE-MARK-DROP -j MARK --or-mark 0x8000
  expect_exit 0 "$family-legacy" -t nat -C KUBE-POSTROUTING -m comment \
    --comment "kubernetes service traffic requiring SNAT" -j MASQUERADE --random-fully
done

kube-iptables-agent run --healthz-bind-address= --metrics-bind-address= >/tmp/daemon 2>&1 &
daemon=$!
expect until_true grep -q "Watching" /tmp/daemon
iptables-legacy -F KUBE-FIREWALL
ip6tables-legacy -t mangle -X KUBE-IPTABLES-HINT
expect until_true has_martian_rule
expect until_true hints
kill "$daemon"
wait "$daemon"
expect_same "the daemon's exit code" "$?" 0
show_if_failed /tmp/daemon
finish
