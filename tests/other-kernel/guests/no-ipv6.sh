# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=dash
#
# A kernel whose IPv6 is off by its command line, with both kinds of iptables.
# modules: nf_tables nft_counter? nft_compat nft_ct nft_chain_nat iptable_filter iptable_nat iptable_mangle ip6table_filter ip6table_nat ip6table_mangle xt_comment xt_conntrack xt_mark xt_MASQUERADE xt_nat veth
# append: ipv6.disable=1
# lists: yes
. /guest.sh

expect test ! -e /proc/net/if_inet6
# What lets no program find out by trying.
expect_exit 0 ip6tables-nft -t mangle -N JUST-A-CHAIN
nft flush ruleset

mode="--iptables-mode=nft"
expect_exit 2 agent plan $mode
expect_no_output ip6
expect_exit 0 agent sync $mode
expect has_hint
expect has_xt_rule
expect_exit 0 agent status $mode
expect_no_output ip6
expect_same "nothing is made for ip6" "$(nft list tables | grep -v '^table ip ')" ""
drops=$(xt_drops)
send_martian
expect_same "a martian is dropped" "$(xt_drops)" "$((drops + 1))"
expect_exit 0 agent sync $mode --feature-gates=IPTablesOwnershipCleanup=false
expect_same "nothing is made for ip6" "$(nft list tables | grep -v '^table ip ')" ""
before=$(ruleset)
expect_exit 0 agent audit $mode
expect_no_output "not supported"
expect_exit 64 agent sync $mode --ip-families=ipv4,ipv6
expect_output "has no IPv6"
expect_exit 64 agent sync $mode --ip-families=ipv6
expect_same "a wrong flag changes nothing" "$(ruleset)" "$before"

kube-iptables-agent run $mode --healthz-bind-address= --metrics-bind-address= >/tmp/daemon 2>&1 &
daemon=$!
sleep 2
iptables-nft -F KUBE-FIREWALL
sleep 1
expect has_xt_rule
kill "$daemon"
wait "$daemon"
expect_same "the daemon's exit code" "$?" 0
show_if_failed /tmp/daemon

nft flush ruleset
mode="--iptables-mode=legacy"
iptables_is legacy
before=$(ip6tables-legacy-save)
expect_exit 0 agent sync $mode
expect_exit 0 agent plan $mode
expect_exit 0 iptables-legacy -t mangle -S KUBE-IPTABLES-HINT
expect_exit 0 iptables-legacy -C INPUT -j KUBE-FIREWALL
expect_exit 0 agent sync $mode --feature-gates=IPTablesOwnershipCleanup=false
expect_same "nothing is made for ip6" "$(ip6tables-legacy-save)" "$before"
finish
