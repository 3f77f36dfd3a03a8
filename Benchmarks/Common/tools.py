"""The clients in C that the benchmarks compare with, or load the daemon with."""

import os
import shlex
import subprocess

from daemon import Failure


class Tools:
    """The clients in C, compiled for this run."""

    def __init__(self, directory, peer=None):
        self.wire = f"{directory}/wire"
        compiler = os.environ.get("CC", "cc")
        subprocess.run([compiler, "-O2", "-o", self.wire, f"{os.path.dirname(os.path.realpath(__file__))}/wire.c"], check=True)
        self.peer = None
        if peer:
            words = [compiler, "-O2", "-o", f"{directory}/peer", peer, "-lpaho-mqtt3a", "-lpthread"]
            if subprocess.run(words, capture_output=True).returncode == 0:
                self.peer = f"{directory}/peer"

    def start(self, *words):
        return subprocess.Popen(
            [self.wire, *map(str, words)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def run(self, *words):
        return finish(self.start(*words))


def finish(process, limit=300):
    """The two figures of the closing line."""
    try:
        output, errors = process.communicate(timeout=limit)
    except subprocess.TimeoutExpired:
        process.kill()
        raise Failure(f"{shlex.join(process.args[1:])} took more than {limit} s") from None
    if process.returncode != 0:
        raise Failure(f"{shlex.join(process.args[1:])}: {errors.strip()}")
    return [float(word) for word in output.split()[-2:]]


def ready(process):
    if process.stdout.readline().strip() != "ready":
        raise Failure(f"{shlex.join(process.args[1:])}: {process.stderr.read().strip()}")
    return process
