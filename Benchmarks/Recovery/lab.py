"""A network of its own for one measurement: namespaces, joined by veth pairs, without a way to the outside.

    HOST                           ROUTER                      SERVER
    all clients, side by side      forwards                    mosquitto

    up0 10.77.0.1/24 ───────────── near0 10.77.0.254/24
      default via 10.77.0.254      far   10.77.9.254/24 ────── eth0 10.77.9.1/24

All clients are in one namespace, so that every fault hits all of them at the same moment and in the same way.
"""

import ctypes
import itertools
import os
import shutil
import socket
import struct
import subprocess
import tempfile
import threading
import time

SERVER = "10.77.9.1"
PORT = 1883
GATEWAY = "10.77.0.254"

numbers = itertools.count(1)
libc = ctypes.CDLL(None, use_errno=True)


class Failure(Exception):
    """The measurement cannot be made."""


def now():
    """Seconds since 1970, as the kernel stamps packets."""
    return time.clock_gettime(time.CLOCK_REALTIME)


def run(words, text=None):
    done = subprocess.run(words, input=text, text=True, capture_output=True)
    if done.returncode != 0:
        raise Failure(f"{' '.join(words)}: {done.stderr.strip()}")
    return done.stdout


def inside(namespace, make):
    """What `make` answers on a thread in the namespace; a socket belongs to the namespace of the thread that made it."""
    answer = []

    def work():
        with open(f"/run/netns/{namespace}") as file:
            if libc.setns(file.fileno(), 0x40000000) != 0:
                answer.append(Failure(f"{namespace} cannot be entered: errno {ctypes.get_errno()}"))
                return
        try:
            answer.append(make())
        except OSError as error:
            answer.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    if isinstance(answer[0], Exception):
        raise answer[0]
    return answer[0]


class Program:
    """A process in one of the namespaces."""

    def __init__(self, name, words, log):
        self.name = name
        self.log = log
        with open(log, "a") as output:
            self.process = subprocess.Popen(
                words, stdin=subprocess.PIPE, stdout=output, stderr=subprocess.STDOUT, start_new_session=True)

    @property
    def pid(self):
        return self.process.pid

    @property
    def words(self):
        with open(self.log, errors="replace") as file:
            return file.read()

    def say(self, line):
        """Writes a line to its standard input, at once."""
        try:
            os.write(self.process.stdin.fileno(), line.encode() + b"\n")
        except BrokenPipeError:
            raise Failure(f"{self.name} ended: {self.words[-2000:]}") from None

    def kill(self):
        self.process.kill()
        self.process.wait()
        self.process.stdin.close()


class Lab:
    """Made by `with`, and gone afterwards."""

    def __enter__(self):
        name = f"hfb{os.getpid()}x{next(numbers)}"
        self.host, self.router, self.server = name + "h", name + "r", name + "s"
        self.directory = tempfile.mkdtemp(prefix="holdfast-bench.")
        self.programs = []
        self.namespaces = []
        self.starts = 0
        try:
            self.build()
        except BaseException:
            self.__exit__()
            raise
        return self

    def build(self):
        for namespace in (self.host, self.router, self.server):
            run(["ip", "netns", "add", namespace])
            self.namespaces.append(namespace)
            self.sysctl(namespace, "net.ipv6.conf.all.disable_ipv6=1", "net.ipv6.conf.default.disable_ipv6=1")
            self.ip(namespace, "link set lo up")
        self.sysctl(self.router, "net.ipv4.ip_forward=1")
        self.ip(self.host, f"link add up0 type veth peer name near0 netns {self.router}")
        self.ip(
            self.router, f"link add far type veth peer name eth0 netns {self.server}",
            f"addr add {GATEWAY}/24 dev near0", "addr add 10.77.9.254/24 dev far", "link set near0 up", "link set far up")
        self.ip(
            self.server, f"addr add {SERVER}/24 dev eth0", "link set eth0 up", "route add default via 10.77.9.254")
        self.ip(self.host, "addr add 10.77.0.1/24 dev up0", "link set up0 up", f"route add default via {GATEWAY}")
        self.kernel = inside(self.host, lambda: socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0))
        self.link_is_up()

    def __exit__(self, *_):
        for program in self.programs:
            program.kill()
        for namespace in self.namespaces:
            subprocess.run(["ip", "netns", "del", namespace])
        if hasattr(self, "kernel"):
            self.kernel.close()
        shutil.rmtree(self.directory, ignore_errors=True)

    def start(self, name, words, namespace):
        log = f"{self.directory}/{name}.log"
        program = Program(name, ["ip", "netns", "exec", namespace] + words, log)
        self.programs.append(program)
        return program

    def write(self, path, text):
        path = f"{self.directory}/{path}"
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w") as file:
            file.write(text)
        return path

    def sysctl(self, namespace, *settings):
        run(["ip", "netns", "exec", namespace, "sysctl", "-qw", *settings])

    def ip(self, namespace, *lines):
        return run(["ip", "-n", namespace, "-batch", "-"], "".join(line + "\n" for line in lines))

    def nft(self, rules):
        run(["ip", "netns", "exec", self.router, "nft", rules])

    def link_is_up(self):
        """Waits for the carrier at both ends, which is announced a moment after a link is set up."""
        for namespace, link in ((self.host, "up0"), (self.router, "near0")):
            while "state UP" not in self.ip(namespace, f"link show {link}"):
                time.sleep(0.01)

    # The server

    def start_server(self):
        """Returns when it serves."""
        if not hasattr(self, "configuration"):
            self.configuration = self.write(
                "server.conf", f"user root\nlistener {PORT}\nallow_anonymous true\nlog_dest stderr\nlog_type all\n")
        self.starts += 1
        # A log of its own for each start.
        self.mosquitto = self.start(f"server-{self.starts}", ["mosquitto", "-c", self.configuration], self.server)
        deadline = now() + 30
        while " running\n" not in self.mosquitto.words:
            if now() > deadline:
                raise Failure(f"mosquitto does not run: {self.mosquitto.words[-2000:]}")
            time.sleep(0.001)

    def kill_server(self):
        self.mosquitto.kill()

    # The uplink

    def add_default_route(self):
        """Adds the route, and answers when: the kernel announces it some microseconds after this time."""
        gateway = socket.inet_aton(GATEWAY)
        # nlmsghdr: 36 bytes, RTM_NEWROUTE, REQUEST | ACK | EXCL | CREATE; rtmsg: AF_INET, main, boot, universe, unicast;
        # RTA_GATEWAY.
        message = struct.pack("=IHHII", 36, 24, 0x605, 1, 0) + struct.pack("=BBBBBBBBI", 2, 0, 0, 0, 254, 3, 0, 1, 0)
        message += struct.pack("=HH", 8, 5) + gateway
        told = now()
        self.kernel.send(message)
        # NLMSG_ERROR: 16 bytes of header, then the error, 0 for none.
        error, = struct.unpack_from("=i", self.kernel.recv(1024), 16)
        if error != 0:
            raise Failure(f"the kernel refused the route: errno {-error}")
        return told


# The faults: what breaks, and what heals and says when it did.

class Link:
    """The uplink goes down and comes back, then its route, as from a DHCP client."""

    def break_(self, lab):
        lab.ip(lab.host, "link set up0 down")

    def heal(self, lab):
        lab.ip(lab.host, "link set up0 up")
        lab.link_is_up()
        return lab.add_default_route()


class Address:
    """The uplink loses its address, and gets another one."""

    def break_(self, lab):
        lab.ip(lab.host, "addr del 10.77.0.1/24 dev up0")

    def heal(self, lab):
        lab.ip(lab.host, "addr add 10.77.0.2/24 dev up0")
        return lab.add_default_route()


class Route:
    """The default route is taken away and comes back."""

    def break_(self, lab):
        lab.ip(lab.host, "route del default")

    def heal(self, lab):
        return lab.add_default_route()


class BlackHole:
    """The router swallows everything, without a word to either side."""

    def break_(self, lab):
        lab.nft(
            "add table ip hole; add chain ip hole pass { type filter hook forward priority 0; }; "
            "add rule ip hole pass drop")

    def heal(self, lab):
        lab.nft("delete table ip hole")
        return now()


class ServerRestart:
    """The server is killed with SIGKILL, and started again."""

    def break_(self, lab):
        lab.kill_server()

    def heal(self, lab):
        lab.start_server()
        return now()


FAULTS = {
    "link": Link(), "address": Address(), "route": Route(), "black-hole": BlackHole(), "server-restart": ServerRestart(),
}


def sweep():
    """Removes the namespaces that a killed run has left."""
    for name in os.listdir("/run/netns") if os.path.isdir("/run/netns") else []:
        if name.startswith("hfb") and not os.path.exists(f"/proc/{name[3:].split('x')[0]}"):
            subprocess.run(["ip", "netns", "del", name])
