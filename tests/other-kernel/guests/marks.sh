# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=dash
#
# Marks that no rule shows, on a kernel that can make them: WireGuard's fwmark, with the packets that
# KUBE-FIREWALL drops, tc filters and actions; and that asking loads no module.
# modules: nf_tables nft_counter? nft_compat nft_ct nft_chain_nat xt_comment xt_conntrack xt_mark xt_MASQUERADE xt_nat veth dummy sch_ingress sch_htb cls_u32 cls_fw cls_flower cls_matchall cls_basic em_meta act_skbedit act_connmark act_ctinfo act_gact
# later: wireguard
# programs: wg tc
. /guest.sh

gate=--feature-gates=IPTablesOwnershipCleanup=false
mode=--iptables-mode=nft
loaded() { [ -e "/sys/module/$1" ]; }
# The rule that drops by the mark, of IPv4: how many packets it has dropped.
dropped() { iptables-nft-save -c -t filter | sed -n 's/^\[\([0-9]*\):.*-A KUBE-FIREWALL.*0x8000.*/\1/p'; }
# The shell prefers its own.
ip() { /usr/sbin/ip "$@"; }
tc() { /usr/sbin/tc "$@"; }
ping_once() { ping -c 1 -W 1 "$1" >/dev/null 2>&1; }

# If a program asked for WireGuard's netlink by its name, the kernel would load it.
mkdir -p "/lib/modules/$(uname -r)/kernel" /sbin
cp /later/*.ko "/lib/modules/$(uname -r)/kernel/"
: >"/lib/modules/$(uname -r)/modules.builtin"
depmod
ln -s /bin/busybox /sbin/modprobe
expect_exit 0 agent sync $mode $gate
expect_exit 0 agent marks $mode $gate
expect_exit 0 agent audit $mode $gate
expect_not loaded wireguard

# ---- WireGuard, to a peer in another namespace ----

ip netns add peer
ip link add up0 type veth peer name up1 netns peer
ip addr add 10.9.0.1/24 dev up0
ip link set up0 up
ip -n peer addr add 10.9.0.2/24 dev up1
ip -n peer link set up1 up
ip link add wg0 type wireguard
expect loaded wireguard
ip -n peer link add wg1 type wireguard
wg genkey >/tmp/here
wg genkey >/tmp/there
wg set wg0 listen-port 51820 private-key /tmp/here \
  peer "$(wg pubkey </tmp/there)" allowed-ips 10.8.0.2/32 endpoint 10.9.0.2:51820
ip netns exec peer wg set wg1 listen-port 51820 private-key /tmp/there \
  peer "$(wg pubkey </tmp/here)" allowed-ips 10.8.0.1/32 endpoint 10.9.0.1:51820
ip addr add 10.8.0.1/24 dev wg0
ip link set wg0 up
ip -n peer addr add 10.8.0.2/24 dev wg1
ip -n peer link set wg1 up
ping_once 10.8.0.2 || ping_once 10.8.0.2
expect ping_once 10.8.0.2
expect_exit 0 agent audit $mode $gate

wg set wg0 fwmark 0xca6c
before=$(dropped)
expect_not ping_once 10.8.0.2
expect [ "$(dropped)" -gt "$before" ]
expect_exit 2 agent marks $mode $gate
expect_output "the WireGuard interface wg0 marks 0xca6c: KUBE-FIREWALL drops it"
expect_output "the WireGuard interface wg0, whole  *cccc cccc cccc cccc sscc scsc cssc sscc"
expect_exit 2 agent audit $mode $gate
expect_output "^error *DeviceMark *nft ip filter/KUBE-FIREWALL"
# What the kernel also answers.
expect_no_output "$(cat /tmp/here)"

# Retirement keeps what drops such packets as long as they may come.
expect_exit 0 agent sync $mode
expect_exit 2 agent retire $mode --cni-conf-dir=/tmp
expect_output "the WireGuard interface wg0 may set: fwmark 0xca6c"
expect_exit 0 agent retire $mode --yes --cni-conf-dir=/tmp
before=$(dropped)
expect_not ping_once 10.8.0.2
expect [ "$(dropped)" -gt "$before" ]
wg set wg0 fwmark 0x20
expect ping_once 10.8.0.2
expect_exit 0 agent retire $mode --yes --cni-conf-dir=/tmp
expect_same "no rule drops by the mark" "$(dropped)" ""
wg set wg0 fwmark 0xca6c
expect ping_once 10.8.0.2
wg set wg0 fwmark 0x20
expect_exit 0 agent sync $mode $gate
expect_exit 0 agent audit $mode $gate

# ---- traffic control ----

# By which tc knows the extended match by its name.
mkdir -p /etc/iproute2
echo "4 meta" >/etc/iproute2/ematch_map

ip link add tc0 type dummy
ip link set tc0 up
tc qdisc add dev tc0 clsact
tc filter add dev tc0 ingress pref 1 protocol ip handle 0x8000/0xff00 fw action ok
tc filter add dev tc0 ingress pref 2 protocol ipv6 u32 match u32 0 0 match mark 0x4000 0xc000 action ok
tc filter add dev tc0 ingress pref 3 matchall action skbedit mark 0x8000/0x8001
tc filter add dev tc0 ingress pref 4 protocol ip flower ct_mark 0x8000/0x8000 action ok
tc filter add dev tc0 egress pref 5 matchall action connmark
tc filter add dev tc0 egress pref 6 basic match 'meta(nf_mark eq 1)' action ok
tc filter add dev tc0 egress pref 7 matchall action ctinfo cpmark 0xff
tc qdisc add dev tc0 root handle 1: htb
tc class add dev tc0 parent 1: classid 1:10 htb rate 1mbit
tc filter add dev tc0 parent 1:10 pref 8 protocol ip handle 0x77 fw classid 1:10
tc qdisc add dev up0 ingress
tc filter add dev up0 parent ffff: pref 9 matchall action skbedit mark 0x1
expect_exit 2 agent marks $mode $gate --output=json
expect_output '"pref 1 fw 0x8000/0xff00"'
expect_output '"pref 2 u32 0x4000/0xc000"'
expect_output '"pref 3 matchall skbedit mark 0x8000/0x8001"'
expect_no_output '"pref 4 '
expect_output '"pref 5 matchall connmark"'
expect_output '"pref 6 basic mark"'
expect_output '"pref 7 matchall ctinfo cpmark 0xff"'
expect_output '"pref 8 fw 0x77"'
expect_output '"pref 9 matchall skbedit mark 0x1"'
expect_output '"a tc filter of tc0 1:10"'
expect_output '"a tc filter of up0 ingress"'
expect_output '"problems": \[\]'
expect_exit 2 agent marks $mode $gate
expect_output "a tc filter of tc0 ingress marks 0x8000: KUBE-FIREWALL drops it"
finish
