# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=dash
#
# 1,000,000 entries of connection tracking, which this machine's own kernel may not take: how long the agent
# needs to name who fills it, and how much memory. Times are the emulator's.
# modules: nf_tables nft_counter? nft_compat nft_chain_nat xt_comment xt_conntrack xt_mark xt_MASQUERADE xt_nat nf_conntrack_netlink
# memory: 2048
# once: yes
. /guest.sh

entries=1000000
says() { grep -q -e "$1" /tmp/daemon; }
now() { cut -d ' ' -f 1 /proc/uptime; }
minus() { awk "BEGIN { printf \"%.1f\", $1 - $2 }"; }
anonymous_kib() { awk '/^RssAnon:/ { print $2 }' "/proc/$daemon/status"; }
# In hundredths of a second.
cpu() { awk '{ print $14 + $15 }' "/proc/$daemon/stat"; }
start() {
  kube-iptables-agent run --iptables-mode=nft --audit-period=0s --iptables-sync-period=1h \
    --healthz-bind-address= --metrics-bind-address= >/tmp/daemon 2>&1 &
  daemon=$!
  until_true says "Watching: kernel events" || bad "the daemon does not start"
}

echo 262144 >/sys/module/nf_conntrack/parameters/hashsize
echo $((2 * entries)) >/proc/sys/net/netfilter/nf_conntrack_max
began=$(now)
expect_exit 0 kipt_fill_conntrack "$entries"
echo "filled in $(minus "$(now)" "$began") s"
expect [ "$(cat /proc/sys/net/netfilter/nf_conntrack_count)" -ge "$entries" ]

# Half full: nothing is read.
start
sleep 5
rest=$(anonymous_kib)
spent=$(cpu)
expect_not says "Nearly full"
kill "$daemon"
wait "$daemon"

echo $((entries * 100 / 95)) >/proc/sys/net/netfilter/nf_conntrack_max
began=$(now)
start
iptables-nft -t mangle -X KUBE-IPTABLES-HINT
peak=0
while ! says "Nearly full" && [ "$(minus "$(now)" "$began" | cut -d . -f 1)" -lt 600 ]; do
  kib=$(anonymous_kib)
  [ "$kib" -le "$peak" ] || peak=$kib
  sleep 0.05
done
echo "named in $(minus "$(now)" "$began") s, with $(minus "$(cpu)" "$spent") hundredths of a second more CPU time than without"
echo "RssAnon: $rest KiB before, at most $peak KiB while it reads"
expect says "connection tracking holds 10[0-9]* of 1052631 entries (95 %)"
expect says "Most by source: 192.0.2.1 (at least "
expect [ "$peak" -gt 0 ]
expect [ "$peak" -le 8192 ]
expect [ "$peak" -le $((rest + 1024)) ]
# Damage is repaired while the entries are read.
grep -n -e "Repaired in" -e "Nearly full" /tmp/daemon
expect_same "the repair is not after that" "$(grep -o -e "Repaired in" -e "Nearly full" /tmp/daemon | head -n 1)" "Repaired in"
show_if_failed /tmp/daemon
finish
