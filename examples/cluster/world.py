"""What is known of the cluster, and how it looks."""

from collections import Counter, deque
from time import monotonic

from rich.console import Group, RenderableType
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from dohle.client.metadata import PartitionInfo
from dohle.testing import Cluster

TOPIC, PARTITIONS, GROUP = "demo", 6, "watchers"
EVENTS_SHOWN, RATE_SECONDS = 5, 60
BARS = " ▁▂▃▄▅▆▇█"


class World:
    """The last that was seen of everything."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._began_s = monotonic()
        self._by_second: Counter[int] = Counter()
        self._events: deque[str] = deque(maxlen=EVENTS_SHOWN)
        self.partitions: list[PartitionInfo] = []
        self.controller = -1
        self.ends: dict[int, int] = {}
        self.committed: dict[int, int] = {}
        self.starting: set[int] = set()
        self.written = self.read = self.failed = 0

    @property
    def now_s(self) -> float:
        """How long it has been going on."""
        return monotonic() - self._began_s

    @property
    def is_well(self) -> bool:
        """Whether every partition has all its replicas in sync."""
        return bool(self.partitions) and all(
            len(each.isr) == len(each.replicas) for each in self.partitions
        )

    @property
    def rate(self) -> int:
        """How many records were acknowledged in the last whole second."""
        return self._by_second[int(self.now_s) - 1]

    @property
    def lag(self) -> int:
        """How many records the group has not committed yet."""
        return sum(max(end - self.committed.get(number, 0), 0) for number, end in self.ends.items())

    def acknowledged(self) -> None:
        """Count a record."""
        self.written += 1
        self._by_second[int(self.now_s)] += 1

    def note(self, text: str) -> None:
        """Tell what was done."""
        self._events.append(f"{self.now_s:6.1f} s  {text}")

    def line(self) -> str:
        """Return it all in a line."""
        leaders = " ".join(f"{each.partition}:{each.leader_id}" for each in self.partitions)
        in_sync = sum(len(each.isr) for each in self.partitions)
        replicas = sum(len(each.replicas) for each in self.partitions)
        return (
            f"{self.now_s:5.1f} s  controller {self.controller}  leaders {leaders}  in sync "
            f"{in_sync} of {replicas}  {self.rate} records/s  lag {self.lag}"
        )

    def view(self, help_line: str) -> RenderableType:
        """Return the whole screen."""
        tables = Table.grid(padding=(0, 4))
        tables.add_row(self._nodes(), self._partitions())
        parts: list[RenderableType] = [tables, Text(), self._rates()]
        parts += [Text(event, style="dim") for event in self._events]
        title = f"dohle, {self.now_s:.0f} s: {'all in sync' if self.is_well else 'healing'}"
        style = "green" if self.is_well else "yellow"
        return Group(
            Panel(Group(*parts), title=title, border_style=style, subtitle=help_line or None)
        )

    def _nodes(self) -> Table:
        table = Table(title="nodes", title_justify="left", box=None, pad_edge=False)
        for name in ("node", "state", "leads", "in sync"):
            table.add_column(name, justify="left" if name == "state" else "right")
        for node in self._cluster.nodes:
            leads = sum(each.leader_id == node for each in self.partitions)
            in_sync = sum(node in each.isr for each in self.partitions)
            role = " *" if node == self.controller else "  "
            table.add_row(f"{node}{role}", self._state(node), f"{leads}", f"{in_sync}")
        table.caption, table.caption_justify = "* the active controller", "left"
        return table

    def _state(self, node: int) -> Text:
        if node in self.starting:
            return Text("starting", style="yellow")
        if node in self._cluster.stopped:
            return Text("killed", style="bold red")
        if node not in self._cluster.serving:
            return Text("paused", style="bold magenta")
        return Text("running", style="green")

    def _partitions(self) -> Table:
        table = Table(title=f"topic {TOPIC}", title_justify="left", box=None, pad_edge=False)
        for name in ("partition", "leader", "replicas", "ISR", "end", "lag"):
            table.add_column(name, justify="right")
        for each in self.partitions:
            number = each.partition
            end = self.ends.get(number, 0)
            is_whole = len(each.isr) == len(each.replicas)
            table.add_row(
                f"{number}",
                f"{each.leader_id}" if each.leader_id >= 0 else Text("none", style="bold red"),
                ",".join(map(str, each.replicas)),
                Text(",".join(map(str, each.isr)), style="green" if is_whole else "yellow"),
                f"{end:,}",
                f"{max(end - self.committed.get(number, 0), 0):,}",
            )
        return table

    def _rates(self) -> Text:
        last = int(self.now_s)
        rates = [self._by_second[each] for each in range(max(last - RATE_SECONDS, 0), last)]
        most = max([*rates, 1])
        bars = "".join(BARS[-(-rate * (len(BARS) - 1) // most)] for rate in rates)
        return Text.assemble(
            ("acknowledged a second ", "dim"),
            (bars, "cyan"),
            f" {self.rate:,}   {self.written:,} written, {self.read:,} read",
        )
