# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=dash
#
# A kernel on which iptables can hold no rule, and that says so: as in the RHEL 10 class.
# modules: nf_tables nft_counter? nft_ct nft_chain_nat nft_masq veth
# lists: yes
. /guest.sh

expect_exit 0 iptables-nft -t mangle -N JUST-A-CHAIN
expect_exit 4 iptables-nft -A INPUT -m comment --comment "a rule" -j ACCEPT
nft flush ruleset

mode="--iptables-mode=nft"
expect_exit 0 agent detect
expect_same "detect makes nothing" "$(ruleset)" ""
expect_exit 2 agent plan $mode
expect_output "kube-iptables-agent"
expect_same "plan makes nothing" "$(ruleset)" ""

expect_exit 0 agent sync $mode
expect has_native_table
expect_not has_hint
expect_not has_xt_rule
expect_same "nothing else is made" "$(nft list tables)" "table ip kube-iptables-agent"
before=$(ruleset)
expect_exit 0 agent sync $mode
expect_exit 0 agent plan $mode
expect_exit 0 agent status $mode
expect_same "nothing is written where all is in place" "$(ruleset)" "$before"

drops=$(native_drops)
send_martian
expect_same "a martian is dropped" "$(native_drops)" "$((drops + 1))"

nft delete table ip kube-iptables-agent
expect_exit 2 agent plan $mode
expect_exit 0 agent sync $mode
expect has_native_table
nft add rule ip kube-iptables-agent input accept
nft flush chain ip kube-iptables-agent output
expect_exit 0 agent sync $mode
expect_same "what was altered is as before" "$(nft -s list ruleset)" \
  "$(echo "$before" | sed 's/ # handle [0-9]*//')"

expect_exit 0 agent sync $mode --hint-policy=always
expect has_hint
expect has_native_table

expect_exit 2 agent sync $mode --feature-gates=IPTablesOwnershipCleanup=false
expect_output "LegacyModeImpossible"
expect has_native_table
expect_exit 1 nft list chain ip nat KUBE-MARK-DROP

kube-iptables-agent run $mode --healthz-bind-address= --metrics-bind-address= >/tmp/daemon 2>&1 &
daemon=$!
expect until_true grep -q "Watching" /tmp/daemon
nft delete table ip kube-iptables-agent
if until_true has_native_table; then ok "the daemon repairs it"; else
  bad "the daemon does not repair it"
  cat /tmp/daemon
fi
kill "$daemon"
wait "$daemon"
expect_same "the daemon's exit code" "$?" 0
finish
