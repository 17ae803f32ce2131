"""``python -m dohle.testing.check``: faults strike a cluster, and what clients saw is judged."""

from __future__ import annotations

import argparse
import sys
from importlib.util import find_spec
from pathlib import Path

_ABOUT = """\
Run three nodes, each broker and controller, let librdkafka's clients work on them while faults
strike, and judge what the clients saw: nothing that was acknowledged may be lost, duplicated,
reordered or invented, transactions are read whole or not at all, groups' offsets do not go back.

Clients: two idempotent producers (acks=all), one transactional producer, two copiers (read, write
and commit offsets in one transaction), groups of two by the classic and the newer protocol
(KIP-848), and a reader of everything; topics of three partitions with three replicas,
min.insync.replicas=2. After each round all is mended and read to its end; then an EndTxn is
delivered late, under transactions v1 and v2.
"""

_MORE = """\
faults:
  kill       nodes (one, two or all) end with SIGKILL, and are started again
  pause      nodes stand still (SIGSTOP) for up to 8 s, and go on
  stop       a node is asked to stop (SIGTERM), and is started again
  cut        proxies let nothing through: between nodes, one way or both, or clients and a node
             (which node a connection is from is known on Linux only)
  full-disk  the data of a node is on a small tmpfs, which is filled: it takes the right to mount
             one (root); where that cannot be done the report says so, and the rest is run

files in DIR:
  report.html    for people: time line, figures, what was found
  verdict.json   the same for programs; "valid" says whether all is well
  history.jsonl  what clients did and saw; --judge judges it again
  node-N.log     the log of a node

Ctrl-C ends the round that runs, judges it and writes the report; a second one does not wait for
that. Exit code: 0 if all is well, 1 if something was found, 2 if it could not be run.

  python -m dohle.testing.check --minutes 5 --seed 7 --out report
  python -m dohle.testing.check --cluster kafka --kafka-libs kafka_2.13-4.2.1/libs --out report
  python -m dohle.testing.check --judge report/history.jsonl --out again
"""


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m dohle.testing.check",
        description=_ABOUT,
        epilog=_MORE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--cluster",
        choices=("dohle", "kafka", "mixed"),
        default="dohle",
        help="whose the nodes are: mixed has a node of Apache Kafka between two of dohle "
        "(default: dohle)",
    )
    parser.add_argument(
        "--kafka-libs",
        type=Path,
        metavar="DIR",
        help="the folder with Apache Kafka's jars (libs of its download), for kafka and mixed; "
        "java has to be there too",
    )
    parser.add_argument(
        "--minutes", type=float, default=5.0, help="how long load and faults last (default: 5)"
    )
    parser.add_argument(
        "--round-minutes",
        type=float,
        default=4.0,
        metavar="M",
        help="after so many minutes at most all is mended and judged; memory grows with a round, "
        "not with the whole (default: 4)",
    )
    parser.add_argument(
        "--faults",
        default="kill,pause,stop,cut,full-disk",
        metavar="KINDS",
        help="which faults strike, with commas between them, or none (default: all of them)",
    )
    parser.add_argument("--seed", type=int, default=1, help="of faults and load (default: 1)")
    parser.add_argument(
        "--rate",
        type=float,
        default=150.0,
        metavar="N",
        help="records a second that the idempotent producers send (default: 150)",
    )
    parser.add_argument(
        "--out",
        type=Path,
        default=Path("check-report"),
        metavar="DIR",
        help="where the report goes (default: check-report)",
    )
    parser.add_argument(
        "--judge",
        type=Path,
        metavar="FILE",
        help="run nothing: judge a history.jsonl again, and write verdict.json",
    )
    return parser


def main(arguments: list[str] | None = None) -> int:
    """Run as the arguments say."""
    parser = _parser()
    args = parser.parse_args(arguments)
    if find_spec("confluent_kafka") is None:
        parser.error("this needs confluent-kafka: pip install 'dohle[test]'")
    from dohle.testing.check.faults import FaultKind
    from dohle.testing.check.judge import judge
    from dohle.testing.check.record import BadRecord
    from dohle.testing.check.run import CheckRun, Settings
    from dohle.testing.node_process import NodeFailed

    names = [] if args.faults == "none" else args.faults.split(",")
    try:
        kinds = tuple(dict.fromkeys(map(FaultKind, names)))
    except ValueError as error:
        parser.error(f"{error}: choose of {', '.join(kind.value for kind in FaultKind)}")
    if min(args.minutes, args.round_minutes, args.rate) <= 0:
        parser.error("--minutes, --round-minutes and --rate must be positive")
    if args.judge is None and args.cluster != "dohle" and args.kafka_libs is None:
        parser.error(f"--cluster {args.cluster} needs --kafka-libs")
    try:
        if args.judge is not None:
            found = judge(args.judge, args.out)
            for text in found:
                sys.stdout.write(f"{text}\n")
            is_valid = not found
        else:
            verdict = CheckRun(
                Settings(
                    args.cluster,
                    args.minutes,
                    kinds,
                    args.seed,
                    args.out,
                    args.round_minutes,
                    args.rate,
                    args.kafka_libs,
                )
            ).go()
            is_valid = verdict.is_valid
            for each in verdict.anomalies:
                sys.stdout.write(f"{each.check}: {each.text}\n")
            for what in verdict.missing:
                sys.stdout.write(f"nothing was {what}\n")
    except (NodeFailed, BadRecord, OSError) as error:
        sys.stderr.write(f"{error}\n")
        return 2
    sys.stdout.write(f"{'valid' if is_valid else 'NOT valid'}; the report is in {args.out}\n")
    return 0 if is_valid else 1


if __name__ == "__main__":
    sys.exit(main())
