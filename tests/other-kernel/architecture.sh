# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash disable=SC2034
#
# The guest's architecture: this machine's, or in a root of deploy/debian/cross (KIPT_ARCHITECTURE) that
# root's. Programs of another architecture cannot run here without an emulator. Sourced by run, which has
# `fail`.
architecture=${KIPT_ARCHITECTURE:-amd64}
all_kernels=(6.1)
# The package that depends on the kernel, qemu's machine, its console, and glibc's loader.
case $architecture in
  amd64)
    all_kernels=(5.10 6.1 6.12)
    kernel_package=linux-image-cloud-amd64
    # -cx16: behind a cmpxchg16b of qemu 7.2 the flags have been garbage, of which 6.12 died.
    qemu=(qemu-system-x86_64 -cpu "max,-cx16")
    # On a busy machine the emulated timer is late, and the kernel would call it broken.
    console="ttyS0 no_timer_check"
    ;;
  arm64)
    kernel_package=linux-image-cloud-arm64
    qemu=(qemu-system-aarch64 -machine virt -cpu cortex-a72)
    console=ttyAMA0
    loader=/lib/ld-linux-aarch64.so.1
    ;;
  s390x)
    kernel_package=linux-image-s390x
    qemu=(qemu-system-s390x -machine s390-ccw-virtio -cpu max)
    console=ttysclp0
    loader=/lib/ld64.so.1
    ;;
  *) fail "KIPT_ARCHITECTURE=$architecture: there is no guest of that architecture" ;;
esac

if [[ $architecture == amd64 ]]; then
  list_libraries() { ldd "$1"; }
  strip_program() { strip -o "$2" -- "$1"; }
  run_program() { "$@"; }
else
  list_libraries() { "$KIPT_EMULATOR" "$loader" --list "$1"; }
  strip_program() { "$KIPT_TRIPLET-strip" -o "$2" -- "$1"; }
  run_program() { "$KIPT_EMULATOR" "$(command -v "$1")" "${@:2}"; }
fi
