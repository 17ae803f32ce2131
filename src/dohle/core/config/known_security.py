"""The broker configs of Apache Kafka 4.2 about security that have no effect here yet."""

from __future__ import annotations

from typing import Final

from dohle.core.config.definition import ConfigKey, ConfigType, ListOf, OneOf, Range, UpdateMode
from dohle.core.config.without_effect import because, row

_BOOLEAN = ConfigType.BOOLEAN
_CLASS = ConfigType.CLASS
_DOUBLE = ConfigType.DOUBLE
_INT = ConfigType.INT
_LIST = ConfigType.LIST
_LONG = ConfigType.LONG
_PASSWORD = ConfigType.PASSWORD
_SHORT = ConfigType.SHORT
_STRING = ConfigType.STRING
_PER_BROKER = UpdateMode.PER_BROKER
_ANY_LIST: Final = ListOf(may_be_empty=True)

SECURITY_CONFIGS: Final[tuple[ConfigKey, ...]] = (
    *because(
        "OpenSSL does what Java's providers do",
        row("security.providers", _STRING, None),
        row("ssl.engine.factory.class", _CLASS, None, None, _PER_BROKER),
        row("ssl.keymanager.algorithm", _STRING, "SunX509", None, _PER_BROKER),
        row("ssl.provider", _STRING, None, None, _PER_BROKER),
        row("ssl.secure.random.implementation", _STRING, None, None, _PER_BROKER),
        row("ssl.trustmanager.algorithm", _STRING, "PKIX", None, _PER_BROKER),
    ),
    *because(
        "no class is loaded by its name: names and passwords are handled as Kafka's defaults do",
        row(
            "principal.builder.class",
            _CLASS,
            "org.apache.kafka.common.security.authenticator.DefaultKafkaPrincipalBuilder",
            None,
            _PER_BROKER,
        ),
        row("sasl.client.callback.handler.class", _CLASS, None),
        row("sasl.login.callback.handler.class", _CLASS, None),
        row("sasl.login.class", _CLASS, None),
        row("sasl.server.callback.handler.class", _CLASS, None),
    ),
    *because(
        "there is no GSSAPI, and tokens come from a file or by an id and a secret",
        row("sasl.kerberos.kinit.cmd", _STRING, "/usr/bin/kinit", None, _PER_BROKER),
        row("sasl.kerberos.min.time.before.relogin", _LONG, 60_000, None, _PER_BROKER),
        row("sasl.kerberos.principal.to.local.rules", _LIST, ("DEFAULT",), _ANY_LIST, _PER_BROKER),
        row("sasl.kerberos.service.name", _STRING, None, None, _PER_BROKER),
        row("sasl.kerberos.ticket.renew.jitter", _DOUBLE, 0.05, None, _PER_BROKER),
        row("sasl.kerberos.ticket.renew.window.factor", _DOUBLE, 0.8, None, _PER_BROKER),
        row("sasl.login.connect.timeout.ms", _INT, None),
        row("sasl.login.read.timeout.ms", _INT, None),
        row("sasl.login.refresh.buffer.seconds", _SHORT, 300, None, _PER_BROKER),
        row("sasl.login.refresh.min.period.seconds", _SHORT, 60, None, _PER_BROKER),
        row("sasl.login.refresh.window.factor", _DOUBLE, 0.8, None, _PER_BROKER),
        row("sasl.login.refresh.window.jitter", _DOUBLE, 0.05, None, _PER_BROKER),
        row("sasl.login.retry.backoff.max.ms", _LONG, 10_000),
        row("sasl.login.retry.backoff.ms", _LONG, 100),
        row(
            "sasl.oauthbearer.assertion.algorithm",
            _STRING,
            "RS256",
            OneOf(("ES256", "RS256"), ignore_case=True),
        ),
        row("sasl.oauthbearer.assertion.claim.aud", _STRING, None),
        row("sasl.oauthbearer.assertion.claim.exp.seconds", _INT, 300, Range(0, 86400)),
        row("sasl.oauthbearer.assertion.claim.iss", _STRING, None),
        row("sasl.oauthbearer.assertion.claim.jti.include", _BOOLEAN, False),
        row("sasl.oauthbearer.assertion.claim.nbf.seconds", _INT, 60, Range(0, 3600)),
        row("sasl.oauthbearer.assertion.claim.sub", _STRING, None),
        row("sasl.oauthbearer.assertion.file", _STRING, None),
        row("sasl.oauthbearer.assertion.private.key.file", _STRING, None),
        row("sasl.oauthbearer.assertion.private.key.passphrase", _PASSWORD, None),
        row("sasl.oauthbearer.assertion.template.file", _STRING, None),
        row(
            "sasl.oauthbearer.jwt.retriever.class",
            _CLASS,
            "org.apache.kafka.common.security.oauthbearer.DefaultJwtRetriever",
        ),
        row(
            "sasl.oauthbearer.jwt.validator.class",
            _CLASS,
            "org.apache.kafka.common.security.oauthbearer.DefaultJwtValidator",
        ),
    ),
    *because(
        "there are no delegation tokens yet",
        row("delegation.token.expiry.check.interval.ms", _LONG, 3_600_000, Range(1)),
        row("delegation.token.expiry.time.ms", _LONG, 86_400_000, Range(1)),
        row("delegation.token.max.lifetime.ms", _LONG, 604_800_000, Range(1)),
        row("delegation.token.secret.key", _PASSWORD, None),
    ),
)
