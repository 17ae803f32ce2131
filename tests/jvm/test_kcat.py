"""kcat: librdkafka without any language around it."""

from __future__ import annotations

import json

import pytest

from tests.jvm.conftest import NewName, NewTopic
from tests.jvm.kcat import Kcat
from tests.jvm.kept import Unavailable

_SHOWN = ("-f", "%p@%o %k=%s %h\n")


@pytest.fixture
def kcat(bootstrap: str) -> Kcat:
    try:
        return Kcat(bootstrap)
    except Unavailable as reason:
        pytest.skip(f"kcat cannot be had here: {reason}")


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_records_are_written_and_read(kcat: Kcat, new_topic: NewTopic, codec: str) -> None:
    topic = new_topic(2)
    produce = ["-P", "-t", topic, "-z", codec, "-X", "enable.idempotence=true", "-K", ":"]
    kcat(*produce, "-p", "1", "-H", "h=1", "-H", "i=2", stdin="".join(f"k:{n}\n" for n in range(9)))
    kcat(*produce, "-p", "0", "-Z", stdin="k:\n")
    assert sorted(kcat("-C", "-q", "-e", "-t", topic, *_SHOWN)) == [
        "0@0 k= ",
        *(f"1@{number} k={number} h=1,i=2" for number in range(9)),
    ]
    assert kcat("-C", "-q", "-t", topic, "-p", "1", "-o", "-3", "-c", "2", *_SHOWN) == [
        "1@6 k=6 h=1,i=2",
        "1@7 k=7 h=1,i=2",
    ]
    (record,) = kcat("-C", "-q", "-e", "-J", "-t", topic, "-p", "0")
    assert json.loads(record)["payload"] is None


def test_the_cluster_and_the_offsets_are_told(kcat: Kcat, new_topic: NewTopic) -> None:
    topic = new_topic(2)
    kcat("-P", "-t", topic, "-p", "1", stdin="a\nb\nc\n")
    (told,) = kcat("-L", "-J", "-t", topic)
    metadata = json.loads(told)
    assert metadata["controllerid"] == 1
    assert [broker["id"] for broker in metadata["brokers"]] == [1]
    (described,) = metadata["topics"]
    assert described["topic"] == topic
    assert described["partitions"] == [
        {"partition": number, "leader": 1, "replicas": [{"id": 1}], "isrs": [{"id": 1}]}
        for number in range(2)
    ]
    query = [option for number in range(2) for option in ("-t", f"{topic}:{number}:-1")]
    assert sorted(kcat("-Q", *query)) == [f"{topic} [0] offset 0", f"{topic} [1] offset 3"]


def test_a_group_goes_on_where_it_stopped(
    kcat: Kcat, new_topic: NewTopic, new_name: NewName
) -> None:
    topic = new_topic(2)
    read = ["-q", "-e", "-X", "auto.offset.reset=earliest", *_SHOWN, "-G", new_name("group"), topic]
    for turn in range(2):
        for partition in ("0", "1"):
            kcat("-P", "-t", topic, "-p", partition, stdin=f"turn {turn}\n")
        assert sorted(kcat(*read)) == [f"{each}@{turn} =turn {turn} " for each in range(2)]


def test_a_transaction_is_committed(kcat: Kcat, new_topic: NewTopic, new_name: NewName) -> None:
    topic = new_topic(1)
    for turn in range(2):
        kcat("-P", "-t", topic, "-X", f"transactional.id={new_name('id')}", stdin=f"{turn}\n")
    committed = kcat("-C", "-q", "-e", "-t", topic, "-X", "isolation.level=read_committed", *_SHOWN)
    assert committed == ["0@0 =0 ", "0@2 =1 "]
