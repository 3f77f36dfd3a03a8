#!/usr/bin/env python3
"""Answers every message of a topic, and loses none, whichever program is restarted: echo.py SESSION

It takes SESSION's orders/# as the durable consumer "echo", and publishes each payload, with its properties, to replies/…
"""

import asyncio
import sys

import holdfast


async def main(session: str) -> None:
    async with holdfast.Client(name="echo.py") as client:
        status = await client.call("session.status", session=session)
        print(f"{session} is {status['state']}", flush=True)
        async for message in client.consume(session, "orders/#", consumer="echo"):
            topic = message.topic.replace("orders/", "replies/", 1)
            answer = await client.publish(session, topic, message.payload, properties=message.properties)
            print(f"{message.topic} {message.text} is answered as message {answer['id']}", flush=True)


if __name__ == "__main__":
    try:
        asyncio.run(main(sys.argv[1]))
    except (holdfast.Error, holdfast.NotRunning) as problem:
        sys.exit(f"echo.py: {problem}")
    except KeyboardInterrupt:
        pass
