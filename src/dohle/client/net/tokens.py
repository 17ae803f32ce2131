"""Getting a token of OAUTHBEARER, from the program, a file or an authorization server."""

from __future__ import annotations

import base64
import inspect
import json
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final, NamedTuple
from urllib.parse import quote_plus, unquote, urlencode, urlsplit

from dohle.core.host import Host
from dohle.security.mechanism import SaslRefused
from dohle.security.token_source import TokenSource

_BYTES_MAX: Final = 1 << 20
_TIMEOUT_S: Final = 10.0
#: Where confluent-kafka's callbacks have the extensions in what they return.
_EXTENSIONS_AT: Final = 3


class Token(NamedTuple):
    """A token, and what is sent beside it."""

    text: str
    extensions: Mapping[str, str]


async def get_token(source: TokenSource, host: Host) -> Token:
    """Return a token; SaslRefused with the reason if there is none to be had."""
    own = dict(source.extensions)
    if source.provider is not None:
        return await _ask(source.provider, source.config, own, host)
    try:
        text = await host.run_in_thread(partial(_read, source))
    except OSError as error:
        raise SaslRefused(f"no token from {source.url}: {_reason(error)}") from None
    return Token(text, own)


async def _ask(provider: Any, config: str, own: dict[str, str], host: Host) -> Token:
    """Ask an object with ``token()`` or a function; either may be one to await."""
    work: Callable[[], Any]
    work = provider.token if hasattr(provider, "token") else partial(provider, config)
    called = getattr(provider, "token", provider)
    # What blocks is for a thread; what is awaited belongs to the loop.
    found = work() if inspect.iscoroutinefunction(called) else await host.run_in_thread(work)
    if inspect.isawaitable(found):
        found = await found
    if isinstance(found, tuple):
        if len(found) > _EXTENSIONS_AT:
            own |= found[_EXTENSIONS_AT] or {}
        found = found[0]
    if not isinstance(found, str):
        raise SaslRefused("what was to return a token has returned something else")
    return Token(found, own)


def _read(source: TokenSource) -> str:
    """Read a file or ask a server; an OSError if that fails."""
    if source.url.startswith("file:"):
        with open(unquote(urlsplit(source.url).path), encoding="utf-8") as file:
            return file.read(_BYTES_MAX).strip()
    fields = {"grant_type": "client_credentials"}
    if source.scope:
        fields["scope"] = source.scope
    # RFC 6749, section 2.3.1: both are encoded as in a form, and then as in Basic.
    pair = f"{quote_plus(source.client_id)}:{quote_plus(source.client_secret)}"
    asked = urllib.request.Request(
        source.url,
        data=urlencode(fields).encode(),
        headers={
            "Authorization": "Basic " + base64.b64encode(pair.encode()).decode(),
            "Accept": "application/json",
        },
    )
    with urllib.request.urlopen(asked, timeout=_TIMEOUT_S) as answer:
        data = answer.read(_BYTES_MAX)
    try:
        found = json.loads(data)["access_token"]
    except (ValueError, TypeError, KeyError):
        raise OSError(None, "there is no access_token in the answer") from None
    return str(found)


def _reason(error: OSError) -> str:
    if isinstance(error, urllib.error.HTTPError):
        return f"HTTP status {error.code}"
    return error.strerror or str(getattr(error, "reason", error))
