"""What a report tells: figures of a history, and a page that a browser and a person can read."""

from __future__ import annotations

from html.parser import HTMLParser
from xml.dom import minidom

import pytest

from dohle.testing.check.faults import Struck
from dohle.testing.check.figures import Counts, Figures, Gap, count
from dohle.testing.check.late_end import LateEnd
from dohle.testing.check.load import RoundTopics
from dohle.testing.check.page import page
from dohle.testing.check.verdict import Anomaly, RoundResult, Verdict
from dohle.testing.checking.history import History, Outcome, Partition

SECOND_NS = 1_000_000_000
TOPICS = RoundTopics(1)
INPUT = Partition(TOPICS.input, 0)


def history() -> History:
    """A producer that waited 4 s for its third record, and two readers of one group."""
    made = History()
    for offset, at_s in enumerate((1, 2, 6, 6)):
        made.send("producer-1 #1", INPUT).acknowledged(offset, at_s * SECOND_NS)
    values = [send.value for send in made.sends]
    for process, offsets in {"reader-1 #1": (0, 1), "classic-1 #1": (0, 1, 2)}.items():
        reading = made.read_by(process, INPUT)
        for offset in offsets:
            reading.given(offset, values[offset], 7 * SECOND_NS)
    again = made.read_by("classic-2 #1", INPUT)
    again.given(2, values[2], 8 * SECOND_NS)
    aborted = made.begin("ledger-1 #1")
    aborted.outcome = Outcome.FAILED
    made.send("ledger-1 #1", Partition(TOPICS.ledger, 0), aborted)
    made.send("producer-1 #1", INPUT)
    return made


def test_what_was_done_is_counted() -> None:
    counts = count(history(), TOPICS.groups)
    assert counts.sends == 6
    assert counts.acknowledged == 4
    assert counts.aborted == 1
    assert counts.unknown == 1, "of what was aborted it is known that it must not be read"
    assert counts.read == 6
    assert counts.read_again == 1
    assert counts + counts == Counts(12, 8, 0, 2, 0, 2, 0, 12, 0, 2)


def test_times_without_an_acknowledgement_are_found() -> None:
    figures = Figures()
    figures.add(history(), TOPICS, count(history(), TOPICS.groups))
    assert figures.gaps == [Gap(0, 2.0, 6.0), Gap(0, 1.0, 2.0)]
    assert figures.unavailable_s == [5.0, 0.0, 0.0]
    assert figures.acknowledged == {1: 1, 2: 1, 6: 2}
    assert figures.read == {7: 2}
    assert figures.lag_s == {7: 6.0}, "the longest of those that were read in that second"


def verdict(*anomalies: Anomaly) -> Verdict:
    late = [LateEnd(1, 1, ("J3 aborted read: <v3>",)), LateEnd(2, 5, ())]
    struck = [Struck("cut", (1, 2), "cut nodes 1 & 2 from each other", 2.0, 5.5)]
    counts = Counts(10, 9, 0, 1, 3, 1, 0, 20, 4, 0)
    one = RoundResult(1, 0.0, 30.0, counts, struck, list(anomalies), late)
    made = Verdict("dohle", 0.5, 7, ["cut"], 100.0, "2026-01-01T00:00:00+00:00", {"dohle": "1"})
    made.rounds, made.seconds, made.counts = [one], 30.0, counts
    return made


class Balanced(HTMLParser):
    """Checks that every element is closed."""

    _VOID = ("meta",)

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []

    def handle_starttag(self, tag: str, attrs: object) -> None:
        if tag not in self._VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: object) -> None:
        pass

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


@pytest.mark.parametrize("anomalies", [(), (Anomaly("J5 lost write", "b'v1' & <b'v2'>", 20.0),)])
def test_the_page_is_whole_and_says_what_was_found(anomalies: tuple[Anomaly, ...]) -> None:
    figures = Figures()
    figures.add(history(), TOPICS, count(history(), TOPICS.groups))
    text = page(verdict(*anomalies), figures)
    parser = Balanced()
    parser.feed(text)
    assert parser.open == []
    picture = text[text.index("<svg") : text.index("</svg>") + len("</svg>")]
    minidom.parseString(picture)
    assert ("Not valid: 1 anomalies." in text) == bool(anomalies)
    assert ("b&#x27;v1&#x27; &amp; &lt;b&#x27;v2&#x27;&gt;" in text) == bool(anomalies)
    assert picture.count('class="anomaly"') == len(anomalies)
    assert picture.count('class="f-cut"') == 3, "two nodes, and the legend"
    assert picture.count('class="gap"') == 2
    assert "prefers-color-scheme: dark" in text
    assert "cut nodes 1 &amp; 2 from each other" in text


def test_a_verdict_of_which_nothing_was_seen_is_not_valid() -> None:
    nothing = verdict()
    nothing.counts = Counts(sends=5, read=3)
    assert not nothing.is_valid
    assert "nothing was acknowledged, or committed by a transaction" in page(nothing, Figures())


def test_a_late_end_may_tear_transactions_of_the_first_version_only() -> None:
    assert LateEnd(1, 1, ("J3",)).is_allowed
    assert LateEnd(2, 5, ()).is_allowed
    assert not LateEnd(2, 5, ("J3",)).is_allowed
    assert not LateEnd(1, 1, (), "it could not be tried").is_allowed
