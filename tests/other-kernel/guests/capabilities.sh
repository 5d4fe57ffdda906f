# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=dash
#
# A kernel that would load modules for every program that asks it anything; `detect --capabilities` asks nothing.
# later: nf_tables nft_counter? nft_compat nft_chain_nat xt_comment xt_conntrack xt_mark xt_MASQUERADE xt_nat nfnetlink_acct
. /guest.sh

modules=/lib/modules/$(uname -r)
mkdir -p "$modules/kernel" /sbin
cp /later/*.ko "$modules/kernel/"
: >"$modules/modules.builtin"
depmod
# Whoever makes the kernel ask for a module is noted, whether there is such a module or not.
printf '#!/bin/busybox sh\necho "$*" >>/tmp/asked\nexec /bin/busybox modprobe "$@"\n' >/sbin/modprobe
chmod 0755 /sbin/modprobe
asked() { [ -e /tmp/asked ]; }
before=$(cat /proc/modules)

expect_exit 2 agent detect --capabilities
expect_output "^iptables-nft: loadable$"
expect_output "^  loadable match comment .*# xt_comment is in /lib/modules/"
expect_output "^  missing  match statistic .*# xt_statistic is not loaded and not in /lib/modules/"
expect_output "! from 1.31 on, every sync fails"
expect_exit 2 agent detect --capabilities --output=json
expect_output '"state": "loadable"'
expect_exit 0 agent detect --capabilities=iptables-nft
expect_exit 2 agent detect --capabilities=kube-proxy-nftables
expect_same "no module was loaded" "$(cat /proc/modules)" "$before"
expect_not asked

# The judge can see.
expect_exit 0 nft list tables
expect asked
show_if_failed /tmp/asked
expect_exit 0 agent detect --capabilities=iptables-nft
expect_output "^  present  nf_tables .*# nf_tables is loaded"
expect_output "^  loadable xtables in nf_tables "
finish
