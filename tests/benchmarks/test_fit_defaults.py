"""The study of the defaults of `fit`: its table and its targets."""

import gzip
import json

import numpy as np
import pytest

from benchmarks import fit_defaults, fit_latents, fit_targets


@pytest.mark.parametrize("name", fit_targets.TARGETS)
def test_targets_have_samples_in_the_support_of_their_proposal(name):
    target = fit_targets.TARGETS[name]
    train, test = target.samples()
    proposal = target.proposal()
    assert train.shape == test.shape == (20_000, *proposal.event_shape)
    assert np.any(train != test)
    values = proposal.log_prob(train[:100].astype(proposal.dtype.as_numpy_dtype))
    assert np.all(np.isfinite(values))


def test_table_has_a_line_for_each_target(tmp_path, monkeypatch, capsys):
    np.savez(tmp_path / "latents.npz", train=np.zeros((5, 3)), test=np.zeros((4, 3)))
    runs = []

    def gain(target, train, test, **settings):
        runs.append((target.name, train.shape, test.shape, settings.get("num_steps")))
        return 0.1 * (settings.get("num_steps", 4000) / 1000), 3.0

    monkeypatch.setattr(fit_defaults, "gain", gain)
    fit_defaults.main(
        ["--only", "moons 2-D", "--latents", f"{tmp_path}/latents.npz", "--out", f"{tmp_path}/a"]
    )
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 4
    assert lines[2] == "| moons 2-D | 0.400 | 0.600 | -0.200 | 0.03, 6,000 | 3 |"
    assert lines[3].startswith("| latents | 0.400 | 0.600 |")
    assert [name for name, *_ in runs].count("latents") == 7
    assert runs[-1][1:3] == ((5, 3), (4, 3))
    assert [row["target"] for row in json.loads((tmp_path / "a").read_text())] == [
        "moons 2-D",
        "latents",
    ]


def test_gain_is_that_of_the_fitted_distribution():
    target = fit_targets.TARGETS["mixture 10-D"]
    train, test = (z[:500] for z in target.samples())
    value, seconds = fit_defaults.gain(
        target, train, test, num_steps=60, optimizer=fit_defaults.optimizer(0.01, 60)
    )
    assert 0.05 < value < 2.0
    assert seconds > 0


def test_latents_are_stored_for_training_and_test_images(tmp_path):
    rng = np.random.default_rng(0)
    (tmp_path / "mnist").mkdir()
    for part, count in (("train", 200), ("t10k", 50)):
        with gzip.open(tmp_path / "mnist" / f"{part}-images-idx3-ubyte.gz", "wb") as file:
            file.write(bytes(16) + rng.integers(256, size=count * 784, dtype=np.uint8).tobytes())
    path = tmp_path / "latents.npz"
    fit_latents.main([str(path), "--steps", "3", "--data-dir", str(tmp_path)])
    train, test = fit_targets.latents(path).samples()
    assert train.shape == (200, 20) and test.shape == (50, 20)
    assert np.all(np.isfinite(train))


def test_latents_need_images(capsys, monkeypatch):
    monkeypatch.delenv("TFP_LARS_DATA_DIR", raising=False)
    with pytest.raises(SystemExit):
        fit_latents.main(["latents.npz"])
    assert "argument --data-dir: required" in capsys.readouterr().err
