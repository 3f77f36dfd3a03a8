"""Tests of holdfast.py: python3 -m unittest"""

from __future__ import annotations

import asyncio
import json
import os
import pathlib
import tempfile
import unittest
import unittest.mock
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


async def read(feed: AsyncIterator[object]) -> None:
    async for _ in feed:
        pass


class ClientTests(unittest.IsolatedAsyncioTestCase):
    async def asyncSetUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.path = path = os.path.join(folder.name, "s")
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
        task = asyncio.create_task(read(self.client.consume("a", "b", consumer="c")))
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

    def feeds(self) -> list[AsyncIterator[object]]:
        client = self.client
        return [client.consume("a", "b", consumer="c"), client.subscribe("a", "b"), client.watch()]

    async def test_a_feed_that_is_cancelled_before_its_answer_is_left(self) -> None:
        peer = None
        for feed in self.feeds():
            task = asyncio.create_task(read(feed))
            peer = peer or await self.greet()
            call = await peer.call()
            task.cancel()
            await asyncio.wait([task])
            later = asyncio.create_task(self.client.call("session.list"))
            following = await peer.call()
            peer.write(id=call["id"], result={"subscription": "s1", "watch": "w1", "snapshot": {}})
            peer.write(id=following["id"], result={})
            await later
            await self.is_left(peer)

    async def test_a_feed_that_is_cancelled_together_with_its_answer_is_left(self) -> None:
        peer = None
        for feed in self.feeds():
            task = asyncio.create_task(read(feed))
            peer = peer or await self.greet()
            call = await peer.call()
            connection = self.client._connection
            assert connection is not None
            connection._take({"id": call["id"], "result": {"subscription": "s1", "watch": "w1", "snapshot": {}}})
            task.cancel()
            await asyncio.wait([task])
            self.assertTrue(task.cancelled())
            self.assertEqual(connection._feeds, {})
            await self.is_left(peer)

    async def is_left(self, peer: Peer) -> None:
        # It was sent before the next call.
        call = asyncio.create_task(self.client.call("session.list"))
        left = await peer.call()
        self.assertIn((left["method"], left["params"]), [
            ("message.unsubscribe", {"subscription": "s1", "keep": True}), ("session.unwatch", {"watch": "w1"})])
        await peer.answer()
        await call

    async def test_a_line_that_cannot_be_read_ends_everything_with_an_error(self) -> None:
        with unittest.mock.patch.object(holdfast, "_LINE_LIMIT", 1000):
            for line in b"{\n", b"x" * 3000 + b"\n":
                client = holdfast.Client(self.path)
                tasks = [asyncio.create_task(read(client.consume("a", "b", consumer="c")))]
                peer = await self.greet()
                await peer.answer(subscription="s1")
                tasks.append(asyncio.create_task(client.call("session.list")))  # type: ignore[arg-type]
                await peer.call()
                peer.writer.write(line)
                for result in await asyncio.gather(*tasks, return_exceptions=True):
                    assert isinstance(result, holdfast.Error), result
                    self.assertEqual(result.code, "invalid-answer")
                self.assertTrue(self.peers.empty())

    async def test_a_daemon_that_was_never_there_is_an_error(self) -> None:
        self.client = holdfast.Client("/nothing/here")
        for waiting in [self.client.publish("a", "b", "c"), *map(read, self.feeds())]:
            with self.assertRaises(holdfast.NotRunning) as caught:
                await waiting
            self.assertEqual(
                str(caught.exception), "the daemon is not running: nothing listens on /nothing/here")
        for error, text in [
            (PermissionError(), "you may not open /nothing/here; join its group with: sudo usermod -aG holdfast $USER, "
             "then log in again"),
            (NotADirectoryError(20, "Not a directory"),
             "the daemon cannot be reached on /nothing/here: Not a directory"),
            (OSError("AF_UNIX path too long"), "the daemon cannot be reached on /nothing/here: AF_UNIX path too long"),
        ]:
            with unittest.mock.patch("asyncio.open_unix_connection", side_effect=error):
                with self.assertRaises(holdfast.NotRunning) as caught:
                    await self.client.publish("a", "b", "c")
            self.assertEqual(str(caught.exception), text)

    async def test_a_daemon_that_never_answers_is_an_error(self) -> None:
        with unittest.mock.patch.object(holdfast, "_GREETING_TIME", 0):
            for waiting in [self.client.publish("a", "b", "c"), *map(read, self.feeds())]:
                with self.assertRaises(holdfast.NotRunning) as caught:
                    await waiting
                self.assertEqual(str(caught.exception), f"the daemon does not answer on {self.path}")

    async def test_a_daemon_that_was_there_is_waited_for(self) -> None:
        publish = asyncio.create_task(self.client.publish("a", "b", "c"))
        peer = await self.greet()
        first = await peer.call()
        self.server.close()
        # Python 3.13 has removed it.
        pathlib.Path(self.path).unlink(missing_ok=True)
        peer.writer.close()
        with self.assertRaises(holdfast.NotRunning):
            await self.client.call("session.list")
        self.server = await asyncio.start_unix_server(self._accept, self.path)
        again = await (await self.greet()).answer(id=7)
        self.assertEqual(again["params"], first["params"])
        self.assertEqual(await publish, {"id": 7})

    async def test_a_rejection_has_the_code_of_the_server_and_the_number_of_the_message(self) -> None:
        publish = asyncio.create_task(self.client.publish("a", "b", "c", wait="delivered"))
        peer = await self.greet()
        call = await peer.call()
        data = {"code": "message-rejected", "reasonCode": 135, "id": 5}
        peer.write(id=call["id"], error={"code": -32023, "message": "no", "data": data})
        with self.assertRaises(holdfast.Error) as caught:
            await publish
        self.assertEqual((caught.exception.reason_code, caught.exception.id), (135, 5))

    async def test_a_refusal_that_comes_once_the_session_is_connected_is_an_error(self) -> None:
        peer = None
        for feed in self.feeds()[:2]:
            task = asyncio.create_task(read(feed))
            peer = peer or await self.greet()
            await peer.answer(subscription="s1", grantedQoS=None)
            for state, code, message in ("granted", None, None), ("refused", 135, "not authorized (0x87)"):
                peer.write(method="session.event", params={
                    "watch": "s1", "event": "subscription-changed",
                    "subscription": {"filter": "b", "state": state, "reasonCode": code, "message": message}})
            with self.assertRaises(holdfast.Error) as caught:
                await task
            self.assertEqual((caught.exception.code, caught.exception.reason_code), ("subscription-refused", 135))
            self.assertEqual(
                str(caught.exception), 'the server refused the subscription to "b": not authorized (0x87)')
            await self.is_left(peer)

    async def test_the_removal_of_the_session_is_an_error(self) -> None:
        peer = None
        for feed in self.feeds()[:2]:
            task = asyncio.create_task(read(feed))
            peer = peer or await self.greet()
            await peer.answer(subscription="s1")
            peer.write(method="session.event", params={"watch": "s1", "event": "session-removed", "session": "a"})
            with self.assertRaises(holdfast.Error) as caught:
                await task
            self.assertEqual(caught.exception.code, "unknown-session")
            self.assertEqual(str(caught.exception), "session a was removed from the configuration")
            await self.is_left(peer)

    async def test_an_acknowledgement_that_is_too_late_leaves_it_to_the_feed_why_a_consumer_ended(self) -> None:
        peer = None
        for event, code in ("consumer-ended", None), ("session-removed", "unknown-session"):
            task = asyncio.create_task(read(self.client.consume("a", "b", consumer="c")))
            peer = peer or await self.greet()
            await peer.answer(subscription="s1")
            peer.write(method="message.received", params={
                "subscription": "s1", "session": "a", "topic": "b", "payload": "x", "qos": 1, "retain": False,
                "duplicate": False, "id": 1, "properties": None})
            call = await peer.call()
            self.assertEqual(call["method"], "message.ack")
            peer.write(
                id=call["id"], error={"code": -32025, "message": "no", "data": {"code": "unknown-subscription"}})
            peer.write(method="session.event", params={"watch": "s1", "event": event, "session": "a"})
            with self.assertRaises(holdfast.Error) as caught:
                await task
            if code is None:
                self.assertIsInstance(caught.exception, holdfast.ConsumerEnded)
            else:
                self.assertEqual(caught.exception.code, code)
            await self.is_left(peer)

    async def test_what_waits_for_a_live_subscription_is_bounded_by_its_bytes_too(self) -> None:
        peer = None
        with unittest.mock.patch.object(holdfast._Feed, "BYTES", 1000):
            for consumer in True, False:
                feed = self.feeds()[0 if consumer else 1]
                first = asyncio.ensure_future(anext(feed))
                peer = peer or await self.greet()
                await peer.answer(subscription="s1")

                def write(peer: Peer, number: int) -> None:
                    peer.write(method="message.received", params={
                        "subscription": "s1", "session": "a", "topic": f"b/{number}", "payload": "x" * 200, "qos": 1,
                        "retain": False, "duplicate": False, "id": number, "properties": None})

                write(peer, 0)
                await first
                for number in range(1, 10):
                    write(peer, number)
                # What was sent before its answer has arrived with it.
                call = asyncio.create_task(self.client.call("session.list"))
                await peer.answer()
                await call
                if consumer:
                    for number in range(1, 10):
                        task = asyncio.ensure_future(anext(feed))
                        self.assertEqual((await peer.answer())["method"], "message.ack")
                        self.assertEqual(getattr(await task, "id"), number)
                else:
                    with self.assertLogs("holdfast", "WARNING") as log:
                        self.assertEqual([getattr(await anext(feed), "id") for _ in range(2)], [1, 2])
                        write(peer, 10)
                        self.assertEqual(getattr(await anext(feed), "id"), 10)
                    self.assertIn("7 messages were dropped because too much was unread", log.output[0])
                await feed.aclose()  # type: ignore[attr-defined]
                await self.is_left(peer)
