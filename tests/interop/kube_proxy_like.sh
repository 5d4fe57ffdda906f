#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# Usage: kube_proxy_like.sh MODE INPUTS VERSION SECONDS
#
# Does to iptables (MODE: nft or legacy), of IPv4 and in this network namespace, what kube-proxy
# VERSION does: a full sync, then one every SECONDS in which nothing has changed, and a full one
# wherever that fails. INPUTS is where VERSION.input and the like are. SECONDS `never`: only the full
# one. On SIGTERM it ends when what it was doing is done.
set -u
trap 'exit 0' TERM
iptables=iptables-$1
inputs=$2
version=$3
between=$4

ensure_jumps() {
  while IFS='	' read -r table chain base arguments; do
    "$iptables" -w 5 -t "$table" -N "$chain" 2>/dev/null
    # The arguments are quoted as for a shell.
    eval "\"$iptables\" -w 5 -t $table -C $base $arguments" 2>/dev/null ||
      eval "\"$iptables\" -w 5 -t $table -I $base $arguments"
  done <"$inputs/$version.jumps"
  if [ "$version" = 1.24 ]; then "$iptables" -w 5 -t nat -N KUBE-MARK-DROP 2>/dev/null; fi
}

restore() { "$iptables-restore" -w 5 --noflush --counters <"$inputs/$1"; }

full_sync() {
  ensure_jumps
  restore "$version.input" || return
  for table in mangle nat filter; do
    "$iptables" -w 5 -t "$table" -N KUBE-PROXY-CANARY 2>/dev/null
  done
}

sync() {
  if [ "$version" = 1.24 ]; then
    ensure_jumps
    restore 1.24.input
  else
    restore "$version.resync.input"
  fi
}

full_sync
if [ "$between" = never ]; then exit; fi
while sleep "$between"; do
  sync || full_sync
done
