"""The fixtures that a user's tests get, in a run of pytest of their own."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

TESTS = """
import asyncio

import pytest
from dohle.client import Consumer, Producer
from dohle.client.sync import Admin, Producer as SyncProducer


def partitions_of(bootstrap, topic):
    with SyncProducer(bootstrap) as producer:
        producer.send(topic, b"")
    with Admin(bootstrap) as admin:
        return len(admin.describe_topics([topic]).ok()[topic].partitions)


def test_the_ini_file_configures(kafka):
    assert partitions_of(kafka.bootstrap, "orders") == 3


@pytest.mark.kafka({"num.partitions": 5})
def test_a_marker_configures(kafka):
    assert partitions_of(kafka.bootstrap, "orders") == 5


def test_the_next_test_has_the_usual_one(kafka):
    assert partitions_of(kafka.bootstrap, "others") == 3


def test_a_topic_of_its_own(kafka, kafka_topic):
    assert partitions_of(kafka.bootstrap, kafka_topic) == 1


class TestWithinALoop:
    @pytest.fixture
    def loop(self):
        with asyncio.Runner() as runner:
            yield runner

    def test_a_fixture_may_be_asked_for_while_a_loop_runs(self, loop, request):
        async def body():
            topic = request.getfixturevalue("kafka_topic")
            bootstrap = request.getfixturevalue("kafka").bootstrap
            async with Producer(bootstrap) as producer:
                assert (await producer.send(topic, b"1")).offset == 0

        loop.run(body())
"""


def run_pytest(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *arguments]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=120)


def test_brokers_are_configured_by_the_ini_file_and_by_markers(tmp_path: Path) -> None:
    (tmp_path / "pytest.ini").write_text("[pytest]\nkafka_config =\n    num.partitions=3\n")
    (tmp_path / "test_shop.py").write_text(TESTS)
    done = run_pytest(tmp_path, "--strict-markers")
    assert "5 passed" in done.stdout, done.stdout + done.stderr


def test_a_misspelt_config_is_refused_with_the_right_one(tmp_path: Path) -> None:
    (tmp_path / "pytest.ini").write_text("[pytest]\nkafka_config =\n    num.partition=3\n")
    (tmp_path / "test_shop.py").write_text("def test_it(kafka): pass\n")
    done = run_pytest(tmp_path)
    assert "num.partitions" in done.stdout
    assert done.returncode == 1
