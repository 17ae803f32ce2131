"""The quorum behind the metadata log: KRaft as a pure machine.

``machine.Raft(config, log, rng, restored, now_ms)`` is one node of it: a voter, a controller that
is not a voter, or a broker (an observer). ``log`` is a LogView, ``restored`` what
``quorum-state`` said (None without a file).

- ``step(event, now_ms) -> list[Effect]``: the only entry and the only exit. Time is monotonic.
- ``deadline_ms``: when it wants a Tick at the latest; the first Tick is passed at start.
- ``leader``, ``is_leader``, ``high_watermark``, ``voters``: what it knows, to be read at any time.
"""
