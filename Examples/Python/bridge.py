#!/usr/bin/env python3
"""Passes messages on from one session to another: python3 bridge.py NAME FROM FILTER TO [REMOVE ADD]

It takes what FROM receives for FILTER as the durable consumer NAME, and publishes it through TO, with its properties. At the
beginning of each topic, REMOVE is replaced by ADD; a message whose topic begins otherwise is not passed on. No message is
lost, whichever program is restarted; one that was being passed on then may be published twice. A message that cannot be
published, for example because its new topic is too long, or TO's server takes no message as large, is reported and left.
While TO's outbox or the disk is full, it waits.
"""

import asyncio
import sys

import holdfast

# The refusals that are due to the message itself. It would be refused each time.
UNPUBLISHABLE = {"invalid-topic", "invalid-parameters", "invalid-request", "message-rejected"}

# The refusals that pass. Meanwhile the messages stay in the consumer.
PASSING = {"outbox-full", "store-full"}


async def publish(client: holdfast.Client, target: str, topic: str, message: holdfast.Message) -> None:
    is_told = False
    while True:
        try:
            await client.publish(
                target, topic, message.payload, qos=message.qos, retain=message.retain, properties=message.properties)
            return
        except holdfast.Error as problem:
            if problem.code not in PASSING:
                raise
            if not is_told:
                print(f"bridge.py: waiting: {problem}", file=sys.stderr, flush=True)
            is_told = True
            await asyncio.sleep(1)


async def main(name: str, source: str, filter: str, target: str, remove: str = "", add: str = "") -> None:
    async with holdfast.Client(name="bridge.py") as client:
        async for message in client.consume(source, filter, consumer=name):
            # local/# also matches the topic "local", which would go out under its own name.
            if not message.topic.startswith(remove):
                continue
            topic = add + message.topic[len(remove):]
            try:
                await publish(client, target, topic, message)
            except holdfast.Error as problem:
                if problem.code not in UNPUBLISHABLE:
                    raise
                print(f"bridge.py: {message.topic[:100]!r} is not passed on: {problem}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    if len(sys.argv) not in (5, 7):
        sys.exit(__doc__)
    try:
        asyncio.run(main(*sys.argv[1:]))
    except (holdfast.Error, holdfast.NotRunning) as problem:
        sys.exit(f"bridge.py: {problem}")
    except KeyboardInterrupt:
        pass
