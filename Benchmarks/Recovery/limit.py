"""The limit: a bare socket that connects as soon as it is told, by a line on standard input."""

import socket
import sys

host, port = sys.argv[1], int(sys.argv[2])
# MQTT 3.1.1, a clean session, no keep-alive, and the client identifier "limit".
CONNECT = bytes.fromhex("10 11 0004") + b"MQTT" + bytes.fromhex("04 02 0000 0005") + b"limit"

connection = None
while sys.stdin.buffer.raw.readline():
    old, connection = connection, socket.socket()
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    connection.settimeout(20)
    try:
        connection.connect((host, port))
        connection.sendall(CONNECT)
        connection.recv(4)
    except OSError as error:
        print(error, flush=True)
    if old is not None:
        old.close()
