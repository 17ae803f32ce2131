"""meta.properties: whose a directory is (M4, M5 of replication.md: cluster.id and directory.id)."""

from __future__ import annotations

import errno

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dohle.core.ids import BrokerId, Uuid
from dohle.core.uuid import uuid_from_text
from dohle.storage.directory.meta_properties import (
    InvalidMetaProperties,
    MetaProperties,
    load_ensemble,
    read_meta_properties,
    write_meta_properties,
)
from dohle.testing.simulation.disk_faults import Operation
from dohle.testing.simulation.files import SimulatedFileSystem

CLUSTER = "MkU3OEVBNTcwNTJENDM2Qg"
DIRECTORY = "cQSUj8mCSQirzKmPtvjYdw"
NOW_MS = 1_700_000_000_000


def disk(**files: str) -> SimulatedFileSystem:
    fs = SimulatedFileSystem()
    for folder in ("a", "b", "c"):
        fs.make_dirs(f"/{folder}")
    for folder, content in files.items():
        fs.put(f"/{folder}/meta.properties", content.encode())
    return fs


def v1(node: int = 3, cluster: str = CLUSTER, directory: str | None = None) -> str:
    lines = ["version=1", f"node.id={node}", f"cluster.id={cluster}"]
    return "\n".join(lines + ([] if directory is None else [f"directory.id={directory}"]))


def test_the_file_is_written_as_kafka_writes_it() -> None:
    fs = disk()
    properties = MetaProperties(CLUSTER, BrokerId(3), uuid_from_text(DIRECTORY))
    write_meta_properties(fs, "/a", properties, NOW_MS)
    assert fs.read("/a/meta.properties").decode() == (
        "#\n"
        "#Tue Nov 14 22:13:20 UTC 2023\n"
        "cluster.id=MkU3OEVBNTcwNTJENDM2Qg\n"
        "directory.id=cQSUj8mCSQirzKmPtvjYdw\n"
        "node.id=3\n"
        "version=1\n"
    )


@given(
    st.builds(
        MetaProperties,
        st.text(),
        st.integers(0, (1 << 31) - 1).map(BrokerId),
        st.none() | st.binary(min_size=16, max_size=16).map(Uuid),
    )
)
def test_what_was_written_is_read(properties: MetaProperties) -> None:
    fs = disk()
    write_meta_properties(fs, "/a", properties, NOW_MS)
    assert read_meta_properties(fs, "/a") == properties


@pytest.mark.parametrize(
    "properties",
    [
        MetaProperties(CLUSTER, BrokerId(1), None, version=0),
        MetaProperties(None, BrokerId(1), None),
        MetaProperties(CLUSTER, None, None),
    ],
)
def test_only_a_whole_version_1_is_written(properties: MetaProperties) -> None:
    with pytest.raises(ValueError, match="version 1"):
        write_meta_properties(disk(), "/a", properties, NOW_MS)


@pytest.mark.parametrize(
    ("content", "properties"),
    [
        ("broker.id=7", MetaProperties(None, BrokerId(7), None, 0)),
        (f"version=0\ncluster.id={CLUSTER}", MetaProperties(CLUSTER, None, None, 0)),
        (v1(), MetaProperties(CLUSTER, BrokerId(3), None)),
        (v1().replace("version=1", "version= 1 "), MetaProperties(CLUSTER, BrokerId(3), None)),
        (
            v1(directory=DIRECTORY),
            MetaProperties(CLUSTER, BrokerId(3), uuid_from_text(DIRECTORY)),
        ),
    ],
)
def test_both_versions_are_read(content: str, properties: MetaProperties) -> None:
    assert read_meta_properties(disk(a=content), "/a") == properties


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        ("version=2", "version 2 is unknown"),
        ("version=x", "version is 'x', not a number"),
        ("version=1\ncluster.id=x", "version 1 needs node.id"),
        ("version=1\nnode.id=1", "version 1 needs cluster.id"),
        ("version=1", "version 1 needs node.id and cluster.id"),
        (v1().replace("node.id=3", "node.id=three"), "node.id is 'three', not a number"),
        (v1().replace("node.id=3", "node.id=2147483648"), "not a number"),
        ("broker.id=", "broker.id is '', not a number"),
        (v1(directory="short"), "uuid"),
        ("version=\\u00", "four hex digits"),
        ("", "it is empty, or was cut"),
        ("version=0\nnode.id=4", "names neither a node nor a cluster"),
    ],
)
def test_a_file_that_cannot_be_used_is_refused_with_its_path(content: str, problem: str) -> None:
    with pytest.raises(InvalidMetaProperties, match=r"^/a/meta\.properties: ") as refused:
        read_meta_properties(disk(a=content), "/a")
    assert problem in str(refused.value)


def test_directories_are_told_apart_by_what_is_in_them() -> None:
    fs = disk(a=v1(), c="version=9")
    ensemble = load_ensemble(fs, ["/a", "/b", "/c"])
    assert list(ensemble.properties) == ["/a"]
    assert ensemble.empty_dirs == ("/b",)
    assert list(ensemble.failed_dirs) == ["/c"]
    assert (ensemble.cluster_id, ensemble.node_id) == (CLUSTER, 3)
    ensemble.verify()


def test_a_directory_on_a_broken_disk_is_set_apart() -> None:
    fs = disk(a=v1(), b=v1())
    fs.fail(Operation.READ, "/b", errno.EIO)
    ensemble = load_ensemble(fs, ["/a", "/b"])
    assert list(ensemble.properties) == ["/a"]
    assert isinstance(ensemble.failed_dirs["/b"], OSError)


def test_a_node_without_formatted_directories_has_no_ids() -> None:
    ensemble = load_ensemble(disk(), ["/a", "/b"])
    assert (ensemble.cluster_id, ensemble.node_id) == (None, None)
    ensemble.verify(CLUSTER, BrokerId(3))


def test_directories_of_one_node_are_accepted() -> None:
    other = "iwPVyaXhTPmRP4aN9eQ0zw"
    fs = disk(a=v1(directory=DIRECTORY), b=v1(directory=other), c="broker.id=3")
    load_ensemble(fs, ["/a", "/b", "/c"]).verify(CLUSTER, BrokerId(3))


@pytest.mark.parametrize(
    ("files", "problem"),
    [
        ({"a": v1(), "b": v1(node=4)}, "/b/meta.properties has node.id 4, but 3 is expected"),
        ({"a": v1(), "b": "broker.id=4"}, "/b/meta.properties has node.id 4, but 3 is expected"),
        (
            {"a": v1(), "b": v1(cluster="another")},
            f"/b/meta.properties has cluster.id another, but {CLUSTER} is expected",
        ),
        (
            {"a": v1(directory=DIRECTORY), "b": v1(directory=DIRECTORY)},
            f"/b/meta.properties has directory.id {DIRECTORY}, and so has /a/meta.properties",
        ),
        (
            {"a": v1(directory="AAAAAAAAAAAAAAAAAAAAAQ")},
            "/a/meta.properties has directory.id AAAAAAAAAAAAAAAAAAAAAQ, which is reserved",
        ),
    ],
)
def test_directories_that_do_not_agree_are_refused(files: dict[str, str], problem: str) -> None:
    with pytest.raises(InvalidMetaProperties) as refused:
        load_ensemble(disk(**files), ["/a", "/b", "/c"]).verify()
    assert problem in str(refused.value)


@pytest.mark.parametrize(
    ("cluster", "node", "problem"),
    [("another", 3, "cluster.id"), (CLUSTER, 4, "node.id")],
)
def test_directories_that_are_not_what_is_expected_are_refused(
    cluster: str, node: int, problem: str
) -> None:
    with pytest.raises(InvalidMetaProperties, match=problem):
        load_ensemble(disk(a=v1()), ["/a"]).verify(cluster, BrokerId(node))
