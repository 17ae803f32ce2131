from __future__ import annotations

import logging
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dohle.storage.directory.checkpoints import CorruptCheckpoint
from dohle.storage.leader_epochs import (
    UNDEFINED_END_OFFSET,
    EpochEndOffset,
    EpochEntry,
    LeaderEpochs,
    parse_leader_epochs,
)
from dohle.testing.simulation.disk_faults import Operation
from dohle.testing.simulation.files import SimulatedCrash, SimulatedFileSystem

FOLDER = "/data/orders-0"
PATH = f"{FOLDER}/leader-epoch-checkpoint"


def disk() -> SimulatedFileSystem:
    fs = SimulatedFileSystem()
    fs.make_dirs(FOLDER)
    fs.settle()
    return fs


def epochs_of(*entries: tuple[int, int]) -> LeaderEpochs:
    return LeaderEpochs(disk(), FOLDER, [EpochEntry(*entry) for entry in entries])


def test_a_new_partition_gets_an_empty_file() -> None:
    fs = disk()
    epochs = LeaderEpochs.load(fs, FOLDER)
    assert epochs.entries == []
    assert epochs.latest_epoch is None
    assert epochs.entries == []
    assert epochs.epoch_of(0) is None
    assert fs.files() == {PATH: b""}


def test_a_new_epoch_is_on_the_disk_when_assign_returns() -> None:
    """G40: it is synced before it is used."""
    fs = disk()
    epochs = LeaderEpochs.load(fs, FOLDER)
    assert epochs.assign(0, 0)
    assert epochs.assign(3, 17)
    fs.power_loss_everything_unsynced_lost()
    assert fs.files() == {PATH: b"0\n2\n0 0\n3 17\n"}
    assert LeaderEpochs.load(fs, FOLDER).entries == [EpochEntry(0, 0), EpochEntry(3, 17)]


def test_the_latest_epoch_again_changes_and_writes_nothing() -> None:
    fs = disk()
    epochs = LeaderEpochs.load(fs, FOLDER)
    epochs.assign(2, 10)
    before = fs.operations
    assert not epochs.assign(2, 10)
    assert not epochs.assign(2, 500)
    assert fs.operations == before
    assert epochs.entries == [EpochEntry(2, 10)]


@pytest.mark.parametrize(
    ("epoch", "start_offset", "left"),
    [
        (6, 30, [(1, 0), (3, 10), (5, 20), (6, 30)]),
        (6, 20, [(1, 0), (3, 10), (6, 20)]),
        (6, 15, [(1, 0), (3, 10), (6, 15)]),
        (6, 0, [(6, 0)]),
        (5, 12, [(1, 0), (3, 10), (5, 12)]),
        (4, 30, [(1, 0), (3, 10), (4, 30)]),
        (3, 10, [(1, 0), (3, 10)]),
        (0, 40, [(0, 40)]),
    ],
)
def test_a_new_entry_takes_away_those_that_would_not_rise(
    epoch: int, start_offset: int, left: list[tuple[int, int]]
) -> None:
    epochs = epochs_of((1, 0), (3, 10), (5, 20))
    assert epochs.assign(epoch, start_offset)
    assert epochs.entries == [EpochEntry(*entry) for entry in left]


def test_taking_away_more_than_an_unused_epoch_is_told(caplog: pytest.LogCaptureFixture) -> None:
    epochs = epochs_of((1, 0), (3, 10), (5, 20))
    with caplog.at_level(logging.WARNING):
        epochs.assign(6, 20)
        assert caplog.messages == []
        epochs.assign(7, 5)
    assert len(caplog.messages) == 1
    assert PATH in caplog.messages[0]


@pytest.mark.parametrize(("epoch", "start_offset"), [(-1, 0), (0, -1)])
def test_negative_epochs_and_offsets_are_refused(epoch: int, start_offset: int) -> None:
    epochs = epochs_of((1, 0))
    with pytest.raises(ValueError, match="is not valid"):
        epochs.assign(epoch, start_offset)
    assert epochs.entries == [EpochEntry(1, 0)]


@pytest.mark.parametrize(
    ("requested", "answer"),
    [
        (-1, (-1, -1)),
        (0, (0, 10)),
        (2, (2, 20)),
        (3, (2, 20)),
        (4, (4, 30)),
        (6, (4, 30)),
        (7, (7, 100)),
        (8, (-1, -1)),
    ],
)
def test_the_end_of_an_epoch_is_where_the_next_begins(
    requested: int, answer: tuple[int, int]
) -> None:
    epochs = epochs_of((2, 10), (4, 20), (7, 30))
    assert epochs.end_offset_for(requested, 100) == EpochEndOffset(*answer)


def test_without_entries_no_epoch_has_an_end() -> None:
    assert epochs_of().end_offset_for(0, 100) == UNDEFINED_END_OFFSET


def test_neighbours_of_an_epoch_are_found() -> None:
    epochs = epochs_of((2, 10), (4, 20), (7, 30))
    assert [epochs.next_epoch(epoch) for epoch in (1, 2, 3, 6, 7)] == [2, 4, 4, 7, None]
    assert epochs.entries[0] == EpochEntry(2, 10)
    assert [epochs.epoch_of(offset) for offset in (9, 10)] == [None, 2]
    assert len(epochs) == 3


def test_cutting_the_end_is_on_the_disk_at_once() -> None:
    fs = disk()
    epochs = LeaderEpochs(fs, FOLDER, [EpochEntry(0, 0), EpochEntry(1, 10), EpochEntry(2, 20)])
    assert not epochs.truncate_from_end(21)
    assert not epochs.truncate_from_end(-1)
    assert fs.files() == {}
    assert epochs.truncate_from_end(10)
    fs.power_loss_everything_unsynced_lost()
    assert fs.files() == {PATH: b"0\n1\n0 0\n"}


def test_cutting_the_start_moves_the_epoch_that_holds_it() -> None:
    """G40: the epoch at the new start is kept."""
    epochs = epochs_of((0, 0), (1, 10), (2, 20))
    assert epochs.truncate_from_start(15)
    assert epochs.entries == [EpochEntry(1, 15), EpochEntry(2, 20)]
    assert epochs.truncate_from_start(20)
    assert epochs.entries == [EpochEntry(2, 20)]
    assert epochs.truncate_from_start(25)
    assert epochs.entries == [EpochEntry(2, 25)]


def test_a_start_below_or_at_the_first_entry_changes_nothing() -> None:
    epochs = epochs_of((1, 10), (2, 20))
    assert not epochs.truncate_from_start(5)
    assert not epochs.truncate_from_start(10)
    assert not epochs.dirty
    assert epochs.entries == [EpochEntry(1, 10), EpochEntry(2, 20)]


def test_cutting_the_start_is_written_by_flush_and_only_once() -> None:
    """G40: cuts are written behind."""
    fs = disk()
    epochs = LeaderEpochs.load(fs, FOLDER)
    epochs.assign(1, 10)
    epochs.truncate_from_start(15)
    assert fs.read(PATH) == b"0\n1\n1 10\n"
    epochs.flush()
    assert fs.read(PATH) == b"0\n1\n1 15\n"
    before = fs.operations
    epochs.flush()
    assert fs.operations == before


def test_a_new_epoch_writes_what_cutting_the_start_left() -> None:
    fs = disk()
    epochs = LeaderEpochs.load(fs, FOLDER)
    epochs.assign(1, 10)
    epochs.truncate_from_start(15)
    epochs.assign(2, 30)
    assert fs.read(PATH) == b"0\n2\n1 15\n2 30\n"
    assert not epochs.dirty


def test_clearing_leaves_a_file_without_entries() -> None:
    fs = disk()
    epochs = LeaderEpochs.load(fs, FOLDER)
    epochs.assign(1, 10)
    epochs.clear()
    assert fs.read(PATH) == b"0\n0\n"
    assert epochs.entries == []


def test_the_file_is_written_under_the_new_name_of_its_folder() -> None:
    fs = disk()
    epochs = LeaderEpochs.load(fs, FOLDER)
    fs.rename(FOLDER, f"{FOLDER}-gone")
    epochs.folder_renamed(f"{FOLDER}-gone")
    epochs.assign(1, 0)
    assert fs.files() == {f"{FOLDER}-gone/leader-epoch-checkpoint": b"0\n1\n1 0\n"}


def test_a_file_whose_entries_do_not_rise_is_read_as_if_they_were_assigned() -> None:
    fs = disk()
    fs.put(PATH, b"0\n4\n1 0\n5 50\n2 20\n2 30\n")
    assert LeaderEpochs.load(fs, FOLDER).entries == [EpochEntry(1, 0), EpochEntry(2, 20)]


@pytest.mark.parametrize(
    ("content", "line"),
    [
        (b"0\n1\n1 0 0\n", 3),
        (b"0\n1\n1\n", 3),
        (b"0\n2\n1 0\n-1 5\n", 4),
        (b"0\n1\n1 -5\n", 3),
        (b"0\n1\n2147483648 0\n", 3),
        (b"0\n2\n1 0\n", 2),
        (b"7\n0\n", 1),
    ],
)
def test_a_file_that_is_not_in_the_format_is_refused(content: bytes, line: int) -> None:
    fs = disk()
    fs.put(PATH, content)
    with pytest.raises(CorruptCheckpoint) as refused:
        LeaderEpochs.load(fs, FOLDER)
    assert (refused.value.path, refused.value.line) == (PATH, line)


def test_a_change_that_cannot_be_written_leaves_the_entries_as_they_were() -> None:
    fs = disk()
    epochs = LeaderEpochs.load(fs, FOLDER)
    epochs.assign(1, 10)
    fs.fail(Operation.SYNC, FOLDER, 5)
    with pytest.raises(OSError):
        epochs.assign(2, 20)
    with pytest.raises(OSError):
        epochs.truncate_from_end(0)
    assert epochs.entries == [EpochEntry(1, 10)]
    assert fs.read(PATH) == b"0\n1\n1 10\n"


# The model is one list, changed in the plainest way that the rules allow.
Model = list[tuple[int, int]]

changes = st.tuples(
    st.sampled_from(["assign", "from_end", "from_start", "reload"]),
    st.integers(0, 8),
    st.integers(0, 40),
)


def change_model(model: Model, what: str, epoch: int, offset: int) -> Model:
    if what == "assign":
        if model and model[-1][0] == epoch and offset >= model[-1][1]:
            return model
        return [e for e in model if e[0] < epoch and e[1] < offset] + [(epoch, offset)]
    if what == "from_end":
        return [e for e in model if e[1] < offset]
    if what == "from_start":
        gone = [e for e in model if e[1] <= offset]
        return [(e, offset) for e, _ in gone[-1:]] + model[len(gone) :]
    return model


def change(
    epochs: LeaderEpochs, fs: SimulatedFileSystem, what: str, epoch: int, offset: int
) -> LeaderEpochs:
    if what == "assign":
        epochs.assign(epoch, offset)
    elif what == "from_end":
        epochs.truncate_from_end(offset)
    elif what == "from_start":
        epochs.truncate_from_start(offset)
    else:
        epochs.flush()
        return LeaderEpochs.load(fs, FOLDER)
    return epochs


@given(st.lists(changes, max_size=25))
def test_any_history_equals_a_plain_list(history: list[tuple[str, int, int]]) -> None:
    fs = disk()
    epochs = LeaderEpochs.load(fs, FOLDER)
    model: Model = []
    for what, epoch, offset in history:
        epochs = change(epochs, fs, what, epoch, offset)
        model = change_model(model, what, epoch, offset)
        assert epochs.entries == model
        assert epochs.latest_epoch == (model[-1][0] if model else None)
        for asked in range(-1, 10):
            below = [e for e in model if e[0] <= asked]
            above = [e for e in model if e[0] > asked]
            if asked == -1 or not (above or (below and below[-1][0] == asked)):
                expected = (-1, -1)
            elif not above:
                expected = (asked, 41)
            else:
                expected = (below[-1][0] if below else asked, above[0][1])
            assert epochs.end_offset_for(asked, 41) == expected


@given(st.lists(changes, max_size=8), st.integers(0, 1 << 32))
def test_h30_a_crash_at_any_point_leaves_a_state_that_was(
    history: list[tuple[str, int, int]], seed: int
) -> None:
    """After a crash the file has the entries before or after the change that was under way."""
    start = disk()
    whole = start.copy()
    epochs = LeaderEpochs.load(whole, FOLDER)
    for step in history:
        epochs = change(epochs, whole, *step)
    rng = Random(seed)
    for cut in range(whole.operations):
        fs = start.copy()
        fs.cut_after_operations(cut)
        # What the file may say: start cuts are written late, everything else at once.
        durable: list[Model] = [[]]
        model: Model = []
        try:
            epochs = LeaderEpochs.load(fs, FOLDER)
            for what, epoch, offset in history:
                after = change_model(model, what, epoch, offset)
                durable.append(after)
                epochs = change(epochs, fs, what, epoch, offset)
                model = after
                if not epochs.dirty:
                    durable = [after]
            pytest.fail("the crash did not happen")
        except SimulatedCrash:
            pass
        for power in (False, True):
            fork = fs.copy()
            if power:
                fork.power_loss(rng)
            found = LeaderEpochs.load(fork, FOLDER).entries
            assert found in durable


def test_a_leader_epoch_file_can_be_parsed_for_showing_it() -> None:
    assert parse_leader_epochs("x", b"0\n2\n5 1\n4 0\n") == [EpochEntry(5, 1), EpochEntry(4, 0)]


def test_older_entries_can_be_put_back_and_those_that_are_known_count() -> None:
    """T15a."""
    epochs = epochs_of((5, 50), (6, 60))
    epochs.prepend([EpochEntry(0, 0), EpochEntry(3, 20), EpochEntry(5, 45), EpochEntry(4, 50)])
    assert epochs.entries == [EpochEntry(*each) for each in ((0, 0), (3, 20), (5, 50), (6, 60))]
    empty = epochs_of()
    empty.prepend([EpochEntry(1, 2)])
    assert empty.latest_epoch == 1
