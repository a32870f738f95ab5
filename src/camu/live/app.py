"""The addresses of the page: itself, plans, trainings with their events, and files to take away."""

from __future__ import annotations

import asyncio
import io
import json
import zipfile
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager, suppress
from functools import cached_property
from importlib import resources
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from camu import __version__
from camu.config import Config
from camu.errors import CamuError, InputError
from camu.live.controls import describe_controls, describe_schemes, plain
from camu.live.following import Feed, Following
from camu.live.guard import Guard, TooLargeError
from camu.live.state import faults, read_state
from camu.live.trainings import Training, Trainings
from camu.live.watching import Watch
from camu.live.workers import Workers
from camu.report.page import chart_library, chart_specs
from camu.report.panels import PLAN_PANELS, WORLD_PANELS
from camu.report.placeholders import AXES
from camu.report.style import DARK_SHADES, PALETTE, theme

LOOK_SECONDS = 0.25
MOST_STREAMS = 24
BODY_SECONDS = 20.0

Endpoint = Callable[[Request], Awaitable[Response]]


class Live:
    """A server's pages: what they may ask for, and the work behind it."""

    def __init__(self, base: Config, folder: Path, follow: Path | None) -> None:
        self.base, self.folder = base, folder
        self.following = None if follow is None else Following(follow)
        self.workers = Workers(base, folder)
        self.ending = asyncio.Event()
        self.streams = 0
        self.trainings: Trainings | None = None

    def app(self, token: str, port: int) -> Starlette:
        """The application behind the guard."""
        routes = [
            Route("/", self.page),
            Route("/about.json", self.about),
            Route("/vega.js", self.library),
            Route("/static/{name}", _static()),
        ]
        routes += self._touching() if self.following is None else self._reading()
        return Starlette(
            routes=routes,
            middleware=[Middleware(Guard, token=token, port=port)],
            lifespan=self._lifespan,
        )

    def _touching(self) -> list[Route]:
        """The addresses of a page that plans and trains."""
        return [
            Route("/plan", _safe(self.plan), methods=["POST"]),
            Route("/take", _safe(self.take), methods=["POST"]),
            Route("/trainings", _safe(self.list_trainings)),
            Route("/train", _safe(self.train), methods=["POST"]),
            Route("/trainings/{number:int}/{verb}", _safe(self.control), methods=["POST"]),
            Route("/trainings/{number:int}/events", _safe(self.events)),
            Route("/trainings/{number:int}/runs.zip", _safe(self.archive)),
        ]

    def _reading(self) -> list[Route]:
        """The addresses of a page that follows."""
        return [
            Route("/follow/events", _safe(self.follow_events)),
            Route("/follow/plan", _safe(self.follow_plan), methods=["POST"]),
        ]

    @asynccontextmanager
    async def _lifespan(self, app: Starlette) -> AsyncIterator[None]:
        self.trainings = Trainings(self.folder)
        if self.following is None:
            await self.workers.start()
        try:
            yield
        finally:
            self.ending.set()
            await asyncio.gather(self.workers.close(), self.trainings.close())

    @property
    def _trainings(self) -> Trainings:
        assert self.trainings is not None
        return self.trainings

    async def page(self, request: Request) -> Response:
        """The page."""
        text = (
            _environment()
            .get_template("live.html")
            .render(
                version=__version__,
                axes=AXES,
                panels=PLAN_PANELS,
                following=self.following is not None,
            )
        )
        return HTMLResponse(text)

    async def about(self, request: Request) -> Response:
        """What the page is made from: settings, schemes, charts and colours."""
        return JSONResponse(await asyncio.to_thread(lambda: self._about))

    @cached_property
    def _about(self) -> dict[str, Any]:
        specs = chart_specs()
        pixels = {panel.key: panel.row_pixels for panel in (*WORLD_PANELS[:3], *PLAN_PANELS)}
        shown = (*(panel.key for panel in WORLD_PANELS[:3]), "timeline", "contribution", "labels")
        base = self.base.flat()
        return {
            "follow": None if self.following is None else str(self.following.folder),
            "base": {key: plain(base[key]) for key in base if key != "fleet.positions"},
            "controls": describe_controls(self.base),
            "schemes": describe_schemes(self.base),
            "charts": {key: {"spec": specs[key], "row_pixels": pixels[key]} for key in shown},
            "themes": {"light": theme(), "dark": theme(dark=True)},
            "dark_shades": DARK_SHADES,
            "palette": PALETTE,
        }

    async def library(self, request: Request) -> Response:
        """The chart library."""
        text = await asyncio.to_thread(chart_library)
        headers = {"cache-control": "private, max-age=3600"}
        return Response(text, media_type="text/javascript", headers=headers)

    async def plan(self, request: Request) -> Response:
        """The plans of a page's settings."""
        state = await _body(request)
        asked = self.workers.ask({"do": "plan", "state": state})
        return _json_bytes(await _unless_gone(request, asked))

    async def take(self, request: Request) -> Response:
        """A file of a page's settings."""
        body = await _body(request)
        asked = {"do": "take", "state": body.get("state")}
        for name in ("what", "scheme"):
            if not isinstance(body.get(name), str):
                raise InputError(f"{name}: give a text")
            asked[name] = body[name]
        return _json_bytes(await _unless_gone(request, self.workers.ask(asked)))

    async def list_trainings(self, request: Request) -> Response:
        """All trainings of the run directory, the latest first."""
        return JSONResponse([one.status() for _, one in sorted(self._trainings.all.items())][::-1])

    async def train(self, request: Request) -> Response:
        """Begin a training."""
        body = await _body(request)
        answer = json.loads(await self.workers.ask({"do": "configure", "state": body}))
        if "toml" not in answer:
            return JSONResponse(answer)
        config = Config.from_toml(answer["toml"], "this page")
        return JSONResponse(self._trainings.begin(read_state(body), config).status())

    async def control(self, request: Request) -> Response:
        """Pause, stop or continue a training."""
        training, verb = self._training(request), request.path_params["verb"]
        if verb == "pause":
            await self._trainings.pause(training)
        elif verb == "stop":
            await self._trainings.stop(training)
        elif verb == "continue":
            self._trainings.resume(training)
        else:
            return JSONResponse({"errors": [{"key": None, "text": "no such verb"}]}, 404)
        return JSONResponse(training.status())

    def _training(self, request: Request) -> Training:
        return self._trainings.get(request.path_params["number"])

    async def archive(self, request: Request) -> Response:
        """The run directories of a training as one archive."""
        training = self._training(request)
        data = await asyncio.to_thread(_zip, training.folder)
        name = f'attachment; filename="{training.folder.name}.zip"'
        return Response(data, media_type="application/zip", headers={"content-disposition": name})

    async def events(self, request: Request) -> Response:
        """The rounds of a training as they come, from its first on."""
        training = self._training(request)
        watches = [Watch(run.folder) for run in training.runs]
        sent: dict[str, Any] = {}

        def look() -> dict[str, Any]:
            news: dict[str, Any] = {}
            runs = {i: new for i, watch in enumerate(watches) if (new := watch.look())}
            if runs:
                news["runs"] = runs
            status = training.status()
            if sent.get("status") != status:
                sent["status"] = news["status"] = status
            return news

        return self._stream(look)

    async def follow_events(self, request: Request) -> Response:
        """The rounds of all runs that are followed."""
        return self._stream(Feed(self._followed).look, every=1.0)

    async def follow_plan(self, request: Request) -> Response:
        """The map of a run that is followed."""
        body = await _body(request)
        return JSONResponse(await asyncio.to_thread(self._followed.plan, str(body.get("name"))))

    @property
    def _followed(self) -> Following:
        assert self.following is not None
        return self.following

    def _stream(
        self, look: Callable[[], dict[str, Any]], every: float = LOOK_SECONDS
    ) -> StreamingResponse:
        """Server-sent events: what `look` finds, until the page or the server ends."""
        if self.streams >= MOST_STREAMS:
            raise InputError(f"at most {MOST_STREAMS} pages can watch at once; close some")

        async def events() -> AsyncIterator[bytes]:
            self.streams += 1
            try:
                yield b"retry: 1000\n\n"
                while not self.ending.is_set():
                    news = await asyncio.to_thread(look)
                    yield b"data: " + json.dumps(news).encode() + b"\n\n" if news else b":\n\n"
                    with suppress(TimeoutError):
                        await asyncio.wait_for(self.ending.wait(), every)
            finally:
                self.streams -= 1

        return StreamingResponse(events(), media_type="text/event-stream")


def _safe(endpoint: Endpoint) -> Endpoint:
    """The endpoint with errors that a user can cause as sentences."""

    async def safe(request: Request) -> Response:
        try:
            return await endpoint(request)
        except TooLargeError:
            return Response("refused: the request is too large\n", 413)
        except CamuError as error:
            return JSONResponse({"errors": faults(error)})

    return safe


async def _body(request: Request) -> dict[str, Any]:
    """The JSON object that a page sent."""
    try:
        text = await asyncio.wait_for(request.body(), BODY_SECONDS)
        document = json.loads(text)
    except TimeoutError:
        raise InputError("the request did not come in time") from None
    except (ValueError, RecursionError):
        raise InputError("the request is not JSON") from None
    if not isinstance(document, dict):
        raise InputError("the request is no JSON object")
    return document


async def _unless_gone(request: Request, work: Coroutine[Any, Any, bytes]) -> bytes:
    """The result of the work, which is given up when the page does not wait for it any more."""
    asked, gone = asyncio.create_task(work), asyncio.create_task(_gone(request))
    try:
        await asyncio.wait({asked, gone}, return_when=asyncio.FIRST_COMPLETED)
        if not asked.done():
            raise InputError("the page has gone")
        return asked.result()
    finally:
        for task in (asked, gone):
            task.cancel()


async def _gone(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


def _json_bytes(data: bytes) -> Response:
    return Response(data, media_type="application/json")


def _zip(folder: Path) -> bytes:
    """The files of a directory; links are left out, they could lead elsewhere."""
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w", zipfile.ZIP_DEFLATED) as archive:
        for path in sorted(folder.rglob("*")):
            if path.is_file() and not path.is_symlink():
                archive.write(path, Path(folder.name) / path.relative_to(folder))
    return data.getvalue()


def _environment() -> Environment:
    return Environment(
        loader=PackageLoader("camu.live"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )


_MEDIA = {"js": "text/javascript", "css": "text/css"}


def _static() -> Endpoint:
    """The scripts and styles of the package, by name alone."""
    folder = resources.files("camu.live") / "static"
    files = {file.name: file.read_bytes() for file in folder.iterdir() if file.is_file()}
    style = resources.files("camu.report") / "templates" / "page.css"  # one design with the report
    files["report.css"] = style.read_bytes()

    async def static(request: Request) -> Response:
        name = request.path_params["name"]
        if name not in files:
            return Response("there is no such file\n", 404, media_type="text/plain")
        return Response(files[name], media_type=_MEDIA[name.rpartition(".")[2]])

    return static
