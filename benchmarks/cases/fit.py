"""Keras `fit` against a loop of one's own."""

from __future__ import annotations

from benchmarks.arena import Arena, Settings
from benchmarks.results import CaseResult, Goal

FIT, BY_HAND = "Keras fit", "hand-written loop"
KERAS_STEP = "Keras train_step in a loop by hand"


def run(settings: Settings) -> CaseResult:
    """Training of the VAE with LARS, from the data pipeline of the examples."""
    rounds = settings.pick(full=7, quick=2, tiny=2)
    steps = settings.pick(full=1000, quick=500, tiny=50)
    result = CaseResult(
        "fit",
        "Keras `fit` against a hand-written tf.function loop, VAE with LARS, batch of 128",
        notes=[
            "The same model, loss and `tf.data` pipeline (shuffled, binarized afresh). The loop by "
            f"hand is one `tf.function` over all {steps} steps of a turn.",
        ],
    )
    with Arena(settings, result.name) as arena:
        times = arena.measure(
            f"{steps} steps",
            {
                FIT: arena.keras("train", prior="lars", steps=steps, pipeline=True),
                BY_HAND: arena.keras("train_by_hand", prior="lars", steps=steps),
                KERAS_STEP: arena.keras(
                    "train_by_hand", prior="lars", steps=steps, keras_step=True
                ),
            },
            rounds,
            num_calls=1,
            warm_up=1,  # making a model clears TensorFlow's cache of those made before
        )
    result.timings.extend(times.timings())
    goal = Goal(
        f"speed of {FIT} over {BY_HAND}",
        at_least=0.95,
        bounded_by="the loop that Keras wraps around the step: the same `train_step` in a loop by "
        f"hand takes {times.share(KERAS_STEP, FIT)} of the time of `fit`, the hand-written step "
        f"{times.share(BY_HAND, FIT)}.",
    )
    result.outcomes.append(times.ratio(goal, BY_HAND, FIT))
    return result
