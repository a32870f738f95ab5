"""The nodes of a deployment: their reports, and their present Flower ids, which are random.

A node whose report cannot be used is refused alone, with a sentence in the log. It is asked again
later, and never ends the run of the others.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import replace

from camu.deploy.claims import check_claim, too_many_samples
from camu.deploy.events import Event
from camu.deploy.mailbox import NOTE_SECONDS, QUERY, Mailbox, Reply, pause
from camu.deploy.messages import query_content, read_report
from camu.deploy.reports import Refusal, Report
from camu.deploy.server.fleet import missing_devices
from camu.deploy.server.journal import Journal
from camu.errors import CamuError

log = logging.getLogger(__name__)

RETRY_SECONDS = 60.0  # until a node that was refused is asked again


class NodeRegistry:
    """Names, reports and present Flower ids of the nodes of a fleet."""

    def __init__(
        self,
        mailbox: Mailbox,
        classes: int,
        deadline_seconds: float,
        ids: Sequence[str],
        journal: Journal,
        most_samples: float = 0.0,
    ) -> None:
        """`most_samples`: a device's samples in medians of the other nodes' devices; 0: any."""
        self.mailbox, self.classes, self.deadline_seconds = mailbox, classes, deadline_seconds
        self.ids, self.journal, self.most_samples = tuple(ids), journal, most_samples
        self.reports: dict[str, Report] = {}
        self._ids: dict[str, int] = {}  # by name
        self._asked: set[int] = set()
        self._refused: dict[int, float] = {}  # when a refused node is asked again
        self._lost: set[str] = set()  # nodes that were here and have gone
        self._begun = False  # whether the run has begun, so that nodes can be compared

    def refresh(self) -> None:
        """Ask new nodes who they are. Replies are handled by the mailbox's poll()."""
        online, now = self.mailbox.online(), self.mailbox.clock()
        self._asked &= online  # a node that went and came back is asked again
        self._refused = {node: due for node, due in self._refused.items() if node in online}
        for name, node in list(self._ids.items()):
            if node not in online:
                del self._ids[name]
                self._lost.add(name)
                self._note("node-lost", name, "is no longer online")
        waiting = {node for node, due in self._refused.items() if now < due}
        new = online - self._asked - waiting
        if new:
            self._asked |= new
            contents = {node: query_content() for node in new}
            self.mailbox.send(contents, QUERY, "the query", self.deadline_seconds, self._enter)

    def present(self) -> dict[str, int]:
        """The Flower ids of the nodes that are online, by name."""
        return dict(self._ids)

    def known(self) -> list[int]:
        """The devices that nodes have reported, by their place in the fleet."""
        seen = {device.id for report in self.reports.values() for device in report.devices}
        return [place for place, name in enumerate(self.ids) if name in seen]

    def online_devices(self) -> int:
        """How many of the reported devices are on nodes that are online."""
        return sum(len(self.reports[name].devices) for name in self._ids)

    def wait_for_quorum(self, quorum: int, seconds: float, partitions: int = 0) -> None:
        """Wait for all devices; after this time, the quorum of them is enough."""

        def complete() -> bool:
            trial = sum(report.partition is not None for report in self.reports.values())
            return not missing_devices(self.reports, self.ids) and trial >= partitions

        self._wait(complete, seconds)
        self._refuse_too_large()
        if complete():
            return
        missing = missing_devices(self.reports, self.ids)
        here = len(self.ids) - len(missing)
        if here < quorum:
            raise CamuError(
                f"after {seconds:g} s {len(missing)} of {len(self.ids)} devices were not reported "
                f"({name_some(missing)}), and the quorum is {quorum} devices; start the missing "
                "nodes, wait longer with --wait, or lower --quorum"
            )
        log.warning(
            "the run starts with %d of %d devices; %s can join later",
            here,
            len(self.ids),
            name_some(missing),
        )

    def wait_for_any(self, seconds: float) -> None:
        """Wait until at least one node is online."""
        self._wait(lambda: bool(self._ids), seconds)
        if not self._ids:
            raise CamuError(
                f"no node was online for {seconds:g} s; start the nodes, and continue with --resume"
            )

    def wait_for_known(self, seconds: float) -> None:
        """Wait for the nodes that have reported; after this time, continue without the others."""
        self._begun = True
        self._wait(lambda: self.reports.keys() <= self._ids.keys(), seconds)

    def _wait(self, done: Callable[[], bool], seconds: float) -> None:
        """Ask and listen until it is done or the time is over; the status says who is missing."""
        clock = self.mailbox.clock
        began = noted = clock()
        self.refresh()
        self.mailbox.poll()
        while not done() and clock() - began < seconds:
            if clock() - noted >= NOTE_SECONDS:
                self.show(self._missing())
                noted = clock()
            pause()
            self.refresh()
            self.mailbox.poll()
        self.show([])

    def show(self, waiting_for: Sequence[str]) -> None:
        """Bring the nodes in the status up to date, and the devices that are waited for."""
        nodes = [
            {
                "name": name,
                "online": name in self._ids,
                "devices": [device.id for device in report.devices],
                "joules": sorted({device.joules_source for device in report.devices}),
            }
            for name, report in sorted(self.reports.items())
        ]
        self.journal.update(
            nodes=nodes, devices=len(self.ids), known=len(self.known()), waiting_for=waiting_for
        )

    def _missing(self) -> list[str]:
        """The devices that were not reported, and those on nodes that are away."""
        away = [
            device.id
            for name, report in self.reports.items()
            if name not in self._ids
            for device in report.devices
        ]
        return [*missing_devices(self.reports, self.ids), *away]

    def _enter(self, reply: Reply) -> None:
        try:
            if reply.content is None:
                raise Refusal(reply.reason)
            report = read_report(reply.content, self.classes)
            earlier = self.reports.get(report.name)
            report = check_claim(report, reply.node, self.mailbox.owners(), earlier)
            self._check(report)
        except Refusal as refusal:
            self._refuse(reply.node, str(refusal))
            return
        self._refused.pop(reply.node, None)
        if earlier is not None and not earlier.key:  # from before a restart of a trial
            self.reports[report.name] = replace(earlier, key=report.key)
        if report.name not in self.reports:
            for name in self._replaced_by(report):
                del self.reports[name]
                self._lost.discard(name)
                log.info("node %s takes the place of node %s", report.name, name)
            self.reports[report.name] = report
            self._note("node-new", report.name, f"has reported, as node {reply.node}")
        elif report.name in self._lost:
            self._lost.discard(report.name)
            self._note("node-back", report.name, f"is online again, as node {reply.node}")
        self._ids[report.name] = reply.node
        log.info("node %s is %s", reply.node, report.name)

    def _refuse(self, node: int, why: str) -> None:
        """Do without a node for a while."""
        log.warning("node %s is not used: %s", node, why)
        if node not in self._refused:
            text = f"node {node} is refused: {why}"
            self.journal.event("node-refused", text, node=str(node))
        self._asked.discard(node)  # it may do better next time
        self._refused[node] = self.mailbox.clock() + RETRY_SECONDS

    def _refuse_too_large(self) -> None:
        """Refuse nodes that claim far more samples than the others; later ones are refused too."""
        self._begun = True
        found = {name: self._too_large(report) for name, report in self.reports.items()}
        for name, why in found.items():
            if why:
                del self.reports[name]
                if name in self._ids:
                    self._refuse(self._ids.pop(name), why)

    def _too_large(self, report: Report) -> str:
        others = [each for each in self.reports.values() if each.name != report.name]
        return too_many_samples(report, others, self.most_samples)

    def _check(self, report: Report) -> None:
        """Refuse a report that does not fit the fleet or the other reports."""
        for device in report.devices:
            if (device.update_seconds or 0.0) > self.deadline_seconds:
                raise Refusal(
                    f"device {device.id}: a local update takes {device.update_seconds:g} s, longer "
                    f"than --deadline ({self.deadline_seconds:g} s)"
                )
        known = self.reports.get(report.name)
        if known is not None:
            if not _same_data(known, report):
                raise Refusal("it reports other data than before")
            return
        if strangers := [device.id for device in report.devices if device.id not in self.ids]:
            raise Refusal(
                f"it holds device {strangers[0]}, which the fleet does not have; name the devices "
                "as in fleet.file, or 0, 1, ... where there is none"
            )
        holder = {
            device.id: name
            for name, each in self.reports.items()
            if name not in self._replaced_by(report)
            for device in each.devices
        }
        if twice := [device.id for device in report.devices if device.id in holder]:
            raise Refusal(
                f"it holds device {twice[0]}, which node {holder[twice[0]]} has reported; give "
                "every device to one node"
            )
        if self._begun and (why := self._too_large(report)):
            raise Refusal(why)

    def _replaced_by(self, report: Report) -> list[str]:
        """The nodes that are away and whose devices are all in this report, with the same data.

        Their owner has started one of them again with more devices.
        """
        offered = {device.id: device.label_counts for device in report.devices}
        return [
            name
            for name, each in self.reports.items()
            if name not in self._ids
            and name != report.name
            and all(offered.get(device.id) == device.label_counts for device in each.devices)
            and each.partition is None
        ]

    def _note(self, event: Event, name: str, what: str) -> None:
        self.journal.event(event, f"node {name} {what}", node=name)
        self.show(self.journal.status.get("waiting_for", []))


def name_some(names: Sequence[str]) -> str:
    """The first few of some names."""
    more = f" and {len(names) - 5} more" if len(names) > 5 else ""
    return ", ".join(names[:5]) + more


def _same_data(one: Report, other: Report) -> bool:
    return [(d.id, d.label_counts) for d in one.devices] == [
        (d.id, d.label_counts) for d in other.devices
    ]
