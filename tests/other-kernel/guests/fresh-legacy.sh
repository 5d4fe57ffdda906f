# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=dash
#
# A node of iptables-legacy right after its boot: no program has loaded a module yet. The agent has the
# capabilities of the systemd unit, without CAP_SYS_MODULE, so the unit has the modules loaded by systemd that
# iptables-legacy would load itself. The kernel then finds the others.
# modules: veth
# later: iptable_filter iptable_nat iptable_mangle ip6table_filter ip6table_nat ip6table_mangle xt_comment xt_conntrack xt_mark xt_MASQUERADE xt_nat
# tree: deploy/systemd
. /guest.sh

mkdir -p /sbin
ln -s /bin/busybox /sbin/modprobe
release=$(uname -r)
while read -r file; do
  mkdir -p "/lib/modules/$release/${file%/*}"
  cp "/later/${file##*/}" "/lib/modules/$release/$file"
done </later/order
busybox depmod
iptables_is legacy
# The guest's shell has a setpriv of its own.
as_unit() {
  /usr/bin/setpriv --bounding-set=-all,+net_admin,+net_raw --inh-caps=-all --no-new-privs kube-iptables-agent "$@" \
    --host-root=/ --feature-gates=IPTablesOwnershipCleanup=false
}
unit=$(find / -xdev -name kube-iptables-agent.service)

expect_exit 1 as_unit sync
expect_output "load ip_tables"
for module in $(sed -n 's/^Wants=modprobe@//p' "$unit" | sed 's/ modprobe@/ /g; s/\.service//g'); do
  expect_exit 0 modprobe "$module"
done
expect_exit 0 as_unit sync
for family in iptables ip6tables; do
  expect "$family-legacy" -t mangle -S KUBE-IPTABLES-HINT
  expect "$family-legacy" -t nat -S KUBE-MARK-MASQ
done
expect iptables-legacy -S KUBE-FIREWALL
finish
