# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash disable=SC2154
#
# What is in a guest: its initramfs. Sourced by run, which has `fail`, and sets root (where the
# files are gathered), deadline, modules (the kernel's lib/modules/RELEASE) and script (the guest).

# What FILE is linked to.
add_libraries_of() {
  local library
  # A static program has none; listing them fails.
  for library in $(list_libraries "$1" 2>/dev/null | grep -o '/[^ ]*' || true); do
    [[ -e $root$library ]] || install -D -- "$library" "$root$library"
  done
}

# add_program FILE TARGET: with what it is linked to. Debugging information would be most of it.
add_program() {
  local program=$1 target=$2
  strip_program "$program" "$root$target"
  chmod 0755 "$root$target"
  add_libraries_of "$program"
}

# A word of the guest's head.
wanted() { sed -n "s/^# $1: *//p" "$script"; }

# load_order EXCLUDED NAME...: the files of these modules and of those that they need, in the order
# in which they load; without EXCLUDED, a list of names, and what cannot load without them. NAME?
# need not exist.
load_order() {
  awk -v excluded="$1" -v names="${*:2}" '
    { file = $1; sub(/:$/, "", file); name = file; sub(/.*\//, "", name); sub(/\.ko$/, "", name)
      path[name] = file; needs[file] = substr($0, index($0, ":") + 1) }
    function barred(file,   parts, i, count) {
      if (file in left_out) return 1
      count = split(needs[file], parts, " ")
      for (i = 1; i <= count; ++i) if (barred(parts[i])) return 1
      return 0
    }
    function add(file,   parts, i, count) {
      if (file in done) return
      done[file] = 1
      count = split(needs[file], parts, " ")
      for (i = 1; i <= count; ++i) add(parts[i])
      print file
    }
    END {
      count = split(excluded, list, " ")
      for (i = 1; i <= count; ++i) if (list[i] in path) left_out[path[list[i]]] = 1
      count = split(names, list, " ")
      for (i = 1; i <= count; ++i) {
        name = list[i]
        optional = sub(/\?$/, "", name)
        if (!(name in path)) {
          if (optional) continue
          print "other-kernel: there is no module " name > "/dev/stderr"
          exit 1
        }
        if (!barred(path[name])) add(path[name])
      }
    }' "$modules/modules.dep"
}

# Everything that Debian has for nf_tables and iptables, and links for packets; not ipset, ipvs and
# what only looks into protocols.
every_module() {
  sed -n 's,^kernel/net/\(ipv4/\|ipv6/\|\)netfilter/\([^/]*\)\.ko:.*,\2,p' "$modules/modules.dep" |
    grep -v '^nf_\(conntrack\|nat\)_'
  echo "ts_bm veth dummy"
}

# The line of module-sets that begins with this name, less the name.
module_set() {
  awk -v name="$1" '$1 == name { $1 = ""; print; found = 1 } END { exit !found }' "$here/module-sets" ||
    fail "there is no set $1 in $here/module-sets"
}
left_out_of() { module_set "$1" | tr ' ' '\n' | grep -v '=' | tr '\n' ' ' || true; }
command_line_of() { module_set "$1" | tr ' ' '\n' | grep '=' | tr '\n' ' ' || true; }

add_iptables() {
  local kind family name what extensions
  for kind in nft legacy; do
    add_program "$(command -v "xtables-$kind-multi")" "/usr/sbin/xtables-$kind-multi"
    for family in iptables ip6tables; do
      for what in "" -save -restore; do
        ln -s "xtables-$kind-multi" "$root/usr/sbin/$family-$kind$what"
      done
    done
  done
  # As on Debian; guest.sh has iptables_is.
  for family in iptables ip6tables; do
    for what in "" -save -restore; do
      ln -s xtables-nft-multi "$root/usr/sbin/$family$what"
    done
  done
  extensions=$(dirname -- "$(find /usr/lib -name libxt_comment.so -print -quit)")
  mkdir -p "$root$extensions"
  cp -- "$extensions"/*.so "$root$extensions/"
  # The only one that needs more than iptables itself.
  add_libraries_of "$extensions/libxt_connlabel.so"
  # They open these by name.
  printf 'root:x:0:0::/root:/bin/sh\n' >"$root/etc/passwd"
  for name in protocols services; do
    cp -- "/etc/$name" "$root/etc/$name" 2>/dev/null || true
  done
}

# add_modules FOLDER NAME...: and the order of them in FOLDER/order.
add_modules() {
  local folder=$1 file
  shift
  load_order "$excluded" "$@" >"$root/$folder/order"
  while read -r file; do
    cp -- "$modules/$file" "$root/$folder/"
  done <"$root/$folder/order"
}

add_lists() {
  mkdir -p "$root/lib/modules/$release"
  cp -- "$modules/modules.builtin" "$root/lib/modules/$release/"
  sed 's/$/:/' "$root/modules/order" |
    awk 'NR == FNR { listed[$1]; next } $1 in listed' - "$modules/modules.dep" \
      >"$root/lib/modules/$release/modules.dep"
}

# add_tree DIR: a directory of the repository, where a program that was built here looks for it.
add_tree() {
  local from
  from=$(cd -- "$here/../../$1" && pwd)
  mkdir -p "$root$from"
  cp -r -- "$from/." "$root$from/"
}

# The initramfs on standard output, of agent, programs, filter, kernel, set and script.
make_image() {
  local excluded="" program name
  mkdir -p "$root"/{bin,dev,etc,filters,later,modules,proc,root,run,sys,tmp,usr/bin,usr/sbin}
  add_program /bin/busybox /bin/busybox
  ln -s busybox "$root/bin/sh"
  ln -s /bin/busybox "$root/usr/bin/env"
  add_iptables
  add_program "$(command -v nft)" /usr/sbin/nft
  add_program "$(command -v ip)" /usr/sbin/ip
  for name in $(wanted programs); do add_program "$(command -v "$name")" "/usr/sbin/$name"; done
  add_program "$agent" /usr/bin/kube-iptables-agent
  # Interop tests run it where it was built.
  mkdir -p "$root$(dirname -- "$(realpath -- "$agent")")"
  ln -sf /usr/bin/kube-iptables-agent "$root$(realpath -- "$agent")"
  for program in ${programs[@]+"${programs[@]}"}; do
    name=$(basename -- "$program")
    add_program "$program" "/usr/bin/$name"
    # Which of its tests apply here, for those guests that ask.
    ! not_applicable "$kernel" "${set:-everything}" "$name" | grep -qxF '*' || continue
    applicable_filter "$kernel" "${set:-everything}" "$name" "$filter" >"$root/filters/$name"
  done
  # nf_tables computes checksums by an algorithm's name, which modules.dep does not know.
  if [[ -n $set ]]; then
    excluded=$(left_out_of "$set")
    # shellcheck disable=SC2046
    add_modules modules 'crc32c_generic?' $(every_module)
  else
    # shellcheck disable=SC2046
    add_modules modules 'crc32c_generic?' $(wanted modules)
  fi
  # shellcheck disable=SC2046
  add_modules later $(wanted later)
  grep -vxFf "$root/modules/order" "$root/later/order" >"$root/later/order.new" || true
  mv "$root/later/order.new" "$root/later/order"
  [[ $(wanted lists) != yes ]] || add_lists
  for name in $(wanted tree); do add_tree "$name"; done
  # A program ends before its guest, so that the guest can say what has passed.
  echo $((deadline - deadline / 6)) >"$root/deadline"
  install -m 0755 -- "$here/init" "$root/init"
  install -m 0644 -- "$here/guest.sh" "$root/guest.sh"
  install -m 0755 -- "$script" "$root/test.sh"
  (cd "$root" && find . -print0 | cpio --null --create --format=newc --quiet) | gzip -1
}
