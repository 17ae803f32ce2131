"""Other implementations read what we write and write what we read: the same bytes and values."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.protocol.peers import PEERS, Exchange
from tests.protocol.random_messages import MESSAGES, PAIRS, messages

#: How many (message, version) pairs a peer confirms. These must not fall.
COVERED = {"kio": 620, "kafka-python": 488, "kafka-python (old)": 258}
COVERED_BY_ANY = 661

#: What a peer gets wrong itself.
UNUSABLE = {
    # Takes the partitions of a topic for a single number.
    ("kafka-python (old)", "DescribeLogDirsRequest", 0),
    # Nests two fields in a struct of its own; the current codec does not.
    ("kafka-python (old)", "CreatePartitionsRequest", 0),
    ("kafka-python (old)", "CreatePartitionsRequest", 1),
}


def exchanges(name: str, version: int) -> dict[str, Exchange]:
    return {
        peer: exchange
        for peer, find in PEERS.items()
        if (peer, name, version) not in UNUSABLE and (exchange := find(name, version))
    }


@pytest.mark.slow
@pytest.mark.parametrize("name", MESSAGES)
@settings(max_examples=8)
@given(data=st.data())
def test_peers_agree_byte_for_byte(name: str, data: st.DataObject) -> None:
    cls = MESSAGES[name]
    for version in range(cls.VERSIONS.lowest, cls.VERSIONS.highest + 1):
        found = exchanges(name, version)
        if not found:
            continue
        message = data.draw(messages(cls, version, tame=True))
        encoded = message.encode(version)
        for peer, exchange in found.items():
            understood, encoded_by_peer = exchange(encoded)
            assert understood == message, f"{peer} understood something else in version {version}"
            assert encoded_by_peer == encoded, f"{peer} writes version {version} differently"
            assert cls.from_bytes(version, encoded_by_peer) == message


def test_no_peer_is_lost() -> None:
    covered: Counter[str] = Counter()
    by_any = 0
    for name, version in PAIRS:
        found = exchanges(name, version)
        covered.update(found.keys())
        by_any += bool(found)
    for peer, count in COVERED.items():
        assert covered[peer] >= count, f"{peer}: {covered[peer]} of {len(PAIRS)}"
    assert by_any >= COVERED_BY_ANY, f"{by_any} of {len(PAIRS)}"
