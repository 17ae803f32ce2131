"""Where the keys come from that sign tokens of OAUTHBEARER: a file or a URL, read again and again.

The place is named in the file that the node starts with, and nowhere else: nobody can make a node
read another. As in Kafka the keys are there before the port opens, they are asked for anew after
``jwks.endpoint.refresh.ms``, and sooner if a token names a key that is not among them.
"""

from __future__ import annotations

import asyncio
import logging
import urllib.error
import urllib.request
from collections.abc import Callable, Hashable
from typing import Final, NamedTuple
from urllib.parse import unquote, urlsplit

from dohle.core.errors import KafkaError
from dohle.core.host import Host, ThreadPool
from dohle.security.bearer_tokens import (
    KEY_ID_LENGTH_MAX,
    BearerToken,
    Jwks,
    TokenRefused,
    TokenTerms,
    UnknownKey,
)
from dohle.security.refusal import refusal
from dohle.security.tls_context import file_stamp

logger = logging.getLogger("dohle.server")

_BYTES_MAX: Final = 1 << 20
_TIMEOUT_S: Final = 10.0
#: For how long the name of a key that was not there makes nobody ask again, and of how many.
_MISSING_S: Final = 60.0
_MISSING_MAX: Final = 16
_MS: Final = 1000


class KeyPlace(NamedTuple):
    """Where keys are, and how often they are asked for."""

    url: str
    refresh_ms: int
    retry_ms: int
    retry_ms_max: int

    @property
    def file(self) -> str | None:
        """The path, if it is a file."""
        parts = urlsplit(self.url)
        return unquote(parts.path) if parts.scheme == "file" else None

    def check(self) -> None:
        """Refuse a place that cannot be one."""
        parts = urlsplit(self.url)
        if parts.scheme not in ("file", "http", "https") or not (parts.netloc or parts.path):
            raise refusal(
                f"sasl.oauthbearer.jwks.endpoint.url is {self.url}: it must begin with file:, "
                "https: or http:"
            )

    def read(self) -> bytes:
        """Read them; an OSError if that fails. It may take long."""
        path = self.file
        if path is not None:
            with open(path, "rb") as file:
                return file.read(_BYTES_MAX)
        opener = urllib.request.build_opener(_NoRedirects)
        with opener.open(self.url, timeout=_TIMEOUT_S) as answer:
            data: bytes = answer.read(_BYTES_MAX)
        return data


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """Reads what is at an address, not what that address points to."""

    def redirect_request(self, *_: object) -> None:
        """Follow nothing: the answer is an error then."""


class KeySource:
    """The keys of one place."""

    def __init__(self, place: KeyPlace, host: Host, threads: ThreadPool) -> None:
        self._place = place
        self._clock = host.clock
        self._threads = threads
        self._keys: Jwks | None = None
        self._stamp: Hashable = None
        self._due_s = 0.0
        self._missing: dict[str, float] = {}
        self._refreshing: asyncio.Task[None] | None = None

    async def prepare(self) -> None:
        """Read the keys for the first time, and try again for a while; KafkaError if it fails."""
        place, waited_ms, pause_ms = self._place, 0, max(self._place.retry_ms, 1)
        while True:
            try:
                return await self._read()
            except OSError as error:
                if place.file is not None or waited_ms + pause_ms > place.retry_ms_max:
                    raise refusal(
                        f"sasl.oauthbearer.jwks.endpoint.url={place.url} cannot be read: "
                        f"{_reason(error)}"
                    ) from None
            await asyncio.sleep(pause_ms / _MS)
            waited_ms, pause_ms = waited_ms + pause_ms, pause_ms * 2

    async def _read(self) -> None:
        place = self._place
        stamp = None if place.file is None else file_stamp(place.file)
        self._due_s = self._clock.monotonic_s() + place.refresh_ms / _MS
        data = await self._threads.run(place.read)
        self._keys, self._stamp = Jwks.parse(data, place.url), stamp

    def look(self) -> None:
        """Ask for the keys again if it is time to, or if the file has changed."""
        path, is_due = self._place.file, self._clock.monotonic_s() >= self._due_s
        if is_due or (path is not None and file_stamp(path) != self._stamp):
            self._refresh()

    def _refresh(self) -> None:
        if self._refreshing is None or self._refreshing.done():
            self._refreshing = asyncio.get_running_loop().create_task(self._read_again())

    async def _read_again(self) -> None:
        try:
            await self._read()
        except (OSError, KafkaError) as error:
            reason = _reason(error) if isinstance(error, OSError) else error.args[0]
            logger.warning("the keys of %s stay as they were: %s", self._place.url, reason)
        else:
            logger.info("the keys of %s were read again", self._place.url)

    def read_token(self, terms: TokenTerms, now_ms: Callable[[], int], token: str) -> BearerToken:
        """Return whose token it is; TokenRefused if it does not count, or not yet."""
        assert self._keys is not None, "they are read before the port opens"
        try:
            return terms.read(token, self._keys, now_ms())
        except UnknownKey as unknown:
            self._miss(unknown.key_id)
            logger.info("a token was refused: %s", unknown)
            raise
        except TokenRefused as refused:
            logger.info("a token was refused: %s", refused)
            raise

    def _miss(self, key_id: str) -> None:
        """Ask for the keys soon: there may be a new one. Guessers do not make many requests."""
        now_s, missing = self._clock.monotonic_s(), self._missing
        if not key_id or len(key_id) > KEY_ID_LENGTH_MAX or missing.get(key_id, 0) > now_s:
            return
        for old in [each for each, until_s in missing.items() if until_s <= now_s]:
            del missing[old]
        if len(missing) < _MISSING_MAX:
            missing[key_id] = now_s + _MISSING_S
            self._refresh()

    def close(self) -> None:
        """Ask no more."""
        if self._refreshing is not None:
            self._refreshing.cancel()


def _reason(error: OSError) -> str:
    if isinstance(error, urllib.error.HTTPError):
        return f"HTTP status {error.code}"
    return error.strerror or str(getattr(error, "reason", error))
