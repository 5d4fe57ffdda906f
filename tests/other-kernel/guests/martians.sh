# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=dash
#
# The native rules on a kernel without xtables: packets of every kind, as on this machine's own kernel.
# modules: nf_tables nft_counter? nft_ct nft_chain_nat nft_nat nft_objref? veth
# lists: yes
. /guest.sh

expect_exit 4 iptables-nft -A INPUT -m comment --comment "a rule" -j ACCEPT
nft flush ruleset
kernel_martian_test --gtest_brief=1 --gtest_filter='*NativeMartianTest*:*NativeTableAlone:-*NoMartian*' || bad "the packets"
finish
