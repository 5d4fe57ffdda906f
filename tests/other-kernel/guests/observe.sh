# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=dash
#
# A kernel that would load nf_tables for every program that asks it anything, and an agent that only observes.
# later: nf_tables nft_counter? nft_compat nft_chain_nat xt_comment xt_conntrack xt_mark xt_MASQUERADE xt_nat
. /guest.sh

modules=/lib/modules/$(uname -r)
mkdir -p "$modules/kernel" /sbin
cp /later/*.ko "$modules/kernel/"
: >"$modules/modules.builtin"
depmod
ln -s /bin/busybox /sbin/modprobe
loaded() { [ -e /sys/module/nf_tables ]; }
says() { grep -q -e "$1" /tmp/daemon; }
settings="--iptables-mode=nft --iptables-sync-period=1s --healthz-bind-address= --metrics-bind-address="

# shellcheck disable=SC2086
kube-iptables-agent run --observe $settings >/tmp/daemon 2>&1 &
daemon=$!
sleep 4
expect says "Would: .*block incoming localnet connections"
expect says "nf_tables is not loaded"
expect_not loaded

expect_same "somebody else asks, and there are no rules" "$(ruleset)" ""
expect loaded
sleep 3
expect says "Watching: kernel events"
expect_same "it still writes nothing" "$(ruleset)" ""
kill "$daemon"
wait "$daemon"
expect_same "it ends with 0" "$?" 0

# shellcheck disable=SC2086
kube-iptables-agent run $settings >/tmp/daemon 2>&1 &
sleep 4
expect has_hint
expect has_xt_rule
finish
