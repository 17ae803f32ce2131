"""kafkajs and @confluentinc/kafka-javascript; their scripts are beside this file."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.jvm.conftest import NewName

HERE = Path(__file__).parent
DEADLINE_S = 90.0

CODECS = {
    "kafkajs": ["none", "gzip"],
    "confluent-classic": ["none", "gzip", "snappy", "lz4"],
    "confluent-consumer": ["none", "gzip", "snappy", "lz4"],
}

Tell = Callable[[str], list[str]]


@pytest.fixture(params=CODECS)
def client(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def tell(modules: Path, bootstrap: str, new_name: NewName, client: str) -> Tell:
    """Run a script with a topic of its own, and return the lines that it says."""

    def run(script: str) -> list[str]:
        done = subprocess.run(
            ["node", str(HERE / script), client, bootstrap, new_name("topic")],
            env={**os.environ, "NODE_PATH": str(modules)},
            capture_output=True,
            text=True,
            timeout=DEADLINE_S,
            check=False,
        )
        assert done.returncode == 0, done
        return done.stdout.splitlines()

    return run


def _everywhere(offset: int) -> str:
    return " ".join(f"{partition}@{offset}" for partition in range(4))


def test_records_are_written_by_every_codec_and_read_by_a_group(tell: Tell, client: str) -> None:
    codecs = CODECS[client]
    assert tell("codecs.js") == [
        "listed true",
        *(f"wrote {codec} {_everywhere(2 * number)}" for number, codec in enumerate(codecs)),
        *(
            f"{partition}@{2 * number + turn} key {partition}={word} {codec} {partition} "
            f"codec={codec}"
            for partition in range(4)
            for number, codec in enumerate(codecs)
            for turn, word in enumerate(["first", "second"])
        ),
    ]


def test_members_share_a_topic_and_go_on_where_others_stopped(tell: Tell) -> None:
    assert tell("group.js") == [
        "settled 4",
        "settled 2 2",
        "read 6 6",
        "settled 4",
        " ".join(f"{word} {partition}" for word in "abcde" for partition in range(4)),
        f"committed {_everywhere(5)}",
        "settled 4",
        "f 0 f 1 f 2 f 3",
    ]


def test_records_and_offsets_of_a_transaction_count_together(tell: Tell) -> None:
    assert tell("transactions.js") == [
        "kept commit",
        "committed",
        "dropped abort",
        "committed",
        "kept too commit",
        f"committed {_everywhere(1)}",
        *(
            f"{partition}@{offset} key {partition}={word} {partition}"
            for partition in range(4)
            for offset, word in [(0, "kept"), (4, "kept too")]
        ),
    ]
