# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=dash
#
# The native table at an upgrade, on a kernel on which iptables can hold no rule: a table of its name that another
# process owns, foreign rules in it, v0.7.0's table. A neighbour sends martian packets all the time.
# modules: nf_tables nft_counter? nft_ct nft_chain_nat nft_masq veth
# later: nft_compat xt_comment xt_conntrack xt_mark xt_MASQUERADE xt_nat
# lists: yes
. /guest.sh

mode="--iptables-mode=nft"
settings="$mode --iptables-sync-period=1s --healthz-bind-address= --metrics-bind-address="

# ---- packets ----

/usr/sbin/ip netns add neighbour
/usr/sbin/ip link add outside type veth peer name eth0 netns neighbour
/usr/sbin/ip addr add 10.9.1.1/24 dev outside
/usr/sbin/ip link set outside up
echo 1 >/proc/sys/net/ipv4/conf/outside/route_localnet
/usr/sbin/ip -n neighbour addr add 10.9.1.2/24 dev eth0
/usr/sbin/ip -n neighbour link set eth0 up
# Its loopback device is down, so it has no such address of its own.
/usr/sbin/ip -n neighbour route add 127.0.0.1 via 10.9.1.1

# witness: from now on, what of them arrives at the node, and what passes every rule on input.
witness() {
  nft delete table ip witness 2>/dev/null
  nft -f - <<'EOF'
table ip witness {
  chain arrived { type filter hook prerouting priority -400; iifname "outside" ip daddr 127.0.0.0/8 counter; }
  chain passed { type filter hook input priority 500; iifname "outside" ip daddr 127.0.0.0/8 counter; }
}
EOF
}
counted() { nft list chain ip witness "$1" | sed -n 's/.*counter packets \([0-9]*\) .*/\1/p'; }
counts() { [ "$(counted "$1")" -ge "$2" ]; }
more_arrive() { until_true counts arrived "$(($(counted arrived) + 20))"; }
# As another connection than the packets before: one that passed has made its own legitimate.
send() {
  /usr/sbin/ip netns exec neighbour ping -i 0.02 127.0.0.1 >/dev/null 2>&1 &
  sender=$!
}
stop_sending() {
  kill "$sender"
  wait "$sender" 2>/dev/null
}
expect_packets() { # pass|drop: all from now on
  witness
  send
  expect more_arrive
  if [ "$1" = pass ]; then
    expect counts passed 1
  else
    expect_same "no martian packet passes" "$(counted passed)" 0
  fi
  stop_sending
}

# ---- tables ----

table() { nft -s list table ip kube-iptables-agent 2>/dev/null; }
# With four bytes of each address and a mask, where nft and this version take one byte; nft shows no difference.
v070_rules() {
  martian="add rule ip kube-iptables-agent $1 ip daddr & 255.0.0.0 == 127.0.0.0 ip saddr & 255.0.0.0 != 127.0.0.0"
  dropped='counter drop comment "block incoming localnet connections"'
  cat <<EOF
add chain ip kube-iptables-agent $1 { type filter hook $1 priority -1; policy accept; }
$martian ct state & (invalid | untracked) != 0 $dropped
$martian ct state & (established | related) == 0 ct status & dnat == 0 $dropped
EOF
}
put_v070() {
  nft delete table ip kube-iptables-agent 2>/dev/null
  {
    echo 'add table ip kube-iptables-agent'
    v070_rules input
    v070_rules output
  } | nft -f -
}

expect_packets pass
expect_exit 0 agent sync $mode
ours=$(table)
expect_packets drop
nft delete table ip kube-iptables-agent

# ---- another process' table of that name ----

has_accept() { table | grep -q accept$; }
is_ours() { [ "$(table)" = "$ours" ]; }
owned_by_another() {
  {
    echo 'add table ip kube-iptables-agent { flags owner; }'
    echo 'add chain ip kube-iptables-agent input { type filter hook input priority -1; }'
    echo 'add rule ip kube-iptables-agent input accept'
    exec sleep 1000
  } | nft -i >/tmp/owner 2>&1 &
  owner=$!
  expect until_true has_accept
  foreign=$(ruleset)
  expect_exit 1 agent sync $mode
  expect_output "putting in place the table ip kube-iptables-agent"
  expect_output "another process owns the table"
  expect_same "an owned table is left to its owner" "$(ruleset)" "$foreign"
  expect_packets pass
  # shellcheck disable=SC2086
  kube-iptables-agent run $settings >/tmp/daemon 2>&1 &
  daemon=$!
  expect until_true grep -q "ip is failed: WriteRefused" /tmp/daemon
  expect_same "the daemon leaves it, too" "$(table | grep accept$)" "		accept"
  # The kernel removes an owned table with its owner.
  kill "$owner"
  expect until_true is_ours
  expect_packets drop
  kill "$daemon"
  wait "$daemon"
}
# Linux 5.12 and later know owners.
case $(uname -r) in
  5.10.*) ;;
  *) owned_by_another ;;
esac

# ---- foreign rules in it ----

# foreign_rules pass|drop COMMANDS: what packets do until the upgrade
foreign_rules() {
  put_v070
  echo "$2" | nft -f - || bad "$2"
  expect_packets "$1"
  expect_exit 0 agent sync $mode
  expect_same "gone: $2" "$(table)" "$ours"
  expect_packets drop
}
t="ip kube-iptables-agent"
foreign_rules pass "insert rule $t input accept"
foreign_rules pass "add chain $t mine; add rule $t mine accept; insert rule $t input jump mine"
foreign_rules pass "flush table $t"
foreign_rules pass "add table $t { flags dormant; }"
foreign_rules drop "add set $t mine { type ipv4_addr; }"
foreign_rules drop "add chain $t mine { type filter hook forward priority 0; policy drop; }"

# ---- the upgrade ----

transactions_about() {
  awk -v what="$1" '{ text = text $0 "\n" }
    /^# new generation/ { if (index(text, what)) found++; text = "" }
    END { print found + 0 }' /tmp/events
}
noted() { grep -q 'table ip probe' /tmp/events || { nft 'add table ip probe; delete table ip probe'; false; }; }
writes() { [ "$(transactions_about "$t")" -ge 1 ]; }

# upgrade NAME: with packets, by a daemon
upgrade() {
  put_v070
  old=$(ruleset)
  nft monitor >/tmp/events &
  monitor=$!
  expect until_true noted
  witness
  send
  expect more_arrive
  [ "$1" = "the same mode" ] || load_later
  # shellcheck disable=SC2086
  kube-iptables-agent run $settings >/tmp/daemon 2>&1 &
  daemon=$!
  expect until_true writes
  expect more_arrive
  stop_sending
  expect_same "$1: none of $(counted arrived) martian packets passes" "$(counted passed)" 0
  after=$(table)
  kill "$daemon"
  wait "$daemon"
  [ "$old" != "$(ruleset)" ] || bad "$1: nothing was replaced"
  expect_exit 0 agent sync $mode
  expect_same "$1: another start changes nothing" "$(table)" "$after"
  kill "$monitor"
  expect_same "$1: in one transaction" "$(transactions_about "$t")" 1
}
upgrade "the same mode"
expect_same "the table is this version's" "$(table)" "$ours"
expect grep -q "delete table $t" /tmp/events
expect_not has_xt_rule
upgrade "iptables can hold rules from now on"
expect_not has_native_table
expect has_xt_rule
finish
