# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=dash
#
# The same kernel with everything that iptables needs.
# modules: nf_tables nft_counter? nft_compat nft_ct nft_chain_nat xt_comment xt_conntrack xt_mark xt_MASQUERADE xt_nat veth
# lists: yes
. /guest.sh

mode="--iptables-mode=nft"
expect_exit 2 agent plan $mode
expect_same "plan makes nothing" "$(ruleset)" ""
expect_exit 0 agent sync $mode
expect has_xt_rule
expect has_hint
expect_not has_native_table
before=$(ruleset)
expect_exit 0 agent sync $mode
expect_exit 0 agent status $mode
expect_same "nothing is written where all is in place" "$(ruleset)" "$before"

drops=$(xt_drops)
send_martian
expect_same "a martian is dropped" "$(xt_drops)" "$((drops + 1))"

expect_exit 0 agent sync $mode --feature-gates=IPTablesOwnershipCleanup=false
expect_exit 0 iptables-nft -t nat -C KUBE-MARK-DROP -j MARK --or-mark 0x8000
expect_exit 0 iptables-nft -t nat -C KUBE-POSTROUTING -m comment \
  --comment "kubernetes service traffic requiring SNAT" -j MASQUERADE --random-fully
expect_not has_native_table
finish
