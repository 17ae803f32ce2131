"""What came of a check."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

from dohle.testing.check.faults import Struck
from dohle.testing.check.figures import Counts, Figures
from dohle.testing.check.late_end import LateEnd

#: If more of the records say nothing, a check proves little.
UNKNOWN_SHARE_MAX = 0.1


@dataclass(frozen=True, slots=True)
class Anomaly:
    """Something that must not be."""

    check: str
    text: str
    at_s: float


@dataclass(slots=True)
class RoundResult:
    """What came of a round."""

    number: int
    began_s: float
    ended_s: float
    counts: Counts
    struck: list[Struck]
    anomalies: list[Anomaly]
    late: list[LateEnd]
    notes: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        counts = self.counts
        return (
            f"round {self.number}: {counts.acknowledged} of {counts.sends} records acknowledged, "
            f"{counts.committed} transactions committed and {counts.aborted} aborted, "
            f"{len(self.struck)} faults, {len(self.anomalies)} anomalies"
        )


@dataclass(slots=True)
class Verdict:
    """What came of all rounds."""

    cluster: str
    minutes: float
    seed: int
    faults: list[str]
    rate: float
    began: str
    versions: dict[str, str]
    rounds: list[RoundResult] = field(default_factory=list)
    #: How long it went on.
    seconds: float = 0.0
    counts: Counts = field(default_factory=Counts)
    notes: list[str] = field(default_factory=list)

    @property
    def anomalies(self) -> list[Anomaly]:
        """What must not be, of all rounds."""
        return [each for one in self.rounds for each in one.anomalies]

    @property
    def struck(self) -> list[Struck]:
        """The faults of all rounds."""
        return [each for one in self.rounds for each in one.struck]

    @property
    def missing(self) -> list[str]:
        """What was not seen at all, so that nothing can be said of it."""
        counts = self.counts
        done = {
            "acknowledged": counts.acknowledged,
            "read": counts.read,
            "committed by a transaction": counts.committed,
            "committed by a group": counts.commits,
        }
        return [what for what, number in done.items() if not number]

    @property
    def is_valid(self) -> bool:
        """Whether all that is to be seen was seen, and nothing that must not be."""
        return not self.missing and not self.anomalies

    def as_json(self, figures: Figures) -> dict[str, Any]:
        """Return it for ``verdict.json``."""
        return {
            "valid": self.is_valid,
            "cluster": self.cluster,
            "versions": self.versions,
            "seed": self.seed,
            "minutes": self.minutes,
            "faults": self.faults,
            "rate": self.rate,
            "began": self.began,
            "seconds": round(self.seconds, 1),
            "counts": asdict(self.counts),
            "unknownShare": round(self.counts.unknown_share, 4),
            "unavailableSeconds": [round(each, 1) for each in figures.unavailable_s],
            "longestUnavailableSeconds": round(
                max((gap.seconds for gap in figures.gaps), default=0.0), 1
            ),
            "anomalies": [asdict(each) for each in self.anomalies],
            "lateEndTxn": [asdict(each) for one in self.rounds for each in one.late],
            "rounds": [
                {
                    "number": one.number,
                    "seconds": round(one.ended_s - one.began_s, 1),
                    "counts": asdict(one.counts),
                    "struck": [asdict(each) for each in one.struck],
                }
                for one in self.rounds
            ],
            "notes": self.notes,
        }
