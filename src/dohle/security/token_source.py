"""Where a client gets its tokens of OAUTHBEARER from: settings by the names of several clients.

- A function or an object of the program, which returns one: ``oauth_cb`` as confluent-kafka has it,
  ``sasl_oauth_token_provider`` as kafka-python and aiokafka have it.
- ``sasl.oauthbearer.token.endpoint.url``: ``file:`` with a token in it, or ``https:``, which is
  asked with the client's id and secret (client credentials, RFC 6749, section 4.4).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import urlsplit

from dohle.security.refusal import refusal

URL: Final = "sasl.oauthbearer.token.endpoint.url"
CONFIG: Final = "sasl.oauthbearer.config"
EXTENSIONS: Final = "sasl.oauthbearer.extensions"
_SCOPE: Final = "sasl.oauthbearer.scope"
_ID: Final = ("sasl.oauthbearer.client.credentials.client.id", "sasl.oauthbearer.client.id")
_SECRET: Final = (
    "sasl.oauthbearer.client.credentials.client.secret",
    "sasl.oauthbearer.client.secret",
)
#: The names that librdkafka has and Kafka has not.
OF_LIBRDKAFKA: Final = (CONFIG, EXTENSIONS, _ID[1], _SECRET[1], "sasl.oauthbearer.method")
_EXTENSION: Final = "extension_"


@dataclass(frozen=True, slots=True)
class TokenSource:
    """Where tokens come from: a provider or a place."""

    provider: object = field(default=None, repr=False)
    #: What a provider is told.
    config: str = ""
    url: str = ""
    client_id: str = ""
    client_secret: str = field(default="", repr=False)
    scope: str = ""
    extensions: tuple[tuple[str, str], ...] = ()

    @classmethod
    def of(
        cls, texts: Mapping[str, str], options: Mapping[str, str], provider: object
    ) -> TokenSource:
        """Take settings and the options of a JAAS entry; INVALID_CONFIG if no token can be had."""
        url = texts.get(URL, "").strip()
        if provider is None and not url:
            raise refusal(
                f"OAUTHBEARER needs tokens: set {URL} to file:///PATH or https://…, or oauth_cb to "
                "a function that returns one"
            )
        if provider is None and urlsplit(url).scheme not in ("file", "http", "https"):
            raise refusal(f"{URL} is {url}: it must begin with file:, https: or http:")
        found = cls(
            provider,
            texts.get(CONFIG, ""),
            url,
            _first(texts, _ID) or options.get("clientId", ""),
            _first(texts, _SECRET) or options.get("clientSecret", ""),
            texts.get(_SCOPE) or options.get("scope", ""),
            tuple(_extensions(texts.get(EXTENSIONS, ""), options).items()),
        )
        if provider is None and not url.startswith("file:") and not found.client_id:
            raise refusal(f"{URL} is asked with an id: set {_ID[0]} and {_SECRET[0]}")
        return found


def _first(texts: Mapping[str, str], names: tuple[str, ...]) -> str:
    return next((texts[name] for name in names if name in texts), "")


def _extensions(text: str, options: Mapping[str, str]) -> dict[str, str]:
    found = {
        name.removeprefix(_EXTENSION): value
        for name, value in options.items()
        if name.startswith(_EXTENSION)
    }
    for pair in filter(None, text.split(",")):
        name, equals, value = pair.partition("=")
        if not equals:
            raise refusal(f"{EXTENSIONS}: {pair!r} is not of the form name=value")
        found[name.strip()] = value
    return found
