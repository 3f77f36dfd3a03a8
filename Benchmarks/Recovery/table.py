"""The figures as tables in Markdown, and the figures to reach."""

import datetime
import os
import platform
import statistics

from clients import DEFAULTS, NAMES, POLLERS

#: The faults that the host itself learns from its kernel.
LOCAL = ["link", "address", "route"]
#: By how much a client must be faster to count as ahead; below that it is noise.
NOISE = 0.95


def duration(seconds):
    if seconds < 0.1:
        return f"{seconds * 1000:.1f} ms"
    return f"{seconds * 1000:.0f} ms" if seconds < 1 else f"{seconds:.1f} s"


def median(values):
    """The median of the results, with infinity for whatever did not happen."""
    return statistics.median_low(sorted(values))


def times(results, name):
    return [result.connected.get(name, float("inf")) for result in results]


def line(result):
    figures = [
        f"{name} {duration(result.connected[name]) if name in result.connected else '-'}"
        + (" kept" if name in result.kept else "") for name in NAMES]
    return f"{result.fault} {result.outage:.1f} s: {', '.join(figures)}"


def rows(titles, lines):
    return "\n".join("| " + " | ".join(cells) + " |" for cells in [titles, ["---"] * len(titles)] + lines) + "\n"


def machine():
    with open("/proc/meminfo") as file:
        memory = int(file.readline().split()[1]) / (1 << 20)
    return (
        f"{datetime.date.today():%d %B %Y}, {os.cpu_count()} cores, {memory:.0f} GiB, "
        f"Linux {platform.release().split('-')[0]}")


def recovery(keys, results, limit):
    """The time from healing to connected: medians, with the worst of holdfast, and how many times the limit that is."""

    def cell(key, name):
        typical = median(times(results[key], name))
        base = median(times(results[key], "limit"))
        if typical == float("inf"):
            return f"> {limit:.0f} s"
        text = duration(typical)
        if name == "limit":
            return text
        text += f" (×{typical / base:.1f})" if typical / base < 10 else f" (×{typical / base:.0f})"
        kept = sum(name in result.kept for result in results[key])
        return text + (" kept" if kept * 2 > len(results[key]) else "")

    lines = []
    for key in keys:
        worst = max(times(results[key], "holdfast"))
        lines.append(
            [key[0], f"{key[1]:.0f} s"] + [cell(key, name) for name in NAMES]
            + [duration(worst) if worst < float("inf") else f"> {limit:.0f} s"])
    count = len(next(iter(results.values())))
    return (
        f"From healing to connected, median of {count} (× the limit); {machine()}\n\n"
        + rows(["fault", "outage"] + NAMES + ["holdfast, worst"], lines))


def detection(by_traffic, longest):
    if not any(by_traffic.values()):
        return ""
    lines = []
    for has_traffic, results in by_traffic.items():
        cells = []
        for name in NAMES[1:]:
            typical = median([result.detected.get(name, float("inf")) for result in results])
            cells.append(duration(typical) if typical < float("inf") else f"> {longest} s")
        lines.append(["a message each second" if has_traffic else "none"] + cells)
    return "From a black hole to the end of the connection\n\n" + rows(["traffic"] + NAMES[1:], lines)


def first_syn(results):
    lines = []
    for name in ("limit", "holdfast"):
        values = sorted(
            result.first_syn[name] for (fault, _), several in results.items() if fault in LOCAL
            for result in several if name in result.first_syn)
        if values:
            lines.append([name, str(len(values)), duration(median(values)), duration(values[0]), duration(values[-1])])
    if not lines:
        return ""
    return (
        "From the kernel's announcement of the route to the first SYN (the limit: from the healing)\n\n"
        + rows(["", "times", "median", "shortest", "longest"], lines))


def targets(keys, results, by_traffic):
    """One line for each figure to reach, and what missed it."""
    lines = []

    def say(what, missed):
        lines.append(f"- {what}: " + ("reached" if not missed else "MISSED by " + ", ".join(missed)))

    def typical(key, name):
        return median(times(results[key], name))

    def named(key):
        return f"{key[0]} {key[1]:.0f} s"

    local = [key for key in keys if key[0] in LOCAL]
    remote = [key for key in keys if key[0] not in LOCAL]
    if local:
        say("link, address and route within 1.5 × the limit", [
            f"{named(key)} (×{typical(key, 'holdfast') / typical(key, 'limit'):.1f})" for key in local
            if not typical(key, "holdfast") <= 1.5 * typical(key, "limit")])
    if early := [key for key in remote if key[1] <= 60]:
        say("black hole and server restart within 1.2 s in the first minute", [
            f"{named(key)} ({duration(typical(key, 'holdfast'))})" for key in early
            if not typical(key, "holdfast") <= 1.2])

    def ahead(names, keys):
        return [
            f"{named(key)} ({name})" for key in keys for name in names
            if typical(key, name) < NOISE * typical(key, "holdfast")]

    say("no peer with its defaults ahead", ahead(DEFAULTS, keys))
    if local:
        say("no peer that polls every second ahead for link, address and route", ahead(POLLERS, local))
    for has_traffic, what, bound in (
        (True, "a black hole detected within 5 s with traffic", 5),
        (False, "and without within the heartbeat's interval and timeout, 20 s", 20),
    ):
        found = [result.detected.get("holdfast", float("inf")) for result in by_traffic[has_traffic]]
        if found:
            # The connections are looked at every 50 ms.
            say(what, [duration(median(found))] if median(found) > bound + 0.1 else [])
    syns = [
        result.first_syn["holdfast"] for key in local for result in results[key] if "holdfast" in result.first_syn]
    if syns:
        say("first SYN within 2 ms of the kernel's announcement, at the median", [duration(median(syns))]
            if median(syns) > 0.002 else [])
    return "Targets\n\n" + "\n".join(lines) + "\n"
