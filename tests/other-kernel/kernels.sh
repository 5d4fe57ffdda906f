# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash disable=SC2154
#
# Debian's kernels, each from the release that has it, kept between runs. Sourced by run, which has
# `fail` and `cache_root`, after architecture.sh. Nothing is installed, and this machine's apt keeps its
# own lists.

suite_of() {
  [[ " ${all_kernels[*]} " == *" $1 "* ]] ||
    fail "there is no Debian release with a kernel $1 here: ${all_kernels[*]}"
  case $1 in
    5.10) echo bullseye ;;
    6.1) echo bookworm ;;
    6.12) echo trixie ;;
  esac
}

# kernel_dir VERSION: has boot/vmlinuz-RELEASE and lib/modules/RELEASE.
kernel_dir() { echo "$cache_root/kernel-$1${KIPT_ARCHITECTURE:+-$KIPT_ARCHITECTURE}"; }
kernel_image() { echo "$(kernel_dir "$1")"/boot/vmlinuz-*; }
kernel_release() { basename "$(kernel_dir "$1")"/lib/modules/*; }

# apt with one suite and nothing else, in the directory $1: whose signatures it checks as always.
apt_in() {
  local dir=$1 program=$2
  shift 2
  "$program" -q -o Dir::Etc::SourceList="$dir/sources.list" -o Dir::Etc::SourceParts=- \
    -o Dir::State="$dir/state" -o Dir::State::status=/dev/null -o Dir::Cache="$dir/cache" \
    -o APT::Sandbox::User=root -o Acquire::Languages=none -o Acquire::Retries=3 \
    -o APT::Architecture="$architecture" -o APT::Architectures="$architecture" "$@"
}

# download_kernel VERSION DIR: its package, into DIR.
download_kernel() {
  local version=$1 dir=$2 suite mirror package
  suite=$(suite_of "$version")
  mirror=$("$here/../../deploy/debian/mirror")
  mkdir -p "$dir/state/lists/partial" "$dir/cache/archives/partial"
  echo "deb [arch=$architecture signed-by=/usr/share/keyrings/debian-archive-keyring.gpg]" \
    "$mirror $suite main" >"$dir/sources.list"
  apt_in "$dir" apt-get update >&2
  package=$(apt_in "$dir" apt-cache depends "$kernel_package" |
    awk '$1 == "Depends:" { print $2; exit }')
  [[ $package == linux-image-"$version".* ]] ||
    fail "$suite has no kernel $version, but '$package'"
  (cd "$dir" && apt_in "$dir" apt-get download "$package" >&2)
}

# fetch_kernel VERSION: with the modules.dep that its package makes when it is installed, and with
# plain .ko files: Debian 13 packs them.
fetch_kernel() {
  local version=$1 into making tree release
  into=$(kernel_dir "$version")
  mkdir -p -- "$cache_root"
  # One at a time: tests run side by side.
  exec {lock}>"$into.lock"
  flock "$lock"
  if [[ ! -e $into ]]; then
    making=$(mktemp -d -- "$into.tmp.XXXXXX")
    # shellcheck disable=SC2064
    trap "rm -rf -- '$making'" EXIT
    download_kernel "$version" "$making"
    tree=$making/tree
    mkdir "$tree"
    dpkg -x "$making"/*.deb "$tree"
    if [[ -d $tree/usr/lib/modules ]]; then
      mkdir "$tree/lib"
      mv -T -- "$tree/usr/lib/modules" "$tree/lib/modules"
    fi
    release=$(basename "$tree"/lib/modules/*)
    find "$tree/lib/modules" -name '*.ko.xz' -exec busybox unxz {} +
    run_program busybox depmod -n -b "$tree" "$release" 2>/dev/null | grep '^kernel/[^ ]*\.ko:' \
      >"$tree/lib/modules/$release/modules.dep"
    mv -T -- "$tree" "$into"
    rm -rf -- "$making"
    trap - EXIT
  fi
  exec {lock}>&-
}
