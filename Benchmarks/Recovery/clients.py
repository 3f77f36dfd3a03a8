"""Who is measured, each with a client identifier that is its name here."""

import json
import os
import socket
import sys

from lab import PORT, SERVER, Failure, now

HERE = os.path.dirname(os.path.abspath(__file__))
# Debian's, which has paho.
PYTHON = "/usr/bin/python3"

#: In the order of the table's columns. "-1s" are set to poll every second, with a keep-alive of 10 s.
NAMES = ["limit", "holdfast", "bridge", "bridge-1s", "paho", "paho-1s"]
DEFAULTS = ["bridge", "paho"]
POLLERS = ["bridge-1s", "paho-1s"]


class Limit:
    def __init__(self, lab):
        self.program = lab.start("limit", [PYTHON, f"{HERE}/limit.py", SERVER, str(PORT)], lab.host)
        self.tell()

    def tell(self):
        self.program.say("")

    def publish(self):
        pass


class Holdfast:
    """holdfastd with nothing but the defaults."""

    def __init__(self, lab, programs):
        lab.write(
            "etc/sessions.d/main.toml", f'endpoints = ["mqtt://{SERVER}:{PORT}"]\nuser = "holdfast"\n')
        os.makedirs(f"{lab.directory}/state")
        self.path = f"{lab.directory}/control.sock"
        self.program = lab.start(
            "holdfast",
            [f"{programs}/holdfastd", "--config-directory", f"{lab.directory}/etc", "--state-directory",
             f"{lab.directory}/state", "--socket", self.path], lab.host)
        self.control = None
        self.number = 0

    def publish(self):
        if self.control is None:
            self.control = socket.socket(socket.AF_UNIX)
            self.control.connect(self.path)
            self.control.setblocking(False)
        self.number += 1
        request = {
            "jsonrpc": "2.0", "id": self.number, "method": "message.publish",
            "params": {"session": "main", "topic": "bench/holdfast", "payload": str(self.number), "qos": 1},
        }
        self.control.send(json.dumps(request).encode() + b"\n")
        try:
            answers = self.control.recv(1 << 16)
        except BlockingIOError:
            return
        if b'"error"' in answers:
            raise Failure(f"holdfastd refuses: {answers.decode()}")


class Bridge:
    """A mosquitto on the host, and its bridge to the server."""

    def __init__(self, lab, name, local_port, settings):
        file = lab.write(
            f"{name}.conf",
            f"user root\nlistener {local_port} 127.0.0.1\nallow_anonymous true\nlog_dest stderr\nlog_type all\n"
            f"connection {name}\naddress {SERVER}:{PORT}\nremote_clientid {name}\nnotifications false\n"
            f"topic bench/# out 1\n{settings}")
        self.program = lab.start(name, ["mosquitto", "-c", file], lab.host)
        self.lab, self.name, self.local_port = lab, name, local_port
        self.publisher = None

    def publish(self):
        if self.publisher is None:
            self.publisher = self.lab.start(
                f"{self.name}-publisher",
                ["mosquitto_pub", "-h", "127.0.0.1", "-p", str(self.local_port), "-q", "1", "-t", f"bench/{self.name}",
                 "-l"], self.lab.host)
        self.publisher.say("x")


class Paho:
    def __init__(self, lab, name, *settings):
        self.program = lab.start(
            name, [PYTHON, f"{HERE}/paho_client.py", SERVER, str(PORT), name, *settings], lab.host)

    def publish(self):
        self.program.say("x")


def start(lab, programs):
    return {
        "limit": Limit(lab),
        "holdfast": Holdfast(lab, programs),
        "bridge": Bridge(lab, "bridge", 18831, ""),
        "bridge-1s": Bridge(lab, "bridge-1s", 18832, "restart_timeout 1\nkeepalive_interval 10\n"),
        "paho": Paho(lab, "paho"),
        "paho-1s": Paho(lab, "paho-1s", "1", "10"),
    }
