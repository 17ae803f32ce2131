"""The report of a check: one page, without anything from elsewhere, in light and dark."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

from dohle.testing.check.faults import FaultKind
from dohle.testing.check.figures import Figures, Gap
from dohle.testing.check.timeline import TimeLine
from dohle.testing.check.verdict import UNKNOWN_SHARE_MAX, Verdict
from dohle.testing.checking.checks import KEPT_CHECKS

_GAPS_SHOWN = 10
_FAULTS_SHOWN = 300
#: Figures with their unit and single words: lines do not break within them.
_WORD_MAX = 10
#: Of who reads what it writes, of producers that are not idempotent, and of administrators: there
#: are none here.
_NOT_TRIED = ("J4", "J12", "J15", "J16", "A1")

_STYLE = """
:root { color-scheme: light dark; --back: #fff; --text: #1c1f24; --soft: #667; --line: #d9dce3;
  --panel: #f5f6f8; --good: #1a7f4b; --bad: #c22; --area: #7aa7e0; --read: #1d4f91;
  --kill: #c0392b; --pause: #d68910; --stop: #7d6608; --cut: #7d3c98; --disk: #117a65;
  --gap: #e07b39; }
@media (prefers-color-scheme: dark) { :root { --back: #16181d; --text: #e4e6eb; --soft: #9aa0ad;
  --line: #343842; --panel: #1e2128; --good: #4cc38a; --bad: #ff6b6b; --area: #33598c;
  --read: #9cc4ff; --kill: #ff7b6b; --pause: #f5b041; --stop: #d4c15a; --cut: #bb8fce;
  --disk: #48c9b0; --gap: #ff9e5e; } }
body { font: 15px/1.5 system-ui, sans-serif; background: var(--back); color: var(--text);
  max-width: 1080px; margin: 2em auto; padding: 0 1em; }
h1 { font-size: 1.5em; margin-bottom: 0.2em; } h2 { font-size: 1.1em; margin-top: 2em; }
.verdict { font-size: 1.15em; font-weight: 600; } .good { color: var(--good); }
.bad { color: var(--bad); } .soft { color: var(--soft); }
table { border-collapse: collapse; margin: 0.6em 0; font-variant-numeric: tabular-nums; }
td, th { text-align: left; padding: 0.2em 1.2em 0.2em 0; border-bottom: 1px solid var(--line);
  vertical-align: top; } th { color: var(--soft); font-weight: 500; }
td.n, th.n { text-align: right; } td.n, td.w { white-space: nowrap; }
td:not(.n, .w) { min-width: 9em; }
pre { background: var(--panel); padding: 0.8em; overflow-x: auto; white-space: pre-wrap; }
details { margin: 0.6em 0; }
.wide { overflow-x: auto; }
svg { width: 100%; min-width: 800px; background: var(--panel); border-radius: 6px; }
svg text { fill: var(--soft); font-size: 11px; } svg .head { fill: var(--text); font-size: 12px; }
svg .end { text-anchor: end; } svg .middle { text-anchor: middle; }
svg .tick, svg .axis { stroke: var(--line); } svg .rest { fill: var(--back); opacity: 0.8; }
svg .acknowledged { fill: var(--area); } svg .read { fill: none; stroke: var(--read); }
svg .f-kill { fill: var(--kill); } svg .f-pause { fill: var(--pause); }
svg .f-stop { fill: var(--stop); } svg .f-cut { fill: var(--cut); }
svg .f-full-disk { fill: var(--disk); } svg .gap { fill: var(--gap); }
svg .anomaly { fill: var(--bad); }
"""


def page(verdict: Verdict, figures: Figures) -> str:
    """Return the whole page."""
    title = f"{verdict.cluster} under faults, seed {verdict.seed}"
    sections = [
        f"<h1>{escape(title)}</h1>",
        _headline(verdict),
        _summary(verdict, figures),
        "<h2>Time line</h2>",
        _wide(TimeLine(verdict, figures).draw()),
        '<p class="soft">Between rounds everything is mended, read to its end and judged. '
        "Bars tell more when they are pointed at.</p>",
        _anomalies(verdict),
        _unavailability(verdict, figures),
        _faults(verdict),
        _late(verdict),
        _rounds(verdict),
        _checks(verdict),
        _notes(verdict),
    ]
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>{escape(title)}'
        f'</title><meta name="viewport" content="width=device-width"><style>{_STYLE}</style>'
        f"</head><body>{''.join(sections)}</body></html>\n"
    )


def _table(head: Sequence[str], rows: Iterable[Sequence[object]], numbers: int = 0) -> str:
    """Return a table, of which the columns from ``numbers`` on are figures, if that is not 0."""

    def kind(at: int, cell: object) -> str:
        if numbers and at >= numbers:
            return " class=n"
        return " class=w" if len(str(cell)) <= _WORD_MAX else ""

    def cells(tag: str, row: Sequence[object]) -> str:
        return "".join(
            f"<{tag}{kind(at, cell)}>{escape(str(cell))}</{tag}>" for at, cell in enumerate(row)
        )

    body = "".join(f"<tr>{cells('td', row)}</tr>" for row in rows)
    return _wide(f"<table><tr>{cells('th', head)}</tr>{body}</table>")


def _wide(content: str) -> str:
    """Let what a narrow window has no room for be moved by itself."""
    return f'<div class="wide">{content}</div>'


def _headline(verdict: Verdict) -> str:
    if verdict.is_valid:
        text = "Valid: what was acknowledged is there, once, in order; nothing else was read."
    elif verdict.anomalies:
        text = f"Not valid: {len(verdict.anomalies)} anomalies."
    else:
        text = f"Not valid: nothing was {', or '.join(verdict.missing)}."
    return f'<p class="verdict {"good" if verdict.is_valid else "bad"}">{text}</p>'


def _summary(verdict: Verdict, figures: Figures) -> str:
    counts = verdict.counts
    versions = ", ".join(f"{name} {number}" for name, number in sorted(verdict.versions.items()))
    longest = max((gap.seconds for gap in figures.gaps), default=0.0)
    lag_s = max(figures.lag_s.values(), default=0.0)
    share = f"{counts.unknown_share:.2%}"
    if counts.unknown_share > UNKNOWN_SHARE_MAX:
        share += ": so many that this check proves little"
    rows = [
        ("began", f"{_time(verdict.began)}, for {verdict.seconds / 60:.1f} minutes"),
        ("versions", versions),
        ("faults", f"{', '.join(verdict.faults) or 'none'}: {len(verdict.struck)} have struck"),
        (
            "records",
            f"{counts.sends:,} sent, {counts.acknowledged:,} acknowledged, {counts.failed:,} "
            f"refused; of {counts.unknown:,} it is not known ({share})",
        ),
        (
            "transactions",
            f"{counts.committed:,} committed, {counts.aborted:,} aborted, {counts.undecided:,} "
            "whose producer does not know",
        ),
        (
            "reading",
            f"{counts.read:,} records read, {counts.read_again:,} of them again by another member "
            f"of the group; {counts.commits:,} offsets committed; at most {lag_s:.1f} s from "
            "acknowledged to read",
        ),
        (
            "unavailable",
            ", ".join(f"{each:.0f} s" for each in figures.unavailable_s)
            + f" for the three partitions of the input; the longest time was {longest:.1f} s",
        ),
    ]
    body = "".join(f"<tr><th>{name}</th><td>{escape(text)}</td></tr>" for name, text in rows)
    return f"<table>{body}</table>"


def _time(iso: str) -> str:
    """Return a time as people write it; it is UTC."""
    return iso.replace("T", " ").replace("+00:00", " UTC")


def _anomalies(verdict: Verdict) -> str:
    if not verdict.anomalies:
        return ""
    found = "".join(
        f"<pre>{escape(f'{each.check}, found at {each.at_s:.0f} s: {each.text}')}</pre>"
        for each in verdict.anomalies
    )
    return f"<h2>Anomalies</h2>{found}"


def _unavailability(verdict: Verdict, figures: Figures) -> str:
    def cause(gap: Gap) -> str:
        found = [
            each.text
            for each in verdict.struck
            if each.began_s < gap.ended_s and (each.ended_s or gap.ended_s) > gap.began_s - 1
        ]
        return "; ".join(found) or "no fault at that time"

    rows = [
        (f"input-{gap.partition}", f"{gap.began_s:.1f} s", f"{gap.seconds:.1f} s", cause(gap))
        for gap in figures.gaps[:_GAPS_SHOWN]
    ]
    if not rows:
        return ""
    head = ("partition", "from", "for", "what happened then")
    return f"<h2>The longest times without an acknowledgement</h2>{_table(head, rows)}"


def _faults(verdict: Verdict) -> str:
    kinds = [
        (kind.value, kind.explanation, len(found), f"{sum(found):.0f} s")
        for kind in FaultKind
        if (found := [each.seconds for each in verdict.struck if each.kind == kind.value])
    ]
    rows = [
        (
            f"{each.began_s:.1f} s",
            f"{each.seconds:.1f} s",
            each.text,
        )
        for each in verdict.struck[:_FAULTS_SHOWN]
    ]
    left = len(verdict.struck) - len(rows)
    more = f"<p>... and {left} more, in verdict.json.</p>" if left > 0 else ""
    return (
        f"<h2>Faults</h2>{_table(('kind', 'what it is', 'times', 'together'), kinds, 2)}"
        f"<details><summary>all of them</summary>{_table(('at', 'for', 'what'), rows)}{more}"
        "</details>"
    )


def _late(verdict: Verdict) -> str:
    rows = [
        (
            one.number,
            f"v{late.version}",
            late.end_txn_version,
            late.problem or "; ".join(late.violations) or "it was refused: nothing is torn",
            "yes" if late.is_allowed else "no",
        )
        for one in verdict.rounds
        for late in one.late
    ]
    if not rows:
        return ""
    head = ("round", "transactions", "EndTxn version", "what came of it", "allowed")
    return (
        "<h2>A late EndTxn</h2><p>The commit of a transaction is held back by the network, sent "
        "again, and answered; the next transaction begins, and only then the first one arrives. "
        "The second transaction is then aborted. Transactions v1 cannot tell the two apart "
        f"(KAFKA-17754); v2 must.</p>{_table(head, rows)}"
    )


def _rounds(verdict: Verdict) -> str:
    rows = [
        (
            one.number,
            f"{one.ended_s - one.began_s:.0f} s",
            f"{one.counts.acknowledged:,}",
            f"{one.counts.committed:,}",
            f"{one.counts.read:,}",
            len(one.struck),
            len(one.anomalies),
        )
        for one in verdict.rounds
    ]
    head = ("round", "for", "acknowledged", "committed", "read", "faults", "anomalies")
    return f"<h2>Rounds</h2>{_table(head, rows, 1)}"


def _checks(verdict: Verdict) -> str:
    broken = {each.check for each in verdict.anomalies}
    rows = [
        (name, (function.__doc__ or "").splitlines()[0], "broken" if name in broken else "holds")
        for name, function in KEPT_CHECKS.items()
        if name.split()[0] not in _NOT_TRIED
    ]
    return f"<h2>What must hold</h2>{_table(('check', 'rule', ''), rows)}"


def _notes(verdict: Verdict) -> str:
    if not verdict.notes:
        return ""
    return f"<h2>Notes</h2><ul>{''.join(f'<li>{escape(n)}</li>' for n in verdict.notes)}</ul>"
