"""The Java producer and consumer; the mains are in ``java/``."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from tests.jvm.conftest import NewName, NewTopic
from tests.jvm.jvm import Jvm, Ran

_SENT = re.compile(r"Sending (\w+) request with header RequestHeader\(apiKey=\w+, apiVersion=(\d+)")
_CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]


@pytest.fixture(scope="module")
def talking_jvm(classpath: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Jvm]:
    """A virtual machine whose clients tell on stderr what they send."""
    option = "-Dorg.slf4j.simpleLogger.log.org.apache.kafka.clients.NetworkClient=debug"
    with Jvm(classpath, tmp_path_factory.mktemp("jvm"), [option]) as running:
        yield running


def _sent(ran: Ran) -> dict[str, set[int]]:
    """Return the versions of each API that were used."""
    versions: dict[str, set[int]] = {}
    for name, version in _SENT.findall(ran.err):
        versions.setdefault(name, set()).add(int(version))
    return versions


def test_an_idempotent_producer_writes_by_every_codec(
    jvm: Jvm, bootstrap: str, new_topic: NewTopic
) -> None:
    ran = jvm.run("Codecs", bootstrap, new_topic(1))
    assert ran.code == 0, ran
    assert ran.lines[:5] == [f"wrote {codec} {300 * n}" for n, codec in enumerate(_CODECS)]
    expected = [
        f"0@{300 * number + each} {'null' if each % 7 == 0 else codec}="
        f"{'null' if each % 11 == 0 else f'value {each} of {codec}'} codec={codec} empty=null"
        for number, codec in enumerate(_CODECS)
        for each in range(300)
    ]
    assert ran.lines[5:] == expected


def test_transactions_commit_abort_and_fence_by_their_second_version(
    talking_jvm: Jvm, bootstrap: str, new_topic: NewTopic, new_name: NewName
) -> None:
    ran = talking_jvm.run("Transactions", bootstrap, new_topic(2), new_name("id"))
    assert ran.code == 0, ran
    assert ran.lines == [
        "while one is open",
        "read_committed 0@0 key=committed 0",
        "read_committed 0@1 key=committed 2",
        "read_committed 0@5 key=committed 3",
        "read_committed 1@0 key=committed 1",
        "read_uncommitted 0@0 key=committed 0",
        "read_uncommitted 0@1 key=committed 2",
        "read_uncommitted 0@3 key=aborted 0",
        "read_uncommitted 0@5 key=committed 3",
        "read_uncommitted 0@7 key=open 0",
        "read_uncommitted 1@0 key=committed 1",
        "read_uncommitted 1@2 key=aborted 1",
        "read_uncommitted 1@4 key=open 1",
        "the fenced one commits: ProducerFencedException",
        "after the other took over",
        "read_committed 0@0 key=committed 0",
        "read_committed 0@1 key=committed 2",
        "read_committed 0@5 key=committed 3",
        "read_committed 0@9 key=committed 4",
        "read_committed 1@0 key=committed 1",
    ]
    sent = _sent(ran)
    assert sent["PRODUCE"] == {13}
    assert sent["END_TXN"] == {5}
    assert sent["INIT_PRODUCER_ID"] == {5}
    assert "ADD_PARTITIONS_TO_TXN" not in sent


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_offsets_and_records_of_a_transaction_count_together(
    talking_jvm: Jvm,
    bootstrap: str,
    new_topic: NewTopic,
    new_name: NewName,
    protocol: str,
) -> None:
    group = new_name("group")
    ran = talking_jvm.run("ExactlyOnce", bootstrap, new_topic(1), new_topic(1), group, protocol)
    assert ran.code == 0, ran
    assert ran.lines == [
        "after the abort null",
        "after the commit 20 by the transaction",
        *(f"0@{21 + number} key=WORD {number}" for number in range(20)),
    ]
    sent = _sent(ran)
    assert sent["TXN_OFFSET_COMMIT"] == {5}
    assert "ADD_OFFSETS_TO_TXN" not in sent
    assert ("CONSUMER_GROUP_HEARTBEAT" in sent) == (protocol == "consumer")
    assert ("JOIN_GROUP" in sent) == (protocol == "classic")


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_members_share_a_topic_and_go_on_where_others_stopped(
    jvm: Jvm,
    bootstrap: str,
    new_topic: NewTopic,
    new_name: NewName,
    protocol: str,
) -> None:
    ran = jvm.run("Rebalance", bootstrap, new_topic(4), new_name("group"), protocol)
    assert ran.code == 0, ran
    assert ran.lines == [
        "settled [4]",
        "settled [2, 2]",
        "the second has read 20",
        "settled [4]",
        "revoked true",
        "seen 80 of 80",
        "settled [4]",
        "settled [4]",
        "committed {0=20, 1=20, 2=20, 3=20}",
        "read again 0",
    ]
