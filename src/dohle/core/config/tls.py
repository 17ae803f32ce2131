"""The broker configs of TLS; ``listener.name.<name>.<config>`` sets one for one listener."""

from __future__ import annotations

from typing import Final

from dohle.core.config.definition import (
    ConfigKey,
    ConfigType,
    ConfigValue,
    ListOf,
    OneOf,
    Range,
    UpdateMode,
    Validator,
)

_PER_BROKER: Final = UpdateMode.PER_BROKER


def _row(
    name: str,
    type_: ConfigType,
    default: ConfigValue,
    doc: str,
    limits: Validator | None = None,
    update_mode: UpdateMode = _PER_BROKER,
) -> ConfigKey:
    is_sensitive = type_ is ConfigType.PASSWORD
    return ConfigKey(name, type_, default, doc, limits, update_mode, is_sensitive)


_BOOLEAN, _STRING = ConfigType.BOOLEAN, ConfigType.STRING
_LIST, _PASSWORD = ConfigType.LIST, ConfigType.PASSWORD
_STORE_TYPE: Final = (
    "PEM, PKCS12 (needs dohle[tls]) or JKS. A file of Java's own JKS format is refused with the "
    "command that converts it."
)

SASL_CONFIGS: Final[tuple[ConfigKey, ...]] = (
    _row(
        "connection.failed.authentication.delay.ms",
        ConfigType.INT,
        100,
        "How long a client that has not proven who it is waits before it is told and the "
        "connection closed.",
        Range(0),
        UpdateMode.READ_ONLY,
    ),
    _row(
        "connections.max.reauth.ms",
        ConfigType.LONG,
        0,
        "How long a login by SASL is good for: then the client has to log in again, on the same "
        "connection, or is cut off. 0: for ever. It may be set for a mechanism.",
        update_mode=UpdateMode.READ_ONLY,
    ),
    _row(
        "sasl.enabled.mechanisms",
        _LIST,
        ("GSSAPI",),
        "How clients may log in: PLAIN, SCRAM-SHA-256, SCRAM-SHA-512, OAUTHBEARER. Kafka's "
        "default, GSSAPI, is not served: a listener with SASL needs another value.",
        ListOf(may_be_empty=True),
    ),
    _row(
        "sasl.jaas.config",
        _PASSWORD,
        None,
        "The users of a mechanism, and this node's own user and password. If not set, there are "
        "none. As in Kafka it has effect with the prefix of a mechanism, "
        "listener.name.<listener>.<mechanism>.sasl.jaas.config.",
    ),
    _row(
        "sasl.mechanism.controller.protocol",
        _STRING,
        "GSSAPI",
        "How this node logs in at controllers.",
        update_mode=UpdateMode.READ_ONLY,
    ),
    _row(
        "sasl.mechanism.inter.broker.protocol",
        _STRING,
        "GSSAPI",
        "How this node logs in at other brokers.",
    ),
    _row(
        "sasl.server.max.receive.size",
        ConfigType.INT,
        524_288,
        "The largest request of a client that has not logged in yet.",
        update_mode=UpdateMode.READ_ONLY,
    ),
)

OAUTH_CONFIGS: Final[tuple[ConfigKey, ...]] = (
    _row(
        "sasl.oauthbearer.clock.skew.seconds",
        ConfigType.INT,
        30,
        "How far the clock of whoever has signed a token may differ from this one.",
        update_mode=UpdateMode.READ_ONLY,
    ),
    _row(
        "sasl.oauthbearer.expected.audience",
        _LIST,
        (),
        "Whom a token must be for: one of these. If empty, tokens that are for somebody are "
        "refused.",
        ListOf(may_be_empty=True),
        UpdateMode.READ_ONLY,
    ),
    _row(
        "sasl.oauthbearer.expected.issuer",
        _STRING,
        None,
        "Who must have issued a token. If not set, anybody whose key is in the JWKS.",
        update_mode=UpdateMode.READ_ONLY,
    ),
    _row(
        "sasl.oauthbearer.jwks.endpoint.refresh.ms",
        ConfigType.LONG,
        3_600_000,
        "How often the keys are read again. A file is also read when it has changed.",
        update_mode=UpdateMode.READ_ONLY,
    ),
    _row(
        "sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms",
        ConfigType.LONG,
        10_000,
        "For how long it is tried to read the keys when the node starts.",
        update_mode=UpdateMode.READ_ONLY,
    ),
    _row(
        "sasl.oauthbearer.jwks.endpoint.retry.backoff.ms",
        ConfigType.LONG,
        100,
        "How long to wait before the first try after one that failed.",
        update_mode=UpdateMode.READ_ONLY,
    ),
    _row(
        "sasl.oauthbearer.jwks.endpoint.url",
        _STRING,
        None,
        "Where the keys are that sign tokens: file:///PATH or https://... If not set, a listener "
        "with OAUTHBEARER is refused; Kafka takes unsigned tokens then.",
        update_mode=UpdateMode.READ_ONLY,
    ),
    _row(
        "sasl.oauthbearer.scope.claim.name",
        _STRING,
        "scope",
        "The claim of a token with its scope.",
        update_mode=UpdateMode.READ_ONLY,
    ),
    _row(
        "sasl.oauthbearer.sub.claim.name",
        _STRING,
        "sub",
        "The claim of a token with the name of the user.",
        update_mode=UpdateMode.READ_ONLY,
    ),
    _row(
        "sasl.oauthbearer.client.credentials.client.id",
        _STRING,
        None,
        "The id by which this node asks for its tokens. If not set, it is in sasl.jaas.config, or "
        "the tokens are in a file.",
        update_mode=UpdateMode.READ_ONLY,
    ),
    _row(
        "sasl.oauthbearer.client.credentials.client.secret",
        _PASSWORD,
        None,
        "The secret that goes with that id. If not set, it is in sasl.jaas.config.",
        update_mode=UpdateMode.READ_ONLY,
    ),
    _row(
        "sasl.oauthbearer.scope",
        _STRING,
        None,
        "The scope that this node asks for. If not set, that of the authorization server.",
        update_mode=UpdateMode.READ_ONLY,
    ),
    _row(
        "sasl.oauthbearer.token.endpoint.url",
        _STRING,
        None,
        "Where this node gets its own tokens, if it logs in by OAUTHBEARER: file:///PATH or "
        "https://... If not set, it does not.",
        update_mode=UpdateMode.READ_ONLY,
    ),
)

TLS_CONFIGS: Final[tuple[ConfigKey, ...]] = (
    _row(
        "security.inter.broker.protocol",
        _STRING,
        "PLAINTEXT",
        "The protocol of the listener over which brokers talk to each other, if "
        "inter.broker.listener.name is not set: that listener has the name of the protocol.",
        OneOf(("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")),
        UpdateMode.READ_ONLY,
    ),
    _row(
        "ssl.allow.dn.changes",
        _BOOLEAN,
        False,
        "Whether a renewed certificate may have another distinguished name.",
        update_mode=UpdateMode.READ_ONLY,
    ),
    _row(
        "ssl.allow.san.changes",
        _BOOLEAN,
        False,
        "Whether a renewed certificate may lack a host name that the one before has.",
        update_mode=UpdateMode.READ_ONLY,
    ),
    _row(
        "ssl.cipher.suites",
        _LIST,
        (),
        "The cipher suites that may be used, by Java's or OpenSSL's names; if empty, all. Those of "
        "TLSv1.3 go together: all of them or none.",
        ListOf(may_be_empty=True),
    ),
    _row(
        "ssl.client.auth",
        _STRING,
        "none",
        "Whether clients must, may or need not have a certificate. On a SASL_SSL listener it "
        "counts only with the prefix of that listener.",
        OneOf(("required", "requested", "none")),
    ),
    _row(
        "ssl.enabled.protocols",
        _LIST,
        ("TLSv1.2", "TLSv1.3"),
        "The versions of TLS that may be used.",
        ListOf(may_be_empty=True),
    ),
    _row(
        "ssl.endpoint.identification.algorithm",
        _STRING,
        "https",
        "How this node checks that a certificate of another node belongs to its host: https, or "
        "nothing, if it is empty.",
    ),
    _row(
        "ssl.key.password",
        _PASSWORD,
        None,
        "The password of the private key. If not set, that of the key store is used.",
    ),
    _row(
        "ssl.keystore.certificate.chain",
        _PASSWORD,
        None,
        "The certificate and those that have signed it, as PEM text. If not set, they are in the "
        "key store.",
    ),
    _row(
        "ssl.keystore.key",
        _PASSWORD,
        None,
        "The private key, as PEM text (PKCS#8). If not set, it is in the key store.",
    ),
    _row(
        "ssl.keystore.location",
        _STRING,
        None,
        "The file with the private key and its certificates. If not set, they are given as text.",
    ),
    _row(
        "ssl.keystore.password",
        _PASSWORD,
        None,
        "The password of the key store. If not set, it must be a PEM file.",
    ),
    _row("ssl.keystore.type", _STRING, "JKS", f"The format of the key store: {_STORE_TYPE}"),
    _row(
        "ssl.principal.mapping.rules",
        _STRING,
        "DEFAULT",
        "How the distinguished name of a client's certificate becomes the name of a user: DEFAULT "
        "(as it is) or RULE:pattern/replacement/[LU], separated by commas.",
        update_mode=UpdateMode.READ_ONLY,
    ),
    _row(
        "ssl.protocol",
        _STRING,
        "TLSv1.3",
        "The highest version of TLS, if ssl.enabled.protocols is empty.",
    ),
    _row(
        "ssl.truststore.certificates",
        _PASSWORD,
        None,
        "The certificates that are trusted, as PEM text. If not set, they are in the trust store.",
    ),
    _row(
        "ssl.truststore.location",
        _STRING,
        None,
        "The file of the certificates that are trusted. If not set, those of the system are.",
    ),
    _row(
        "ssl.truststore.password",
        _PASSWORD,
        None,
        "The password of the trust store. If not set, it is a PEM file, or has none.",
    ),
    _row("ssl.truststore.type", _STRING, "JKS", f"The format of the trust store: {_STORE_TYPE}"),
)
