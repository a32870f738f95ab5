"""The nodes of a deployment: their reports, and their present Flower ids, which are random.

A node whose report cannot be used is refused alone, with a sentence in the log. It is asked again
later, and never ends the run of the others.
"""

from __future__ import annotations

import logging
import statistics
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace

from flwr.app import RecordDict

from camu import __version__
from camu.deploy.array_records import Refusal, printable, refusing
from camu.deploy.messages import Report, largest_report, name_some, query_content, read_report
from camu.deploy.server.mailbox import NOTE_SECONDS, QUERY, Mailbox, Owner, check_claim, pause
from camu.deploy.status import Event, Journal
from camu.errors import CamuError

log = logging.getLogger(__name__)

RETRY_SECONDS = 60.0  # until a node that was refused is asked again
FEWEST = 3  # devices of other nodes; fewer have no median to compare with


@dataclass(eq=False)
class NodeRegistry:
    """Names, reports and present Flower ids of the nodes of a fleet."""

    mailbox: Mailbox
    classes: int
    deadline_seconds: float
    ids: Sequence[str]  # names of the fleet's devices
    journal: Journal
    most_samples: float = 0.0  # of a device, in medians of the other nodes' devices; 0: any number
    reports: dict[str, Report] = field(default_factory=dict)  # by name
    present: dict[str, int] = field(default_factory=dict)  # Flower ids of nodes that are online
    renewed: set[str] = field(default_factory=set)  # devices that another key had reported before
    _asked: set[int] = field(default_factory=set)
    _refused: dict[int, float] = field(default_factory=dict)  # when a node is asked again
    _lost: set[str] = field(default_factory=set)  # nodes that were here and have gone
    _begun: bool = False  # whether the run has begun, so that nodes can be compared

    def refresh(self) -> None:
        """Ask new nodes who they are. Replies are handled by the mailbox's poll()."""
        online, now = self.mailbox.online(), self.mailbox.clock()
        self._asked &= online  # a node that went and came back is asked again
        self._refused = {node: due for node, due in self._refused.items() if node in online}
        for name, node in list(self.present.items()):
            if node not in online:
                del self.present[name]
                self._lost.add(name)
                self._note("node-lost", name, "is no longer online")
        waiting = {node for node, due in self._refused.items() if now < due}
        new = online - self._asked - waiting
        if new:
            self._asked |= new
            contents = {node: query_content() for node in new}
            most = largest_report(len(self.ids), self.classes)
            seconds = self.deadline_seconds
            self.mailbox.send(contents, QUERY, "the query", seconds, most, self._enter)

    def known(self) -> list[int]:
        """The devices that nodes have reported, by their place in the fleet."""
        missing = set(self._unreported())
        return [place for place, name in enumerate(self.ids) if name not in missing]

    def _unreported(self) -> list[str]:
        """The devices of the fleet that no node has reported."""
        seen = {device.id for report in self.reports.values() for device in report.devices}
        return [name for name in self.ids if name not in seen]

    def online_devices(self) -> int:
        """How many of the reported devices are on nodes that are online."""
        return sum(len(self.reports[name].devices) for name in self.present)

    def wait_for_quorum(self, quorum: int, seconds: float, partitions: int = 0) -> None:
        """Wait for all devices; after this time, the quorum of them is enough."""

        def complete() -> bool:
            trial = sum(report.partition is not None for report in self.reports.values())
            return not self._unreported() and trial >= partitions

        self._wait(complete, seconds)
        self._refuse_too_large()
        if complete():
            return
        missing = self._unreported()
        here = len(self.ids) - len(missing)
        if here < quorum:
            raise CamuError(
                f"after {seconds:g} s {len(missing)} of {len(self.ids)} devices were not reported "
                f"({name_some(missing)}), and the quorum is {quorum} devices; start the missing "
                "nodes, wait longer with --wait, or lower --quorum"
            )
        what = (here, len(self.ids), name_some(missing))
        log.warning("the run starts with %d of %d devices; %s can join later", *what)

    def wait_for_any(self, seconds: float) -> None:
        """Wait until at least one node is online."""
        self._wait(lambda: bool(self.present), seconds)
        if not self.present:
            raise CamuError(
                f"no node was online for {seconds:g} s; start the nodes, and continue with --resume"
            )

    def wait_for_known(self, seconds: float) -> None:
        """Wait for the nodes that have reported; after this time, continue without the others."""
        self._begun = True
        self._wait(lambda: self.reports.keys() <= self.present.keys(), seconds)

    def _wait(self, done: Callable[[], bool], seconds: float) -> None:
        """Ask and listen until it is done or the time is over; the status says who is missing."""
        clock = self.mailbox.clock
        began = noted = clock()
        until = time.time() + seconds
        self.refresh()
        self.mailbox.poll()
        while not done() and clock() - began < seconds:
            if clock() - noted >= NOTE_SECONDS:
                away = [r for name, r in self.reports.items() if name not in self.present]
                missing = [device.id for report in away for device in report.devices]
                self.show([*self._unreported(), *missing], until)
                noted = clock()
            pause()
            self.refresh()
            self.mailbox.poll()
        self.show([])

    def show(self, waiting_for: Sequence[str], until: float | None = None) -> None:
        """Bring the nodes in the status up to date, and the devices that are waited for.

        `until` is when the waiting ends without them, in seconds since 1970.
        """
        nodes = [
            {
                "name": name,
                "online": name in self.present,
                "devices": [device.id for device in report.devices],
                "joules": sorted({device.joules_source for device in report.devices}),
                "kernel": report.provenance.get("kernel", ""),
                "version": report.version,
            }
            for name, report in sorted(self.reports.items())
        ]
        self.journal.update(
            nodes=nodes,
            devices=len(self.ids),
            known=len(self.known()),
            waiting_for=waiting_for,
            waiting_until=until if waiting_for else None,
        )

    def _note(self, event: Event, name: str, what: str) -> None:
        self.journal.event(event, f"node {printable(name)} {what}", node=name)
        status = self.journal.status
        self.show(status.get("waiting_for", []), status.get("waiting_until"))

    def _enter(self, node: int, content: RecordDict | Refusal) -> None:
        """Take in the reply of a node to the query."""
        try:
            if isinstance(content, Refusal):
                raise content
            with refusing("its report"):
                report = read_report(content, self.classes)
            earlier = self.reports.get(report.name)
            owners = self.mailbox.owners()
            report = check_claim(report, node, owners, earlier)
            if owners.get(node, Owner("")).devices is not None:
                self._take_back(report)
                earlier = self.reports.get(report.name)
            self._check(report, earlier)
        except Refusal as refusal:
            self._refuse(node, str(refusal))
            return
        self._refused.pop(node, None)
        name = report.name
        if earlier is None:
            for other in self._replaced_by(report):
                del self.reports[other]
                self._lost.discard(other)
                log.info("node %s takes the place of %s", printable(name), printable(other))
            self.reports[name] = report
            other_version = report.version != __version__
            version = f", with camu {report.version or '?'}" if other_version else ""
            self._note("node-new", name, f"has reported, as node {node}{version}")
            if other_version:
                log.warning("node %s has another version of camu%s", printable(name), version)
        else:
            if not earlier.key:  # from before a restart of a trial
                self.reports[name] = replace(earlier, key=report.key)
            if name in self._lost:
                self._lost.discard(name)
                self._note("node-back", name, f"is online again, as node {node}")
        self.present[name] = node
        log.info("node %s is %s", node, printable(name))

    def _take_back(self, report: Report) -> None:
        """Drop what other keys have reported of the devices that this report's key is bound to."""
        mine = {device.id for device in report.devices}
        for name, other in list(self.reports.items()):
            theirs = mine & {device.id for device in other.devices}
            if theirs and other.key not in ("", report.key):
                del self.reports[name]
                self._lost.discard(name)
                self.renewed |= theirs
                what = f"node {printable(name)} is not used any more"
                why = f"device {min(theirs)} is registered for another key, which has reported it"
                log.warning("%s: %s", what, why)
                if name in self.present:
                    self._refuse(self.present.pop(name), why)

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
                if name in self.present:
                    self._refuse(self.present.pop(name), why)

    def _too_large(self, report: Report) -> str:
        others = [each for each in self.reports.values() if each.name != report.name]
        return too_many_samples(report, others, self.most_samples)

    def _check(self, report: Report, earlier: Report | None) -> None:
        """Refuse a report that does not fit the fleet or the other reports."""
        for device in report.devices:
            if (device.update_seconds or 0.0) > self.deadline_seconds:
                raise Refusal(
                    f"device {device.id}: a local update takes {device.update_seconds:g} s, longer "
                    f"than --deadline ({self.deadline_seconds:g} s)"
                )
        if earlier is not None:
            if _data(earlier) != _data(report):
                raise Refusal("it reports other data than before")
            return
        if strangers := [device.id for device in report.devices if device.id not in self.ids]:
            raise Refusal(
                f"it holds device {strangers[0]}, which the fleet does not have; name the devices "
                "as in fleet.file, or 0, 1, ... where there is none"
            )
        replaced = self._replaced_by(report)
        others = [each for each in self.reports.values() if each.name not in replaced]
        holder = {device.id: each.name for each in others for device in each.devices}
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
        away = [each for name, each in self.reports.items() if name not in self.present]
        return [
            each.name
            for each in away
            if each.partition is None and _data(each).items() <= _data(report).items()
        ]


def _data(report: Report) -> dict[str, tuple[int, ...]]:
    return {device.id: device.label_counts for device in report.devices}


def too_many_samples(report: Report, others: Iterable[Report], multiple: float) -> str:
    """Why a node claims too many samples, compared with the other nodes; empty if it does not.

    A device counts by its samples, so without a limit one claim could outweigh all other devices.
    A multiple of 0 sets no limit.
    """
    known = [sum(device.label_counts) for other in others for device in other.devices]
    if multiple <= 0 or len(known) < FEWEST:
        return ""
    middle = statistics.median(known)
    for device in report.devices:
        if (claimed := sum(device.label_counts)) > multiple * middle:
            return (
                f"device {device.id} claims {claimed} samples, more than {multiple:g} times the "
                f"median of the other nodes' devices ({middle:g}); if it is true, raise "
                "--most-samples"
            )
    return ""
