"""Any log: what may be appended to it, drawn by Hypothesis."""

from __future__ import annotations

from typing import NamedTuple

from hypothesis import strategies as st

from dohle.records.batch import Codec
from dohle.storage.log import Log
from tests.storage.cleaning.cleaning import end, put
from tests.storage.logs import NOW_MS

KEYS = st.sampled_from([b"a", b"b", b"c", b"d", b"", None])
VALUES = st.one_of(st.none(), st.binary(max_size=6), st.just(b"v" * 40))


class Step(NamedTuple):
    """Something that is appended."""

    kind: str
    pid: int
    pairs: list[tuple[bytes | None, bytes | None]]
    codec: Codec
    time: int
    headers: list[tuple[str, bytes | None]]


STEPS = st.lists(
    st.builds(
        Step,
        st.sampled_from(["plain", "idempotent", "transactional", "commit", "abort", "roll"]),
        st.integers(1, 3),
        st.lists(st.tuples(KEYS, VALUES), min_size=1, max_size=5),
        st.sampled_from(list(Codec)),
        st.integers(-50, 50),
        st.sampled_from([[], [("h", b"1")], [("h", None), ("é", b"")]]),
    ),
    max_size=25,
)


class Writer:
    """Appends what makes sense at that point."""

    def __init__(self, log: Log) -> None:
        self.log = log
        self.sequences = {1: 0, 2: 0, 3: 0}
        self.open: set[int] = set()

    def take(self, step: Step) -> None:
        pid = step.pid
        match step.kind:
            case "roll":
                self.log.roll()
            case "commit" | "abort":
                if pid in self.open:
                    end(self.log, pid, commit=step.kind == "commit")
                    self.open.remove(pid)
            case "plain":
                self._put(step)
            case "idempotent" if pid not in self.open:
                self._put(step, pid=pid, sequence=self._sequence(step))
            case "transactional":
                self._put(step, pid=pid, sequence=self._sequence(step), transactional=True)
                self.open.add(pid)

    def _sequence(self, step: Step) -> int:
        sequence = self.sequences[step.pid]
        self.sequences[step.pid] += len(step.pairs)
        return sequence

    def _put(self, step: Step, **fields: object) -> None:
        put(
            self.log,
            *step.pairs,
            codec=step.codec,
            timestamps=(NOW_MS + step.time, NOW_MS + 7, NOW_MS - step.time),
            headers=step.headers,
            **fields,  # type: ignore[arg-type]
        )
