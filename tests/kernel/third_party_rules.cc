// SPDX-License-Identifier: Apache-2.0
#include "tests/kernel/third_party_rules.h"

namespace kipt::testing {
namespace {

constexpr char kRules[] = R"rules(*raw
:PREROUTING ACCEPT [0:0]
:cali-PREROUTING - [0:0]
:CILIUM_PRE_raw - [0:0]
[9:999] -A PREROUTING -m comment --comment "cali:6gwbT8clXdHdC1b1" -j cali-PREROUTING
-A cali-PREROUTING -m comment --comment "cali:XFX5xbM8B9qR10JG" -j MARK --set-xmark 0x0/0xf0000
-A cali-PREROUTING -i cali+ -m comment --comment "cali:EWMPb0zVROM-woQp" -j MARK --set-xmark 0x40000/0x40000
-A cali-PREROUTING -m comment --comment "cali:PWuxTAIaFCtsg5Qa" -m mark --mark 0x10000/0x10000 -j ACCEPT
-A CILIUM_PRE_raw -d 10.0.0.0/24 -m comment --comment "cilium: NOTRACK for proxy traffic" -m mark --mark 0x200/0xf00 -j CT --notrack
-A CILIUM_PRE_raw -p udp -j NOTRACK
-A CILIUM_PRE_raw -p udp -m udp --dport 53 -j TRACE
COMMIT
*mangle
:CILIUM_PRE_mangle - [0:0]
:KUBE-ROUTER - [0:0]
-A CILIUM_PRE_mangle -p tcp -m mark --mark 0x200/0xf00 -j TPROXY --on-port 10001 --on-ip 127.0.0.1 --tproxy-mark 0x200/0xffffffff
-A CILIUM_PRE_mangle ! -o lo -m comment --comment "cilium: any->pod redirect proxied traffic" -j MARK --set-xmark 0x200/0xf00
-A KUBE-ROUTER -p tcp -m tcp --tcp-flags SYN,RST SYN -j TCPMSS --clamp-mss-to-pmtu
-A KUBE-ROUTER -p tcp -m tcp --tcp-flags SYN,RST SYN -j TCPMSS --set-mss 1440
-A KUBE-ROUTER -p tcp -m tcp ! --tcp-flags FIN,SYN,RST,ACK SYN -j MARK --set-xmark 0x1/0x1
-A KUBE-ROUTER -p tcp -m tcp --dport 22 --tcp-flags FIN,SYN,RST,PSH,ACK,URG NONE -j DROP
-A KUBE-ROUTER -i eni+ -m comment --comment "AWS, primary ENI" -m addrtype --dst-type LOCAL --limit-iface-in -j CONNMARK --set-xmark 0x80/0x80
-A KUBE-ROUTER -i eni+ -m comment --comment "AWS, primary ENI" -j CONNMARK --restore-mark --nfmask 0x80 --ctmask 0x80
-A KUBE-ROUTER -j CONNMARK --save-mark --nfmask 0xffffffff --ctmask 0xffffffff
-A KUBE-ROUTER -m connmark --mark 0x1/0x3 -j RETURN
-A KUBE-ROUTER -m connmark ! --mark 0x1 -j RETURN
COMMIT
*filter
:INPUT DROP [0:0]
:FORWARD ACCEPT [0:0]
:DOCKER - [0:0]
:DOCKER-USER - [0:0]
:CNI-FORWARD - [0:0]
:IN_public - [0:0]
:MIXED - [0:0]
[5:300] -A FORWARD -j DOCKER-USER
[1234567890123:98765432109876] -A FORWARD -m comment --comment "CNI firewall plugin rules" -j CNI-FORWARD
-A FORWARD -o docker0 -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT
-A FORWARD -o docker0 -j DOCKER
-A FORWARD -i docker0 ! -o docker0 -j ACCEPT
-A DOCKER ! -i docker0 -o docker0 -p tcp -m tcp --dport 80 -j ACCEPT
-A DOCKER-USER -j RETURN
-A CNI-FORWARD -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT
-A IN_public -p tcp -m tcp --dport 22 -m conntrack --ctstate NEW,UNTRACKED -j ACCEPT
-A IN_public -p udp -m udp --dport 5353 -m conntrack --ctstate NEW -j ACCEPT
-A IN_public -m conntrack --ctstate INVALID -j LOG --log-prefix "STATE_INVALID_DROP: "
-A IN_public -m limit --limit 10/min --limit-burst 10 -j LOG --log-prefix FINAL --log-level 7 --log-tcp-options --log-ip-options --log-uid
-A IN_public -j LOG
-A IN_public -m comment --comment "rule to log dropped traffic" -m limit --limit 10/min --limit-burst 10 -j NFLOG --nflog-group 100
-A IN_public -j NFLOG --nflog-prefix "two words" --nflog-group 5 --nflog-size 80 --nflog-threshold 3
-A IN_public -p tcp -j REJECT --reject-with tcp-reset
-A IN_public -g MIXED
-A MIXED
-A MIXED -p tcp -m comment --comment x -m tcp -j DOCKER
-A MIXED -p tcp -m tcp --sport 1:100 ! --dport 5:65535 -j DOCKER
-A MIXED -p tcp -m tcp --sport 1000 --dport 80 -j DOCKER
-A MIXED -p udp -m udp --sport 54 --dport 0:100 -j DROP
-A MIXED -p udp -m udp -j DROP
-A MIXED -p udp -m udp --dport 1000:65535 -j DROP
-A MIXED -p tcp -m tcp --tcp-option 5 -j DROP
-A MIXED -p tcp -m tcp --dport 5 ! --tcp-option 5 -j DROP
-A MIXED -p tcp -m multiport --dports 80 -m tcp --dport 5 -j DROP
-A MIXED ! -p udp -j ACCEPT
-A MIXED -p 99 -j DROP
-A MIXED -p esp -j DROP
-A MIXED -p ah -j DROP
-A MIXED -p udplite -j DROP
-A MIXED -p sctp -m sctp --dport 5 -j DROP
-A MIXED -p sctp -m sctp --sport 5:7 ! --dport 9 -j DROP
-A MIXED -p sctp -m sctp ! --sport 1:2 --dport 3 -j DROP
-A MIXED -p tcp -m multiport --dports 80,443 -j ACCEPT
-A MIXED -p tcp -m multiport ! --sports 80,443,1000:2000 -j ACCEPT
-A MIXED -p udp -m multiport --ports 80 -j ACCEPT
-A MIXED -p udp -m multiport ! --ports 80 -j ACCEPT
-A MIXED -p udp -m multiport --sports 1,2,3,4,5,6,7,8,9,10,11,12,13,14,15 -j ACCEPT
-A MIXED -m addrtype --src-type UNSPEC --dst-type UNSPEC -j DOCKER
-A MIXED -m addrtype ! --src-type MULTICAST ! --dst-type LOCAL -j DOCKER
-A MIXED -m addrtype --dst-type UNICAST,LOCAL --limit-iface-in -j DOCKER
-A MIXED -m statistic --mode random --probability 0.33330000006 -j DOCKER
-A MIXED -m statistic --mode random ! --probability 0.29999999981 -j DOCKER
-A MIXED -m statistic --mode nth --every 3 --packet 0 -j DOCKER
-A MIXED -m statistic --mode nth ! --every 3 --packet 2 -j DOCKER
-A MIXED -m recent ! --update --seconds 5 --hitcount 3 --name YY --rdest -j DROP
-A MIXED -m recent --remove --name YY --rsource -j DROP
-A MIXED -m recent --rcheck --rttl --name YY --rsource -j DROP
-A MIXED -m recent --rcheck --seconds 9 --reap --name YY --rsource -j DROP
-A MIXED -m recent --update --hitcount 1 --name YY --rsource -j DROP
-A MIXED -m recent ! --set --name YY --rdest -j DROP
-A MIXED -m conntrack --ctorigdstport 80 -j DOCKER
-A MIXED -m conntrack --ctstate DNAT --ctproto 6 --ctorigdstport 80:90 -j DOCKER
-A MIXED -m conntrack ! --ctproto 17 --ctstatus EXPECTED,SEEN_REPLY,ASSURED,CONFIRMED ! --ctexpire 5 --ctdir ORIGINAL
-A MIXED -m conntrack ! --ctstate NEW --ctorigsrcport 5 ! --ctrepldstport 6 --ctstatus NONE --ctdir REPLY -j DROP
-A MIXED -m conntrack --ctexpire 5:7 -j DROP
-A MIXED -m conntrack --ctproto 6 ! --ctstatus ASSURED ! --ctexpire 5:7 -j DROP
-A MIXED -m conntrack ! --ctorigsrcport 1:2 ! --ctorigdstport 3 ! --ctreplsrcport 5 --ctrepldstport 7:8 -j DROP
-A MIXED -m state --state NEW -j DOCKER
-A MIXED -m limit --limit 5/min -j DOCKER
-A MIXED -m limit --limit 50/sec --limit-burst 100 -j DOCKER
-A MIXED -m limit --limit 3/hour -j DOCKER
-A MIXED -m limit --limit 13/day --limit-burst 1 -j DOCKER
-A MIXED -m limit --limit 60/min -j DOCKER
-A MIXED -m limit --limit 24/day -j DOCKER
-A MIXED -m limit --limit 7/sec -j DOCKER
-A MIXED -m limit --limit 10000/sec -j DOCKER
-A MIXED -m physdev --physdev-is-bridged -j ACCEPT
-A MIXED -m physdev ! --physdev-is-bridged -j ACCEPT
-A MIXED -m physdev ! --physdev-in eth0 --physdev-out veth+ -j ACCEPT
-A MIXED -m physdev --physdev-is-out -j ACCEPT
-A MIXED -m physdev --physdev-is-in --physdev-in eth+ ! --physdev-is-out ! --physdev-out lo -j DROP
-A MIXED -m comment --comment "a/b: c \"q\" \\ \'x\'" -m mark ! --mark 0x1/0x3 -j DROP
-A MIXED -p tcp -m connlabel --label "3" -j ACCEPT
-A MIXED -m connlabel ! --label "127" -j DOCKER
-A MIXED -m connlabel --label "0" --set
-A MIXED -p tcp -m connlabel ! --label "5" --set
-A MIXED -m connlabel --label "5"
-A MIXED -i eth0 -m comment --comment x -m connlabel --label "6" -m connlabel ! --label "7" --set -j LOG
-A MIXED -j LOG --log-prefix "a\"b\'c\\d" --log-level 0 --log-tcp-sequence --log-macdecode
COMMIT
*nat
:PREROUTING ACCEPT [0:0]
:CNI-HOSTPORT-DNAT - [0:0]
:CNI-DN-0123456789abcdef01234 - [0:0]
:CNI-HOSTPORT-SETMARK - [0:0]
:DOCKER - [0:0]
:SNATS - [0:0]
-A PREROUTING -m addrtype --dst-type LOCAL -j CNI-HOSTPORT-DNAT
-A PREROUTING -m addrtype --dst-type LOCAL -j DOCKER
-A CNI-HOSTPORT-SETMARK -m comment --comment "CNI portfwd masquerade mark" -j MARK --set-xmark 0x2000/0x2000
-A CNI-HOSTPORT-DNAT -p tcp -m comment --comment "dnat name: \"bridge\" id: \"1234\"" -m multiport --dports 8080,8443 -j CNI-DN-0123456789abcdef01234
-A CNI-DN-0123456789abcdef01234 -p tcp -m tcp --dport 8080 -j CNI-HOSTPORT-SETMARK
-A DOCKER -i docker0 -j RETURN
-A SNATS -m comment --comment "CNI portfwd requiring masquerade" -m mark --mark 0x2000/0x2000 -j MASQUERADE
-A SNATS ! -o docker0 -j MASQUERADE --random-fully
-A SNATS -p tcp -j MASQUERADE --to-ports 100-200 --random
-A SNATS -p tcp -j MASQUERADE --to-ports 100
-A SNATS -j MASQUERADE --random
-A SNATS -p tcp -j REDIRECT --to-ports 80
-A SNATS -p tcp -j REDIRECT --to-ports 80-90 --random
-A SNATS -j REDIRECT
-A SNATS -p tcp -j DNAT --to-destination :80
-A SNATS -p tcp -j DNAT --to-destination :80-90/100
)rules";

constexpr char kRules4[] =
    R"rules(-A CNI-DN-0123456789abcdef01234 -s 10.4.0.0/24 -p tcp -m tcp --dport 8080 -j CNI-HOSTPORT-SETMARK
-A CNI-DN-0123456789abcdef01234 -s 127.0.0.1/32 -p tcp -m tcp --dport 8080 -j CNI-HOSTPORT-SETMARK
-A CNI-DN-0123456789abcdef01234 -p tcp -m tcp --dport 8080 -j DNAT --to-destination 10.4.0.5:80
-A DOCKER ! -i docker0 -p tcp -m tcp --dport 8000 -j DNAT --to-destination 172.17.0.2:80
-A SNATS -s 172.17.0.0/16 ! -o docker0 -j MASQUERADE
-A SNATS ! -d 192.168.0.0/16 -m comment --comment "AWS SNAT CHAIN" -m addrtype ! --dst-type LOCAL -j SNAT --to-source 192.168.1.5 --random-fully
-A SNATS -j DNAT --to-destination 10.0.0.1
-A SNATS -p tcp -j DNAT --to-destination 10.0.0.1-10.0.0.5:80-90 --random --persistent
-A SNATS -j SNAT --to-source 10.0.0.1-10.0.0.3 --random-fully --persistent
-A SNATS -p tcp -j SNAT --to-source 10.0.0.1:1000-2000
-A SNATS -p tcp -j SNAT --to-source :80-90 --random
-A SNATS -j DNAT --to-destination 10.0.0.1-10.0.0.9 --persistent
COMMIT
*filter
:REJECTS - [0:0]
-A REJECTS -p icmp -j REJECT --reject-with icmp-host-prohibited
-A REJECTS -p icmp -m icmp --icmp-type 8 -j REJECT --reject-with icmp-port-unreachable
-A REJECTS -p icmp -m icmp --icmp-type any -j REJECT --reject-with icmp-net-unreachable
-A REJECTS -p icmp -m icmp ! --icmp-type 3/4 -j REJECT --reject-with icmp-admin-prohibited
-A REJECTS -p icmp -m icmp ! --icmp-type 8 -j REJECT --reject-with icmp-host-unreachable
-A REJECTS -p icmp -m icmp --icmp-type 3/0 -j REJECT --reject-with icmp-proto-unreachable
-A REJECTS -j REJECT --reject-with icmp-net-prohibited
-A REJECTS -m addrtype --src-type BROADCAST --limit-iface-out -j DROP
-A REJECTS -m recent --set --name XX --mask 255.255.255.0 --rsource -j DROP
-A REJECTS -m conntrack --ctorigsrc 10.0.0.0/8 --ctorigdst 10.1.2.3 ! --ctreplsrc 1.2.3.4 --ctrepldst 10.2.0.0/15 --ctreplsrcport 5 -j DROP
-A REJECTS -m conntrack ! --ctorigsrc 10.0.0.0/8 ! --ctorigdst 10.1.2.3 --ctreplsrc 1.2.3.4 ! --ctrepldst 10.2.0.0/15 -j DROP
COMMIT
)rules";

constexpr char kRules6[] =
    R"rules(-A CNI-DN-0123456789abcdef01234 -s fd00:4::/64 -p tcp -m tcp --dport 8080 -j CNI-HOSTPORT-SETMARK
-A CNI-DN-0123456789abcdef01234 -p tcp -m tcp --dport 8080 -j DNAT --to-destination [fd00:4::5]:80
-A SNATS -j DNAT --to-destination fd00::1
-A SNATS -p tcp -j DNAT --to-destination [fd00::1-fd00::2]:80-90 --random
-A SNATS -p tcp -j SNAT --to-source [fd00::1]:80-90
-A SNATS ! -d fd00::/8 -j SNAT --to-source fd00::1-fd00::5 --persistent
COMMIT
*filter
:REJECTS - [0:0]
-A REJECTS -p ipv6-icmp -m icmp6 --icmpv6-type 128 -j REJECT --reject-with icmp6-port-unreachable
-A REJECTS -p ipv6-icmp -m icmp6 ! --icmpv6-type 1/3 -j REJECT --reject-with icmp6-adm-prohibited
-A REJECTS -j REJECT --reject-with icmp6-no-route
-A REJECTS -j REJECT --reject-with icmp6-addr-unreachable
-A REJECTS -j REJECT --reject-with icmp6-policy-fail
-A REJECTS -j REJECT --reject-with icmp6-reject-route
-A REJECTS -m recent --set --name XX --rsource -j DROP
-A REJECTS -m conntrack --ctorigsrc fd00::/8 --ctorigdst fd00::1 ! --ctreplsrc fd00:1::/32 -j DROP
COMMIT
)rules";

}  // namespace

std::string ThirdPartyRules(netlink::Family family) {
  std::string text = kRules;
  if (family == netlink::Family::kIPv4) return text + kRules4;
  // What names an address of IPv4.
  const auto replace = [&](const std::string& from, const std::string& to) {
    text.replace(text.find(from), from.size(), to);
  };
  replace("-d 10.0.0.0/24", "-d fd00::/120");
  replace("--on-ip 127.0.0.1", "--on-ip ::1");
  return text + kRules6;
}

}  // namespace kipt::testing
