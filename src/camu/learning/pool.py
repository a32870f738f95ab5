"""A pool of workers that share a model's data, each with one torch thread and its own kernel.

Workers are threads: kernels release Python's lock, so they run in parallel, share the images
without copies, start at once and end with the process. Results come back in the
order of the tasks, whatever order they were computed in.
"""

from __future__ import annotations

import ctypes
import math
import os
import queue
import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from dataclasses import dataclass
from itertools import islice
from typing import Any, Generic, TypeVar

from camu.errors import CamuError
from camu.learning.kernel import Kernel

Item = TypeVar("Item")
Result = TypeVar("Result")

# Tasks handed out ahead of the one whose result is due, or two per worker if that is more: bounds
# how many results are held.
TASKS_AHEAD = 32
# Items share a task, up to this cost and this many. Between two tasks a worker runs Python code,
# whose data the kernels have driven out of the caches: 0.2 ms for an item of 400 samples, which
# trains for 5 ms, and more for many small ones, where threads wait for each other's Python code.
BUNDLE_COST, BUNDLE_ITEMS = 1600.0, 32
# Groups are of fixed sizes, so that results do not depend on the number of workers.
GROUPS, LEAST_IN_GROUP, UNLIKE = 8, 4, 4.0


@dataclass(frozen=True)
class Work(Generic[Result]):
    """Work for one worker; ``what`` names it in an error, ``cost`` is its relative duration."""

    what: str
    work: Callable[[Kernel], Result]
    cost: float = 1.0


class Pool:
    """Runs tasks on ``workers`` threads; safe to close at any time and to use again after."""

    def __init__(self, workers: int, make_kernel: Callable[[ctypes.c_int32], Kernel]) -> None:
        self.workers = workers
        self._make_kernel = make_kernel
        self._kernels: queue.SimpleQueue[Kernel] = queue.SimpleQueue()
        self._executor: ThreadPoolExecutor | None = None
        self.stop = ctypes.c_int32(0)  # not 0 while the pool is being closed; kernels read it
        self._threads_before: int | None = None  # of torch

    def stream(self, tasks: Iterable[Work[Result]]) -> Iterator[Result]:
        """The results in the order of the tasks.

        At most ``TASKS_AHEAD`` tasks and results are held at a time, with the one that the caller
        was given last; tasks are taken as needed.
        """
        ahead, count = iter(tasks), max(TASKS_AHEAD, 2 * self.workers)
        futures: deque[tuple[str, Future[Result]]] = deque()
        try:
            first = list(islice(ahead, 2 * self.workers))
            if any(task.cost > BUNDLE_COST for task in first):  # small ones need no order
                first += islice(ahead, count - len(first))
            futures.extend(self._submit_longest_first(first))
            while futures:
                what, future = futures.popleft()
                result = self._result(future, what)
                more = islice(ahead, min(2, count - 1 - len(futures)))
                futures.extend((task.what, self._submit(task)) for task in more)
                yield result
                del result, future  # before further tasks begin
        finally:
            for _, future in futures:
                future.cancel()

    def close(self) -> None:
        """End all workers; tasks that run end at their next step."""
        if self._executor is None:
            return
        self.stop.value = 1
        try:
            self._executor.shutdown(wait=True, cancel_futures=True)
        finally:
            self._executor = None
            self.stop.value = 0
            if self._threads_before is not None and (torch := _loaded_torch()):
                torch.set_num_threads(self._threads_before)

    def _submit_longest_first(
        self, tasks: Sequence[Work[Result]]
    ) -> list[tuple[str, Future[Result]]]:
        # A long task that starts last would leave the other workers idle at the end.
        order = sorted(range(len(tasks)), key=lambda number: -tasks[number].cost)
        submitted = {number: self._submit(tasks[number]) for number in order}
        return [(task.what, submitted[number]) for number, task in enumerate(tasks)]

    def _submit(self, task: Work[Result]) -> Future[Result]:
        if self._executor is None:
            torch = _loaded_torch()
            self._threads_before = torch.get_num_threads() if torch else None
            self._executor = ThreadPoolExecutor(self.workers, thread_name_prefix="camu-worker")
        return self._executor.submit(self._run, task)

    def _run(self, task: Work[Result]) -> Result:
        if self.stop.value:
            raise CancelledError
        # Set for every task: parts of this setting are shared by all threads of the process, and
        # results must not depend on what another thread made of it.
        if torch := _loaded_torch():
            torch.set_num_threads(1)
        try:
            kernel = self._kernels.get_nowait()
        except queue.Empty:
            kernel = self._make_kernel(self.stop)
        try:
            return task.work(kernel)
        finally:
            self._kernels.put(kernel)

    @staticmethod
    def _result(future: Future[Result], what: str) -> Result:
        try:
            return future.result()
        except CamuError:
            raise
        except CancelledError as error:
            raise CamuError(f"{what} was stopped because the engine was closed.") from error
        except Exception as error:
            raise failure(what, error) from error


def failure(what: str, error: Exception) -> CamuError:
    """The error for a task that failed."""
    return CamuError(f"{what} failed: {type(error).__name__}: {error}")


def _loaded_torch() -> Any:
    """torch, if anything has loaded it: compiled kernels work without it."""
    return sys.modules.get("torch")


def bundled(
    items: Iterable[Item], cost: Callable[[Item], float], workers: int, expected: int = 0
) -> Iterator[tuple[list[Item], float]]:
    """Items in their order, small ones together, and what they cost in sum.

    A bundle has at most a part of the items that are `expected` to be left for a worker, so that
    all workers end together. Where it is not known how many come (0), the first bundles have one
    item and later ones more, so that few items keep all workers busy.
    """
    bundle: list[Item] = []
    total, before, most = 0.0, 0, 0
    for item in items:
        more = cost(item)
        if total + more > BUNDLE_COST or len(bundle) == most:
            if bundle:
                yield bundle, total
            before += len(bundle)
            part = (expected - before) // 2 if expected else before // 4
            most = min(BUNDLE_ITEMS, 1 + max(0, part) // workers)
            bundle, total = [], 0.0
        bundle.append(item)
        total += more
    if bundle:
        yield bundle, total


def in_groups(
    items: Iterable[Item], cost: Callable[[Item], float], most: int, expected: int = 0
) -> Iterator[tuple[list[Item], float]]:
    """Items in their order, up to so many of like cost together, and what they cost in sum.

    They are the same groups for any number of workers. Where it is known how many items come, they
    are at least `GROUPS`, so that workers share them, unless these would be very small.
    """
    size = most
    if expected:
        size = min(most, max(LEAST_IN_GROUP, expected // GROUPS))
        size = math.ceil(expected / math.ceil(expected / size))  # of much the same size
    group: list[Item] = []
    costs: list[float] = []
    for item in items:
        own = cost(item)
        unlike = bool(costs) and not costs[0] / UNLIKE <= own <= costs[0] * UNLIKE
        if unlike or len(group) == size:
            yield group, sum(costs)
            group, costs = [], []
        group.append(item)
        costs.append(own)
    if group:
        yield group, sum(costs)


def available_cores() -> int:
    """The processor cores this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
