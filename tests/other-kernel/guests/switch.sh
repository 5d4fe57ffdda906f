# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=dash
#
# A kernel of which nobody knows what it can load: first it has nothing for iptables, then it has.
# modules: nf_tables nft_counter? nft_ct nft_chain_nat nft_masq veth
# later: nft_compat xt_comment xt_conntrack xt_mark xt_MASQUERADE xt_nat
. /guest.sh

mode="--iptables-mode=nft"
expect_exit 0 agent sync $mode
expect has_native_table
expect_not has_hint
expect_not has_xt_rule
expect_same "nothing else is made" "$(nft list tables)" "table ip kube-iptables-agent"
before=$(ruleset)
expect_exit 0 agent sync $mode
expect_same "nothing is written where all is in place" "$(ruleset)" "$before"

load_later
nft monitor >/tmp/events &
monitor=$!
sleep 1
expect_exit 2 agent plan $mode
expect_exit 0 agent sync $mode
expect has_xt_rule
expect has_hint
expect_not has_native_table
sleep 1
kill "$monitor"
# The line that ends a transaction stands behind it.
expect_same "it is one transaction" "$(grep -c '^# new generation' /tmp/events)" 1
# Linux 5.10 calls it an insertion, whatever it was.
added=$(grep -n -e 'add rule ip filter KUBE-FIREWALL' -e 'insert rule ip filter KUBE-FIREWALL' /tmp/events | cut -d: -f1)
deleted=$(grep -n 'delete table ip kube-iptables-agent' /tmp/events | cut -d: -f1)
if [ -n "$added" ] && [ -n "$deleted" ] && [ "$added" -lt "$deleted" ]; then
  ok "the new protection stands before the old one goes"
else
  bad "the new protection does not stand before the old one goes:"
  cat /tmp/events
fi
before=$(ruleset)
expect_exit 0 agent sync $mode
expect_same "nothing is written where all is in place" "$(ruleset)" "$before"

# And back.
nft flush ruleset
for module in xt_nat xt_MASQUERADE xt_mark xt_conntrack xt_comment nft_compat; do
  rmmod "$module" || bad "rmmod $module"
done
expect_exit 0 agent sync $mode
expect has_native_table
expect_not has_xt_rule
finish
