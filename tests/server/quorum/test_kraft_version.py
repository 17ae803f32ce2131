"""kraft.version 0 and 1 of a quorum of one voter, in its log, its snapshots and its state."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from dohle.cli.main import main
from dohle.core.errors import ErrorCode, KafkaError
from dohle.core.ids import BrokerId, Uuid
from dohle.core.uuid import uuid_to_text
from dohle.protocol.messages.api_versions import ApiVersionsRequest
from dohle.protocol.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest
from dohle.raft.membership import Membership, Voter, VoterEndpoint
from dohle.server.node import Node
from dohle.server.quorum.snapshots import SnapshotId, read_control_records, write_snapshot
from tests.server.faults import until
from tests.server.wire import (
    UnsyncedFileSystem,
    Wire,
    create_topic,
    node_config,
    on_node,
    running_node,
)

UPGRADE = {"kraft": 1}
OFTEN = {"metadata.log.max.record.bytes.between.snapshots": "1000"}
WITH_LISTENER = {
    "listeners": "PLAINTEXT://127.0.0.1:0,CONTROLLER://127.0.0.1:0",
    "controller.listener.names": "CONTROLLER",
}


def quorum_folder(path: Path) -> Path:
    return path / "data" / "__cluster_metadata-0"


def quorum_state(path: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((quorum_folder(path) / "quorum-state").read_text())
    return found


def membership(node: Node) -> Membership:
    return node.member.log.memberships.latest


def own(node: Node, *endpoints: VoterEndpoint) -> Voter:
    return Voter(BrokerId(1), node._shared.metadata_directory.directory_id, endpoints)


async def update(
    wire: Wire, levels: dict[str, int], *, validate_only: bool = False
) -> tuple[int, str | None]:
    updates = tuple(
        FeatureUpdateKey(feature=f"{name}.version", max_version_level=level)
        for name, level in levels.items()
    )
    request = UpdateFeaturesRequest(feature_updates=updates, validate_only=validate_only)
    answer = await wire.send(request)
    return answer.error_code, answer.error_message


async def finalized(wire: Wire) -> dict[str, int]:
    request = ApiVersionsRequest(client_software_name="t", client_software_version="1")
    answer = await wire.send(request)
    return {one.name: one.max_version_level for one in answer.finalized_features}


async def make_snapshot(node: Node, wire: Wire) -> None:
    before = set(quorum_folder_of(node).glob("*.checkpoint"))
    while not set(quorum_folder_of(node).glob("*.checkpoint")) - before:
        await create_topic(wire, f"t{len(node.images.image.topics)}", 2)
        await node.member.snapshotter.stop()


def quorum_folder_of(node: Node) -> Path:
    return Path(node.member.log.folder)


def test_an_upgrade_puts_the_voter_into_the_log_where_it_stays(tmp_path: Path) -> None:
    async def run() -> None:
        async with running_node(tmp_path) as node, await Wire.connect(node) as wire:
            assert "kraft.version" not in await finalized(wire)
            assert membership(node) == Membership()
            assert quorum_state(tmp_path)["data_version"] == 0
            assert await update(wire, UPGRADE, validate_only=True) == (0, None)
            assert membership(node) == Membership()
            assert await update(wire, UPGRADE) == (0, None)
            assert membership(node) == Membership(1, (own(node),))
            assert (await finalized(wire))["kraft.version"] == 1
            end = node.member.log.log.log_end_offset
            assert await update(wire, UPGRADE) == (0, None)
            assert node.member.log.log.log_end_offset == end, "nothing to change"
        async with running_node(tmp_path) as again, await Wire.connect(again) as wire:
            assert membership(again) == Membership(1, (own(again),))
            assert (await finalized(wire))["kraft.version"] == 1
            state = quorum_state(tmp_path)
            assert (state["data_version"], "currentVoters" in state) == (1, False)
            assert state["votedDirectoryId"] == "AAAAAAAAAAAAAAAAAAAAAA"

    asyncio.run(run())


def test_all_features_of_a_release_are_upgraded_at_once(tmp_path: Path) -> None:
    """``kafka-features upgrade --release-version 4.2`` asks for these, whoever supports them."""

    async def scenario(node: Node, wire: Wire) -> None:
        levels = {"metadata": 29, "kraft": 1, "group": 1, "transaction": 2, "share": 1}
        asked = {**levels, "streams": 1, "eligible.leader.replicas": 1}
        assert await update(wire, asked, validate_only=True) == (0, None)
        assert await update(wire, asked) == (0, None)
        image = node.images.image
        assert {**image.features, "kraft.version": node.images.kraft_version} == {
            f"{name}.version": level for name, level in asked.items()
        }
        # What does not work here is not advertised.
        assert asked.keys() - {name.removesuffix(".version") for name in await finalized(wire)} == {
            *("share", "streams")
        }

    on_node(tmp_path, scenario)


def test_one_feature_that_is_refused_leaves_kraft_version_as_it_was(tmp_path: Path) -> None:
    async def scenario(node: Node, wire: Wire) -> None:
        code, message = await update(wire, {**UPGRADE, "group": 9})
        assert code == ErrorCode.INVALID_UPDATE_VERSION
        assert (message or "").startswith(
            "The update failed for all features since the following feature"
        )
        assert membership(node) == Membership()

    on_node(tmp_path, scenario)


@pytest.mark.parametrize("times", [1, 2])
def test_snapshots_keep_what_the_log_says_of_the_quorum(tmp_path: Path, times: int) -> None:
    async def run() -> None:
        async with running_node(tmp_path, OFTEN) as node, await Wire.connect(node) as wire:
            await make_snapshot(node, wire)
            assert await update(wire, UPGRADE) == (0, None)
            for _ in range(times):
                await make_snapshot(node, wire)
            expected = Membership(1, (own(node),))
        newest = max(quorum_folder(tmp_path).glob("*.checkpoint"))
        found = read_control_records(UnsyncedFileSystem(), str(newest))
        assert Membership().after(found) == expected
        async with running_node(tmp_path, OFTEN) as again:
            assert membership(again) == expected
            assert again.images.image.topics.keys() == node.images.image.topics.keys()

    asyncio.run(run())


def test_a_directory_that_was_formatted_standalone_begins_at_level_1(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["storage", "format", "--data", str(tmp_path / "data"), "--standalone"]) == 0

    async def run() -> None:
        async with running_node(tmp_path, WITH_LISTENER) as node:
            (controller, _) = node.listeners
            endpoint = VoterEndpoint("CONTROLLER", "127.0.0.1", controller.port)
            assert membership(node) == Membership(1, (own(node, endpoint),))
            # It is in the log now: the formatter's snapshot is for no other node.
            (quorum_folder(tmp_path) / SnapshotId(0, 0).file_name).unlink()
        async with running_node(tmp_path) as again, await Wire.connect(again) as wire:
            assert membership(again) == Membership(1, (own(again),)), "it listens no more"
            assert (await finalized(wire))["kraft.version"] == 1

    asyncio.run(run())


def test_a_log_whose_voter_is_another_node_or_directory_is_refused(tmp_path: Path) -> None:
    async def run() -> None:
        async with running_node(tmp_path) as node:
            stranger = Voter(BrokerId(2), own(node).directory_id)
            reformatted = Voter(BrokerId(1), Uuid(b"another directory"[:16]))
            epoch = node.member.images.image.epoch
        for voters in [(stranger,), (reformatted,), (own(node), stranger), ()]:
            folder = quorum_folder(tmp_path)
            path = folder / SnapshotId(node.images.image.offset + 1, epoch).file_name
            kept = Membership(1, voters)
            fs = UnsyncedFileSystem()
            write_snapshot(fs, str(path), (), kept, epoch=epoch, timestamp=0)
            with pytest.raises(KafkaError, match="the voters of the quorum are") as refusal:
                await Node(node_config(tmp_path)).start()
            assert uuid_to_text(own(node).directory_id) in str(refusal.value.args[0])
            path.unlink()

    asyncio.run(run())


def test_metadata_that_is_recovered_keeps_the_level_of_the_quorum(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async def run() -> None:
        async with running_node(tmp_path) as node, await Wire.connect(node) as wire:
            assert await update(wire, UPGRADE) == (0, None)
            for index in range(4):
                await create_topic(wire, f"t{index}")
            expected = membership(node)
        (segment,) = quorum_folder(tmp_path).glob("*.log")
        content = bytearray(segment.read_bytes())
        content[-300] ^= 1
        segment.write_bytes(content)
        (tmp_path / "data" / "meta.properties").unlink()
        recover = ["storage", "recover-metadata", "--data", str(tmp_path / "data"), "--apply"]
        assert main([*recover, "--cluster-id", node.cluster_id]) == 0
        async with running_node(tmp_path) as again:
            assert membership(again) == expected
            await until(lambda: quorum_state(tmp_path)["data_version"] == 1)

    asyncio.run(run())
