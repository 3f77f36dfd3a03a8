"""One fault, one outage, all clients side by side."""

import threading
import time

from capture import Capture, established
from clients import NAMES, start
from lab import FAULTS, Failure, Lab, now

#: How long everything is up before the fault, in seconds.
SETTLE = 3
#: Between two messages of each client, in seconds.
PERIOD = 1
#: How long the machine is kept quiet after the healing, in seconds.
QUIET = 5


class Result:
    """What came of one measurement; times are in seconds."""

    def __init__(self, fault, outage):
        self.fault, self.outage = fault, outage
        # From healing to connected, by client; without those that were not within the limit.
        self.connected = {}
        # The clients whose old connection went on.
        self.kept = set()
        # From the fault to the client's end of its connection, by client; without those that did not end it.
        self.detected = {}
        # From the kernel's announcement of the route to the first SYN, by client.
        self.first_syn = {}


class Traffic:
    """Makes each client publish a message from time to time, until `close`."""

    def __init__(self, clients):
        self.clients = clients
        self.failure = None
        self.ended = threading.Event()
        self.thread = threading.Thread(target=self.run, daemon=True)
        self.thread.start()

    def run(self):
        try:
            while not self.ended.wait(PERIOD):
                for client in self.clients.values():
                    client.publish()
        except (OSError, Failure) as error:
            self.failure = error

    def close(self):
        self.ended.set()
        self.thread.join()
        if self.failure:
            raise self.failure


def measure(programs, fault, outage, limit, quiet, has_traffic=True, is_healed=True):
    """Breaks, heals after `outage` seconds, and waits at most `limit` seconds for all clients.

    `quiet` is a lock that is held around each moment that must not be disturbed by another measurement.
    """
    result = Result(fault, outage)
    with Lab() as lab, Capture(lab.host) as capture:
        quiet.acquire()
        try:
            lab.start_server()
            clients = start(lab, programs)
            await_connected(lab, capture)
            traffic = Traffic(clients) if has_traffic else None
            time.sleep(SETTLE)
            before = {name: capture.of(name)[-1] for name in NAMES}
            broken = now()
            FAULTS[fault].break_(lab)
            # Another measurement may use the outage, unless it is too short for that.
            if outage > 2 * (SETTLE + QUIET):
                quiet.release()
            watch_ends(clients["limit"].program.pid, before, until=broken + outage)
            if not quiet.locked() or outage > 2 * (SETTLE + QUIET):
                quiet.acquire()
            if is_healed:
                healed = FAULTS[fault].heal(lab)
                clients["limit"].tell()
                await_healed(result, capture, before, healed, min(QUIET, limit))
        finally:
            quiet.release()
        if is_healed:
            await_healed(result, capture, before, healed, limit)
        if traffic:
            traffic.close()
        for name, flow in before.items():
            if flow.ended is not None:
                result.detected[name] = flow.ended - broken
    return result


def await_connected(lab, capture):
    deadline = now() + 30
    while missing := [name for name in NAMES if not any(flow.connected for flow in capture.of(name))]:
        if now() > deadline:
            words = "".join(f"\n{program.name}: {program.words[-1000:]}" for program in lab.programs)
            raise Failure(f"not connected at the beginning: {', '.join(missing)}{words}")
        time.sleep(0.05)


def watch_ends(pid, flows, until):
    """Notes when the clients' connections end, until it is time."""
    while (left := until - now()) > 0:
        time.sleep(min(left, 0.05))
        ports = established(pid)
        for flow in flows.values():
            if flow.ended is None and flow.port not in ports:
                flow.ended = now()


def await_healed(result, capture, before, healed, limit):
    while now() < healed + limit:
        look(result, capture, before, healed)
        if len(result.connected) == len(NAMES):
            return
        time.sleep(0.05)


def look(result, capture, before, healed):
    for name in NAMES:
        if name in result.connected:
            continue
        # A new connection that the server has accepted, or the old one, on which the server has acknowledged something
        # new. The healing is known a little late where a command did it.
        flows = [flow for flow in capture.of(name) if flow.connected is not None and flow is not before[name]]
        new = [flow for flow in flows if flow.connected >= healed - 0.02]
        kept = [time for time in before[name].advances if time >= healed]
        times = [flow.connected for flow in new] + kept
        if not times:
            continue
        result.connected[name] = max(min(times) - healed, 0.0)
        if kept and min(times) in kept:
            result.kept.add(name)
        elif new[0].began >= healed:
            result.first_syn[name] = new[0].began - healed
