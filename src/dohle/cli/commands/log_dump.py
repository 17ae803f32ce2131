"""``dohle log dump``: show the contents of the files in a log directory.

It only reads. A damaged file is shown up to the damage, which is reported on stderr with its
position, and the exit code is 1; the other files are still shown.
"""

from __future__ import annotations

import argparse
import sys

from dohle.cli.commands import log_compact
from dohle.cli.options import Commands, add_command, add_family, add_json_option, positive

_DESCRIPTION = """\
Show the contents of the files that dohle and Kafka keep on disk. The name says
what a file is; a folder stands for all files of known kinds in it:

  *.log, *.checkpoint        record batches; with --records also the records
  *.index, *.timeindex       the positions of offsets and timestamps
  *.txnindex                 aborted transactions
  *.snapshot                 producer states
  leader-epoch-checkpoint    leader epochs and their first offsets
  *-offset-checkpoint        an offset for each partition
  meta.properties, partition.metadata, quorum-state, .kafka_cleanshutdown

Names that end in .deleted, .cleaned, .swap or .part are known as well.
"""

_EPILOG = """\
Records of __cluster_metadata, __consumer_offsets, __transaction_state,
__share_group_state and __remote_log_metadata, recognised by the folder's name,
and those of *.checkpoint files are decoded; so are control records. The *-decoder
options do it for files in other folders.

Text: one "name: value" line for each batch or entry, with the names that
kafka-dump-log uses; records follow their batch after a bar. On a terminal wide
enough for it, a table. Keys and values: "text" if they are UTF-8, otherwise hex
after 0x, or null.

JSON: one object on each line. "file" is the file, "type" what the line is: file
(once, first for each file), batch, record, controlRecord, the entry of
an index or checkpoint, note, problem. Bytes are {"utf8": "..."} or, if they are
not UTF-8, {"base64": "..."}; decoded messages are {"name": ..., "version": ...,
"data": {...}}.

examples:
  dohle log dump data/orders-0
  dohle log dump --records --limit 10 data/orders-0/00000000000000000000.log
  dohle log dump --records data/__cluster_metadata-0/*.log
  dohle log dump --json data/orders-0/*.log | jq 'select(.type == "batch").size'
  dohle log dump --verify-index-only data/orders-0/*.index

exit codes: 0 everything was read, 1 a file is damaged, missing or of unknown
kind, 2 wrong command line
"""

_DECODERS = {
    "cluster-metadata": "records of the cluster metadata log",
    "offsets": "keys and values of __consumer_offsets",
    "transaction-log": "keys and values of __transaction_state",
    "share-group-state": "keys and values of __share_group_state",
    "remote-log-metadata": "records of __remote_log_metadata",
}


def add_parser(commands: Commands) -> None:
    """Declare the ``log`` family."""
    family = add_family(commands, "log", "inspect files on disk")
    help = "show the contents of log, index and checkpoint files"
    parser = add_command(family, "dump", help, _DESCRIPTION, _EPILOG)
    parser.add_argument("files", nargs="+", metavar="FILE", help="a file or a folder")
    parser.add_argument(
        "--records",
        "--print-data-log",
        action="store_true",
        help="also show the records of each batch",
    )
    add_json_option(parser)
    parser.add_argument(
        "--limit",
        type=positive,
        metavar="N",
        help="stop each file after N batches or entries",
    )
    checks = parser.add_mutually_exclusive_group()
    checks.add_argument(
        "--index-sanity-check",
        action="store_true",
        help="for indexes: only check whether a broker would accept them or rebuild them",
    )
    checks.add_argument(
        "--verify-index-only",
        action="store_true",
        help="for indexes: only compare the entries with the .log next to them",
    )
    decoders = parser.add_mutually_exclusive_group()
    for name, what in _DECODERS.items():
        decoders.add_argument(
            f"--{name}-decoder",
            dest="decoder",
            action="store_const",
            const=name,
            help=f"show records, decoded as {what}",
        )
    parser.set_defaults(run=run)
    log_compact.add_parser(family)


def run(args: argparse.Namespace) -> int:
    """Dump one file after the other; the exit code says whether all were valid."""
    from dohle.cli.dump.files import dump_all
    from dohle.cli.dump.items import DecoderName, DumpOptions, IndexCheck
    from dohle.cli.dump.output import JsonWriter, LineWriter, TableWriter, Writer

    check = IndexCheck.NONE
    if args.index_sanity_check:
        check = IndexCheck.SANITY
    elif args.verify_index_only:
        check = IndexCheck.LOG
    options = DumpOptions(
        records=args.records or args.decoder is not None,
        decoder=None if args.decoder is None else DecoderName(args.decoder),
        limit=args.limit,
        index_check=check,
    )
    writer: Writer
    if args.json:
        writer = JsonWriter()
    elif sys.stdout.isatty() and not options.records:
        writer = TableWriter()
    else:
        writer = LineWriter()
    return 0 if dump_all(args.files, options, writer) else 1
