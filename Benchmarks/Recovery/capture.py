"""What goes over the host's uplink, with the kernel's time of each packet: how a client is known to be connected, in the
same way for all of them, whatever they say themselves."""

import socket
import struct
import threading
import time

from lab import PORT, SERVER, inside

ETH_P_ALL = 0x0003
SO_TIMESTAMPNS = 35
FIN, SYN, RST = 0x01, 0x02, 0x04
SERVER_BYTES = socket.inet_aton(SERVER)


class Flow:
    """One TCP connection to the server."""

    def __init__(self, port, began):
        self.port = port
        self.began = began
        # The client identifier of its CONNECT.
        self.client = None
        # When the server's CONNACK came.
        self.connected = None
        # When the server first acknowledged each new piece of the client's data.
        self.advances = []
        self.acknowledged = None
        # When the client's kernel had no established connection any more.
        self.ended = None


class Capture:
    """Listens until `close`."""

    def __init__(self, namespace):
        # On all interfaces: bound to one, it would end when that is set down.
        self.socket = inside(namespace, lambda: socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM, socket.htons(ETH_P_ALL)))
        self.socket.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4 << 20)
        self.flows = []
        self.current = {}
        self.is_open = True
        self.socket.setblocking(False)
        self.thread = threading.Thread(target=self.listen, daemon=True)
        self.thread.start()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.is_open = False
        self.thread.join()
        self.socket.close()

    def of(self, client):
        """The connections of a client, the oldest first."""
        return [flow for flow in list(self.flows) if flow.client == client]

    def listen(self):
        # The kernel has stamped them: to look at each as it comes would only keep the clients from their processor.
        while self.is_open:
            time.sleep(0.05)
            self.read()

    def read(self):
        while True:
            try:
                packet, ancillary, _, _ = self.socket.recvmsg(65536, 256)
            except BlockingIOError:
                return
            for level, kind, data in ancillary:
                if level == socket.SOL_SOCKET and kind == SO_TIMESTAMPNS:
                    seconds, nanoseconds = struct.unpack("qq", data[:16])
                    self.take(packet, seconds + nanoseconds / 1e9)

    def take(self, packet, time):
        if len(packet) < 40 or packet[0] >> 4 != 4 or packet[9] != socket.IPPROTO_TCP:
            return
        header = (packet[0] & 15) * 4
        source, target = struct.unpack_from("!HH", packet, header)
        flags = packet[header + 13]
        acknowledged, = struct.unpack_from("!I", packet, header + 8)
        length, = struct.unpack_from("!H", packet, 2)
        payload = packet[header + (packet[header + 12] >> 4) * 4:length]
        if packet[16:20] == SERVER_BYTES and target == PORT:
            self.sent(source, flags, payload, time)
        elif packet[12:16] == SERVER_BYTES and source == PORT and target in self.current and not flags & RST:
            self.received(self.current[target], flags, acknowledged, payload, time)

    def sent(self, port, flags, payload, time):
        flow = self.current.get(port)
        if flags & SYN and (flow is None or flow.acknowledged is not None):
            flow = self.current[port] = Flow(port, time)
            self.flows.append(flow)
        if flow is not None and flow.client is None and payload[:1] == b"\x10":
            flow.client = client_identifier(payload)

    def received(self, flow, flags, acknowledged, payload, time):
        if payload[:1] == b"\x20" and flow.connected is None:
            flow.connected = time
        if flow.acknowledged is None:
            flow.acknowledged = acknowledged
        elif 0 < (acknowledged - flow.acknowledged) % (1 << 32) < 1 << 31:
            flow.acknowledged = acknowledged
            # The CONNECT itself is not what a connection is kept for.
            if flow.connected is not None and time > flow.connected:
                flow.advances.append(time)


def client_identifier(packet):
    """That of a CONNECT, of MQTT 3.1.1 or 5."""
    at = 1
    while packet[at] & 0x80:
        at += 1
    at += 1
    at += 2 + struct.unpack_from("!H", packet, at)[0]
    version = packet[at]
    at += 4
    if version == 5:
        # The properties are shorter than 128 bytes.
        at += 1 + packet[at]
    length, = struct.unpack_from("!H", packet, at)
    return packet[at + 2:at + 2 + length].decode()


def established(pid):
    """The local ports of the connections to the server that live in the namespace of a process."""
    ports = set()
    with open(f"/proc/{pid}/net/tcp") as table:
        next(table)
        for line in table:
            words = line.split()
            # Established, or closed by the server only.
            if int(words[2].split(":")[1], 16) == PORT and words[3] in ("01", "08"):
                ports.add(int(words[1].split(":")[1], 16))
    return ports
