# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=dash
#
# A kernel that has all that the marks' rules need, and not the match for connections' labels; until it
# is loaded. First its lists of modules say so, then there are none.
# modules: nf_tables nft_counter? nft_compat nft_ct nft_chain_nat iptable_filter iptable_nat iptable_mangle ip6table_filter ip6table_nat ip6table_mangle xt_comment xt_conntrack xt_mark xt_MASQUERADE xt_nat veth
# later: xt_connlabel
# lists: yes
. /guest.sh

gate=--feature-gates=IPTablesOwnershipCleanup=false,ConnLabelMarking=true
address="--healthz-bind-address= --metrics-bind-address="

# Of the iptables of the mode.
chains_of() {
  for family in iptables ip6tables; do
    for table in filter nat mangle; do "$family-$1" -t "$table" -S; done
  done 2>/dev/null
}
empty() {
  for family in iptables ip6tables; do
    for table in filter nat mangle; do
      "$family-$1" -t "$table" -F && "$family-$1" -t "$table" -X
    done
  done 2>/dev/null
}
has_marks() {
  for family in iptables ip6tables; do
    "$family-$1" -t nat -C KUBE-MARK-DROP -j MARK --or-mark 0x8000 &&
      "$family-$1" -t nat -C KUBE-POSTROUTING -m comment \
        --comment "kubernetes service traffic requiring SNAT" -j MASQUERADE --random-fully &&
      "$family-$1" -C KUBE-FIREWALL -m comment \
        --comment "kubernetes firewall for dropping marked packets" -m mark --mark 0x8000/0x8000 -j DROP ||
      return 1
  done 2>/dev/null
}
has_labels() {
  for family in iptables ip6tables; do
    "$family-$1" -t nat -C KUBELET-MARK-MASQ -m connlabel --label 114 --set &&
      "$family-$1" -t nat -C KUBELET-POSTROUTING -m connlabel --label 114 \
        -j MASQUERADE --random-fully &&
      "$family-$1" -C KUBELET-FIREWALL -m connlabel --label 115 -j DROP || return 1
  done 2>/dev/null
}
has_none() { ! chains_of "$1" | grep -q ' KUBELET-'; }
# waits_for CHECK...: up to 10 seconds.
waits_for() {
  for _ in 1 2 3 4 5 6 7 8 9 10; do
    "$@" && return
    sleep 1
  done
  false
}

for kind in nft legacy; do
  mode="--iptables-mode=$kind"
  expect_exit 0 agent sync $mode --feature-gates=IPTablesOwnershipCleanup=false
  without=$(chains_of "$kind")
  empty "$kind"

  expect_exit 2 agent plan $mode $gate
  expect_output "ConnLabelsImpossible (warning)"
  expect_output "xt_connlabel is not loaded and not in /lib/modules/"
  expect_no_output "KUBELET-MARK-DROP"
  expect_exit 2 agent sync $mode $gate
  expect_output "ConnLabelsImpossible (warning)"
  expect has_marks "$kind"
  expect has_none "$kind"
  expect_same "the marks' rules are as without the gate" "$(chains_of "$kind")" "$without"
  expect_exit 2 agent status $mode $gate
  expect_exit 2 agent sync $mode $gate
  expect_same "nothing is written where all is in place" "$(chains_of "$kind")" "$without"
  empty "$kind"
done

# Nobody knows: it is tried.
mv /lib/modules /lib/modules.away
for kind in nft legacy; do
  mode="--iptables-mode=$kind"
  expect_exit 2 agent sync $mode $gate
  expect_output "a rule was refused because the kernel or iptables lacks the match connlabel"
  expect has_marks "$kind"
  expect has_none "$kind"
  empty "$kind"
  expect_exit 2 agent sync $mode --feature-gates=ConnLabelMarking=true
  expect_output "ConnLabelsImpossible (warning)"
  expect has_none "$kind"
  empty "$kind"
done

for kind in nft legacy; do
  # shellcheck disable=SC2086
  kube-iptables-agent run --iptables-mode=$kind $gate $address --iptables-sync-period=1s \
    >/tmp/daemon-$kind 2>&1 &
  eval "daemon_$kind=$!"
  expect waits_for has_marks "$kind"
  sleep 3
  expect grep -q "connection labels are not available here" /tmp/daemon-$kind
  expect_same "it is told once" "$(grep -c 'connection labels are not available' /tmp/daemon-$kind)" 1
  "iptables-$kind" -t nat -F KUBE-MARK-DROP
  expect waits_for has_marks "$kind"
  expect has_none "$kind"
done
load_later
for kind in nft legacy; do
  expect waits_for has_labels "$kind"
  expect has_marks "$kind"
  expect grep -q "connection labels are available now" /tmp/daemon-$kind
  eval "daemon=\$daemon_$kind"
  # shellcheck disable=SC2154
  kill "$daemon"
  wait "$daemon"
  expect_same "the daemon's exit code" "$?" 0
  show_if_failed /tmp/daemon-$kind
  expect_exit 0 agent status --iptables-mode=$kind $gate
  empty "$kind"
  expect_exit 0 agent sync --iptables-mode=$kind $gate
  expect has_labels "$kind"
  empty "$kind"
done

# The kernel has it, and legacy iptables has not.
extension=$(find /usr/lib /lib -name libxt_connlabel.so)
mv "$extension" /tmp/
expect_exit 2 agent sync --iptables-mode=legacy $gate
expect_output "ConnLabelsImpossible (warning)"
expect has_marks legacy
expect has_none legacy
expect_exit 0 agent sync --iptables-mode=nft $gate
mv /tmp/libxt_connlabel.so "$extension"
expect has_labels nft
finish
