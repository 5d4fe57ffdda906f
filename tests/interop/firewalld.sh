#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# Usage: firewalld.sh
#
# firewalld and the message bus it needs, in this network namespace and on this /run, which must be
# the caller's own. Of the machine's other files it changes none: mounts hide them. SIGKILL ends it and
# everything it started; unshare(1) heeds no other signal.
set -eu
if [ "${1:-}" != inside ]; then
  exec unshare --mount --pid --fork --kill-child --mount-proc "$0" inside
fi

mount --make-rprivate /
mkdir -p /run/dbus /run/kipt/firewalld
cp -a /etc/firewalld/. /run/kipt/firewalld
mount --bind /run/kipt/firewalld /etc/firewalld
mount -t tmpfs tmpfs /var/log
mount -t tmpfs tmpfs /tmp

# It may load no modules: those are the whole machine's.
printf '#!/bin/sh\nexit 0\n' >/run/kipt/modprobe
chmod 0755 /run/kipt/modprobe
if [ -e /sbin/modprobe ]; then mount --bind /run/kipt/modprobe "$(readlink -f /sbin/modprobe)"; fi

cat >/run/kipt/bus.conf <<'CONF'
<!DOCTYPE busconfig PUBLIC "-//freedesktop//DTD D-Bus Bus Configuration 1.0//EN"
  "http://www.freedesktop.org/standards/dbus/1.0/busconfig.dtd">
<busconfig>
  <type>system</type>
  <listen>unix:path=/run/dbus/system_bus_socket</listen>
  <auth>EXTERNAL</auth>
  <policy context="default">
    <allow own="*"/>
    <allow user="*"/>
    <allow send_destination="*"/>
    <allow receive_sender="*"/>
  </policy>
</busconfig>
CONF
dbus-daemon --config-file=/run/kipt/bus.conf --nofork --nopidfile &
while [ ! -S /run/dbus/system_bus_socket ]; do sleep 0.05; done
exec firewalld --nofork --nopid
