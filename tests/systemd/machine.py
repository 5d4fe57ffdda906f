# SPDX-License-Identifier: Apache-2.0
"""A Debian 12 with systemd as its first process, in namespaces and a cgroup of its own."""

import pathlib
import signal
import subprocess
import time

HERE = pathlib.Path(__file__).resolve().parent


class Failure(Exception):
    """A step found something else than what it expected."""


def say(text):
    print(text, flush=True)


def until(what, condition, seconds=30):
    """Waits for condition() to be true and returns it; what says what is missing otherwise."""
    end = time.monotonic() + seconds
    while not (found := condition()):
        if time.monotonic() > end:
            raise Failure(f"not within {seconds} s: {what() if callable(what) else what}")
        time.sleep(0.1)
    return found


def cgroup_of_this_process():
    """In the hierarchy of the second version, which may be the only one or one of several."""
    mounts = [line.split() for line in pathlib.Path("/proc/self/mounts").read_text().splitlines()]
    top = next(fields[1] for fields in mounts if fields[2] == "cgroup2")
    own = next(line for line in pathlib.Path("/proc/self/cgroup").read_text().splitlines() if line.startswith("0::"))
    return pathlib.Path(top + own[3:])


class Machine:
    """Its disk stays when it is started again; its network and its rules do not."""

    def __init__(self, work, name):
        self.work = pathlib.Path(work)
        self.disk = self.work / name
        for folder in ("upper", "scratch"):
            (self.disk / folder).mkdir(parents=True)
        self.cgroup = cgroup_of_this_process() / self.work.name
        self.process = self.init = None

    def start(self):
        self.cgroup.mkdir(exist_ok=True)
        self.process = subprocess.Popen(
            ["setpriv", "--pdeathsig", "KILL", "sh", "-c", 'echo $$ >"$0/cgroup.procs" && exec "$@"', str(self.cgroup),
             "unshare", "--mount", "--pid", "--net", "--ipc", "--uts", "--cgroup", "--fork", "--kill-child",
             "--propagation", "private", "--", str(HERE / "boot"), str(self.work), str(self.disk)],
            stdin=subprocess.DEVNULL, start_new_session=True)
        children = pathlib.Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children")
        self.init = until("the machine's first process", lambda: children.read_text().split(), 5)[0]
        until("its system bus", lambda: self.inside("systemctl", "is-system-running", check=False).strip() in
              ("running", "degraded"), 60)

    def inside(self, *command, check=True, text=None, timeout=120):
        """What that command prints; with check it must end with 0."""
        done = self.run(*command, text=text, timeout=timeout)
        if check and done.returncode != 0:
            raise Failure(f"{' '.join(command)}: {done.returncode}: {done.stderr.strip()}\n{done.stdout.strip()}")
        return done.stdout

    def run(self, *command, text=None, timeout=120):
        return subprocess.run(
            ["nsenter", "--target", self.init, "--all", "--root", "env", "--ignore-environment",
             "PATH=/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL=C.UTF-8", *command],
            input=text, capture_output=True, text=True, timeout=timeout, check=False)

    def ask_to_end(self, how, expected):
        """systemctl reboot, poweroff: the kernel tells by a signal which of them it was."""
        self.inside("systemctl", how, check=False)
        try:
            ended = self.process.wait(120)
        except subprocess.TimeoutExpired:
            raise Failure(f"{how} does not end") from None
        if ended != -expected:
            raise Failure(f"{how} ends with {ended}")

    def reboot(self):
        self.ask_to_end("reboot", signal.SIGHUP)
        self.start()

    def power_off(self):
        self.ask_to_end("poweroff", signal.SIGINT)

    def remove(self):
        if self.process is not None and self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        for _ in range(50):
            folders = sorted(self.cgroup.glob("**/"), reverse=True) if self.cgroup.exists() else []
            if not folders:
                return
            for folder in folders:
                try:
                    folder.rmdir()
                except OSError:
                    time.sleep(0.1)
