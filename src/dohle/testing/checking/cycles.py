"""What transactions have read of each other: nobody reads what is not committed before.

A transaction follows another if it has read what that one has written (wr). Which of two has
written first says nothing: Kafka does not keep writers from each other (J8, J14). So circles are
looked for among reads alone (J15), and among reads and the order of time (J16): one transaction is
before another that has begun after its end. What one process does in turn is in that order too.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from dohle.testing.checking.history import ClientTransaction, History, Outcome

#: Who must be after whom.
Edges = dict[ClientTransaction, set[ClientTransaction]]


def own_writes_read(history: History) -> Iterator[str]:
    """Nobody reads within a transaction what it has written in it."""
    writers = _writers(history)
    for transaction in history.transactions:
        for read in transaction.reads:
            if writers.get(read) is transaction:
                yield f"{transaction.name} has read its own {read[1]!r} in {read[0]}"


def circular_reads(history: History) -> Iterator[str]:
    """Of two transactions not each has read what the other has written, nor in a larger circle."""
    yield from _circle(_reads(history))


def circular_reads_in_time(history: History) -> Iterator[str]:
    """Nobody has read what was written by one that began after its end, nor in a larger circle."""
    edges = _reads(history)
    _add_order_of_time(history, edges)
    yield from _circle(edges)


def _writers(history: History) -> dict[tuple[object, bytes], ClientTransaction]:
    return {
        (send.partition, send.value): send.transaction
        for send in history.sends
        if send.transaction is not None
    }


def _reads(history: History) -> Edges:
    edges: Edges = defaultdict(set)
    writers = _writers(history)
    for reader in history.transactions:
        if reader.outcome is Outcome.OK:
            for read in reader.reads:
                writer = writers.get(read)
                if writer is not None and writer is not reader:
                    edges[writer].add(reader)
    return edges


def _add_order_of_time(history: History, edges: Edges) -> None:
    """Link each beginning to the last ends before it; what ended before those follows from them."""
    events = []
    for number, each in enumerate(history.transactions):
        # What begins at the very moment of an end is not taken to be behind it.
        events.append((each.began_ns, 0, number))
        if each.outcome is Outcome.OK and each.ended_ns >= 0:
            events.append((each.ended_ns, 1, number))
    last_ended: set[ClientTransaction] = set()
    before: dict[ClientTransaction, set[ClientTransaction]] = {}
    for _, is_end, number in sorted(events):
        each = history.transactions[number]
        if is_end:
            last_ended -= before.pop(each)
            last_ended.add(each)
        else:
            before[each] = set(last_ended)
            for earlier in last_ended:
                edges[earlier].add(each)


def _circle(edges: Edges) -> Iterator[str]:
    """Take away whoever is after nobody, again and again: what is left goes in circles."""
    before: dict[ClientTransaction, set[ClientTransaction]] = defaultdict(set)
    for earlier, followers in edges.items():
        for each in followers:
            before[each].add(earlier)
    free = [each for each in edges if not before[each]]
    while free:
        gone = free.pop()
        for each in edges.get(gone, ()):
            before[each].discard(gone)
            if not before[each]:
                free.append(each)
    left = {each for each, earlier in before.items() if earlier}
    if not left:
        return
    # Whoever is left is after somebody who is left: going back, one comes round.
    path = [min(left, key=lambda each: each.name)]
    while (earlier := min(before[path[-1]] & left, key=lambda each: each.name)) not in path:
        path.append(earlier)
    circle = path[path.index(earlier) :]
    yield " before ".join(each.name for each in reversed([*circle, circle[0]]))
