# SPDX-License-Identifier: Apache-2.0
"""What is done with the package and its unit, step by step. tests/systemd/run starts this."""

import argparse
import re
import sys
import time

from machine import Container, Failure, Guest, say, until

UNIT = "kube-iptables-agent.service"
SOCKET = "kube-iptables-agent.socket"
FOLDER = "/etc/kube-iptables-agent"
KUBELET = "/var/lib/kubelet"
DROP_IN = "/etc/systemd/system/kube-iptables-agent.service.d"
EXAMPLE = "/usr/share/doc/kube-iptables-agent/examples/nft-unprivileged.conf"
NOTHING = "*mangle\nCOMMIT\n*filter\nCOMMIT\n*nat\nCOMMIT\n"


class Martians:
    """Packets to a loopback address that seem to come from another host, without a pause: none may arrive."""

    ADDRESS = "127.9.9.9"
    TABLE = (f"table ip kipt-test {{ chain sent {{ type filter hook output priority -500; ip daddr {ADDRESS} counter; }}; "
             f"chain arrived {{ type filter hook input priority 500; ip daddr {ADDRESS} counter; }}; }}")

    def __init__(self, steps):
        self.steps = steps

    def __enter__(self):
        steps = self.steps
        steps.sh("ip address replace 10.9.0.1/32 dev lo && "
                 f"ip route replace local {self.ADDRESS}/32 dev lo src 10.9.0.1 table local")
        steps.sh("nft -f -", text=self.TABLE)
        steps.sh("systemd-run --quiet --unit=martians bash -c "
                 f"'while true; do echo >/dev/udp/{self.ADDRESS}/9; done 2>/dev/null'")
        return self

    def count(self, chain):
        return int(re.search(r"counter packets (\d+)", self.steps.sh(f"nft list chain ip kipt-test {chain}")).group(1))

    def __exit__(self, *error):
        self.steps.sh("systemctl stop martians")
        self.sent, arrived = self.count("sent"), self.count("arrived")
        self.steps.sh("nft delete table ip kipt-test")
        if error[0] is None and (arrived or self.sent < 100):
            raise Failure(f"{arrived} of {self.sent} martian packets arrived")


class Steps:
    def __init__(self, machine, iptables):
        self.machine, self.iptables = machine, iptables
        self.kubelets = self.files_before = None

    # ---- what the steps are made of ----

    def sh(self, script, **how):
        return self.machine.inside("bash", "-c", script, **how).strip()

    def show(self, key, unit=UNIT):
        return self.machine.inside("systemctl", "show", f"--property={key}", "--value", unit).strip()

    def pid(self):
        return self.show("MainPID")

    def restarts(self):
        return int(self.show("NRestarts"))

    def write(self, path, text):
        self.sh(f"cat >{path}.new && mv {path}.new {path}", text=text)

    def journal(self, since, unit=UNIT):
        return self.machine.inside("journalctl", f"--unit={unit}", f"--since=@{since:.3f}", "--output=cat")

    def endpoint(self, path, port=10270):
        return self.machine.run("curl", "--silent", "--max-time", "2", f"http://127.0.0.1:{port}{path}").stdout

    def metric(self, name):
        return re.findall(rf"^kube_iptables_agent_{name} (\S+)$", self.endpoint("/metrics", 10271), re.MULTILINE)

    def await_ready(self, seconds=10):
        until(lambda: f"ready: {self.endpoint('/readyz?verbose')}\n{self.tail()}",
              lambda: self.endpoint("/readyz") == "ok", seconds)

    def tail(self):
        return self.machine.inside("journalctl", "--lines=15", f"--unit={UNIT}", "--output=cat")

    def saved(self):
        """All rules of both families, without counters; no other program of this machine has any."""
        lines, table = [], ""
        for family in ("iptables", "ip6tables"):
            for line in self.machine.inside(f"/usr/sbin/{family}-save").splitlines():
                if line[:1] == "*":
                    table = line[1:]
                elif "KUBE-" in line:
                    lines.append(f"{family} {table} " + re.sub(r" ?\[[0-9:]+\]", "", line))
        return sorted(lines)

    def untouched(self):
        """The same as long as no program has written: nf_tables numbers what is made."""
        return self.saved() if self.iptables == "legacy" else \
            self.machine.inside("nft", "--handle", "--stateless", "list", "ruleset")

    @staticmethod
    def same(what, before, after):
        if before == after:
            return
        if isinstance(before, str):
            before, after = before.splitlines(), after.splitlines()
        raise Failure("\n".join([what, *(f"- {line}" for line in before if line not in after),
                                 *(f"+ {line}" for line in after if line not in before)]))

    def flush(self):
        for family in ("iptables", "ip6tables"):
            self.machine.inside(f"/usr/sbin/{family}-restore", text=NOTHING)

    def await_rules(self, expected, seconds=10):
        """How long it took until all of these were back."""
        started = time.monotonic()
        until(lambda: f"missing: {sorted(set(expected) - set(self.saved()))}\n{self.tail()}",
              lambda: not set(expected) - set(self.saved()), seconds)
        return time.monotonic() - started

    # ---- states ----

    def configure(self, **fields):
        """The agent's file; true when the running agent has loaded it."""
        lines = {"apiVersion": "kube-iptables-agent/v1alpha1", "kind": "KubeIPTablesAgentConfiguration",
                 "observe": "false", "emulatedVersion": '"1.24"', **fields}
        self.write(f"{FOLDER}/config.yaml", "".join(f"{key}: {value}\n" for key, value in lines.items()))
        release = lines["emulatedVersion"].strip('"')
        until(lambda: f"{lines}: {self.endpoint('/configz', 10271)}\n{self.tail()}",
              lambda: re.search(rf'"emulatedVersion": *"{release}"', self.endpoint("/configz", 10271)) and
              self.metric("observing") == [str(int(lines["observe"] == "true"))])
        if lines["observe"] == "false":
            self.await_ready()

    def kubelet(self, makes):
        self.write(f"{KUBELET}/config.yaml", f"makeIPTablesUtilChains: {str(makes).lower()}\n")
        self.sh(f"rm -f {KUBELET}/ready; systemctl restart kubelet")
        until("kubelet's first round", lambda: self.machine.run("test", "-e", f"{KUBELET}/ready").returncode == 0)

    def in_place_of_kubelet(self):
        self.configure()
        self.kubelet(makes=False)

    def failed_units(self):
        return self.machine.inside("systemctl", "list-units", "--failed", "--plain", "--no-legend").strip()

    def files(self):
        """Everything on the disk that is no log and no list of the package manager's."""
        return self.sh(r"find / -xdev \( -path /var/log -o -path /var/lib/dpkg -o -path /var/lib/kubelet -o "
                       r"-path /var/cache \) -prune -o -print | sort").splitlines()

    # ---- the steps ----

    def install(self):
        """Before every step: the package next to a kubelet that keeps its chains."""
        until("kubelet's first round", lambda: self.machine.run("test", "-e", f"{KUBELET}/ready").returncode == 0)
        self.kubelets, self.files_before, before = self.saved(), self.files(), self.untouched()
        self.sh("dpkg --install /debs/1.deb")
        if (self.show("ActiveState"), self.show("UnitFileState")) != ("active", "enabled"):
            raise Failure(f"not started and enabled: {self.tail()}")
        until("observing", lambda: self.metric("observing") == ["1"])
        time.sleep(1)
        self.same("the observing agent wrote", before, self.untouched())
        if self.restarts() != 0 or self.failed_units():
            raise Failure(f"restarted {self.restarts()} times; failed: {self.failed_units()}\n{self.tail()}")
        say(f"  active, enabled, observing; {len(self.kubelets)} lines are kubelet's and unchanged")

    def step_sandbox(self):
        """What the unit takes away is away, and what the agent needs is there."""
        self.in_place_of_kubelet()
        status = dict(line.split(":\t", 1) for line in self.sh(f"cat /proc/{self.pid()}/status").splitlines())
        held = {key: status[key].strip() for key in ("CapBnd", "NoNewPrivs", "Seccomp")}
        # CAP_NET_ADMIN and CAP_NET_RAW; a filter.
        if held != {"CapBnd": "0000000000003000", "NoNewPrivs": "1", "Seccomp": "2"}:
            raise Failure(f"the process has {held}")
        # By a filter or a capability that the agent expects to have; Landlock, for example.
        refused = [line for line in self.journal(0).splitlines() if "Operation not permitted" in line]
        if refused:
            raise Failure(f"the unit forbids too much: {refused[0]}")
        inside = f"nsenter --target {self.pid()} --mount"
        for path in ("/etc/kipt", "/usr/kipt", "/var/kipt", "/run/systemd/kipt", "/proc/sys/net/ipv4/ip_forward"):
            if self.machine.run("bash", "-c", f"{inside} touch {path} 2>/dev/null").returncode == 0:
                raise Failure(f"{path} can be written")
        if self.sh(f"{inside} ls /home /root /tmp | grep -v :$ || true"):
            raise Failure("homes or /tmp are not hidden")
        self.flush()
        say(f"  {held}; read-only file systems; a flush is repaired within {self.await_rules(self.kubelets):.1f} s")

    def step_hand_over(self):
        """Both ways, as deploy/upgrades.md describes it."""
        before = self.untouched()
        self.configure(observe="true")
        plan = self.machine.run("kube-iptables-agent", "plan")
        if plan.returncode != 0 or "0 to add, 0 to remove" not in plan.stdout:
            raise Failure(f"plan next to kubelet: {plan.returncode}\n{plan.stdout}{plan.stderr}")
        self.configure()
        self.sh("kube-iptables-agent status")
        self.kubelet(makes=False)
        self.same("the hand-over to the agent changed rules", before, self.untouched())
        self.sh("iptables -t mangle -X KUBE-IPTABLES-HINT")
        say(f"  to the agent: no rule changed; a hint that is deleted is back within "
            f"{self.await_rules(self.kubelets):.1f} s")
        before = self.untouched()
        self.kubelet(makes=True)
        self.sh(f"kube-iptables-agent status && systemctl disable --now {UNIT}")
        self.same("the hand-over to kubelet changed rules", before, self.untouched())
        if self.show("ActiveState") != "inactive" or self.show("Result") != "success":
            raise Failure(f"{self.show('ActiveState')}, {self.show('Result')}: {self.tail()}")
        self.flush()
        say(f"  back to kubelet: no rule changed; a flush is repaired by kubelet within "
            f"{self.await_rules(self.kubelets, 15):.1f} s")
        self.sh(f"systemctl enable --now {UNIT}")

    def step_restart(self):
        self.in_place_of_kubelet()
        before, restarts = self.untouched(), self.restarts()
        for how in ("restart", "reload", "stop", "start"):
            pid = self.pid()
            self.sh(f"systemctl {how} {UNIT}")
            if (self.pid() == pid) != (how == "reload"):
                raise Failure(f"{how}: process {pid}, then {self.pid()}")
            if how != "stop":
                self.await_ready()
            self.same(f"{how} changed rules", before, self.untouched())
        if self.restarts() != restarts:
            raise Failure(f"it was also restarted by itself: {self.tail()}")
        say("  restart, reload, stop and start: no rule changed")

    def step_killed(self):
        """More often than a unit with systemd's usual limit may be started, five times in ten seconds."""
        self.in_place_of_kubelet()
        restarts = self.restarts()
        for _ in range(7):
            pid, started = self.pid(), time.monotonic()
            self.sh(f"kill -KILL {pid}")
            until(lambda: f"not started again: {self.tail()}", lambda: self.pid() not in ("0", pid), 5)
        self.flush()
        self.await_rules(self.kubelets)
        self.await_ready()
        self.same("other rules than before", self.kubelets, self.saved())
        if self.restarts() != restarts + 7:
            raise Failure(f"{self.restarts() - restarts} restarts: {self.tail()}")
        say(f"  killed seven times in a row, then a flush: all rules are back {time.monotonic() - started:.1f} s "
            f"after the last kill")

    def step_stopped_process(self):
        """It neither ends nor answers: only the watchdog notices that."""
        self.in_place_of_kubelet()
        restarts, pid, started = self.restarts(), self.pid(), time.time()
        self.sh(f"kill -STOP {pid}")
        self.flush()
        self.await_rules(self.kubelets, 150)
        self.await_ready()
        took = time.time() - started
        if self.pid() == pid or self.restarts() != restarts + 1 or "Watchdog timeout" not in self.journal(started):
            raise Failure(f"not by the watchdog: {self.journal(started)}")
        say(f"  a stopped process is restarted, and has repaired a flush, after {took:.0f} s "
            f"(WatchdogSec={self.show('WatchdogUSec')})")

    def step_neighbours(self):
        """Debian's nftables.service, which begins with `flush ruleset`, or a firewall's restart."""
        self.in_place_of_kubelet()
        if self.iptables == "nft":
            self.sh("systemctl enable --now nftables")
            self.await_rules(self.kubelets)
            self.sh("systemctl restart nftables")
        else:
            self.flush()
        took = self.await_rules(self.kubelets)
        say(f"  {'nftables.service, started and restarted' if self.iptables == 'nft' else 'a flush'}: all rules "
            f"are back within {took:.1f} s")

    def step_wrong_configuration(self):
        self.in_place_of_kubelet()
        before = self.untouched()
        self.write(f"{FOLDER}/config.yaml", "observe: [\n")
        self.machine.run("systemctl", "restart", UNIT)
        until(lambda: f"{self.restarts()} restarts: {self.tail()}", lambda: self.restarts() >= 6, 30)
        started = time.monotonic()
        self.kubelet(makes=False)
        took = time.monotonic() - started
        self.same("rules changed", before, self.untouched())
        say(f"  tried again for ever ({self.restarts()} times by now); kubelet starts within {took:.1f} s; no rule "
            f"changed")
        self.machine.reboot()
        if self.show("ActiveState", "kubelet.service") != "active" or self.show("ActiveState") == "active":
            raise Failure(f"after a reboot: kubelet is {self.show('ActiveState', 'kubelet.service')}")
        started = time.monotonic()
        self.configure()
        say(f"  after a reboot kubelet runs all the same; a corrected file is in force within "
            f"{time.monotonic() - started:.1f} s, and no command is needed")

    def step_reboot(self):
        self.in_place_of_kubelet()
        if self.iptables == "nft":
            self.sh("systemctl enable nftables")
        settings = {"gate off": {}, "gate on": {"emulatedVersion": '"1.27"'}}
        for name, fields in settings.items():
            self.configure(**fields)
            self.flush()
            expected = self.await_own_rules(name)
            since = float(self.sh("date +%s.%N"))  # a guest's clock is its own
            self.machine.reboot()
            found = self.sh(f"cat {KUBELET}/found")
            missing = [line for line in expected if line.split(" ", 2)[2] not in found]
            if missing:
                raise Failure(f"{name}: not there when kubelet started: {missing}\n{self.journal(since)}")
            ready, kubelet = (int(self.show(key, unit)) for key, unit in
                              (("ActiveEnterTimestampMonotonic", UNIT),
                               ("ExecMainStartTimestampMonotonic", "kubelet.service")))
            if ready > kubelet:
                raise Failure(f"{name}: ready {(ready - kubelet) / 1000:.0f} ms after kubelet's start")
            self.same(f"{name}: after the reboot", expected, self.saved())
            if self.failed_units() or self.restarts() != 0:
                raise Failure(f"{name}: failed units: {self.failed_units()}; {self.restarts()} restarts")
            say(f"  {name}: all {len(expected)} lines were there when kubelet started, "
                f"{(kubelet - ready) / 1000:.0f} ms after the agent was ready")
            self.judge_shutdown(since)

    def await_own_rules(self, name):
        """What the agent makes on its own after a flush."""
        has = {"gate off": "KUBE-MARK-MASQ", "gate on": "KUBE-IPTABLES-HINT"}[name]
        until(f"{has}: {self.tail()}", lambda: has in str(self.saved()))
        self.await_ready()
        if ("KUBE-MARK-MASQ" in str(self.saved())) != (name == "gate off"):
            raise Failure(f"{name}: {self.saved()}")
        return self.saved()

    def judge_shutdown(self, since):
        """The agent outlives kubelet, and ends before systemd loses patience."""
        lines = self.machine.inside("journalctl", f"--since=@{since:.3f}", "--output=cat", "_PID=1").splitlines()
        order = [next((at for at, line in enumerate(lines) if line.startswith(text)), -1) for text in
                 ("Stopped kubelet.service", f"Stopping {UNIT}", f"Stopped {UNIT}")]
        if -1 in order or order != sorted(order) or f"{UNIT}: State 'stop-sigterm' timed out" in str(lines):
            raise Failure("the shutdown: " + "\n".join(lines[:60]))

    def step_socket(self):
        """systemd holds the ports: a request while the agent restarts waits, and is answered."""
        self.in_place_of_kubelet()
        before = self.untouched()
        self.sh(f"systemctl enable {SOCKET}; systemctl stop {UNIT} && systemctl start {SOCKET} {UNIT}")
        self.await_ready()
        self.same("rules changed", before, self.untouched())
        self.asked_during_restart()
        self.machine.reboot()
        self.await_ready()
        self.asked_during_restart()
        self.sh(f"systemctl stop {SOCKET} {UNIT}")
        if self.machine.run("curl", "--silent", "http://127.0.0.1:10270/livez").returncode != 7 or self.pid() != "0":
            raise Failure("a request started it although both units are stopped")
        self.sh(f"systemctl disable {SOCKET}; systemctl start {UNIT}")

    def asked_during_restart(self):
        codes = self.sh("""for i in 1 2 3; do systemctl kill --signal=KILL %s; for j in {1..30}; do
            curl --silent --output /dev/null --max-time 10 --write-out '%%{http_code} ' http://127.0.0.1:10270/livez
            sleep 0.05; done; done""" % UNIT).split()
        if set(codes) != {"200"}:
            counts = {one: codes.count(one) for one in set(codes)}
            raise Failure(f"answers while it restarts: {counts}\n{self.tail()}")
        say(f"  {len(codes)} requests while it was killed three times: all were answered")

    def step_unprivileged(self):
        if self.iptables == "legacy":
            say("  is for nf_tables only")
            return
        self.in_place_of_kubelet()
        before = self.untouched()
        self.sh(f"install -D -m 0644 {EXAMPLE} {DROP_IN}/nft-unprivileged.conf && systemctl daemon-reload && "
                f"systemctl restart {UNIT}")
        self.await_ready()
        self.same("the restart changed rules", before, self.untouched())
        user = self.sh(f"stat --format=%u /proc/{self.pid()}")
        capabilities = self.sh(f"sed -n 's/^CapEff:\t//p' /proc/{self.pid()}/status")
        if int(user) == 0 or capabilities != "0000000000001000":
            raise Failure(f"user {user}, capabilities {capabilities}")
        self.flush()
        say(f"  user {user} with CAP_NET_ADMIN only: a flush is repaired within "
            f"{self.await_rules(self.kubelets):.1f} s")
        self.configure(emulatedVersion='"1.25"')
        self.configure()
        self.sh(f"rm -r {DROP_IN} && systemctl daemon-reload && systemctl restart {UNIT}")
        self.await_ready()

    def step_upgrade(self):
        self.in_place_of_kubelet()
        kubelet, pid, before = self.show("MainPID", "kubelet.service"), self.pid(), self.untouched()
        edited = self.sh(f"sha256sum {FOLDER}/*")
        self.sh("dpkg --install /debs/2.deb")
        self.await_ready()
        self.same("the upgrade changed rules", before, self.untouched())
        self.same("the upgrade changed the configuration", edited, self.sh(f"sha256sum {FOLDER}/*"))
        if self.pid() == pid or self.show("MainPID", "kubelet.service") != kubelet:
            raise Failure("the agent was not restarted, or kubelet was")
        version = self.sh("dpkg-query --show --showformat='${Version}' kube-iptables-agent")
        say(f"  to {version}: restarted, no rule changed, the edited configuration stays, kubelet runs on")
        self.sh(f"systemctl disable --now {UNIT} && dpkg --install /debs/1.deb")
        if (self.show("ActiveState"), self.show("UnitFileState")) != ("inactive", "disabled"):
            raise Failure(f"a disabled unit is {self.show('ActiveState')}, {self.show('UnitFileState')}")
        self.sh(f"systemctl enable --now {UNIT}")
        say("  a unit that was disabled stays so")

    def step_upgrade_from_release(self):
        """From v0.7.0. Its configuration file had other comments, so dpkg asks which one to keep."""
        self.kubelet(makes=False)
        self.sh("dpkg --purge kube-iptables-agent")
        self.flush()
        try:
            with Martians(self):
                time.sleep(1)
        except Failure as failure:
            say(f"  no rules: {failure}")
        else:
            raise Failure("martian packets arrive nowhere")
        self.upgraded_from_release("gate off")
        self.upgraded_from_release("gate on", emulatedVersion='"1.27"')
        self.sh(f"dpkg --purge kube-iptables-agent && dpkg --install /debs/release.deb && systemctl disable --now {UNIT}")
        self.sh("dpkg --force-confold --install /debs/1.deb")
        if (self.show("ActiveState"), self.show("UnitFileState")) != ("inactive", "disabled"):
            raise Failure(f"a disabled unit is {self.show('ActiveState')}, {self.show('UnitFileState')}")
        self.sh(f"systemctl enable --now {UNIT}")
        say("  a unit that was disabled stays so")

    def upgraded_from_release(self, name, **fields):
        """Whether the upgrade replaced the native table; it changes nothing else, and a restart after it nothing."""
        self.sh("dpkg --purge kube-iptables-agent && dpkg --install /debs/release.deb")
        self.configure(**fields)
        self.flush()
        expected = self.await_own_rules("gate on" if fields else "gate off")
        before, native = self.untouched(), self.native_table()
        edited, pid = self.sh(f"cat {FOLDER}/config.yaml"), self.pid()
        with Martians(self) as martians:
            asked = self.machine.run("dpkg", "--install", "/debs/1.deb")
            if asked.returncode == 0 or self.pid() != pid:
                raise Failure(f"dpkg asked nothing: {asked.stdout}")
            self.same(f"{name}: dpkg's question changed rules", expected, self.saved())
            self.sh("dpkg --force-confold --configure kube-iptables-agent")
            self.await_ready()
            time.sleep(1)
        if self.pid() in ("0", pid) or self.show("UnitFileState") != "enabled":
            raise Failure(f"{name}: process {self.pid()}, {self.show('UnitFileState')}\n{self.tail()}")
        self.same(f"{name}: the configuration", edited, self.sh(f"cat {FOLDER}/config.yaml"))
        self.same(f"{name}: the upgrade changed rules", expected, self.saved())
        after, replaced = self.untouched(), self.native_table() != native
        if not replaced:
            self.same(f"{name}: the upgrade wrote", before, after)
        self.sh(f"systemctl restart {UNIT}")
        self.await_ready()
        time.sleep(1)
        self.same(f"{name}: a restart after it wrote", after, self.untouched())
        say(f"  {name}: {len(expected)} lines, the edited file and the unit's state stay; the native table is "
            f"{'replaced once' if replaced else 'unchanged' if native else 'not used'}; {martians.sent} martian "
            f"packets, none arrived")
        return replaced

    def native_table(self):
        return self.machine.run("nft", "--handle", "--stateless", "list", "table", "ip", "kube-iptables-agent").stdout

    def step_remove_and_purge(self):
        # Other steps enable it.
        self.sh("systemctl --quiet disable nftables")
        self.in_place_of_kubelet()
        self.sh(f"systemctl enable {SOCKET}; systemctl stop {UNIT} && systemctl start {SOCKET} {UNIT}")
        before = self.untouched()
        said = self.sh("dpkg --remove kube-iptables-agent 2>&1")
        if "chains and rules stay unchanged" not in said:
            raise Failure(f"no word about the rules: {said}")
        self.same("the removal changed rules", before, self.untouched())
        rest = self.sh("pgrep --list-name kube-iptables; ss --no-header --listening --tcp")
        if rest:
            raise Failure(f"after the removal: {rest}")
        self.sh("dpkg --purge kube-iptables-agent")
        self.same("the purge changed rules", before, self.untouched())
        # Other services have folders in /var/tmp that are named by the boot.
        left = {one for one in {*self.files()} ^ {*self.files_before}
                if "/systemd-private-" not in one or "kube" in one}
        left |= {*self.sh("find /run -name '*kube-iptables*'").splitlines()}
        if left:
            raise Failure(f"on the disk: {sorted(left)}")
        known = self.sh("systemctl list-units --all --plain --no-legend 'kube-iptables*'")
        if known or self.failed_units():
            raise Failure(f"systemd knows {known}; failed: {self.failed_units()}")
        self.machine.reboot()
        if self.failed_units() or self.saved():
            raise Failure(f"after a reboot: {self.failed_units()} {self.saved()}")
        say("  removed and purged: no rule changed, and no file and no unit is left; after a reboot no rule is left")
        self.kubelet(makes=True)
        self.sh("dpkg --install /debs/1.deb")


def main():
    parser = argparse.ArgumentParser()
    for name in ("--work", "--iptables"):
        parser.add_argument(name, required=True)
    for name in ("--kernel", "--only"):
        parser.add_argument(name, default="")
    given = parser.parse_args()
    steps = [name for name in vars(Steps) if name.startswith("step_") and
             re.search(given.only, name[5:].replace("_", "-"))]
    if not steps:
        raise Failure(f"no step matches {given.only}")
    machine = Guest(given.work, given.iptables, given.kernel) if given.kernel else Container(given.work, given.iptables)
    started = time.monotonic()
    try:
        say(f"== The machine, with iptables-{given.iptables}")
        machine.start()
        for family in ("iptables", "ip6tables"):
            machine.inside("update-alternatives", "--quiet", "--set", family, f"/usr/sbin/{family}-{given.iptables}")
        machine.reboot()
        run_of = Steps(machine, given.iptables)
        run_of.install()
        for name in steps:
            begun = time.monotonic()
            say(f"== {name[5:].replace('_', ' ').capitalize()}")
            getattr(run_of, name)()
            say(f"  {time.monotonic() - begun:.0f} s")
        machine.power_off()
    finally:
        machine.remove()
    say(f"== {len(steps)} steps in {time.monotonic() - started:.0f} s: all as expected")


try:
    main()
except Failure as failure:
    say(f"FAILED: {failure}")
    sys.exit(1)
