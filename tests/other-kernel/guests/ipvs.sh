# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=dash
#
# A pod that reaches itself through a service of a real IPVS: its packets come back to it only if
# kube-proxy's hairpin rule masquerades them, before and after the agent's sync.
# modules: ip_vs ip_vs_rr ip_set ip_set_hash_ipportip xt_set nf_tables nft_counter? nft_compat nft_chain_nat iptable_filter iptable_nat iptable_mangle xt_comment xt_conntrack xt_mark xt_MASQUERADE xt_nat veth
# programs: ipset ipvsadm
. /guest.sh

unshare -n sleep 1000 &
pod=$!
in_pod() { nsenter -t "$pod" -n "$@"; }
has_namespace() { [ "$(readlink "/proc/$pod/ns/net")" != "$(readlink /proc/self/ns/net)" ]; }
until_true has_namespace
# The guest's own ip ignores the name of the peer.
/usr/sbin/ip link add to-pod type veth peer name eth0 netns "$pod"
ip address add 10.0.0.1/24 dev to-pod
ip link set to-pod up
in_pod ip address add 10.0.0.2/24 dev eth0
in_pod ip link set eth0 up
in_pod ip link set lo up
in_pod ip route add default via 10.0.0.1
echo 1 >/proc/sys/net/ipv4/ip_forward
echo 1 >/proc/sys/net/ipv4/vs/conntrack
ip address add 10.96.0.1/32 dev lo
ipvsadm -A -t 10.96.0.1:80 -s rr
ipvsadm -a -t 10.96.0.1:80 -r 10.0.0.2:80 -m
ipset create KUBE-LOOP-BACK hash:ip,port,ip
ipset add KUBE-LOOP-BACK 10.0.0.2,tcp:80,10.0.0.2
mkdir /tmp/www
echo served >/tmp/www/index.html
in_pod busybox httpd -p 80 -h /tmp/www
# The guest's wget would look up names.
reaches_itself() { printf 'GET / HTTP/1.0\r\n\r\n' | in_pod nc -w 3 10.96.0.1 80 | grep -q served; }

expect_not reaches_itself
for mode in nft legacy; do
  iptables_is "$mode"
  iptables-restore --noflush <<'RULES'
*nat
:KUBE-SERVICES - [0:0]
:KUBE-MARK-MASQ - [0:0]
:KUBE-POSTROUTING - [0:0]
-A PREROUTING -j KUBE-SERVICES
-A POSTROUTING -m comment --comment "kubernetes postrouting rules" -j KUBE-POSTROUTING
-A KUBE-MARK-MASQ -j MARK --or-mark 0x4000
-A KUBE-POSTROUTING -m set --match-set KUBE-LOOP-BACK dst,dst,src -j MASQUERADE
-A KUBE-POSTROUTING -m mark ! --mark 0x4000/0x4000 -j RETURN
-A KUBE-POSTROUTING -j MARK --xor-mark 0x4000
-A KUBE-POSTROUTING -m comment --comment "kubernetes service traffic requiring SNAT" -j MASQUERADE --random-fully
COMMIT
RULES
  expect reaches_itself
  before=$(iptables -t nat -S KUBE-POSTROUTING)
  expect_exit 0 agent sync "--iptables-mode=$mode" --ip-families=ipv4 --feature-gates=IPTablesOwnershipCleanup=false
  expect_same "KUBE-POSTROUTING of $mode" "$(iptables -t nat -S KUBE-POSTROUTING)" "$before"
  expect reaches_itself
  # Only one mode serves at a time.
  iptables -t nat -F
done
finish
