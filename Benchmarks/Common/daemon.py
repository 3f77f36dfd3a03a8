"""A holdfastd, a mosquitto and small clients on the loopback interface, for one measurement, and what they cost."""

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time

# What was started is stopped in any case.
signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))

TICKS = os.sysconf("SC_CLK_TCK")


class Failure(Exception):
    """The measurement cannot be made."""


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def wait_for(what, condition, limit=120):
    end = time.monotonic() + limit
    while not condition():
        if time.monotonic() > end:
            raise Failure(f"{what} did not happen within {limit} s")
        time.sleep(0.01)


def processor_seconds(pid):
    """Of all threads, in user mode and in the kernel."""
    with open(f"/proc/{pid}/stat") as file:
        fields = file.read().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


def threads(pid):
    """Of each thread, by number and name: how often it went to sleep, and its processor time in nanoseconds."""
    found = {}
    for number in os.listdir(f"/proc/{pid}/task"):
        folder = f"/proc/{pid}/task/{number}"
        try:
            with open(f"{folder}/status") as file:
                lines = dict(line.split(":", 1) for line in file)
            with open(f"{folder}/schedstat") as file:
                spent = int(file.read().split()[0])
        except OSError:
            continue
        found[int(number), lines["Name"].strip()] = (int(lines["voluntary_ctxt_switches"]), spent)
    return found


def memory(pid):
    """Resident and peak, in bytes."""
    with open(f"/proc/{pid}/status") as file:
        lines = dict(line.split(":", 1) for line in file)
    return tuple(int(lines[name].split()[0]) * 1024 for name in ("VmRSS", "VmHWM"))


class Program:
    def __init__(self, words, log, environment=None):
        self.log = log
        with open(log, "a") as output:
            self.process = subprocess.Popen(
                words, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT, start_new_session=True,
                env={**os.environ, **(environment or {})})

    @property
    def pid(self):
        return self.process.pid

    def check(self):
        if self.process.poll() is not None:
            with open(self.log, errors="replace") as file:
                raise Failure(f"{self.process.args[0]} ended: {file.read()[-2000:]}")

    def stop(self, limit=60):
        if self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(limit)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()


class Lab:
    """Made by `with`, and gone afterwards. `directory` is on the disk that is measured."""

    def __init__(self, programs, state=None):
        self.programs, self.state = programs, state

    def __enter__(self):
        self.directory = tempfile.mkdtemp(prefix="holdfast-bench.", dir=self.state)
        self.started = []
        return self

    def __exit__(self, *_):
        for program in reversed(self.started):
            program.stop()
        shutil.rmtree(self.directory, ignore_errors=True)

    def start(self, name, words, environment=None):
        program = Program(words, f"{self.directory}/{name}.log", environment)
        self.started.append(program)
        return program

    def stop(self, program):
        program.stop()
        self.started.remove(program)

    def server(self, name="server", port=None, extra="", inFlight=0):
        """A mosquitto without limits that would be measured instead of its clients."""
        port = port or free_port()
        with open(f"{self.directory}/{name}.conf", "w") as file:
            file.write(
                f"listener {port} 127.0.0.1\nallow_anonymous true\npersistence false\nset_tcp_nodelay true\n"
                f"max_inflight_messages {inFlight}\nmax_queued_messages 0\nmax_connections -1\nlog_type error\n{extra}")
        program = self.start(name, ["mosquitto", "-c", f"{self.directory}/{name}.conf"])
        program.port = port

        def answers():
            program.check()
            with socket.socket() as probe:
                return probe.connect_ex(("127.0.0.1", port)) == 0

        wait_for("the server's start", answers)
        return program

    def daemon(self, port, durability="normal", sessions=("main",), extra="", name="holdfastd", isUp=True):
        """holdfastd with these sessions, ready, and connected if `isUp`."""
        folder = f"{self.directory}/{name}"
        os.makedirs(f"{folder}/etc/sessions.d", exist_ok=True)
        with open(f"{folder}/etc/holdfast.toml", "w") as file:
            file.write(f'durability = "{durability}"\n')
        for session in sessions:
            with open(f"{folder}/etc/sessions.d/{session}.toml", "w") as file:
                file.write(f'endpoints = ["mqtt://127.0.0.1:{port}"]\nuser = "{session}"\n{extra}')
        path = f"{folder}/control.sock"
        notify = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        notify.bind(f"{folder}/notify-{time.monotonic_ns()}")
        started = time.monotonic()
        program = self.start(
            name, [f"{self.programs}/holdfastd", "--config-directory", f"{folder}/etc", "--state-directory",
                   f"{folder}/state", "--socket", path, "--log-level", "error"],
            {"NOTIFY_SOCKET": notify.getsockname()})
        program.socket, program.state = path, f"{folder}/state"
        notify.settimeout(120)
        while b"READY=1" not in notify.recv(4096):
            pass
        program.start_seconds = time.monotonic() - started
        # Nobody reads what comes later, and nobody has to: a datagram that does not fit is dropped.
        program.notify = notify
        if isUp:
            wait_for("the sessions' connection", lambda: self.is_up(program, len(sessions)))
        return program

    def is_up(self, daemon, count):
        daemon.check()
        # The list of thousands of sessions would keep the daemon from connecting them.
        return call(daemon.socket, "daemon.status")["sessions"]["connected"] == count


def call(path, method, **parameters):
    with socket.socket(socket.AF_UNIX) as control:
        control.connect(path)
        request = {"jsonrpc": "2.0", "id": 1, "method": method, "params": parameters}
        control.sendall(json.dumps(request).encode() + b"\n")
        with control.makefile() as lines:
            answer = json.loads(lines.readline())
    if "error" in answer:
        raise Failure(f"{method}: {answer['error']['message']}")
    return answer["result"]
