"""A client of holdfastd, in one file, with nothing but the standard library of Python 3.10 and later.

    async with holdfast.Client() as client:
        await client.publish("main", "plant/7/temperature", "21.5")
        async for message in client.consume("main", "plant/7/orders/#", consumer="billing"):
            print(message.topic, message.text)

Calls are JSON-RPC 2.0 on the daemon's Unix socket; holdfast-rpc(7) has every method. `call` takes any of them. A message that
`publish` has returned for is on disk. `publish`, `consume`, `subscribe` and `watch` continue when the daemon is restarted; if
it was never there, they raise NotRunning.
"""

from __future__ import annotations

import asyncio
import base64
import grp
import json
import logging
import os
import uuid
from dataclasses import dataclass
from typing import Any, AsyncIterator, Optional, Union

__all__ = ["Client", "ConsumerEnded", "Error", "Message", "NotRunning"]

PROTOCOL = 1
DEFAULT_SOCKET = "/run/holdfast/control.sock"
# A message has at most 17 MiB, and JSON makes six bytes of a control character.
_LINE_LIMIT = 112 * 1024 * 1024
# The daemon refuses a longer line, without saying whose it was: see LIMITS in holdfast-rpc(7).
_CALL_LIMIT = 24 * 1024 * 1024
# A text of more characters is sent as base64, whose length does not depend on what is in it.
_LONG_TEXT = 64 * 1024
# For how many seconds the daemon may leave the first call of a connection unanswered.
_GREETING_TIME = 10.0
_ENDED = "the daemon closed the connection"

_log = logging.getLogger("holdfast")


class Error(Exception):
    """The daemon refused a call.

    - code: one of ERROR CODES in holdfast-rpc(7), which do not change. It is "invalid-answer" if the daemon's answer cannot
      be read.
    - hint: what to do about it.
    - reason_code: the code with which the server rejected a message.
    - id: the number of a message that had been accepted before it was rejected or dropped.
    """

    def __init__(
        self, message: str, code: Optional[str] = None, hint: Optional[str] = None, reason_code: Optional[int] = None,
        id: Optional[int] = None,
    ) -> None:
        super().__init__(message if hint is None else f"{message}; {hint}")
        self.code = code
        self.hint = hint
        self.reason_code = reason_code
        self.id = id


class NotRunning(ConnectionError):
    """The daemon cannot be reached, it is stopping, or it went away before it answered; or the client was closed. The text
    has the reason."""


class _Absent(NotRunning):
    """No cause to wait for the daemon if it was never there."""


class ConsumerEnded(Error):
    """Another program has taken the durable consumer over, or it was ended."""


@dataclass(frozen=True)
class Message:
    """A message that the session received."""

    session: str
    topic: str
    payload: bytes
    qos: int
    retain: bool
    #: Whether a program may have received it before.
    duplicate: bool
    #: What the acknowledgement of a durable consumer names.
    id: int
    #: contentType, responseTopic, correlationDataBase64 and user, as far as the message has them.
    properties: dict[str, Any]

    @property
    def text(self) -> str:
        return self.payload.decode()


class Client:
    """One connection to the daemon. Use it from one thread; several calls may be under way in one event loop."""

    def __init__(self, socket: Optional[str] = None, name: str = "holdfast.py") -> None:
        self.path = socket or os.environ.get("HOLDFAST_SOCKET") or DEFAULT_SOCKET
        self.name = name
        self._connection: Optional[_Connection] = None
        self._connecting = asyncio.Lock()
        self._closed = False
        # Whether the daemon has ever answered.
        self._answered = False

    async def __aenter__(self) -> "Client":
        await self._connect()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Closes the connection for good: calls fail, `consume`, `subscribe` and `watch` end, and no call can follow."""
        self._closed = True
        if self._connection is not None:
            self._connection.close()

    # What most programs need

    async def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Calls a method of holdfast-rpc(7), with its parameters by name. A parameter that is `None` is omitted.

        Raises Error if the daemon refuses, and NotRunning if it does not answer. It is not known whether a call that was not
        answered, or was cancelled before, was carried out. A call that is too long is an Error with the code
        "invalid-request", and a text or number that JSON does not have, such as "\\udc80" or infinity, is a ValueError;
        neither is sent.
        """
        return await (await self._connect()).request(method, parameters)

    async def publish(
        self, session: str, topic: str, payload: Union[str, bytes], *, qos: int = 1, retain: bool = False,
        expiry: Optional[float] = None, properties: Optional[dict[str, Any]] = None, wait: str = "accepted",
        key: Optional[str] = None,
    ) -> dict[str, Any]:
        """Publishes a message once. If the daemon is restarted before it answers, the call is repeated.

        If it is cancelled, as by asyncio.wait_for, or the client is closed, the message may have been accepted. To be able to
        publish it again without doubling it, choose the key: `key=str(uuid.uuid4())`.

        - expiry: for how many seconds, more than 0, the message is worth delivering.
        - properties: as those of a Message.
        - wait: "accepted" returns when it is on disk, "delivered" when the server has acknowledged it. A message that the
          server rejects, and a session that is removed before that, is an Error.
        - key: calls with the same key while the message is in the outbox, or within 24 hours after that, are the same
          message; by default each call is a new one.
        """
        parameters: dict[str, Any] = {
            "session": session, "topic": topic, "qos": qos, "retain": retain, "expiry": expiry,
            "properties": properties or None, "wait": wait, "key": key or str(uuid.uuid4()), **_payload(payload),
        }
        pause = 1.0
        while True:
            try:
                published = await self.call("message.publish", **parameters)
                if wait != "delivered" or published["delivered"]:
                    return published
                # The daemon is stopping, or as many calls of this client wait for deliveries as may.
                await asyncio.sleep(pause)
                pause = min(2 * pause, 30.0)
            except NotRunning as error:
                if self._closed:
                    raise
                self._forgive(error)
                await asyncio.sleep(1)

    async def consume(
        self, session: str, filter: str, *, consumer: str, qos: int = 1
    ) -> AsyncIterator[Message]:
        """Every message of a durable consumer, from where it left off. A message is acknowledged when the next one is
        requested, so if the program is killed before that, the message comes again. Continues when the daemon is restarted,
        and raises ConsumerEnded when another program takes the consumer over. What the daemon dropped because the consumer
        was full is logged as a warning of the logger "holdfast".

        If there is no subscription to the filter, that is an Error with the code "subscription-refused": at once, or if the session
        is away, when it is connected; and after the messages that were collected before. If the session is removed from the
        configuration, that is an Error with the code "unknown-session"."""
        ended = f"another program has the durable consumer {consumer} now, or it was ended"
        while not self._closed:
            try:
                connection = await self._connect()
                try:
                    answer = await connection.request(
                        "message.subscribe",
                        {"session": session, "filter": filter, "qos": qos, "consumer": consumer}, feed="subscription")
                except Error as error:
                    # Another program attached before the answer.
                    raise ConsumerEnded(ended) if error.code == "unknown-subscription" else error
                subscription = answer["subscription"]
                if answer.get("missed"):
                    _log.warning("the durable consumer %s was full, and %d messages were dropped",
                                 consumer, answer["missed"])
                try:
                    async for parameters in connection.feed(subscription):
                        if parameters.get("event") == "consumer-ended":
                            raise ConsumerEnded(ended)
                        _raise_end(parameters, filter)
                        if "topic" not in parameters:
                            continue
                        yield _message(parameters)
                        # On the connection that gave it: on another one, the subscription's name means something else.
                        try:
                            await connection.request(
                                "message.ack", {"subscription": subscription, "id": parameters["id"]})
                        except Error as error:
                            # The feed says next how the subscription has ended.
                            if error.code != "unknown-subscription":
                                raise
                finally:
                    connection.leave("subscription", subscription)
            except NotRunning as error:
                self._forgive(error)
            await self._pause()

    async def subscribe(self, session: str, filter: str, *, qos: int = 1) -> AsyncIterator[Message]:
        """Messages from now on. Continues when the daemon is restarted; messages sent meanwhile are missed. What is dropped
        because too much was unread, 16 MiB here and more at the daemon, is logged as a warning of the logger "holdfast".
        A refusal of the filter and the removal of the session are an Error, as for `consume`."""
        while not self._closed:
            try:
                connection = await self._connect()
                answer = await connection.request(
                    "message.subscribe", {"session": session, "filter": filter, "qos": qos}, feed="subscription")
                try:
                    async for parameters in connection.feed(answer["subscription"]):
                        if "topic" in parameters:
                            yield _message(parameters)
                        elif "count" in parameters:
                            _log.warning("%d messages were dropped because too much was unread", parameters["count"])
                        else:
                            _raise_end(parameters, filter)
                finally:
                    connection.leave("subscription", answer["subscription"])
            except NotRunning as error:
                self._forgive(error)
            await self._pause()

    async def watch(self, session: Optional[str] = None) -> AsyncIterator[dict[str, Any]]:
        """First {"event": "snapshot", "sessions": […]}, then every event; another snapshot after each restart."""
        while not self._closed:
            try:
                connection = await self._connect()
                answer = await connection.request("session.watch", {"session": session}, feed="watch")
                try:
                    yield {"event": "snapshot", **answer["snapshot"]}
                    async for event in connection.feed(answer["watch"]):
                        yield event
                finally:
                    connection.leave("watch", answer["watch"])
            except NotRunning as error:
                self._forgive(error)
            await self._pause()

    async def _connect(self) -> _Connection:
        async with self._connecting:
            if self._connection is None or self._connection.ended:
                if self._closed:
                    raise NotRunning("the client was closed")
                try:
                    reader, writer = await asyncio.open_unix_connection(self.path, limit=_LINE_LIMIT)
                except (FileNotFoundError, ConnectionRefusedError) as error:
                    raise _Absent(f"the daemon is not running: nothing listens on {self.path}") from error
                except PermissionError as error:
                    raise _Absent(f"you may not open {self.path}; {_admission(self.path)}") from error
                except OSError as error:
                    raise _Absent(f"the daemon cannot be reached on {self.path}: {error.strerror or error}") from error
                self._connection = connection = _Connection(reader, writer)
                late = asyncio.get_running_loop().call_later(
                    _GREETING_TIME, connection.end, _Absent(f"the daemon does not answer on {self.path}"))
                try:
                    if self._closed:
                        connection.close()
                    await connection.request("rpc.hello", {"client": self.name, "protocol": PROTOCOL})
                except BaseException:
                    connection.close()
                    raise
                finally:
                    late.cancel()
                self._answered = True
            return self._connection

    def _forgive(self, error: NotRunning) -> None:
        """Raises the error of a daemon that was never there. One that was may be restarting."""
        if isinstance(error, _Absent) and not self._answered:
            raise error

    async def _pause(self) -> None:
        if not self._closed:
            await asyncio.sleep(1)


class _Connection:
    """One connection, with its calls and feeds; all of them end with it."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.ended = False
        # Why what the daemon has sent cannot be read.
        self._unreadable: Optional[Error] = None
        self._writer = writer
        # The calls that have no answer yet, each with the member of its result that names a feed, if it makes one, and
        # whether the daemon bounds what it sends for that.
        self._answers: dict[int, tuple[asyncio.Future[Any], Optional[str], bool]] = {}
        self._feeds: dict[str, _Feed] = {}
        self._last = 0
        self._reading = asyncio.create_task(self._read(reader))

    async def request(self, method: str, parameters: dict[str, Any], feed: Optional[str] = None) -> dict[str, Any]:
        if self.ended:
            raise NotRunning(_ENDED)
        answer: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()
        number = self._send(method, parameters)
        self._answers[number] = (answer, feed, parameters.get("consumer") is not None)
        try:
            await self._writer.drain()
            return await answer
        except (BrokenPipeError, ConnectionResetError) as error:
            raise NotRunning(_ENDED) from error
        except asyncio.CancelledError:
            # The answer may have come just before. If it comes later, `_take` leaves the feed.
            if feed is not None and answer.done() and not answer.cancelled() and answer.exception() is None:
                self.leave(feed, answer.result()[feed])
            raise
        finally:
            if not answer.cancel() and not answer.cancelled():
                # Otherwise asyncio logs an exception that came while this was cancelled or could not send.
                answer.exception()

    def _send(self, method: str, parameters: dict[str, Any]) -> int:
        self._last += 1
        given = {name: value for name, value in parameters.items() if value is not None}
        call = {"jsonrpc": "2.0", "id": self._last, "method": method, "params": given}
        # With ensure_ascii, a letter like é would take six bytes.
        line = json.dumps(call, ensure_ascii=False, allow_nan=False).encode()
        if len(line) > _CALL_LIMIT:
            raise Error(f"a call of {method} has {len(line)} bytes, but the maximum is {_CALL_LIMIT}",
                        "invalid-request", "send a larger message in parts")
        self._writer.write(line + b"\n")
        return self._last

    async def feed(self, name: str) -> AsyncIterator[dict[str, Any]]:
        feed = self._feeds[name]
        while True:
            parameters = await feed.take()
            if parameters is None:
                if self._unreadable is not None:
                    raise self._unreadable
                return
            yield parameters
            if feed.dropped:
                dropped, feed.dropped = feed.dropped, 0
                yield {"event": "dropped", "count": dropped}

    def leave(self, member: str, name: str) -> None:
        """Ends a feed, whether or not the daemon still has it. A durable consumer is kept."""
        self._feeds.pop(name, None)
        if self.ended:
            return
        if member == "watch":
            self._send("session.unwatch", {"watch": name})
        else:
            self._send("message.unsubscribe", {"subscription": name, "keep": True})

    def close(self) -> None:
        self._reading.cancel()
        self.end()

    async def _read(self, reader: asyncio.StreamReader) -> None:
        try:
            while line := await reader.readline():
                self._take(json.loads(line), len(line))
        except ConnectionError:
            pass
        except ValueError as error:
            # It would come again on another connection.
            self._unreadable = Error(f"the daemon's answer cannot be read: {error}", "invalid-answer")
        finally:
            self.end(self._unreadable)

    def _take(self, value: dict[str, Any], length: int = 0) -> None:
        if "method" in value:
            parameters = value["params"]
            # In an event, "subscription" is what it is about. A later daemon may have notifications of other kinds.
            member = {"message.received": "subscription", "session.event": "watch"}.get(value["method"])
            feed = None if member is None else self._feeds.get(parameters[member])
            if feed is not None:
                feed.put(parameters, length)
            return
        failure: Optional[Exception] = None
        if "error" in value:
            error = value["error"]
            data = error.get("data") or {}
            failure = Error(
                error["message"], data.get("code"), data.get("hint"), data.get("reasonCode"), data.get("id"))
            if data.get("code") == "shutting-down":
                failure = NotRunning(error["message"])
            if value.get("id") is None:
                # The daemon refuses the connection, or a line of which it cannot tell which call it was.
                self.end(failure)
                return
        answer, member, bounded = self._answers.pop(value["id"], (None, None, False))
        if answer is None:
            return
        if answer.done():
            # It is not awaited any more.
            if member is not None and failure is None:
                self.leave(member, value["result"][member])
            return
        if failure is not None:
            answer.set_exception(failure)
            return
        if member is not None:
            # What follows on the connection may already belong to it.
            self._feeds[value["result"][member]] = _Feed(member, bounded)
        answer.set_result(value["result"])

    def end(self, failure: Optional[Exception] = None) -> None:
        if self.ended:
            return
        self.ended = True
        self._writer.close()
        for answer, _, _ in self._answers.values():
            if not answer.done():
                answer.set_exception(failure or NotRunning(_ENDED))
        self._answers.clear()
        for feed in self._feeds.values():
            feed.end()


class _Feed:
    """What has arrived for a subscription or a watch."""

    #: What a program that does not take it may have waiting, and how many bytes of it, or one line of any length.
    LIMIT = 10_000
    BYTES = 16 * 1024 * 1024

    def __init__(self, member: str, bounded: bool) -> None:
        self.member = member
        #: The daemon bounds what it sends for a durable consumer, of which nothing may be dropped.
        self.bounded = bounded
        self.queue: asyncio.Queue[tuple[Optional[dict[str, Any]], int]] = asyncio.Queue()
        self.bytes = 0
        self.dropped = 0

    def put(self, parameters: dict[str, Any], length: int) -> None:
        room = self.bytes == 0 or self.bytes + length <= self.BYTES
        # For a subscription, there is only one of each.
        single = self.member == "subscription" and parameters.get("event") in ("subscription-changed", "session-removed")
        if self.bounded or single or (self.queue.qsize() < self.LIMIT and room):
            self.queue.put_nowait((parameters, length))
            self.bytes += length
        else:
            self.dropped += 1

    async def take(self) -> Optional[dict[str, Any]]:
        parameters, length = await self.queue.get()
        self.bytes -= length
        return parameters

    def end(self) -> None:
        self.queue.put_nowait((None, 0))


def _raise_end(parameters: dict[str, Any], filter: str) -> None:
    """Raises what ended a subscription: that its session was removed, or the server's refusal of the filter that came after
    the answer to message.subscribe."""
    if parameters.get("event") == "session-removed":
        raise Error(f"session {parameters['session']} was removed from the configuration", "unknown-session")
    if parameters.get("event") != "subscription-changed":
        return
    answer = parameters["subscription"]
    if answer["state"] == "refused":
        what = "there is no" if answer["reasonCode"] is None else "the server refused the"
        raise Error(f'{what} subscription to "{filter}": {answer["message"]}', "subscription-refused",
                    reason_code=answer["reasonCode"])


def _payload(payload: Union[str, bytes]) -> dict[str, str]:
    if isinstance(payload, str):
        if len(payload) <= _LONG_TEXT:
            return {"payload": payload}
        payload = payload.encode()
    return {"payloadBase64": base64.b64encode(payload).decode()}


def _message(parameters: dict[str, Any]) -> Message:
    text = parameters.get("payload")
    payload = base64.b64decode(parameters["payloadBase64"]) if text is None else text.encode()
    return Message(
        parameters["session"], parameters["topic"], payload, parameters["qos"], parameters["retain"],
        parameters["duplicate"], parameters["id"], parameters.get("properties") or {})


def _admission(path: str) -> str:
    """How to be allowed to open a socket."""
    group = "holdfast"
    try:
        number = os.stat(path).st_gid
        if number == 0:
            return "only root may open it"
        group = grp.getgrgid(number).gr_name
    except (OSError, KeyError):
        pass
    return f"join its group with: sudo usermod -aG {group} $USER, then log in again"
