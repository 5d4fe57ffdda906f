# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=dash
#
# audit --before=CHANGE on a kernel with a real IPVS, and one that nftables mode cannot use: 5.10,
# without nft_numgen and nft_fib. What it reports is then tried.
# modules: nf_tables nft_counter? nft_compat nft_chain_nat nft_ct nft_nat nft_masq xt_comment xt_conntrack xt_mark xt_addrtype xt_MASQUERADE xt_nat xt_tcpudp xt_set xt_nfacct xt_CT ipt_REJECT iptable_filter iptable_nat ip_set_hash_ip ip_set_hash_ipport ip_set_hash_ipportip ip_set_hash_ipportnet ip_set_bitmap_port ip_vs ip_vs_rr ip_vs_wlc nfnetlink_acct dummy veth
# lists: yes
# programs: ipvsadm ipset nfacct
# tree: tests/agent/testdata/audited
. /guest.sh

# The shell prefers its own.
ip() { /usr/sbin/ip "$@"; }
before() { agent audit --before="$1" --ip-families=ipv4 --cni-conf-dir=/tmp; }
# server_listens PORT, in hexadecimal
server_listens() {
  ip netns exec server cat /proc/net/tcp /proc/net/tcp6 2>/dev/null | grep -q ":$1 .* 0A "
}
save=$(find / -name ipvs-1.28-v4.save 2>/dev/null)

# client 10.9.1.2 - 10.9.1.1 node 10.9.2.1 - 10.9.2.2 server
echo 1 >/proc/sys/net/ipv4/ip_forward
number=0
for name in client server; do
  number=$((number + 1))
  ip netns add $name
  ip link add $name type veth peer name eth0 netns $name
  ip addr add 10.9.$number.1/24 dev $name
  ip link set $name up
  ip -n $name addr add 10.9.$number.2/24 dev eth0
  ip -n $name link set eth0 up
  ip -n $name route add default via 10.9.$number.1
done
client_pings() { ip netns exec client ping -c 1 -W 1 "$1" >/dev/null 2>&1; }
client_pings 10.9.2.2
expect client_pings 10.9.2.2

# ---- IPVS: the rules of kube-proxy 1.28, its sets, its device, its virtual services ----

expect_exit 0 before kube-proxy-ipvs-removal
for set in KUBE-LOAD-BALANCER KUBE-LOAD-BALANCER-LOCAL KUBE-LOAD-BALANCER-FW KUBE-CLUSTER-IP; do
  ipset create $set hash:ip,port
done
ipset create KUBE-LOAD-BALANCER-SOURCE-CIDR hash:ip,port,net
ipset create KUBE-LOOP-BACK hash:ip,port,ip
ipset create KUBE-IPVS-IPS hash:ip
ipset create KUBE-HEALTH-CHECK-NODE-PORT bitmap:port range 0-65535
ipset create KUBE-NODE-PORT-TCP bitmap:port range 0-65535
ipset add KUBE-CLUSTER-IP 172.30.0.41,tcp:80
expect_exit 0 iptables-nft-restore "$save"
ip link add kube-ipvs0 type dummy
ip addr add 172.30.0.41/32 dev kube-ipvs0
ipvsadm -A -t 172.30.0.41:80 -s rr
ipvsadm -a -t 172.30.0.41:80 -r 10.9.2.2:80 -m
echo served >/tmp/answer
ip netns exec server nc -ll -p 80 -e cat /tmp/answer &
expect until_true server_listens 0050
ask() { ip netns exec client nc -w 2 "$1" 80 </dev/null 2>/dev/null; }
expect_same "IPVS serves" "$(ask 172.30.0.41)" served
expect_exit 2 before kube-proxy-ipvs-removal
expect_output "^error *IpvsInUse *nft ip"
expect_output "^1 error, 0 warnings"
expect_exit 2 before kube-proxy-nftables
expect_no_output "IpvsInUse"
expect_no_output "IpvsScheduler"

ipvsadm -A -t 172.30.0.42:80 -s wlc
expect_exit 2 before kube-proxy-ipvs-removal
expect_output "^warning *IpvsScheduler"
expect_output "^ *wlc: 1 virtual service$"
ipvsadm -D -t 172.30.0.42:80

# A foreign rule keeps the set that it uses, and its members: kube-proxy's cleanup gets this error.
iptables-legacy -N OWN
iptables-legacy -A OWN -m set --match-set KUBE-CLUSTER-IP dst,dst -j RETURN
expect_exit 2 before kube-proxy-ipvs-removal
expect_output "^warning *IpsetUser *legacy ip"
for table in nat filter mangle; do
  iptables-nft -t $table -F
  iptables-nft -t $table -X
done
expect_exit 1 ipset destroy KUBE-CLUSTER-IP
expect_output "in use by a kernel component"
iptables-legacy -F
iptables-legacy -X
expect_exit 0 ipset destroy KUBE-CLUSTER-IP

# kube-proxy is gone. Its device still takes packets to the service's address.
expect_exit 2 before kube-proxy-ipvs-removal
expect_output "^warning *IpvsInUse$"
expect_no_output "IpvsOfOthers"
expect client_pings 172.30.0.41
ip link delete kube-ipvs0
expect_not client_pings 172.30.0.41

# Virtual services without kube-proxy's device are another program's.
expect_exit 2 before kube-proxy-nftables
expect_output "^error *IpvsOfOthers"
expect_output "^ *rr: 1 virtual service$"
# As kube-proxy's cleanup does.
ipvsadm -C
expect_exit 0 before kube-proxy-ipvs-removal

# ---- what nftables mode needs of the kernel ----

expect_exit 2 before kube-proxy-nftables
expect_output "^error *KernelTooOld$"
expect_output "^error *KernelLacksModules$"
expect_output "nft numgen: nft_numgen is not loaded and not in /lib/modules/"
expect_output "nft fib, IPv4: "
expect_no_output "IPv6"
expect_no_output "nft dnat: "
expect_no_output "conntrack netlink"
nft add table ip try
nft add chain ip try try
expect_exit 1 nft add rule ip try try numgen random mod 2 0
expect_exit 1 nft add rule ip try try fib daddr type local
expect_exit 0 nft add rule ip try try ct state new
nft delete table ip try

# ---- packets of the state INVALID ----

# kube-proxy's rule, 1.31 and later. What it drops here is a connection that began untracked.
expect_exit 0 nfacct add ct_state_invalid_dropped_pkts
iptables-nft -N KUBE-FORWARD
iptables-nft -A FORWARD -m comment --comment "kubernetes forwarding rules" -j KUBE-FORWARD
expect_exit 0 iptables-nft -A KUBE-FORWARD -m conntrack --ctstate INVALID \
  -m nfacct --nfacct-name ct_state_invalid_dropped_pkts -j DROP
before kube-proxy-nftables >/tmp/out
expect_no_output "ConntrackWorkaround"
echo 0 >/proc/sys/net/netfilter/nf_conntrack_tcp_loose
iptables-nft -t raw -A PREROUTING -p tcp -j CT --notrack
mkfifo /tmp/in
sleep 1000 | ip netns exec server nc -l -p 90 >/tmp/got &
expect until_true server_listens 005A
ip netns exec client nc 10.9.2.2 90 </tmp/in &
exec 3>/tmp/in
echo first >&3
expect until_true grep -q first /tmp/got
iptables-nft -t raw -F
echo late >&3
counted() { nfacct list | grep -v 'pkts = 0*,' | grep -q ct_state_invalid_dropped_pkts; }
expect until_true counted
expect_not grep -q late /tmp/got
exec 3>&-
expect_exit 2 before kube-proxy-nftables
expect_output "^warning *ConntrackWorkaround$"
expect_output "nfacct ct_state_invalid_dropped_pkts: [0-9]* packets$"
finish
