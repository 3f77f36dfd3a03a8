"""Tests of holdfast.py: python3 -m unittest"""

from __future__ import annotations

import asyncio
import json
import os
import tempfile
import unittest
from typing import Any, AsyncIterator

import holdfast


class Peer:
    """The daemon's end of a connection. The test reads each line and writes each answer itself."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    async def line(self) -> bytes:
        return await self.reader.readline()

    async def call(self) -> dict[str, Any]:
        call: dict[str, Any] = json.loads(await self.line())
        return call

    def write(self, **members: Any) -> None:
        self.writer.write(json.dumps({"jsonrpc": "2.0", **members}).encode() + b"\n")

    async def answer(self, **result: Any) -> dict[str, Any]:
        """Answers the next call, and returns it."""
        call = await self.call()
        self.write(id=call["id"], result=result)
        return call


class ClientTests(unittest.IsolatedAsyncioTestCase):
    async def asyncSetUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        path = os.path.join(folder.name, "s")
        self.peers: asyncio.Queue[Peer] = asyncio.Queue()
        self.writers: list[asyncio.StreamWriter] = []
        self.server = await asyncio.start_unix_server(self._accept, path, limit=32 << 20)
        self.client = holdfast.Client(path)

    async def asyncTearDown(self) -> None:
        await self.client.close()
        self.server.close()
        for writer in self.writers:
            writer.close()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.writers.append(writer)
        self.peers.put_nowait(Peer(reader, writer))

    async def greet(self) -> Peer:
        peer = await self.peers.get()
        await peer.answer()
        return peer

    async def test_a_line_that_is_refused_without_its_id_ends_the_calls(self) -> None:
        call = asyncio.create_task(self.client.call("session.list"))
        peer = await self.greet()
        await peer.call()
        peer.write(id=None, error={"code": -32700, "message": "no", "data": {"code": "parse-error"}})
        with self.assertRaises(holdfast.Error) as caught:
            await call
        self.assertEqual(caught.exception.code, "parse-error")
        self.assertEqual(await peer.line(), b"")

    async def test_a_connection_whose_greeting_is_not_awaited_any_more_or_refused_is_closed(self) -> None:
        call = asyncio.create_task(self.client.call("session.list"))
        peer = await self.peers.get()
        await peer.line()
        call.cancel()
        with self.assertRaises(asyncio.CancelledError):
            await call
        self.assertEqual(await peer.line(), b"")

        call = asyncio.create_task(self.client.call("session.list"))
        peer = await self.peers.get()
        hello = await peer.call()
        peer.write(id=hello["id"], error={"code": -32051, "message": "no", "data": {"code": "version-mismatch"}})
        with self.assertRaises(holdfast.Error):
            await call
        self.assertEqual(await peer.line(), b"")

    async def test_a_closed_client_ends_what_it_reads_and_does_not_connect_again(self) -> None:
        async def read(feed: AsyncIterator[object]) -> None:
            async for _ in feed:
                pass

        client = self.client
        tasks = [
            asyncio.create_task(read(feed)) for feed in
            (client.consume("a", "b", consumer="c"), client.subscribe("a", "b"), client.watch())]
        publish = asyncio.create_task(client.publish("a", "b", "c"))
        peer = await self.greet()
        for number in range(4):
            call = await peer.call()
            if call["method"] != "message.publish":
                peer.write(id=call["id"], result={"subscription": f"s{number}", "watch": "w", "snapshot": {}})
        await client.close()
        again: asyncio.Future[Any] = asyncio.create_task(self.peers.get())
        everything: asyncio.Future[Any] = asyncio.gather(*tasks, publish, return_exceptions=True)
        await asyncio.wait([everything, again], return_when=asyncio.FIRST_COMPLETED)
        self.assertFalse(again.done(), "it connects again")
        again.cancel()
        *ends, refusal = await everything
        self.assertEqual(ends, [None, None, None])
        self.assertIsInstance(refusal, holdfast.NotRunning)

    async def test_what_the_daemon_would_refuse_without_an_id_is_not_sent(self) -> None:
        async def publish() -> dict[str, Any]:
            with self.assertRaises(holdfast.Error) as caught:
                await self.client.publish("a", "b", b"x" * (19 << 20))
            self.assertEqual(caught.exception.code, "invalid-request")
            for payload in "\udc80", "\udc80" * (1 << 20):
                with self.assertRaises(ValueError):
                    await self.client.publish("a", "b", payload)
            with self.assertRaises(ValueError):
                await self.client.publish("a", "b", "c", expiry=float("inf"))
            return await self.client.publish("a", "b", "sent")

        call = asyncio.create_task(publish())
        peer = await self.greet()
        self.assertEqual((await peer.answer(id=7))["params"]["payload"], "sent")
        self.assertEqual(await call, {"id": 7})

    async def test_the_longest_payload_can_be_sent_whatever_is_in_it(self) -> None:
        async def publish() -> None:
            for character in "\0", "é":
                await self.client.publish("é" * 60_000, "b", character * ((16 << 20) // len(character.encode())))

        call = asyncio.create_task(publish())
        peer = await self.greet()
        for _ in range(2):
            line = await peer.line()
            self.assertLessEqual(len(line), 24 << 20)
            peer.write(id=json.loads(line)["id"], result={})
        await call

    async def test_a_consumer_that_is_overtaken_before_its_answer_has_ended(self) -> None:
        async def consume() -> None:
            async for _ in self.client.consume("a", "b", consumer="c"):
                pass

        task = asyncio.create_task(consume())
        peer = await self.greet()
        call = await peer.call()
        peer.write(
            id=call["id"], error={"code": -32025, "message": "no", "data": {"code": "unknown-subscription"}})
        with self.assertRaises(holdfast.ConsumerEnded):
            await task

    async def test_a_publish_that_waits_for_the_delivery_is_repeated_when_the_daemon_stops(self) -> None:
        publish = asyncio.create_task(self.client.publish("a", "b", "c", wait="delivered"))
        peer = await self.greet()
        first = await peer.answer(id=7, accepted=True, delivered=False)
        again = await peer.answer(id=7, accepted=True, delivered=True)
        self.assertEqual(again["params"], first["params"])
        self.assertTrue((await publish)["delivered"])

    async def test_a_notification_of_another_kind_is_ignored(self) -> None:
        call = asyncio.create_task(self.client.call("session.list"))
        peer = await self.greet()
        peer.write(method="daemon.news", params={})
        await peer.answer(sessions=[])
        self.assertEqual(await call, {"sessions": []})
