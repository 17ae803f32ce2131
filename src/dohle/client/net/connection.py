"""One connection to one broker: requests out, their responses in, in the same order.

Rules it keeps:

- A connection is usable once the broker has sent its API versions; each request is then sent in the
  highest version that both sides know.
- Requests are pipelined, up to a limit; a broker answers them in order, and a response to anything
  but the oldest request ends the connection.
- Requests made within one turn of the loop are sent in one write.
- A request without a response in time ends the connection, since nothing after it can be answered
  either. All waiting callers are told why.
- A cancelled caller's request keeps its place in the order; the late response is dropped.
"""

from __future__ import annotations

import asyncio
import os
import re
import socket
import ssl
from collections import deque
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NewType, TypeVar

from dohle import __version__
from dohle.client.config import ClientConfig
from dohle.client.errors import (
    AuthenticationFailed,
    ConnectionClosed,
    TimedOut,
    answered_error,
)
from dohle.client.net.addresses import Address
from dohle.client.net.frames import FrameProtocol
from dohle.client.net.versions import BrokerVersions, api_versions_refused
from dohle.core.errors import KafkaError
from dohle.core.host import Host
from dohle.protocol.apis import ApiKey, find_api
from dohle.protocol.errors import MalformedMessage
from dohle.protocol.framing import encode_request, parse_response_header
from dohle.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from dohle.protocol.schema import Buffer, Records, Request, Response, VersionRange
from dohle.security.client import WITH_SASL

if TYPE_CHECKING:
    from dohle.client.net.login import Login

_Answer = TypeVar("_Answer", bound=Response)

#: Which of several connections to a broker.
Channel = NewType("Channel", str)
SHARED = Channel("shared")

_CORRELATION_ID_MAX = 2**31 - 1
_CLOSE_TIMEOUT_S = 5
#: How much of a session is used before the next begins, as Java's clients do (0.85 to 0.95).
_SESSION_USED = 0.9
_ERRNO = re.compile(r"\[Errno (\d+)\]")


@dataclass(slots=True)
class _Waiting:
    """A request that has left and has no answer yet."""

    api_key: int
    version: int
    correlation_id: int
    answer: asyncio.Future[tuple[Buffer, int]]
    timer: asyncio.TimerHandle


class Connection:
    """A connection that is open and negotiated; :meth:`open` makes it."""

    def __init__(self, address: Address, config: ClientConfig) -> None:
        self.address = address
        self._config = config
        self._loop = asyncio.get_running_loop()
        self._protocol = FrameProtocol(
            self._on_frame, self._on_lost, config.response_bytes_max, config.response_bytes_kept
        )
        self._waiting: deque[_Waiting] = deque()
        self._slots = asyncio.Semaphore(config.in_flight_requests_max)
        self._out: list[Records] = []
        self._next_correlation_id = 0
        #: The number of the first request after the connection was set up.
        self._first_correlation_id = 0
        self._closed_by: KafkaError | None = None
        self._versions = BrokerVersions(str(address), ())
        self._login: Login | None = None
        self._logging_in = asyncio.Lock()
        #: When to log in again, if the session has an end.
        self._again_s: float | None = None

    @classmethod
    async def open(cls, address: Address, config: ClientConfig, host: Host) -> Connection:
        """Connect and ask the broker for its versions; a failure is a KafkaError."""
        self = cls(address, config)
        timeout_s = config.socket_connection_setup_timeout_ms / 1000
        try:
            async with asyncio.timeout(timeout_s):
                await host.connect(lambda: self._protocol, *address, config.security.context)
        except TimeoutError:
            raise ConnectionClosed(f"no connection to {address} within {timeout_s:g} s") from None
        except ssl.SSLError as error:
            raise _tls_failed(address, error) from None
        except OSError as error:
            text = f"no connection to {address}: {_reason(error)}"
            if isinstance(error, ConnectionResetError) and config.security.context is not None:
                text += " during the TLS handshake: is it a listener with TLS?"
            raise ConnectionClosed(text) from None
        try:
            self._versions = BrokerVersions(str(address), (await self.ask_versions()).api_keys)
            if config.security.protocol in WITH_SASL:
                # Most clients do not log in, and start quicker without.
                from dohle.client.net.login import Login

                self._login = Login(str(address), config.security.account, host, self._ask_at_once)
                await self._log_in()
        except BaseException:
            await self.close()
            raise
        self._first_correlation_id = self._next_correlation_id
        return self

    async def _log_in(self) -> None:
        """Say who this client is, and remember when to do so again (KIP-368)."""
        assert self._login is not None, "the listener is one with SASL"
        session_ms = await self._login.run()
        self._again_s = None
        if session_ms > 0:
            self._again_s = self._loop.time() + session_ms / 1000 * _SESSION_USED

    async def _keep_session(self) -> None:
        """Log in again if it is time to; whoever has something to ask waits for that."""
        async with self._logging_in:
            if self._again_s is None or self._loop.time() < self._again_s or self.is_closed:
                return
            try:
                await self._log_in()
            except KafkaError as error:
                self._end(error)

    async def _ask_at_once(self, message: Request, answer: type[_Answer]) -> _Answer:
        """Ask what belongs to the login, before anything that waits for it."""
        version = self.version_of(type(message))
        await self._slots.acquire()
        try:
            if self._closed_by is not None:
                raise self._closed_by
            waiting = self._enqueue(message, version, None)
        except BaseException:
            self._slots.release()
            raise
        frame, body = await waiting.answer
        return self.decode(answer, version, frame, body)

    @property
    def is_closed(self) -> bool:
        """Whether nothing can be sent any more."""
        return self._closed_by is not None

    @property
    def in_flight_requests(self) -> int:
        """How many requests wait for their answers."""
        return len(self._waiting)

    def served_range(self, api_key: int) -> VersionRange:
        """Return the versions of an API that the broker serves; an empty range if it has none."""
        return self._versions.served_range(api_key)

    def serves(self, request: type[Request]) -> bool:
        """Tell whether the broker knows this request in a version that is known here."""
        return self._versions.serves(request)

    def version_of(self, request: type[Request], version_max: int | None = None) -> int:
        """Return the version in which this request is sent, or raise UnsupportedVersion."""
        return self._versions.choose(request, version_max)

    async def request(
        self,
        message: Request,
        answer: type[_Answer],
        *,
        timeout_ms: int | None = None,
        version_max: int | None = None,
    ) -> _Answer:
        """Send a request and wait for its answer, by default for ``request_timeout_ms``.

        ``version_max`` is for requests whose newer versions mean something else.
        """
        return await (
            await self.send(message, answer, timeout_ms=timeout_ms, version_max=version_max)
        )

    async def send(
        self,
        message: Request,
        answer: type[_Answer],
        *,
        timeout_ms: int | None = None,
        version_max: int | None = None,
    ) -> Coroutine[Any, Any, _Answer]:
        """Send a request as soon as there is room for it, and return the answer to wait for.

        Requests leave in the order of the calls if each call is awaited before the next.
        """
        version = self.version_of(type(message), version_max)
        waiting = await self._begin(message, version, timeout_ms)

        async def answered() -> _Answer:
            frame, body = await waiting.answer
            return self.decode(answer, version, frame, body)

        return answered()

    async def exchange(
        self, api_key: int, version: int, frame_for: Callable[[int], bytes]
    ) -> tuple[Buffer, int]:
        """Send a request that its caller frames for a correlation id, at once.

        Returns the frame of the answer, and where its body begins; ``decode`` reads it.
        """
        await self._room()
        try:
            correlation_id = self._next_correlation_id
            self._out.append(frame_for(correlation_id))
            self._next_correlation_id = correlation_id + 1 & _CORRELATION_ID_MAX
            waiting = self._expect(
                api_key, version, correlation_id, self._config.request_timeout_ms
            )
        except BaseException:
            self._slots.release()
            raise
        self._flush()
        return await waiting.answer

    async def post(self, message: Request) -> None:
        """Send a request that has no answer: Produce with acks 0."""
        version = self.version_of(type(message))
        await self._room()
        try:
            self._write(message, version)
        finally:
            self._slots.release()

    async def ask_versions(self) -> ApiVersionsResponse:
        """Ask for the broker's versions and features, in the best version that it understands."""
        request = ApiVersionsRequest(
            client_software_name="dohle", client_software_version=__version__
        )
        version: int | None = ApiVersionsRequest.VERSIONS.highest
        for _ in range(2):
            assert version is not None
            frame, body = await (await self._begin(request, version, None)).answer
            asked, version = version, api_versions_refused(memoryview(frame)[body:])
            if version is None:
                found = self.decode(ApiVersionsResponse, asked, frame, body)
                if found.error_code:
                    raise answered_error(found.error_code, f"{self.address} refused ApiVersions")
                return found
        raise ConnectionClosed(f"{self.address} refused even the version of ApiVersions it named")

    async def close(self) -> None:
        """Send what was written, close, and wait until the connection is gone."""
        self._flush()
        self._end(ConnectionClosed(f"{self.address}: the connection was closed"), abort=False)
        try:
            async with asyncio.timeout(_CLOSE_TIMEOUT_S):
                await self._protocol.lost.wait()
        except TimeoutError:
            self._protocol.transport.abort()
            await self._protocol.lost.wait()

    def decode(self, answer: type[_Answer], version: int, frame: Buffer, body: int) -> _Answer:
        """Read an answer whose body is at this place; the connection ends if that fails."""
        try:
            # Like Kafka's own clients, do not mind bytes behind the end of an answer.
            message, _ = answer.decode(version, frame, body)
        except MalformedMessage as error:
            closed = ConnectionClosed(
                f"{self.address} sent a {answer.__name__} that cannot be read: {error}"
            )
            self._end(closed)
            raise closed from None
        return message

    async def _begin(self, message: Request, version: int, timeout_ms: int | None) -> _Waiting:
        """Send the request once there is room."""
        await self._room()
        try:
            return self._enqueue(message, version, timeout_ms)
        except BaseException:
            self._slots.release()
            raise

    def _enqueue(self, message: Request, version: int, timeout_ms: int | None) -> _Waiting:
        if timeout_ms is None:
            timeout_ms = self._config.request_timeout_ms
        return self._expect(message.API_KEY, version, self._write(message, version), timeout_ms)

    def _expect(self, api_key: int, version: int, correlation_id: int, timeout_ms: int) -> _Waiting:
        waiting = _Waiting(
            api_key,
            version,
            correlation_id,
            self._loop.create_future(),
            self._loop.call_later(timeout_ms / 1000, self._on_timeout, correlation_id, timeout_ms),
        )
        self._waiting.append(waiting)
        return waiting

    async def _room(self) -> None:
        """Wait until another request may be written, and take its place."""
        if self._again_s is not None:
            await self._keep_session()
        if self._slots.locked() or not self._protocol.writable.is_set():
            try:
                async with asyncio.timeout(self._config.request_timeout_ms / 1000):
                    await self._protocol.writable.wait()
                    await self._slots.acquire()
            except TimeoutError:
                raise TimedOut(f"{self.address} took no further request in time") from None
        else:
            await self._slots.acquire()
        if self._logging_in.locked():
            # It began while this request waited for its place.
            self._slots.release()
            await self._room()
        elif self._closed_by is not None:
            self._slots.release()
            raise self._closed_by

    def _write(self, message: Request, version: int) -> int:
        """Queue the frame of a request and return its correlation id."""
        correlation_id = self._next_correlation_id
        chunks = encode_request(message, version, correlation_id, self._config.client_id)
        self._next_correlation_id = correlation_id + 1 & _CORRELATION_ID_MAX
        if not self._out:
            self._loop.call_soon(self._flush)
        self._out += chunks
        return correlation_id

    def _flush(self) -> None:
        if self._out and self._closed_by is None:
            self._protocol.transport.writelines(self._out)
        self._out = []

    def _on_frame(self, frame: Buffer) -> None:
        if self._closed_by is not None:
            return
        if not self._waiting:
            self._end(ConnectionClosed(f"{self.address} answered what nobody asked"))
            return
        waiting = self._waiting[0]
        try:
            correlation_id, body = parse_response_header(waiting.api_key, waiting.version, frame)
        except MalformedMessage as error:
            self._end(ConnectionClosed(f"{self.address} sent nonsense: {error}"))
            return
        if correlation_id != waiting.correlation_id:
            self._end(
                ConnectionClosed(
                    f"{self.address} answered request {correlation_id} when "
                    f"{waiting.correlation_id} was due"
                )
            )
            return
        self._waiting.popleft()
        self._slots.release()
        waiting.timer.cancel()
        if not waiting.answer.done():
            waiting.answer.set_result((frame, body))

    def _on_timeout(self, correlation_id: int, timeout_ms: int) -> None:
        for waiting in self._waiting:
            if waiting.correlation_id == correlation_id and not waiting.answer.done():
                name = find_api(waiting.api_key).name
                waiting.answer.set_exception(
                    TimedOut(f"{self.address} did not answer {name} within {timeout_ms} ms")
                )
        self._end(
            ConnectionClosed(f"{self.address} was silent for {timeout_ms} ms; connection given up")
        )

    def _on_lost(self, error: Exception | None) -> None:
        if error is None:
            text = f"{self.address} closed the connection"
            if self._waiting and self._waiting[0].api_key == ApiKey.API_VERSIONS:
                text += " when asked for its versions: is it a Kafka listener without TLS?"
            elif self._waiting and self._waiting[0].correlation_id == self._first_correlation_id:
                text += (
                    " at the first request: is it a listener with SASL, where one has to log in?"
                )
        elif isinstance(error, ssl.SSLError):
            # With TLS 1.3 a broker refuses a certificate when the client believes to be connected.
            self._end(_tls_failed(self.address, error))
            return
        else:
            text = f"the connection to {self.address} broke: {_reason(error)}"
        self._end(ConnectionClosed(text))

    def _end(self, error: KafkaError, *, abort: bool = True) -> None:
        """Close for this reason, unless that was done before, and tell all that wait.

        Without ``abort`` the peer still gets what was written.
        """
        if self._closed_by is not None:
            return
        self._closed_by = error
        waiting, self._waiting = self._waiting, deque()
        for each in waiting:
            each.timer.cancel()
            self._slots.release()
            if not each.answer.done():
                each.answer.set_exception(error)
        self._protocol.writable.set()
        transport = self._protocol.transport
        transport.abort() if abort else transport.close()


def _tls_failed(address: Address, error: ssl.SSLError) -> KafkaError:
    """Return the error for a failure of TLS; a certificate that is refused once stays refused."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return AuthenticationFailed(
            f"the certificate of {address} is not accepted: {error.verify_message}"
        )
    words = (error.reason or str(error)).lower().replace("_", " ")
    if "alert" in words:
        return AuthenticationFailed(f"{address} refused the TLS handshake: {words}")
    hint = ": is it a listener without TLS?" if "version number" in words else ""
    return ConnectionClosed(f"no TLS connection to {address}: {words}{hint}")


def _reason(error: Exception) -> str:
    """Say what happened in the system's words, without its numbers."""
    if isinstance(error, OSError) and not isinstance(error, socket.gaierror):
        # A host with several addresses fails with one text for all of them, if with one reason.
        numbers = {error.errno} if error.errno else set(map(int, _ERRNO.findall(str(error))))
        if len(numbers) == 1:
            return os.strerror(numbers.pop())
    return (isinstance(error, OSError) and error.strerror) or str(error) or type(error).__name__
