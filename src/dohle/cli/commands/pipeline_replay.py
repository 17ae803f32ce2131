"""``dohle pipeline replay``: sends dead letters back to their origin."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from dohle.cli.errors import CliError, report_warning
from dohle.cli.output import print_json
from dohle.cli.session import find_partitions, with_cluster
from dohle.cli.values import to_text

if TYPE_CHECKING:
    from dohle.client import Cluster
    from dohle.spark.pipelines.replay import Letter


def replay_letters(args: argparse.Namespace) -> int:
    """Send them and print how many, or show what would be sent."""
    from dohle.client import Admin
    from dohle.spark.pipelines.replay import replay

    async def work(cluster: Cluster) -> int:
        await find_partitions(Admin(cluster), args.topic, None)
        if args.to == args.topic:
            raise CliError(
                "--to is the dead-letter topic itself: choose another one, or the "
                "replay would never end"
            )

        def show(letter: Letter) -> None:
            if args.dry_run or args.json:
                _show(letter, args.to, as_json=args.json)

        done = await replay(
            cluster,
            args.topic,
            group=args.group,
            to=args.to,
            limit=args.count,
            is_dry=args.dry_run,
            on_letter=show,
        )
        if not args.json:
            verb = "would be sent" if args.dry_run else "sent"
            print(f"{done.sent} records {verb}")
        if done.without_origin:
            report_warning(
                f"{done.without_origin} records have no origin in their headers: use --to to "
                "send them to a topic"
            )
        return 0

    return with_cluster(args, work)


def _show(letter: Letter, to: str | None, *, as_json: bool) -> None:
    target = to or letter.origin
    if as_json:
        fields: dict[str, object] = {
            "topic": letter.topic,
            "partition": letter.partition,
            "offset": letter.offset,
            "to": target,
            "error": letter.error,
            "value": letter.value,
        }
        print_json(fields)
        return
    where = f"{letter.topic}-{letter.partition}@{letter.offset}"
    reason = to_text(letter.error or "no reason given")
    print(f"{where} to {to_text(target or 'nowhere')}: {reason}")
