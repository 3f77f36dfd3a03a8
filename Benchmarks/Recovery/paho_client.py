"""A client with paho, which publishes at each line on standard input: paho_client.py HOST PORT NAME [DELAY KEEP-ALIVE]"""

import sys

import paho.mqtt.client

host, port, name = sys.argv[1], int(sys.argv[2]), sys.argv[3]
client = paho.mqtt.client.Client(client_id=name)
if len(sys.argv) > 4:
    delay, keep_alive = int(sys.argv[4]), int(sys.argv[5])
    client.reconnect_delay_set(delay, delay)
    client.connect_async(host, port, keep_alive)
else:
    client.connect_async(host, port)
client.loop_start()
for line in sys.stdin:
    client.publish(f"bench/{name}", line.strip(), qos=1)
