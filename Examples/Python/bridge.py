#!/usr/bin/env python3
"""Passes messages on from one session to another: bridge.py NAME FROM FILTER TO [REMOVE ADD]

It takes what FROM receives for FILTER as the durable consumer NAME, and publishes it through TO, with its properties. At the
beginning of each topic, REMOVE is replaced by ADD. No message is lost, whichever program is restarted; one that was being
passed on then may be published twice.
"""

import asyncio
import sys

import holdfast


async def main(name: str, source: str, filter: str, target: str, remove: str = "", add: str = "") -> None:
    async with holdfast.Client(name="bridge.py") as client:
        async for message in client.consume(source, filter, consumer=name):
            topic = message.topic
            if topic.startswith(remove):
                topic = add + topic[len(remove):]
            await client.publish(
                target, topic, message.payload, qos=message.qos, retain=message.retain, properties=message.properties)


if __name__ == "__main__":
    if len(sys.argv) not in (5, 7):
        sys.exit(__doc__)
    try:
        asyncio.run(main(*sys.argv[1:]))
    except (holdfast.Error, holdfast.NotRunning) as problem:
        sys.exit(f"bridge.py: {problem}")
    except KeyboardInterrupt:
        pass
