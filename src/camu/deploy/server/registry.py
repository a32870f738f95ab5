"""Which Flower node is which of ours: learnt from a query, because Flower's node ids are random."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence

from camu.deploy.server.assignment import missing_devices
from camu.deploy.wire.mailbox import POLL_SECONDS, QUERY, Answer, Post
from camu.deploy.wire.messages import read_head, write_report
from camu.deploy.wire.reports import Refusal, Report, read_report
from camu.errors import CamuError

log = logging.getLogger(__name__)


class Roster:
    """Names, reports and present Flower ids of the nodes."""

    def __init__(self, post: Post, classes: int, deadline_seconds: float) -> None:
        self.post, self.classes, self.deadline_seconds = post, classes, deadline_seconds
        self.reports: dict[str, Report] = {}
        self._ids: dict[str, int] = {}  # by name
        self._asked: set[int] = set()

    def refresh(self) -> None:
        """Ask nodes that are new here who they are; their answers are seen to in passing."""
        online = self.post.online()
        self._asked &= online  # a node that went and came back is asked again
        for name, node in list(self._ids.items()):
            if node not in online:
                del self._ids[name]
        strangers = online - self._asked
        if strangers:
            self._asked |= strangers
            contents = {node: write_report({}) for node in strangers}
            self.post.send(contents, QUERY, "the query", self.deadline_seconds, self._enter)

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
                f"devices were not reported (nodes that came: "
                f"{'; '.join(sorted(self.reports)) or 'none'}); start the missing nodes, or wait "
                "longer with --wait"
            ),
        )

    def wait_for_any(self, seconds: float) -> None:
        """Wait until at least one node is there."""
        self._wait(
            lambda: bool(self._ids),
            seconds,
            lambda: (
                f"no node was online for {seconds:g} s; start the nodes, and go on with --resume"
            ),
        )

    def wait_a_while(self, seconds: float) -> None:
        """Give the nodes that are known time to come; those that do not are missed later."""
        deadline = time.monotonic() + seconds
        while self.reports.keys() - self._ids.keys() and time.monotonic() < deadline:
            self.refresh()
            self.post.poll()
            time.sleep(POLL_SECONDS)

    def _wait(self, done: Callable[[], bool], seconds: float, complaint: Callable[[], str]) -> None:
        deadline = time.monotonic() + seconds
        self.refresh()
        while not done():
            if time.monotonic() > deadline:
                raise CamuError(complaint())
            time.sleep(POLL_SECONDS)
            self.refresh()
            self.post.poll()

    def _enter(self, answer: Answer) -> None:
        try:
            if answer.content is None:
                raise Refusal(answer.reason)
            report = read_report(read_head(answer.content), self.classes)
        except Refusal as refusal:
            log.warning("node %s is not used: %s", answer.node, refusal)
            self._asked.discard(answer.node)  # it may do better next time
            return
        known = self.reports.get(report.name)
        if known is not None and not _same_data(known, report):
            log.warning("node %s is not used: it reports other data than before", answer.node)
            return
        if known is None:
            self.reports[report.name] = report
        self._ids[report.name] = answer.node
        log.info("node %s is %s", answer.node, report.name)


def _same_data(one: Report, other: Report) -> bool:
    return [(d.id, d.label_counts) for d in one.devices] == [
        (d.id, d.label_counts) for d in other.devices
    ]
