"""The addresses of the page: itself, plans, trainings with their events, and downloads."""

from __future__ import annotations

import asyncio
import io
import json
import zipfile
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from functools import cached_property
from importlib import resources
from pathlib import Path
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import (
    FileResponse,
    HTMLResponse,
    JSONResponse,
    Response,
    StreamingResponse,
)
from starlette.routing import BaseRoute, Mount, Route
from starlette.staticfiles import StaticFiles

from camu import __version__
from camu.config import Config
from camu.errors import CamuError, InputError
from camu.live.fleet_facts import beside, idle_keys
from camu.live.settings import (
    PARAMETER_SLIDERS,
    describe_controls,
    describe_schemes,
    faults,
    plain,
    read_state,
)
from camu.live.training import Training, TrainingSet
from camu.live.watching import Feed, Following, Watch
from camu.live.worker import Workers
from camu.report.charts import PLAN_PANELS, WORLD_PANELS, chart_library, template
from camu.report.style import AXES, DARK_SHADES, PALETTE, theme

LOOK_SECONDS = 0.25

Endpoint = Callable[[Request], Awaitable[Response]]


class Live:
    """A server's pages: what they may ask for, and the work behind it."""

    def __init__(self, base: Config, folder: Path, follow: Path | None) -> None:
        self.base = base
        self.following = None if follow is None else Following(follow)
        self.workers = Workers(base, folder)
        self.trainings = TrainingSet(folder)
        self.ending = asyncio.Event()

    def app(self) -> Starlette:
        """The application, for whom a guard lets in."""
        # One design with the report.
        shared = resources.files("camu.report") / "templates"
        routes: list[BaseRoute] = [
            Route("/", self.page),
            Route("/about.json", self.about),
            Route("/vega.js", self.library),
            Route("/report.css", FileResponse(str(shared / "page.css"))),
            Route("/points.js", FileResponse(str(shared / "points.js"))),
            Mount("/static", StaticFiles(packages=[("camu.live", "static")])),
            *(self._edit_routes() if self.following is None else self._follow_routes()),
        ]
        handlers: dict[Any, Any] = {CamuError: _sentences}
        return Starlette(routes=routes, exception_handlers=handlers, lifespan=self._lifespan)

    def _edit_routes(self) -> list[Route]:
        """The addresses of a page that plans and trains."""
        posts: dict[str, Endpoint] = {"/plan": self.plan, "/download": self.download}
        posts["/train"] = self.train
        acts = {"pause": self.trainings.pause, "stop": self.trainings.stop}
        for name, act in {**acts, "continue": self.trainings.resume}.items():
            posts[f"/trainings/{{number:int}}/{name}"] = self.control(act)
        return [
            *(Route(path, endpoint, methods=["POST"]) for path, endpoint in posts.items()),
            Route("/trainings", self.list_trainings),
            Route("/trainings/{number:int}/events", self.events),
            Route("/trainings/{number:int}/runs.zip", self.archive),
        ]

    def _follow_routes(self) -> list[Route]:
        """The addresses of a page that follows."""
        return [
            Route("/follow/events", self.follow_events),
            Route("/follow/plan", self.follow_plan, methods=["POST"]),
        ]

    @asynccontextmanager
    async def _lifespan(self, app: Starlette) -> AsyncIterator[None]:
        if self.following is None:
            await self.workers.start()
        try:
            yield
        finally:
            self.ending.set()
            await asyncio.gather(self.workers.close(), self.trainings.close())

    async def page(self, request: Request) -> Response:
        """The page."""
        text = template("camu.live", "live.html").render(
            version=__version__,
            axes=AXES,
            panels=PLAN_PANELS,
            following=self.following is not None,
        )
        return HTMLResponse(text)

    async def about(self, request: Request) -> Response:
        """What the page is made from: settings, schemes, charts and colours."""
        return JSONResponse(await asyncio.to_thread(lambda: self._about))

    @cached_property
    def _about(self) -> dict[str, Any]:
        shown = (*(f"accuracy-{axis}" for axis in AXES), "timeline", "contribution", "labels")
        panels = [panel for panel in (*WORLD_PANELS, *PLAN_PANELS) if panel.key in shown]
        base = self.base.flat()
        return {
            "follow": None if self.following is None else str(self.following.folder),
            "base": {key: plain(base[key]) for key in base if key != "fleet.positions"},
            "beside": beside(self.base),
            "controls": describe_controls(self.base, idle_keys(self.base)),
            "schemes": describe_schemes(self.base),
            "sliders": PARAMETER_SLIDERS,
            "charts": {
                panel.key: {"spec": panel.spec("container"), "row_pixels": panel.row_pixels}
                for panel in panels
            },
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
        return await self._asked(request, {"do": "plan", "state": await _body(request)})

    async def download(self, request: Request) -> Response:
        """A file of a page's settings."""
        body = await _body(request)
        for name in ("what", "scheme"):
            if not isinstance(body.get(name), str):
                raise InputError(f"{name}: give a text")
        asked = {name: body.get(name) for name in ("state", "what", "scheme")}
        return await self._asked(request, {"do": "download", **asked})

    async def _asked(self, request: Request, question: dict[str, Any]) -> Response:
        """The answer of a worker, unless the page does not wait for it any more."""
        answer = asyncio.create_task(self.workers.ask(question))
        gone = asyncio.create_task(_gone(request))
        try:
            await asyncio.wait({answer, gone}, return_when=asyncio.FIRST_COMPLETED)
            if not answer.done():
                raise InputError("the client has cancelled the request")
            return Response(answer.result(), media_type="application/json")
        finally:
            answer.cancel()
            gone.cancel()

    async def list_trainings(self, request: Request) -> Response:
        """All trainings of the run directory, the latest first."""
        return JSONResponse([one.status() for _, one in sorted(self.trainings.all.items())][::-1])

    async def train(self, request: Request) -> Response:
        """Begin a training."""
        body = await _body(request)
        answer = json.loads(await self.workers.ask({"do": "configure", "state": body}))
        if "toml" not in answer:
            return JSONResponse(answer)
        config = Config.from_toml(answer["toml"], "this page")
        return JSONResponse(self.trainings.begin(read_state(body), config).status())

    def control(self, act: Callable[[Training], None]) -> Endpoint:
        """Pauses, stops or continues a training."""

        async def control(request: Request) -> Response:
            training = self._training(request)
            act(training)
            return JSONResponse(training.status())

        return control

    def _training(self, request: Request) -> Training:
        return self.trainings.get(request.path_params["number"])

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
            if runs := {i: new for i, watch in enumerate(watches) if (new := watch.look())}:
                news["runs"] = runs
            if (status := training.status()) != sent.get("status"):
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

    def _stream(self, look: Callable[[], dict[str, Any]], every: float = LOOK_SECONDS) -> Response:
        """Server-sent events: what `look` finds, until the page or the server ends."""

        async def events() -> AsyncIterator[bytes]:
            yield b"retry: 1000\n\n"
            while not self.ending.is_set():
                news = await asyncio.to_thread(look)
                text = f"data: {json.dumps(news, allow_nan=False)}" if news else ":"
                yield f"{text}\n\n".encode()
                with suppress(TimeoutError):
                    await asyncio.wait_for(self.ending.wait(), every)

        return StreamingResponse(events(), media_type="text/event-stream")


async def _sentences(request: Request, error: Exception) -> Response:
    """An error that a user can cause, as sentences."""
    return JSONResponse({"errors": faults(error)})


async def _body(request: Request) -> dict[str, Any]:
    """The JSON object that a page sent."""
    try:
        document = json.loads(await request.body())
        json.dumps(document, ensure_ascii=False).encode()  # no answer can hold half a surrogate
    except (ValueError, RecursionError):
        raise InputError("the request is not JSON") from None
    if not isinstance(document, dict):
        raise InputError("the request is no JSON object")
    return document


async def _gone(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


def _zip(folder: Path) -> bytes:
    """The files of a directory; links are left out, they could lead elsewhere."""
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w", zipfile.ZIP_DEFLATED) as archive:
        for path in sorted(folder.rglob("*")):
            if path.is_file() and not path.is_symlink():
                archive.write(path, Path(folder.name) / path.relative_to(folder))
    return data.getvalue()
