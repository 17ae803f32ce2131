"""What the listeners of a node need to authenticate their clients, made from its configs."""

from __future__ import annotations

import logging
from asyncio import AbstractEventLoop, TimerHandle
from collections.abc import Callable, Hashable, Mapping, Sequence
from functools import partial
from typing import Final, NamedTuple

from dohle.core.config.broker import BROKER_CONFIGS
from dohle.core.config.definition import ConfigValue, ConfigValues
from dohle.core.config.listeners import Listener, SecurityProtocol
from dohle.core.config.of_listener import listener_prefix, listener_values, mechanism_text
from dohle.core.config.static import BrokerConfig
from dohle.core.errors import KafkaError
from dohle.core.host import Host, ThreadPool
from dohle.core.seams import Rng
from dohle.security.bearer_tokens import TokenTerms, need_jwt
from dohle.security.client import PLAINTEXT, WITH_SASL, WITH_TLS, ClientSecurity, SaslAccount
from dohle.security.jaas import PLAIN_MODULE, parse_jaas
from dohle.security.login import MechanismTerms, SaslTerms
from dohle.security.mapping_rules import MappingRules
from dohle.security.mechanism import PLAIN, SaslServer, check_mechanism
from dohle.security.oauthbearer import OAUTHBEARER, OAuthServer
from dohle.security.plain import PlainServer
from dohle.security.refusal import refusal
from dohle.security.scram import MECHANISMS, ScramCredential, ScramMechanism, ScramServer
from dohle.security.tls_context import (
    check_renewal,
    file_stamp,
    own_certificate,
    server_context,
)
from dohle.security.tls_settings import TlsSettings
from dohle.server.jwks import KeyPlace, KeySource
from dohle.server.net.entrance import Entrance, Surroundings, TlsTerms
from dohle.server.net.waiting_room import WaitingRoom

logger = logging.getLogger("dohle.server")

#: Finds what is known of a user.
Credentials = Callable[[ScramMechanism, str], ScramCredential | None]

#: Handshakes at the same time: OpenSSL computes without the interpreter, but not for free.
_THREADS: Final = 2
#: How often files are looked at.
_LOOK_S: Final = 10.0
_JAAS: Final = "sasl.jaas.config"
_SESSION: Final = "connections.max.reauth.ms"
_SECRET_BYTES: Final = 32


class ScramTerms(NamedTuple):
    """What logins by SCRAM need."""

    credentials: Credentials
    rng: Rng
    #: A secret of this node, for the salts of users that do not exist.
    made_up_key: bytes

    def begin(self, mechanism: ScramMechanism) -> ScramServer:
        """Begin a login."""
        find = partial(self.credentials, mechanism)
        return ScramServer(mechanism, find, self.rng, self.made_up_key)


class LoginSources(NamedTuple):
    """Where logins find who exists."""

    scram: ScramTerms
    #: The keys of tokens, by their place.
    keys: Mapping[KeyPlace, KeySource]
    now_ms: Callable[[], int]


class _Made(NamedTuple):
    """An entrance, and what it was made from."""

    listener: Listener
    entrance: Entrance
    stamp: Hashable


class Entrances:
    """Makes the entrances of a node's listeners, and makes them anew if certificates are renewed.

    Kafka looks at the files only when a config is altered; here they are looked at again and again.
    """

    def __init__(
        self,
        loop: AbstractEventLoop,
        host: Host,
        config: BrokerConfig,
        texts: Callable[[], Mapping[str, str]],
        credentials: Credentials,
    ) -> None:
        """``texts`` are the settings in force, as given."""
        self._loop = loop
        self._host = host
        self._config = config
        self._texts = texts
        self._credentials = credentials
        self._around: Surroundings | None = None
        self._made: dict[str, _Made] = {}
        #: For the salts of users that do not exist: they stay the same at all listeners and
        #: after changes of settings, as the salts of real users do.
        self._made_up_key = b""
        self._timer: TimerHandle | None = None
        self._keys: dict[KeyPlace, KeySource] = {}
        self._key_threads: ThreadPool | None = None

    async def prepare(self, listeners: Sequence[Listener]) -> None:
        """Read what is on other machines, before ports open; INVALID_CONFIG if that fails."""
        for listener in listeners:
            if listener.protocol not in WITH_SASL:
                continue
            values = listener_values(self._config.texts, listener.name, listener.protocol)
            if OAUTHBEARER not in values.get_list("sasl.enabled.mechanisms"):
                continue
            need_jwt()
            place = key_place(self._config.texts, listener.name)
            if place in self._keys:
                continue
            if self._key_threads is None:
                self._key_threads = self._host.thread_pool(1, "dohle-jwks", may_hang=True)
            source = KeySource(place, self._host, self._key_threads)
            await source.prepare()
            self._keys[place] = source

    def make(self, listener: Listener) -> Entrance | None:
        """Return the entrance of a listener; None if everybody is let in."""
        if listener.protocol is SecurityProtocol.PLAINTEXT:
            return None
        room = WaitingRoom(
            self._loop,
            self._config.get_int("connections.login.timeout.ms") / 1000,
            self._config.get_int("connections.login.max"),
        )
        if self._around is None:
            threads = self._host.thread_pool(_THREADS, "dohle-tls")
            self._around = Surroundings.of(self._loop, threads)
            self._timer = self._loop.call_later(_LOOK_S, self._look)
        texts = self._texts()
        try:
            tls, sasl = self._terms(listener, texts)
        except KafkaError as error:
            # What was altered while the node ran must not keep it from starting.
            tls, sasl = self._terms(listener, self._config.texts)
            logger.error(
                "altered settings are not used, those of the file are: %s. Correct them with"
                " dohle config alter.",
                error.args[0],
            )
        made = Entrance(self._around, room, tls, sasl)
        self._made[listener.name] = _Made(listener, made, _stamp(listener, texts))
        return made

    def _terms(
        self, listener: Listener, texts: Mapping[str, str]
    ) -> tuple[TlsTerms | None, SaslTerms | None]:
        protocol = listener.protocol
        try:
            values = listener_values(texts, listener.name, protocol)
            tls = tls_terms(values) if protocol in WITH_TLS else None
            sasl = None
            if protocol in WITH_SASL:
                rng = self._host.rng
                self._made_up_key = self._made_up_key or rng.randbytes(_SECRET_BYTES)
                scram = ScramTerms(self._credentials, rng, self._made_up_key)
                sources = LoginSources(scram, self._keys, self._host.clock.now_ms)
                sasl = sasl_terms(texts, listener.name, values, sources)
        except KafkaError as error:
            raise refusal(
                f"listener {listener.name}: {error.args[0]} (configs of this listener alone begin "
                f"with {listener_prefix(listener.name)})"
            ) from None
        return tls, sasl

    def check(self, texts: Mapping[str, str]) -> None:
        """Refuse settings that a listener could not work with; they are not in force yet."""
        for made in self._made.values():
            if _stamp(made.listener, texts) != made.stamp:
                self._renewed(made, texts)

    def renew(self) -> None:
        """Let new settings and new files take effect, for whoever connects from now on."""
        texts = self._texts()
        for name, made in self._made.items():
            stamp = _stamp(made.listener, texts)
            if stamp == made.stamp:
                continue
            self._made[name] = made._replace(stamp=stamp)
            try:
                tls, sasl = self._renewed(made, texts)
            except KafkaError as error:
                logger.error(
                    "new security settings are not used, the old ones stay in force: %s",
                    error.args[0],
                )
                continue
            made.entrance.tls, made.entrance.sasl = tls, sasl
            logger.info("listener %s: the new certificates and users are in force", name)

    def _renewed(
        self, made: _Made, texts: Mapping[str, str]
    ) -> tuple[TlsTerms | None, SaslTerms | None]:
        tls, sasl = self._terms(made.listener, texts)
        if tls is not None and made.entrance.tls is not None:
            check_renewal(
                made.entrance.tls.certificate,
                tls.certificate,
                may_change_name=self._config.get_bool("ssl.allow.dn.changes"),
                may_lose_names=self._config.get_bool("ssl.allow.san.changes"),
            )
        return tls, sasl

    def _look(self) -> None:
        self._timer = self._loop.call_later(_LOOK_S, self._look)
        self.renew()
        for source in self._keys.values():
            source.look()

    def close(self) -> None:
        """Let the threads go."""
        for source in self._keys.values():
            source.close()
        if self._key_threads is not None:
            self._key_threads.close()
        if self._timer is not None:
            self._timer.cancel()
        if self._around is not None:
            self._around.threads.close()


def _stamp(listener: Listener, texts: Mapping[str, str]) -> Hashable:
    """Return what an entrance depends on, in a form that shows whether that has changed."""
    own = listener_prefix(listener.name)
    given = [(name, text) for name, text in texts.items() if _is_about(name, own)]
    files = [
        file_stamp(text)
        for name, text in given
        if name.endswith((".keystore.location", ".truststore.location"))
    ]
    return tuple(given), tuple(files)


def _is_about(name: str, own: str) -> bool:
    if name.startswith("listener.name."):
        return name.startswith(own)
    return name.startswith("ssl.") or "sasl." in name or "connections.max.reauth" in name


def tls_terms(values: ConfigValues) -> TlsTerms:
    """Return how TLS is spoken at a listener."""
    settings = TlsSettings.of(values)
    return TlsTerms(
        server_context(settings),
        MappingRules.parse(values.get_str("ssl.principal.mapping.rules")),
        own_certificate(settings),
    )


def sasl_terms(
    texts: Mapping[str, str],
    listener: str,
    values: ConfigValues,
    sources: LoginSources,
) -> SaslTerms:
    """Return how clients log in at a listener."""
    names = values.get_list("sasl.enabled.mechanisms")
    if not names:
        raise refusal("sasl.enabled.mechanisms is empty: nobody could log in")
    mechanisms = {}
    for name in names:
        check_mechanism(name)
        begin: Callable[[], SaslServer]
        if name == PLAIN:
            begin = partial(PlainServer, plain_users(texts, listener))
        elif name == OAUTHBEARER:
            begin = _oauth(texts, listener, sources)
        else:
            begin = partial(sources.scram.begin, MECHANISMS[name])
        mechanisms[name] = MechanismTerms(begin, _session_ms(texts, listener, name))
    return SaslTerms(
        mechanisms,
        values.get_int("connection.failed.authentication.delay.ms"),
        values.get_int("sasl.server.max.receive.size"),
    )


def plain_users(texts: Mapping[str, str], listener: str) -> dict[str, str]:
    """Return the users of PLAIN on a listener, with their passwords."""
    where, text = mechanism_text(texts, listener, PLAIN, _JAAS)
    if text is None:
        raise refusal(f'PLAIN needs users: set {where} to {PLAIN_MODULE} required user_NAME="…";')
    jaas = parse_jaas(text, where)
    if jaas.module != PLAIN_MODULE:
        raise refusal(f"{where}: the login module of PLAIN is {PLAIN_MODULE}")
    return jaas.users


def _oauth(
    texts: Mapping[str, str], listener: str, sources: LoginSources
) -> Callable[[], SaslServer]:
    source = sources.keys.get(key_place(texts, listener))
    if source is None:
        raise refusal("the place of the JWKS cannot be altered while the node runs")
    terms = TokenTerms(
        issuer=_oauth_text(texts, listener, "expected.issuer"),
        audience=tuple(_oauth_list(texts, listener, "expected.audience")),
        skew_s=_oauth_int(texts, listener, "clock.skew.seconds"),
        subject_claim=_oauth_text(texts, listener, "sub.claim.name") or "sub",
        scope_claim=_oauth_text(texts, listener, "scope.claim.name") or "scope",
    )
    read = partial(source.read_token, terms, sources.now_ms)
    return partial(OAuthServer, read, sources.now_ms)


def key_place(texts: Mapping[str, str], listener: str) -> KeyPlace:
    """Return where the keys of tokens are; INVALID_CONFIG if that is not said.

    Kafka takes tokens that nobody has signed, then.
    """
    url = _oauth_text(texts, listener, "jwks.endpoint.url")
    if not url:
        raise refusal(
            "OAUTHBEARER needs the keys that tokens are signed with: set "
            "sasl.oauthbearer.jwks.endpoint.url to file:///PATH or https://… of a JWKS"
        )
    place = KeyPlace(
        url,
        _oauth_int(texts, listener, "jwks.endpoint.refresh.ms"),
        _oauth_int(texts, listener, "jwks.endpoint.retry.backoff.ms"),
        _oauth_int(texts, listener, "jwks.endpoint.retry.backoff.max.ms"),
    )
    place.check()
    return place


def _oauth_value(texts: Mapping[str, str], listener: str, name: str) -> ConfigValue:
    key = BROKER_CONFIGS[f"sasl.oauthbearer.{name}"]
    _, text = mechanism_text(texts, listener, OAUTHBEARER, key.name)
    return key.default if text is None else key.parse(text)


def _oauth_text(texts: Mapping[str, str], listener: str, name: str) -> str | None:
    found = _oauth_value(texts, listener, name)
    return None if found is None else str(found)


def _oauth_int(texts: Mapping[str, str], listener: str, name: str) -> int:
    found = _oauth_value(texts, listener, name)
    assert isinstance(found, int), "that is its type"
    return found


def _oauth_list(texts: Mapping[str, str], listener: str, name: str) -> tuple[str, ...]:
    found = _oauth_value(texts, listener, name)
    assert isinstance(found, tuple), "that is its type"
    return found


def _session_ms(texts: Mapping[str, str], listener: str, mechanism: str) -> int:
    _, text = mechanism_text(texts, listener, mechanism, _SESSION)
    found = 0 if text is None else BROKER_CONFIGS[_SESSION].parse(text)
    assert isinstance(found, int), "that is its type"
    return found


# Between nodes


def inter_broker_security(config: BrokerConfig) -> ClientSecurity:
    """Return how this node authenticates to other brokers."""
    placement = config.placement
    return _link_security(
        config,
        placement.inter_broker_listener_name,
        placement.inter_broker_protocol,
        "sasl.mechanism.inter.broker.protocol",
    )


def controller_security(config: BrokerConfig) -> ClientSecurity:
    """Return how this node authenticates to controllers."""
    placement = config.placement
    first = next(iter(placement.controller_listener_names), "")
    return _link_security(
        config, first, placement.controller_protocol, "sasl.mechanism.controller.protocol"
    )


def _link_security(
    config: BrokerConfig, listener: str, protocol: SecurityProtocol, mechanism_config: str
) -> ClientSecurity:
    if protocol is SecurityProtocol.PLAINTEXT:
        return PLAINTEXT
    texts, account = config.texts, None
    mechanism = config.get_str(mechanism_config)
    # A node that is alone need not log in anywhere; where it tries to, it is told what is missing.
    if protocol in WITH_SASL and (mechanism_config in texts or not config.placement.is_alone):
        try:
            account = SaslAccount.of(
                mechanism,
                mechanism_text(texts, listener, mechanism, _JAAS)[1],
                _JAAS,
                _of_mechanism(texts, listener, mechanism),
            )
        except KafkaError as error:
            raise refusal(
                f"{mechanism_config}={mechanism}: {error.args[0]} (see "
                f"{mechanism_text(texts, listener, mechanism, _JAAS)[0]})"
            ) from None
    return ClientSecurity.of(protocol, listener_values(texts, listener, protocol), account)


def _of_mechanism(texts: Mapping[str, str], listener: str, mechanism: str) -> dict[str, str]:
    """Return where this node gets its own tokens from, by the names that clients have for that."""
    found = {}
    for name in BROKER_CONFIGS:
        if name.startswith("sasl.oauthbearer."):
            _, text = mechanism_text(texts, listener, mechanism, name)
            if text is not None:
                found[name] = text
    return found
