"""Finished runs with invented numbers, for tests."""

import dataclasses
import json
import math
import pathlib

import numpy as np

from examples.paper import experiments
from examples.paper.findings import Finding, Lower, Same
from examples.paper.kinds import Row, Table
from examples.paper.presets import Preset
from examples.paper.results import Results
from examples.paper.study import Study
from examples.vae.config import Evaluation

IMAGES = "1234"  # digest of the data

TINY = Preset(
    "tiny",
    steps=100,
    evaluation=Evaluation(iwae_samples=3, z_samples=1000, test_images=50),
    checkpoint_every=50,
    batch_size=16,
    S=64,
)
STANDARD = experiments.run("mnist5k", "standard", latents=2)
JOINT = experiments.run("mnist5k", "lars", accept_units="8-8", latents=2)
POST_HOC = experiments.run("mnist5k", "lars", accept_units="8-8", latents=2, post_hoc=True)
TABLE = Table(
    "tiny",
    "Three ways",
    ("elbo", "recons", "z"),
    (
        Row("standard", STANDARD, (89.0, 63.2, 1.0)),
        Row("post-hoc", POST_HOC, (87.3, 63.2, 0.023), versus="standard"),
        Row("joint", JOINT, (86.6, 61.9, 0.015), versus="standard"),
        Row("cited", None, (80.0, 60.0, None), note="Somebody (2016)"),
    ),
    (
        Finding("post-hoc is better", (Lower("post-hoc", "standard", "elbo"),)),
        Finding("it leaves the rest", (Same("post-hoc", "standard", "recons"),)),
    ),
)


def study(out, rows=TABLE.rows, preset=TINY, **kwargs):
    labels = {row.label for row in rows}
    findings = [f for f in TABLE.findings if all(labels >= set(c.labels) for c in f.checks)]
    table = Table(TABLE.name, TABLE.title, TABLE.metrics, tuple(rows), tuple(findings))
    return Study([table], [], preset, pathlib.Path(out), **kwargs)


def finish(made, run, *, nll=90.0, nlls=None, z=None, log_z_stderr=0.0, recons=-60.0, **more):
    """Writes the files of a finished run with invented numbers."""
    path = made.runs_dir / run.name
    path.mkdir(parents=True, exist_ok=True)
    config = made.config(run)
    if run.config.post_hoc:
        base_weights = f"networks of {run.base.name}"
        config = dataclasses.replace(config, base_weights=base_weights)
    evaluation = dataclasses.asdict(config.evaluation)
    config = {**config.to_json(), **config.identity()}
    nlls = np.full(50, nll) + np.linspace(-1, 1, 50) if nlls is None else nlls
    spread = nlls.std(ddof=1) / math.sqrt(len(nlls))
    np.save(path / "test_nll.npy", nlls)
    np.save(path / "test_elbo.npy", -nlls - 1.0)
    metrics = {
        "nll": float(nlls.mean()),
        "nll_stderr": math.hypot(spread, log_z_stderr),
        "elbo": float(-nlls.mean() - 1.0),
        "elbo_stderr": math.hypot(spread, log_z_stderr),
        "kl": recons + float(nlls.mean()) + 1.0,
        "kl_stderr": 0.1,
        "recons": recons,
        "recons_stderr": 0.1,
        "z": z,
        "log_z_stderr": None if z is None else log_z_stderr,
        "steps": config["steps"],
        "stderr_from_z": log_z_stderr,
        "expected_attempts": None if z is None else 1.0 / z,
        "num_parameters": 1000,
        **evaluation,
        "num_test_images": len(nlls),
        "networks": f"networks of {(run.base or run).name}",
        "images": IMAGES,
        "data": f"files in {made.out}/data",
        "command": f"python -m examples.vae.train --config {path}/config.json",
        "revision": "abc1234",
        "machine": {"processor": "A processor", "cores": 2, "threads": "1"},
        "training_seconds": 600.0,
        "evaluation_seconds": 120.0,
        "config": config,
        "versions": {"tfp_lars": "0.1.0"},
        **more,
    }
    (path / "config.json").write_text(json.dumps({**config, "images": IMAGES}))
    (path / "metrics.json").write_text(json.dumps(metrics))


def checkpoint(made, run, step):
    (made.runs_dir / run.name / "checkpoints").mkdir(parents=True)
    (made.runs_dir / run.name / "checkpoints" / f"ckpt-{step}.index").write_text("")


def results(made):
    return Results(made)
