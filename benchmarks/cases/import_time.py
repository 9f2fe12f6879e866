"""Time of `import tfp_lars` after TensorFlow, TFP and Keras are imported."""

from __future__ import annotations

import os
import subprocess
import sys

from benchmarks.arena import Settings
from benchmarks.harness import Spread
from benchmarks.results import CaseResult, Goal, Outcome, Timing

# TFP and Keras load their submodules lazily, on first use.
_CODE = """
import time
start = time.perf_counter()
import keras, tensorflow as tf, tensorflow_probability as tfp, tf_keras
tfp.distributions.Normal, tfp.bijectors.Shift, tfp.math.log1mexp, tfp.random.sanitize_seed
tf.keras.Model
middle = time.perf_counter()
import tfp_lars
print(middle - start, time.perf_counter() - middle)
"""


def run(settings: Settings) -> CaseResult:
    """Measures imports. Each round is a new process, which imports `tfp_lars` last."""
    rounds = settings.pick(full=7, quick=2, tiny=1)
    peers, ours = [], []
    for i in range(-1, rounds):  # the first process fills the file cache and is not recorded
        times = _import()
        if i >= 0:
            peers.append(times[0])
            ours.append(times[1])
            settings.show(f"import_time: process {i + 1} of {rounds}")
    goal = Goal("import of tfp_lars beyond TensorFlow's and TFP's own", at_most=0.3, unit="s")
    size = "fresh process"
    return CaseResult(
        "import_time",
        "Import time of `tfp_lars` beyond TensorFlow's, TFP's and Keras's own",
        outcomes=[Outcome(goal, Spread.of(ours))],
        timings=[
            Timing(size, "TensorFlow, TFP, Keras, tf_keras", Spread.of(peers)),
            Timing(size, "tfp_lars after them", Spread.of(ours)),
        ],
    )


def _import() -> tuple[float, float]:
    # Installed packages have bytecode. The first process writes it for the others.
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    done = subprocess.run(
        [sys.executable, "-c", _CODE], check=True, capture_output=True, text=True, env=environment
    )
    peers, ours = done.stdout.split()[-2:]
    return float(peers), float(ours)
