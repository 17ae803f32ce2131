"""What a dump of the metadata log does not show."""

from __future__ import annotations

import pytest

from dohle.cli.dump.items import DecoderName
from dohle.cli.dump.record_decoders import decode_record
from dohle.protocol.messages.records.cluster_metadata import (
    ConfigRecord,
    UserScramCredentialRecord,
)
from dohle.protocol.record_framing import encode_metadata_record
from dohle.protocol.schema import MetadataRecord
from dohle.records.record import Record

_TOPIC, _BROKER = 2, 4


def shown(message: MetadataRecord) -> str:
    record = Record(0, 0, None, encode_metadata_record(message, 0))
    return repr(decode_record(DecoderName.CLUSTER_METADATA, record)[1])


def test_keys_of_users_are_hidden() -> None:
    """Security.md, section 8: "metadata dump hide SCRAM keys"."""
    text = shown(
        UserScramCredentialRecord(
            name="alice", salt=b"saltsalt", stored_key=b"keys", server_key=b"keys", iterations=4096
        )
    )
    assert "alice" in text
    assert text.count("(hidden)") == 3


@pytest.mark.parametrize(
    ("kind", "name", "is_hidden"),
    [
        (_BROKER, "plain.sasl.jaas.config", True),
        (_BROKER, "listener.name.x.plain.sasl.jaas.config", True),
        (_BROKER, "listener.name.x.scram-sha-512.sasl.jaas.config", True),
        (_BROKER, "listener.name.x.ssl.keystore.password", True),
        (_BROKER, "something.of.somebody", True),
        (_BROKER, "log.retention.ms", False),
        (_TOPIC, "retention.ms", False),
    ],
)
def test_passwords_and_what_may_be_one_are_hidden(kind: int, name: str, is_hidden: bool) -> None:
    """The same section: "`*.password`, `*.secret*`, jaas, keys"."""
    text = shown(ConfigRecord(resource_type=kind, resource_name="1", name=name, value="12345"))
    assert ("12345" not in text) is is_hidden
