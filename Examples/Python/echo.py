#!/usr/bin/env python3
"""Answers every message of a topic, and loses none, whichever program is restarted: python3 echo.py SESSION

It takes SESSION's orders/# as the durable consumer "echo", and publishes each payload, with its properties, to replies/…
An order whose answer cannot be published, for example because its topic would be too long, is reported and left.
"""

import asyncio
import sys

import holdfast

# The refusals that are due to the message itself. It would be refused each time.
UNPUBLISHABLE = {"invalid-topic", "invalid-parameters", "invalid-request", "message-rejected"}


async def main(session: str) -> None:
    async with holdfast.Client(name="echo.py") as client:
        status = await client.call("session.status", session=session)
        print(f"{session} is {status['state']}", flush=True)
        async for message in client.consume(session, "orders/#", consumer="echo"):
            # The filter also matches the topic "orders", and an answer there would be an order.
            if not message.topic.startswith("orders/"):
                continue
            topic = message.topic.replace("orders/", "replies/", 1)
            try:
                answer = await client.publish(session, topic, message.payload, properties=message.properties)
            except holdfast.Error as problem:
                if problem.code not in UNPUBLISHABLE:
                    raise
                print(f"echo.py: {message.topic[:100]!r} is not answered: {problem}", file=sys.stderr, flush=True)
                continue
            text = message.payload.decode(errors="replace")
            print(f"{message.topic} {text} is answered as message {answer['id']}", flush=True)


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: echo.py SESSION")
    try:
        asyncio.run(main(sys.argv[1]))
    except (holdfast.Error, holdfast.NotRunning) as problem:
        sys.exit(f"echo.py: {problem}")
    except KeyboardInterrupt:
        pass
