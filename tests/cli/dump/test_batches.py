from __future__ import annotations

import os
import tracemalloc
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

import crc32c
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dohle.cli.main import main
from dohle.records.batch import set_base_offset_and_epoch
from dohle.records.builder import BatchBuilder, build_empty_batch
from dohle.records.compression.codecs import Codec
from dohle.records.control import build_txn_marker
from tests.cli.dump.files import (
    LEADER_EPOCH,
    NOW_MS,
    SEGMENT,
    Node,
    append,
    batch,
    of_type,
    orders,
    parse_lines,
    write_segment,
)
from tests.records.message_sets import Message, build_message_set

Capture = pytest.CaptureFixture[str]


def dump_json(capsys: Capture, *arguments: str | Path, code: int = 0) -> list[dict[str, Any]]:
    assert main(["log", "dump", "--json", *map(str, arguments)]) == code
    return parse_lines(capsys.readouterr().out)


def test_a_batch_is_one_line_with_the_names_of_kafkas_tool(tmp_path: Path, capsys: Capture) -> None:
    path = orders(tmp_path) / f"{SEGMENT}.log"
    assert main(["log", "dump", str(path)]) == 0
    shown = capsys.readouterr()
    assert shown.err == ""
    lines = shown.out.splitlines()
    assert lines[0] == f"Dumping {path} (log segment, offset 0, 234 bytes)"
    assert len(lines) == 4
    assert lines[3].startswith(
        "baseOffset: 2 lastOffset: 2 count: 1 baseSequence: -1 lastSequence: -1 producerId: -1 "
        f"producerEpoch: -1 partitionLeaderEpoch: {LEADER_EPOCH} isTransactional: false "
        "isControl: false deleteHorizonMs: null position: 156 timestampType: CreateTime "
        f"maxTimestamp: {NOW_MS + 2} size: 78 magic: 2 compresscodec: none crc: "
    )
    assert lines[3].endswith("isvalid: true")


def test_json_has_the_same_fields_as_the_text(tmp_path: Path, capsys: Capture) -> None:
    path = write_segment(
        tmp_path,
        batch(
            b"a",
            b"b",
            base_offset=5,
            codec=Codec.ZSTD,
            producer_id=77,
            producer_epoch=3,
            base_sequence=2**31 - 1,
            is_transactional=True,
            partition_leader_epoch=8,
            log_append_time=NOW_MS + 9,
        ),
    )
    file, found = dump_json(capsys, path)
    assert file == {
        "file": str(path),
        "type": "file",
        "kind": "log segment",
        "size": path.stat().st_size,
        "baseOffset": 0,
    }
    assert 0 <= found.pop("crc") < 2**32
    assert found == {
        "file": str(path),
        "type": "batch",
        "baseOffset": 5,
        "lastOffset": 6,
        "count": 2,
        "baseSequence": 2**31 - 1,
        "lastSequence": 0,
        "producerId": 77,
        "producerEpoch": 3,
        "partitionLeaderEpoch": 8,
        "isTransactional": True,
        "isControl": False,
        "deleteHorizonMs": None,
        "position": 0,
        "timestampType": "LogAppendTime",
        "maxTimestamp": NOW_MS + 9,
        "size": path.stat().st_size,
        "magic": 2,
        "compresscodec": "zstd",
        "isvalid": True,
    }


def test_a_delete_horizon_is_shown(tmp_path: Path, capsys: Capture) -> None:
    path = write_segment(tmp_path, batch(None, delete_horizon_ms=NOW_MS + 5))
    assert dump_json(capsys, path)[1]["deleteHorizonMs"] == NOW_MS + 5


@pytest.mark.parametrize("codec", list(Codec))
def test_records_follow_their_batch(tmp_path: Path, capsys: Capture, codec: Codec) -> None:
    builder = BatchBuilder(codec=codec, producer_id=1, producer_epoch=0, base_sequence=40)
    builder.append(NOW_MS, b"k", "grün\n".encode(), [("trace", b"\x00\x01"), ("none", None)])
    builder.append(NOW_MS + 1, None, None)
    builder.append(NOW_MS + 2, b"\xff\xfe", b"")
    path = write_segment(tmp_path, builder.build())
    assert main(["log", "dump", "--records", str(path)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[1].startswith("baseOffset: 0 lastOffset: 2 count: 3 ")
    assert f"compresscodec: {codec.name.lower()} " in lines[1]
    assert lines[2:] == [
        f'| offset: 0 timestamp: {NOW_MS} sequence: 40 key: "k" value: "grün\\n" '
        'headers: ["trace": 0x0001, "none": null]',
        f"| offset: 1 timestamp: {NOW_MS + 1} sequence: 41 key: null value: null headers: []",
        f'| offset: 2 timestamp: {NOW_MS + 2} sequence: 42 key: 0xfffe value: "" headers: []',
    ]
    records = of_type(dump_json(capsys, "--records", path), "record")
    assert [(row["key"], row["value"]) for row in records] == [
        ({"utf8": "k"}, {"utf8": "grün\n"}),
        (None, None),
        ({"base64": "//4="}, {"utf8": ""}),
    ]
    assert records[0]["headers"] == [
        {"key": "trace", "value": {"utf8": "\x00\x01"}},
        {"key": "none", "value": None},
    ]


def test_a_value_cannot_steer_the_terminal(tmp_path: Path, capsys: Capture) -> None:
    path = write_segment(
        tmp_path, batch(b"\x1b[2Jgone", "\u009b2J \u202eback \u2028".encode(), b"tab\there")
    )
    main(["log", "dump", "--print-data-log", str(path)])
    shown = capsys.readouterr().out
    assert shown.replace("\n", "").isprintable()
    assert "value: 0x1b5b324a676f6e65" in shown
    assert 'value: "\\u009b2J \\u202eback \\u2028"' in shown
    assert 'value: "tab\\there"' in shown


def test_transaction_markers_are_decoded(tmp_path: Path, capsys: Capture) -> None:
    path = write_segment(
        tmp_path,
        build_txn_marker(True, 9, 2, 17, NOW_MS),
        build_txn_marker(False, 9, 3, 18, NOW_MS, base_offset=1),
    )
    assert main(["log", "dump", "--records", str(path)]) == 0
    shown = capsys.readouterr().out
    assert "controlType: COMMIT" in shown
    assert 'value: EndTxnMarker {"coordinatorEpoch":17}' in shown
    found = of_type(dump_json(capsys, "--records", path), "controlRecord")
    assert [row["controlType"] for row in found] == ["COMMIT", "ABORT"]
    assert found[1]["value"] == {"name": "EndTxnMarker", "data": {"coordinatorEpoch": 18}}


def test_a_control_record_of_a_later_release_is_no_failure(tmp_path: Path, capsys: Capture) -> None:
    path = write_segment(tmp_path, batch(b"\x00\x07", key=b"\x00\x00\x00\x63", is_control=True))
    (found,) = of_type(dump_json(capsys, "--records", path), "controlRecord")
    assert (found["controlType"], found["value"]) == ("UNKNOWN(99)", {"utf8": "\x00\x07"})


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP])
@pytest.mark.parametrize("magic", [0, 1])
def test_old_formats_are_shown(tmp_path: Path, capsys: Capture, magic: int, codec: Codec) -> None:
    messages = [Message(NOW_MS, b"k", b"one"), Message(NOW_MS + 1, None, b"two")]
    path = write_segment(tmp_path, build_message_set(magic, messages, codec=codec, base_offset=4))
    found = dump_json(capsys, "--records", path)
    batches = of_type(found, "batch")
    assert batches[-1]["offset"] == 5
    assert {row["magic"] for row in batches} == {magic}
    assert {row["compresscodec"] for row in batches} == {codec.name.lower()}
    assert batches[0]["timestampType"] == ("CreateTime" if magic else "NoTimestampType")
    records = of_type(found, "record")
    assert [row["offset"] for row in records] == [4, 5]
    assert [row["value"] for row in records] == [{"utf8": "one"}, {"utf8": "two"}]


def test_an_empty_batch_of_a_compacted_log_is_in_order(tmp_path: Path, capsys: Capture) -> None:
    empty = build_empty_batch(
        base_offset=3, last_offset=9, max_timestamp=NOW_MS, partition_leader_epoch=0
    )
    path = write_segment(tmp_path, empty, batch(b"x", base_offset=20))
    found = of_type(dump_json(capsys, "--records", path), "batch")
    assert [(row["baseOffset"], row["lastOffset"], row["count"]) for row in found] == [
        (3, 9, 0),
        (20, 20, 1),
    ]


def test_the_limit_ends_each_file_early(tmp_path: Path, capsys: Capture) -> None:
    folder = orders(tmp_path, batches=5)
    path = folder / f"{SEGMENT}.log"
    found = dump_json(capsys, "--limit", "2", path)
    assert len(of_type(found, "batch")) == 2
    assert found[-1]["type"] == "note"
    assert found[-1]["position"] == 156
    assert not of_type(dump_json(capsys, "--limit", "5", path), "note")


def test_an_empty_segment_is_said_to_be_empty(tmp_path: Path, capsys: Capture) -> None:
    path = write_segment(tmp_path)
    assert main(["log", "dump", str(path)]) == 0
    assert capsys.readouterr().out == (
        f"Dumping {path} (log segment, offset 0, 0 bytes)\n(nothing in it)\n"
    )


# Damage


def test_a_wrong_checksum_is_named_with_its_position_and_the_rest_is_shown(
    tmp_path: Path, capsys: Capture
) -> None:
    path = orders(tmp_path) / f"{SEGMENT}.log"
    data = bytearray(path.read_bytes())
    data[78 + 70] ^= 1
    path.write_bytes(data)
    assert main(["log", "dump", "--records", str(path)]) == 1
    shown = capsys.readouterr()
    assert shown.err.startswith(f"dohle: error: {path}: position 78: wrong checksum: ")
    assert shown.err.count("\n") == 1
    assert shown.out.count("isvalid: true") == 2
    assert shown.out.count("isvalid: false") == 1
    assert shown.out.count("| offset: ") == 2
    found = dump_json(capsys, path, code=1)
    (problem,) = of_type(found, "problem")
    assert problem["position"] == 78
    assert problem["message"].startswith("wrong checksum")


def test_nonsense_ends_the_dump_behind_what_could_be_read(tmp_path: Path, capsys: Capture) -> None:
    path = write_segment(tmp_path, batch(b"good"), b"\x01" + bytes(100))
    good = len(batch(b"good"))
    assert main(["log", "dump", str(path)]) == 1
    shown = capsys.readouterr()
    assert shown.out.count("isvalid: true") == 1
    assert shown.err == (
        f"dohle: error: {path}: position {good}: not a batch: batch length 0 is too small; "
        "the 101 bytes from here on cannot be read\n"
    )


def test_a_torn_batch_is_told_from_nonsense(tmp_path: Path, capsys: Capture) -> None:
    whole = batch(b"good")
    path = write_segment(tmp_path, whole, batch(b"torn", base_offset=1)[:-1])
    assert main(["log", "dump", str(path)]) == 1
    shown = capsys.readouterr()
    assert shown.out.count("isvalid: true") == 1
    assert f"{path}: position {len(whole)}: torn batch: " in shown.err
    assert "recovery will truncate the file here" in shown.err


@pytest.mark.parametrize("zeros", [1, 11, 12, 61, 5000, 3_000_000])
def test_zeros_up_to_the_end_are_no_damage(tmp_path: Path, capsys: Capture, zeros: int) -> None:
    whole = batch(b"good")
    path = write_segment(tmp_path, whole, bytes(zeros))
    assert main(["log", "dump", str(path)]) == 0
    shown = capsys.readouterr()
    assert shown.err == ""
    assert shown.out.endswith(
        f"note: position {len(whole)}: {zeros} zero bytes up to the end: preallocated, or left by "
        "a crash\n"
    )


def test_an_unknown_codec_is_damage(tmp_path: Path, capsys: Capture) -> None:
    bad = batch(b"x")
    bad[22] |= 7
    bad[17:21] = crc32c.crc32c(bytes(bad[21:])).to_bytes(4, "big")
    path = write_segment(tmp_path, bad)
    assert main(["log", "dump", str(path)]) == 1
    shown = capsys.readouterr()
    assert "compresscodec: unknown" in shown.out
    assert f"{path}: position 0: unknown compression codec 7" in shown.err


def test_records_that_do_not_parse_are_damage_at_the_batch(tmp_path: Path, capsys: Capture) -> None:
    builder = BatchBuilder()
    builder.append(NOW_MS, None, b"x")
    builder.record_count = 2
    first = builder.build()
    path = write_segment(tmp_path, first, batch(b"next", base_offset=1))
    assert main(["log", "dump", "--records", str(path)]) == 1
    shown = capsys.readouterr()
    assert f"{path}: position 0: a record runs past the end" in shown.err
    assert 'value: "next"' in shown.out


def test_offsets_that_go_back_are_damage(tmp_path: Path, capsys: Capture) -> None:
    first, second = batch(b"a", b"b"), batch(b"c")
    set_base_offset_and_epoch(second, 0, 1, 0)
    path = write_segment(tmp_path, first, second)
    assert main(["log", "dump", str(path)]) == 1
    assert f"position {len(first)}: the batch ends at offset 1, where 2" in capsys.readouterr().err


def test_many_problems_are_counted_instead_of_listed(tmp_path: Path, capsys: Capture) -> None:
    bad = batch(b"x")
    bad[-1] ^= 1
    path = write_segment(tmp_path, *([bad] * 30))
    assert main(["log", "dump", str(path)]) == 1
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 21
    assert lines[-1] == f"dohle: error: {path}: 10 more problems"


@settings(max_examples=60)
@given(data=st.binary(max_size=200), cut=st.integers(0, 160), records=st.booleans())
def test_no_bytes_make_the_dump_fail(
    tmp_path_factory: pytest.TempPathFactory, data: bytes, cut: int, records: bool
) -> None:
    good = batch(b"a") + batch(b"b", base_offset=1)
    path = write_segment(tmp_path_factory.mktemp("any"), good[:cut], data)
    with open(os.devnull, "w") as nowhere, redirect_stdout(nowhere):
        assert main(["log", "dump", *["--records"] * records, str(path)]) in (0, 1)


def test_a_large_segment_takes_little_memory(tmp_path: Path) -> None:
    one = batch(os.urandom(100_000))
    path = tmp_path / f"{SEGMENT}.log"
    with path.open("wb") as file:
        for offset in range(300):
            set_base_offset_and_epoch(one, 0, offset, 0)
            file.write(one)
    with open(os.devnull, "w") as nowhere, redirect_stdout(nowhere):
        main(["log", "dump", "--records", "--limit", "1", str(path)])
        tracemalloc.start()
        try:
            assert main(["log", "dump", "--records", str(path)]) == 0
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
    assert path.stat().st_size > 30_000_000
    assert peak < 4_000_000


def test_all_segments_of_a_partition_are_shown_in_order(tmp_path: Path, capsys: Capture) -> None:
    node = Node(tmp_path)
    log = node.log("orders")
    append(log, batch(b"a"))
    log.roll()
    append(log, batch(b"b"))
    node.close()
    found = dump_json(capsys, tmp_path / "orders-0")
    names = [Path(row["file"]).name for row in of_type(found, "file")]
    assert names == [
        "partition.metadata",
        "leader-epoch-checkpoint",
        f"{SEGMENT}.log",
        f"{SEGMENT}.index",
        f"{SEGMENT}.timeindex",
        "00000000000000000001.log",
        "00000000000000000001.index",
        "00000000000000000001.timeindex",
        "00000000000000000001.snapshot",
        "00000000000000000002.snapshot",
    ]
    assert [row["baseOffset"] for row in of_type(found, "batch")] == [0, 1]
