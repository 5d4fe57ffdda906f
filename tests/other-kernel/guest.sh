# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=dash
#
# What the tests in guests/ have in common; they run in busybox' shell. Each check prints one line, and
# a test that ends with `finish` fails if one of them did.

failures=0

# For --cni-conf-dir=/tmp: a configuration that names no chain.
echo '{}' >/tmp/10-net.conf

ok() { echo "ok: $*"; }
bad() {
  echo "FAILED: $*"
  failures=$((failures + 1))
}
# What may explain it.
show_if_failed() { [ "$failures" = 0 ] || cat "$1"; }
finish() {
  echo "$failures failed"
  [ "$failures" = 0 ]
  exit
}

# expect_exit CODE COMMAND...: the output goes to /tmp/out, and to the console where it is not as
# expected.
expect_exit() {
  wanted=$1
  shift
  "$@" >/tmp/out 2>&1
  code=$?
  if [ "$code" = "$wanted" ]; then
    ok "exit code $code: $*"
  else
    bad "exit code $code, not $wanted: $*"
    cat /tmp/out
  fi
}

# Of the last expect_exit.
expect_output() {
  if grep -q -e "$1" /tmp/out; then
    ok "it says '$1'"
  else
    bad "it does not say '$1':"
    cat /tmp/out
  fi
}
expect_no_output() {
  if grep -q -e "$1" /tmp/out; then
    bad "it says '$1':"
    cat /tmp/out
  else
    ok "it does not say '$1'"
  fi
}

# expect_same WHAT A B
expect_same() {
  if [ "$2" = "$3" ]; then
    ok "$1"
  else
    bad "$1: '$2' is not '$3'"
  fi
}

agent() { kube-iptables-agent "$@"; }

# iptables_is nft|legacy: what `iptables` is, as of Debian's alternatives.
iptables_is() {
  for name in iptables ip6tables iptables-save ip6tables-save iptables-restore ip6tables-restore; do
    ln -sf "xtables-$1-multi" "/usr/sbin/$name"
  done
}

# What cleanup mode has on a node without IPv6's part, whichever way it was asked for.
has_native_table() { nft list table ip kube-iptables-agent >/dev/null 2>&1; }
has_hint() { nft list chain ip mangle KUBE-IPTABLES-HINT >/dev/null 2>&1; }
has_xt_rule() {
  iptables-nft -C KUBE-FIREWALL '!' -s 127.0.0.0/8 -d 127.0.0.0/8 -m comment \
    --comment "block incoming localnet connections" -m conntrack '!' \
    --ctstate RELATED,ESTABLISHED,DNAT -j DROP >/dev/null 2>&1
}
expect() {
  if "$@"; then ok "$*"; else bad "$*"; fi
}
expect_not() {
  if "$@"; then bad "not $*"; else ok "not $*"; fi
}

# until_true COMMAND...: within a minute, because a busy machine emulates slowly.
until_true() {
  for _ in $(seq 600); do
    if "$@"; then return 0; fi
    sleep 0.1
  done
  return 1
}

# The rules of all tables, with their handles: the same as long as nobody has written anything.
ruleset() { nft -a -s list ruleset 2>/dev/null; }

# A packet from this node to 127.0.0.1 that says it comes from elsewhere.
send_martian() {
  ip link show dev dummy-martian >/dev/null 2>&1 || {
    ip link add dummy-martian type veth peer name dummy-peer
    ip address add 10.9.0.1/24 dev dummy-martian
    ip link set dummy-martian up
  }
  ping -c 1 -W 1 -I 10.9.0.1 127.0.0.1 >/dev/null 2>&1
}
native_drops() {
  nft list table ip kube-iptables-agent | sed -n 's/.*counter packets \([0-9]*\) .*/\1/p' |
    awk '{ sum += $1 } END { print sum + 0 }'
}
xt_drops() { iptables-nft -nvxL KUBE-FIREWALL | awk '/DROP/ { sum += $1 } END { print sum + 0 }'; }

load_later() {
  while read -r file; do
    insmod "/later/${file##*/}" || bad "insmod $file"
  done </later/order
}
