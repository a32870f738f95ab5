"""`camu deploy emulate`: a run over network namespaces of this machine, at the world's rates."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from camu.cli.guard import print_json
from camu.cli.options import ConfigFile, Json, Preset, Scheme, Seed, Settings, to_folder
from camu.cli.run import run_config

Slower = Annotated[
    float,
    typer.Option(
        "--slower",
        metavar="X",
        min=1,
        max=1000,
        help="All seconds are X times those of the world, so that this machine is quick beside it.",
    ),
]
Out = Annotated[
    Path | None, to_folder("--out", "Where emulation.html and emulation.json are written.")
]


def emulate(
    file: ConfigFile = None,
    preset: Preset = None,
    settings: Settings = None,
    seed: Seed = None,
    scheme: Scheme = None,
    slower: Slower = 1.0,
    out: Out = None,
    as_json: Json = False,
) -> None:
    """Run a scheme with every transfer over a real link of this machine, at the world's rate.

    Devices and base station are network namespaces, links are shaped with tc in every round. Prints
    measured beside virtual seconds. Needs root and iproute2 (Linux); without them it does nothing.
    """
    from camu.deploy.emulation.run import KINDS, emulate

    config = run_config(None, False, file, preset, settings, seed, scheme)
    found = emulate(config, slower, out)
    if as_json:
        print_json(found.to_dict())
        return
    count = len(found.rounds)
    print(f"{found.scheme}: {count} round{'s' if count != 1 else ''}, {slower:g} times slower")
    print("            measured / world   median error")
    for kind in KINDS:
        if (error := found.median_error(kind)) is not None:
            print(f"  {kind:8}  {found.median_ratio(kind):16.3f}   {100 * error:10.2f} %")
    wire = found.to_dict()["wire_over_payload"]
    print(
        f"bytes on the wire: {wire:.3f} times the payload; joules by the model: {found.joules:.4g}"
    )
    same = "the same to the bit" if found.same_model else "another"
    print(f"the model is {same} as in the simulation")
    if out is not None:
        print(f"everything is in {out / 'emulation.html'}")
