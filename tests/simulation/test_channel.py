"""The uplink's effect on an update, against its definition."""

from pathlib import Path

import numpy as np
import pytest

from camu.errors import InputError, UserCodeError
from camu.seeding import derive
from camu.simulation.uplink import in_outage, receive, refuse

UPDATE = (1e-3 * derive(0, "own-update").numpy().standard_normal(200_000)).astype(np.float32)


@pytest.mark.parametrize("snr", [0.01, 1.0, 100.0])
def test_normalised_update_has_relative_noise(snr: float) -> None:
    noise = receive(UPDATE, None, snr, "hybrid", derive(0, "own-noise"))[0] - UPDATE
    relative = np.linalg.norm(noise) / np.linalg.norm(UPDATE)
    assert relative == pytest.approx(snr**-0.5, rel=0.01)
    assert abs(noise.mean()) < 5 * noise.std() / len(noise) ** 0.5


@pytest.mark.parametrize("snr", [1e-7, 1.0])
def test_raw_weights_have_absolute_noise(snr: float) -> None:
    noise = receive(UPDATE, None, snr, "hybrid-weights", derive(0, "own-noise"))[0] - UPDATE
    assert noise.std() == pytest.approx(snr**-0.5, rel=0.01)


@pytest.mark.parametrize("uplink", ["hybrid", "hybrid-weights", "analog", "digital", "packet"])
def test_the_change_of_a_model_is_received_as_an_update(uplink: str) -> None:
    start = np.linspace(-1, 1, len(UPDATE), dtype=np.float32)
    model, stream = start + UPDATE, derive(0, "own-noise")
    found, squares = receive(model, start, 3.0, uplink, stream)
    assert found.tobytes() == receive(model - start, None, 3.0, uplink, stream)[0].tobytes()
    assert squares == np.square(found, dtype=np.float64).sum()


@pytest.mark.parametrize("uplink", ["hybrid", "hybrid-weights", "analog"])
def test_without_a_signal_nothing_usable_arrives(uplink: str) -> None:
    stream, buffers = derive(0, "own-noise"), np.zeros(2, np.float32)
    _, squares = receive(UPDATE, np.zeros_like(UPDATE), 0.0, uplink, stream)
    assert refuse(squares, buffers, 1e9) == "it has entries that are not finite"


def test_digital_is_error_free() -> None:
    assert np.array_equal(receive(UPDATE, None, 1e-9, "digital", derive(0, "own-noise"))[0], UPDATE)


def test_nothing_to_send_stays_nothing() -> None:
    assert not receive(np.zeros(5, np.float32), None, 1.0, "hybrid", derive(0, "own-noise"))[
        0
    ].any()


def test_outage_is_below_the_threshold() -> None:
    assert not in_outage(0.1, None)
    assert in_outage(0.09, -10.0)
    assert not in_outage(0.11, -10.0)


OWN = """
import numpy as np

def erased(update, snr, generator):
    update[generator.random(update.size) < 1 / (1 + snr)] = 0
    return update

def short(update, snr, generator):
    return update[:3]

def broken(update, snr, generator):
    return 1 / 0
"""


def test_an_uplink_of_ones_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "own_air.py").write_text(OWN)
    monkeypatch.chdir(tmp_path)
    received = receive(UPDATE, None, 1.0, "own_air:erased", derive(0, "own-noise"))[0]
    assert np.mean(received == 0) == pytest.approx(0.5, abs=0.01)
    assert UPDATE.all()  # the sender's copy is untouched
    again = receive(UPDATE, None, 1.0, "own_air:erased", derive(0, "own-noise"))[0]
    assert np.array_equal(received, again)
    with pytest.raises(InputError, match=r"own_air:short: it returned float32 of shape \(3,\)"):
        receive(UPDATE, None, 1.0, "own_air:short", derive(0, "own-noise"))[0]
    with pytest.raises(UserCodeError, match=r"own_air\.py, line 12, in broken: ZeroDivisionError"):
        receive(UPDATE, None, 1.0, "own_air:broken", derive(0, "own-noise"))[0]
