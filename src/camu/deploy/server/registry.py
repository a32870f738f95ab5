"""The nodes of a deployment: their reports, and their present Flower ids, which are random."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence

from camu.deploy.mailbox import POLL_SECONDS, QUERY, Mailbox, Reply
from camu.deploy.messages import query_content, read_report
from camu.deploy.reports import Refusal, Report
from camu.deploy.server.fleet import missing_devices
from camu.errors import CamuError

log = logging.getLogger(__name__)


class NodeRegistry:
    """Names, reports and present Flower ids of the nodes."""

    def __init__(self, mailbox: Mailbox, classes: int, deadline_seconds: float) -> None:
        self.mailbox, self.classes, self.deadline_seconds = mailbox, classes, deadline_seconds
        self.reports: dict[str, Report] = {}
        self._ids: dict[str, int] = {}  # by name
        self._asked: set[int] = set()

    def refresh(self) -> None:
        """Ask new nodes who they are. Replies are handled by the mailbox's poll()."""
        online = self.mailbox.online()
        self._asked &= online  # a node that went and came back is asked again
        for name, node in list(self._ids.items()):
            if node not in online:
                del self._ids[name]
        new = online - self._asked
        if new:
            self._asked |= new
            contents = {node: query_content() for node in new}
            self.mailbox.send(contents, QUERY, "the query", self.deadline_seconds, self._enter)

    def present(self) -> dict[str, int]:
        """The Flower ids of the nodes that are online, by name."""
        return dict(self._ids)

    def wait_for_all(self, ids: Sequence[str], seconds: float, partitions: int = 0) -> None:
        """Wait until every device of the fleet is reported."""
        self._wait(
            lambda: (
                not missing_devices(self.reports, ids)
                and sum(r.partition is not None for r in self.reports.values()) >= partitions
            ),
            seconds,
            lambda: (
                f"after {seconds:g} s {len(missing_devices(self.reports, ids))} of {len(ids)} "
                f"devices were not reported (nodes that reported: "
                f"{'; '.join(sorted(self.reports)) or 'none'}); start the missing nodes, or wait "
                "longer with --wait"
            ),
        )

    def wait_for_any(self, seconds: float) -> None:
        """Wait until at least one node is online."""
        self._wait(
            lambda: bool(self._ids),
            seconds,
            lambda: (
                f"no node was online for {seconds:g} s; start the nodes, and continue with --resume"
            ),
        )

    def wait_for_known(self, seconds: float) -> None:
        """Wait for the nodes that have reported; after this time, continue without the others."""
        deadline = time.monotonic() + seconds
        while self.reports.keys() - self._ids.keys() and time.monotonic() < deadline:
            self.refresh()
            self.mailbox.poll()
            time.sleep(POLL_SECONDS)

    def _wait(self, done: Callable[[], bool], seconds: float, complaint: Callable[[], str]) -> None:
        deadline = time.monotonic() + seconds
        self.refresh()
        self.mailbox.poll()
        while not done():
            if time.monotonic() > deadline:
                raise CamuError(complaint())
            time.sleep(POLL_SECONDS)
            self.refresh()
            self.mailbox.poll()

    def _enter(self, reply: Reply) -> None:
        try:
            if reply.content is None:
                raise Refusal(reply.reason)
            report = read_report(reply.content, self.classes)
        except Refusal as refusal:
            log.warning("node %s is not used: %s", reply.node, refusal)
            self._asked.discard(reply.node)  # it may do better next time
            return
        known = self.reports.get(report.name)
        if known is not None and not _same_data(known, report):
            log.warning("node %s is not used: it reports other data than before", reply.node)
            return
        if known is None:
            self.reports[report.name] = report
        self._ids[report.name] = reply.node
        log.info("node %s is %s", reply.node, report.name)


def _same_data(one: Report, other: Report) -> bool:
    return [(d.id, d.label_counts) for d in one.devices] == [
        (d.id, d.label_counts) for d in other.devices
    ]
