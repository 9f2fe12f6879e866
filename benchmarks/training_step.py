"""What a resampled prior adds to the time of a training step, and `fit` to a hand-written loop.

    python -m benchmarks.training_step

Contenders take turns, so that a noisy machine is noisy to all of them. Times are for reference,
ratios are the result.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable

import keras
import numpy as np
import tensorflow as tf

from examples import experiment, models, priors

STEPS = 50  # of one turn


def fit(prior: str, model: str, x: tf.Tensor) -> Callable[[], None]:
    """Turns of `STEPS` steps with Keras `fit`."""
    vae = _build(prior, model)
    batches = tf.data.Dataset.from_tensors(x).repeat()
    return lambda: vae.fit(batches, steps_per_epoch=STEPS, shuffle=False, verbose=0)


def hand_written(prior: str, model: str, x: tf.Tensor) -> Callable[[], None]:
    """Turns of `STEPS` steps in a loop of one's own."""
    vae = _build(prior, model)

    @tf.function
    def turn():
        for _ in tf.range(STEPS):
            with tf.GradientTape() as tape:
                loss = vae.compute_loss(x, None, vae(x))
            variables = vae.trainable_variables
            vae.optimizer.apply(tape.gradient(loss, [v.value for v in variables]), variables)

    return turn


def _build(prior: str, model: str) -> models.LatentVariableModel:
    config = priors.PriorConfig(name=prior)
    return experiment.build(experiment.Config("mnist", model, config, steps=10**5))


def measure(contenders: dict[str, Callable[[], None]], rounds: int) -> dict[str, np.ndarray]:
    """Seconds a step, `[rounds]` for each contender, after one turn to warm up."""
    for turn in contenders.values():
        turn()
    times = {name: [] for name in contenders}
    bar = keras.utils.Progbar(rounds, unit_name="round")
    for _ in range(rounds):
        for name, turn in contenders.items():
            start = time.perf_counter()
            turn()
            times[name].append((time.perf_counter() - start) / STEPS)
        bar.add(1)
    return {name: np.array(t) for name, t in times.items()}


def main() -> None:
    """Prints times and ratios."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--model", default="vae", choices=models.MODELS)
    parser.add_argument("--rounds", type=int, default=20)
    args = parser.parse_args()
    x = tf.constant(np.float32(np.random.default_rng(0).random((128, 28, 28)) < 0.13))
    contenders = {
        "standard, fit": fit("standard", args.model, x),
        "lars, fit": fit("lars", args.model, x),
        "lars, hand-written loop": hand_written("lars", args.model, x),
    }
    times = measure(contenders, args.rounds)
    for name, seconds in times.items():
        low, middle, high = 1e3 * np.quantile(seconds, [0.25, 0.5, 0.75])
        print(f"{name:25} {middle:7.2f} ms a step (quartiles {low:.2f} to {high:.2f})")
    pairs = [
        ("lars, fit", "standard, fit", "at most 1.25; the paper has 1.40"),
        ("lars, fit", "lars, hand-written loop", "about 1"),
    ]
    for a, b, goal in pairs:
        low, middle, high = np.quantile(times[a] / times[b], [0.25, 0.5, 0.75])
        print(f"{a} / {b}: {middle:.2f} (quartiles {low:.2f} to {high:.2f}); goal: {goal}")


if __name__ == "__main__":
    main()
