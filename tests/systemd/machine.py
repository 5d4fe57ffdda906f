# SPDX-License-Identifier: Apache-2.0
"""A Debian 12 with systemd as its first process: in namespaces and a cgroup of its own, or in a virtual machine."""

import base64
import pathlib
import shlex
import signal
import socket
import subprocess
import time

HERE = pathlib.Path(__file__).resolve().parent


class Failure(Exception):
    """A step found something else than what it expected."""


def say(text):
    print(text, flush=True)


def until(what, condition, seconds=30):
    """Waits for condition() to be true and returns it; what says what is missing otherwise."""
    end = time.monotonic() + seconds * Machine.patience
    while not (found := condition()):
        if time.monotonic() > end:
            raise Failure(f"not within {seconds * Machine.patience} s: {what() if callable(what) else what}")
        time.sleep(0.1)
    return found


def cgroup_of_this_process():
    """In the hierarchy of the second version, which may be the only one or one of several."""
    mounts = [line.split() for line in pathlib.Path("/proc/self/mounts").read_text().splitlines()]
    top = next(fields[1] for fields in mounts if fields[2] == "cgroup2")
    own = next(line for line in pathlib.Path("/proc/self/cgroup").read_text().splitlines() if line.startswith("0::"))
    return pathlib.Path(top + own[3:])


class Machine:
    """Its disk stays when it is started again; its network and its rules do not.

    Subclasses have start(), run() and remove(), `process` that ends with the machine, and `endings`: the status with
    which that process ends, by what systemctl was asked for."""

    process = None
    # How much longer than usual things may take.
    patience = 1

    def await_systemd(self, seconds):
        until("its system bus", lambda: self.inside("systemctl", "is-system-running", check=False).strip() in
              ("running", "degraded"), seconds)

    def inside(self, *command, check=True, text=None):
        """What that command prints; with check it must end with 0."""
        done = self.run(*command, text=text)
        if check and done.returncode != 0:
            raise Failure(f"{' '.join(command)}: {done.returncode}: {done.stderr.strip()}\n{done.stdout.strip()}")
        return done.stdout

    def ask_to_end(self, how):
        self.inside("systemctl", how, check=False)
        try:
            ended = self.process.wait(120 * Machine.patience)
        except subprocess.TimeoutExpired:
            raise Failure(f"{how} does not end") from None
        if ended != self.endings[how]:
            raise Failure(f"{how} ends with {ended}")

    def reboot(self):
        self.ask_to_end("reboot")
        self.start()

    def power_off(self):
        self.ask_to_end("poweroff")

    def remove(self):
        if self.process is not None and self.process.poll() is None:
            self.process.kill()
            self.process.wait()


class Container(Machine):
    # The kernel reports by a signal which of them it was.
    endings = {"reboot": -signal.SIGHUP, "poweroff": -signal.SIGINT}

    def __init__(self, work, name):
        self.work = pathlib.Path(work)
        self.disk = self.work / name
        for folder in ("upper", "scratch"):
            (self.disk / folder).mkdir(parents=True)
        self.cgroup = cgroup_of_this_process() / self.work.name
        self.init = None

    def start(self):
        self.cgroup.mkdir(exist_ok=True)
        self.process = subprocess.Popen(
            ["setpriv", "--pdeathsig", "KILL", "sh", "-c", 'echo $$ >"$0/cgroup.procs" && exec "$@"', str(self.cgroup),
             "unshare", "--mount", "--pid", "--net", "--ipc", "--uts", "--cgroup", "--fork", "--kill-child",
             "--propagation", "private", "--", str(HERE / "boot"), str(self.work), str(self.disk)],
            stdin=subprocess.DEVNULL, start_new_session=True)
        children = pathlib.Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children")
        self.init = until("the machine's first process", lambda: children.read_text().split(), 5)[0]
        self.await_systemd(60)

    def run(self, *command, text=None):
        return subprocess.run(
            ["nsenter", "--target", self.init, "--all", "--root", "env", "--ignore-environment",
             "PATH=/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL=C.UTF-8", *command],
            input=text, capture_output=True, text=True, timeout=120, check=False)

    def remove(self):
        super().remove()
        for _ in range(50):
            folders = sorted(self.cgroup.glob("**/"), reverse=True) if self.cgroup.exists() else []
            if not folders:
                return
            for folder in folders:
                try:
                    folder.rmdir()
                except OSError:
                    time.sleep(0.1)


class Guest(Machine):
    """A virtual machine with Debian's kernel, whose netfilter is modular and whose cgroups are its own."""

    # The emulator does not reset: a reboot is a start of another one.
    endings = {"reboot": 0, "poweroff": 0}

    def __init__(self, work, name, kernel):
        self.work, self.kernel = pathlib.Path(work), kernel
        self.disk = self.work / f"{name}.disk"
        self.port = self.connection = None
        # Emulated, it is that much slower.
        Machine.patience = 10
        subprocess.run(["cp", "--sparse=always", self.work / "disk", self.disk], check=True)

    def start(self):
        path, console = self.work / "port", self.work / "console"
        path.unlink(missing_ok=True)
        console.unlink(missing_ok=True)
        self.process = subprocess.Popen(
            ["setpriv", "--pdeathsig", "KILL", "qemu-system-x86_64", "-accel", "tcg",
             # As in tests/other-kernel/run.
             "-cpu", "max,-cx16", "-smp", "2", "-m", "1024",
             "-nodefaults", "-no-user-config", "-display", "none", "-no-reboot",
             "-serial", f"file:{console}", "-kernel", self.kernel, "-initrd", str(self.work / "initramfs.gz"),
             "-append", "console=ttyS0 quiet root=/dev/vda rw panic=-1 norandmaps no_timer_check systemd.getty_auto=no",
             "-drive", f"file={self.disk},format=raw,if=virtio", "-device", "virtio-serial-pci",
             "-chardev", f"socket,id=port,path={path},server=on,wait=off",
             "-device", "virtserialport,chardev=port"], stdin=subprocess.DEVNULL, start_new_session=True)
        self.connection = socket.socket(socket.AF_UNIX)
        until("the emulator's port", path.exists, 10)
        self.connection.connect(str(path))
        self.port = self.connection.makefile("rw", encoding="ascii")
        # What was written before the guest opened its end would be lost.
        until(lambda: f"the guest: {self.console()}", lambda: "commands: ready" in self.console(), 60)
        self.await_systemd(60)

    def console(self):
        path = self.work / "console"
        return path.read_text(errors="replace")[-2000:] if path.exists() else "nothing on its console"

    def run(self, *command, text=None):
        """By the unit commands.service."""
        timeout = 120 * Machine.patience

        def encoded(what):
            return "=" + base64.b64encode(what.encode()).decode()

        def decoded(what):
            return base64.b64decode(what[1:]).decode(errors="replace")

        self.connection.settimeout(timeout)
        try:
            self.port.write(f"{encoded(text or '')} {encoded(shlex.join(command))}\n")
            self.port.flush()
            answer = self.port.readline().split()
        except TimeoutError:
            raise Failure(f"{' '.join(command)}: no answer within {timeout} s: {self.console()}") from None
        except OSError:
            answer = []
        # It was switched off meanwhile.
        code, out, err = answer if len(answer) == 3 else ("255", "=", "=")
        return subprocess.CompletedProcess(command, int(code), decoded(out), decoded(err))
