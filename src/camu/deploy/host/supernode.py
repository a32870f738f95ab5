"""A SuperNode with camu's executor: `python -m camu.deploy.host.supernode ARGS`.

The arguments are those of flower-supernode. The executor reaches the SuperNode over a socket in a
directory of mode 700, so that no other user can take its tasks or pretend to be the SuperNode, and
both end together. It runs this installation's app: a bundle is read as data, and a foreign one is
refused.
"""

from __future__ import annotations

import importlib
import logging
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from camu.deploy.array_records import Refusal, printable
from camu.deploy.flower import (
    Executor,
    check_bundles_refused,
    check_version,
    read_own_bundle,
    replace,
    run_executor,
)
from camu.deploy.host.keys import check_files
from camu.deploy.host.processes import (
    PRIVATE,
    end_with_child,
    end_with_starter,
    ending_with_a_sentence,
    quiet_environment,
    temporary_folder,
)
from camu.errors import InputError
from camu.work import end_with_parent

log = logging.getLogger(__name__)

MODULE = "camu.deploy.host.supernode"
EXECUTOR = "--executor"  # argument of the process that runs the tasks
POLL_SECONDS = "FLWR_SUPEREXEC_TASK_POLL_INTERVAL"  # between two questions for work


def supernode_command(
    superlink: str, authority: Path | None, key: Path | None, node: Mapping[str, str | int | float]
) -> list[str]:
    """The command line of a SuperNode; without the authority's certificate it uses plain text.

    `allow` of `node` has the names of own code that a run's configuration may name there.
    """
    command = [sys.executable, "-m", MODULE, "--superlink", superlink]
    command += ["--node-config", node_config({"allow": "", **node})]
    if authority is None or key is None:
        return [*command, "--insecure"]
    check_files([authority], key)
    return [
        *command,
        *("--root-certificates", str(authority)),
        *("--auth-supernode-private-key", str(key)),
    ]


def node_config(node: Mapping[str, str | int | float]) -> str:
    """A node's configuration as Flower writes it: key=value, with texts in quotes."""
    for key, value in node.items():
        if isinstance(value, str) and any(mark in value for mark in "\"'\\\n"):
            raise InputError(f"{key} = {value}: quotes and backslashes cannot be passed on")
    return " ".join(
        f'{key}="{value}"' if isinstance(value, str) else f"{key}={value}"
        for key, value in node.items()
    )


def run_supernode(arguments: list[str], place: Path) -> None:
    """Run Flower's SuperNode; its executor, in another process, reaches it over a unix socket."""
    check_version()
    import uvicorn
    from flwr.supernode import start_client_internal
    from flwr.supernode.nodestate.in_memory_nodestate import InMemoryNodeState

    config = uvicorn.Config

    def on_socket(*args: Any, **options: Any) -> uvicorn.Config:
        return config(*args, **{**options, "uds": str(place)})  # host and port are then not used

    def run_config(bundle: bytes, run: Any) -> dict[str, Any]:
        try:
            return {**read_own_bundle(bundle), **run.override_config}
        except Refusal:
            return {}  # the executor refuses it too, and tells the server why

    program = importlib.import_module("flwr.supernode.cli.flower_supernode")
    say_refusals()
    answer_for_lost_tasks(InMemoryNodeState)
    replace(uvicorn, "Config", on_socket, program._start_supernode_http_api)
    pull = start_client_internal._pull_and_store_message
    replace(start_client_internal, "get_fused_config_from_fab", run_config, pull)
    # In a trial the node asks for work more often than every three seconds.
    most = float(os.environ.get(POLL_SECONDS, 3.0))
    clock = SimpleNamespace(sleep=lambda seconds: time.sleep(min(seconds, most)))
    run = start_client_internal.start_client_internal
    replace(start_client_internal, "time", clock, run)
    push = push_in_time(start_client_internal._push_messages, lambda: clock.sleep(0.5))
    replace(start_client_internal, "_push_messages", push, run)
    sys.argv = ["flower-supernode", *arguments, "--isolation", "process"]
    program.flower_supernode()


def say_refusals() -> None:
    """Let a node that the SuperLink refuses end with the reason, and with code 1.

    Flower ends it without a word, and with code 0.
    """
    from flwr.supercore import exit as ending
    from flwr.supernode import fleet_http_connection
    from flwr.supernode.node_auth_http_interceptor import NodeAuthHttpInterceptor

    ended: list[bool] = []

    class Interceptor(NodeAuthHttpInterceptor):
        def intercept(self, context: Any, call_next: Callable[[Any], Any]) -> Any:
            answer = super().intercept(context, call_next)
            main = threading.current_thread() is threading.main_thread()
            if main and answer.status_code in (401, 412) and not ended:
                ended.append(True)  # it says goodbye at its end, and is refused again
                words = f"the SuperLink refuses this node: {refused(answer)}"
                ending.flwr_exit(ending.ExitCode.SUPERNODE_CONNECTION_ERROR, words)
            return answer

    connect = vars(fleet_http_connection.http_request_response)["__wrapped__"]
    replace(fleet_http_connection, "NodeAuthHttpInterceptor", Interceptor, connect)


def refused(answer: Any) -> str:
    """The words with which a SuperLink has refused a call."""
    words = " ".join(answer.text.split())
    return printable(words) or f"status {answer.status_code}"


def answer_for_lost_tasks(states: Any) -> None:
    """Let a node answer with an error when a task has ended without an answer.

    `states` is Flower's class of a node's state. Flower answers only for a task that stopped giving
    signs of life after it had read its message. For any other, the node would wait for an answer
    for ever: online, and silent in every round.
    """
    from flwr.common.constant import Status
    from flwr.supercore.constant import TaskType

    finish_task, on_expired = states.finish_task, states._on_task_tokens_expired

    def answer(state: Any, tasks: Any) -> None:
        """A node works on one message at a time: it is that of a task that has not ended."""
        runs = {task.run_id for task in tasks if task.type == TaskType.CLIENT_APP}
        ended = {task.task_id for task in tasks}
        for number, task in list(state.task_store.items()):
            if number not in ended and task.status.status != Status.FINISHED:
                runs.discard(task.run_id)
        answer_with_errors(state, runs)

    def finish(state: Any, task_id: int, *args: Any, **options: Any) -> bool:
        finished = bool(finish_task(state, task_id, *args, **options))
        if finished:
            answer(state, state.get_tasks(task_ids=[task_id]))
        return finished

    def expire(state: Any, tasks: Any) -> None:
        answer(state, tasks)
        on_expired(state, tasks)

    replace(states, "finish_task", finish)
    replace(states, "_on_task_tokens_expired", expire)


def answer_with_errors(state: Any, runs: set[int]) -> None:
    """Answer the messages of these runs that have no answer, whether or not a task read them."""
    from flwr.supernode.nodestate.in_memory_nodestate import CLIENT_APP_CRASHED_ERROR

    with state.lock_msg_store:
        for entry in state.msg_store.values():
            metadata = entry.message.metadata
            if not metadata.reply_to_message_id and metadata.run_id in runs:
                entry.is_retrieved = True
        state._store_error_replies(runs, CLIENT_APP_CRASHED_ERROR)


def push_in_time(push: Callable[..., None], pause: Callable[[], None]) -> Callable[..., None]:
    """Flower's function that waits for the answer to a message and sends it, with an end.

    Flower sends whatever answer comes first. A message whose run ended while it was received is
    left with the node: its answer would be sent for that of the next message, which would be sent
    for that of the one after it, and so on for ever. And Flower waits without end, also for the
    rest of an answer whose task was ended. Here only the answer to the latest message is sent, and
    the wait ends when the server does not expect it any more.
    """

    def in_time(state: Any, object_store: Any, **options: Any) -> None:
        *earlier, latest = _messages(state, replies=False).values()
        for message in earlier:
            _forget(state, object_store, message.message_id)
        began = time.monotonic()
        while True:
            over = time.monotonic() - began >= latest.ttl
            ready = False
            for reply in _messages(state, replies=True).values():
                wanted = reply.reply_to_message_id == latest.message_id
                whole = _is_whole(object_store, reply.message_id)
                ready = ready or (wanted and whole)
                if not wanted or (over and not whole):
                    _forget(state, object_store, reply.message_id)
            if over and not ready:
                log.error("a message was not answered in time and is given up")
                answer_with_errors(state, {latest.run_id})
            if over or ready:
                push(state=state, object_store=object_store, **options)
                return
            pause()

    return in_time


def _forget(state: Any, objects: Any, number: str) -> None:
    """Delete a message and its parts."""
    state.delete_messages(message_ids=[number])
    objects.delete(number)


def _messages(state: Any, replies: bool) -> dict[str, Any]:
    """The metadata of the messages in a node's state by their numbers, the oldest first."""
    with state.lock_msg_store:
        known = [entry.message.metadata for entry in state.msg_store.values()]
    return {each.message_id: each for each in known if bool(each.reply_to_message_id) == replies}


def _is_whole(objects: Any, number: str) -> bool:
    """Whether all parts of a message are in the store."""
    from flwr.supercore.inflatable.inflatable_object import iterate_object_tree
    from flwr.supercore.object_store import NoObjectInStoreError

    try:
        parts = list(iterate_object_tree(objects.get_object_tree(number)))
    except NoObjectInStoreError:
        return False
    return all(objects.get(part.object_id) for part in parts)


def run_tasks(place: Path) -> None:
    """Run the tasks of the SuperNode behind a socket, each in a forked process.

    Flower starts a new interpreter for every message, which loads torch each time. This process
    loads it once and forks. It has a single thread, as a process that forks should.
    """
    check_version()
    import httpx

    # Tasks need these; they are loaded before the first fork.
    import sklearn.datasets  # noqa: F401
    import torch  # noqa: F401
    from flwr.supercore.constant import TaskType
    from flwr.supercore.runtime import RuntimeHttpClient
    from flwr.supernode.runtime import run_clientapp

    class SocketClient(RuntimeHttpClient):
        def __init__(self, *args: Any, **options: Any) -> None:
            super().__init__(*args, **options)
            self._client.close()
            transport = httpx.HTTPTransport(uds=str(place))
            self._client = httpx.Client(transport=transport, timeout=self._client.timeout)

    run = run_clientapp.run_clientapp
    replace(run_clientapp, "RuntimeHttpClient", SocketClient, run)
    use_own_node_app(run_clientapp)

    def fork(spec: Any) -> None:
        """Carry out a task in a forked process, so that nothing is loaded again."""
        sys.stdout.flush()
        sys.stderr.flush()
        executor = os.getpid()
        if os.fork() != 0:
            return
        code = 1
        try:
            end_with_parent(executor)  # or it would call a node that is gone, for ever
            run(
                runtime_api_address=spec.runtime_api_address,
                token=spec.token,
                insecure=True,
                parent_pid=spec.parent_pid,
                runtime_dependency_install=False,
            )
            code = 0
        except SystemExit as stop:
            code = stop.code if isinstance(stop.code, int) else 1
        except BaseException:
            log.exception("a task has failed")
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code)

    run_executor(
        Executor(TaskType.CLIENT_APP, fork),
        SocketClient,
        runtime_api_address="localhost",
        insecure=True,
    )


def use_own_node_app(module: Any) -> None:
    """Let Flower's ClientApp process run this installation's app, whatever bundle arrives."""
    from camu.deploy import node_app

    run = module.run_clientapp
    replace(module, "install_from_fab", lambda bundle, **_: read_own_bundle(bundle), run)
    replace(module, "get_load_client_app_fn", lambda **_: lambda *_: node_app.app, run)
    check_bundles_refused(module.install_from_fab)


def main(module: str = MODULE) -> None:
    """Start the executor, `python -m MODULE --executor SOCKET PID`, then become the SuperNode."""
    arguments = sys.argv[1:]
    if arguments[:1] == [EXECUTOR]:
        end_with_parent(int(arguments[2]))
        run_tasks(Path(arguments[1]))
        return
    end_with_starter()
    os.umask(PRIVATE)
    # One thread per library, because a process that forks should have no others; the engine uses
    # one thread per worker anyway, so results do not change.
    single = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
    with temporary_folder(for_socket=True) as folder:
        place = folder / "runtime"
        command = [sys.executable, "-m", module, EXECUTOR, str(place), str(os.getpid())]
        executor = subprocess.Popen(command, env={**quiet_environment(), **single})
        end_with_child("the executor", executor)
        run_supernode(arguments, place)


if __name__ == "__main__":
    with ending_with_a_sentence():
        main()
