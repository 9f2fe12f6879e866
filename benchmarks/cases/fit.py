"""Keras `fit` against a hand-written loop."""

from __future__ import annotations

from benchmarks.arena import Arena, Settings
from benchmarks.results import CaseResult, Goal

FIT, BY_HAND = "Keras fit", "hand-written loop"
KERAS_STEP = "Keras train_step in a hand-written loop"


def run(settings: Settings) -> CaseResult:
    """Measures training of the VAE with LARS on the data pipeline of the examples."""
    rounds = settings.pick(full=7, quick=2, tiny=2)
    steps = settings.pick(full=1000, quick=500, tiny=50)
    result = CaseResult(
        "fit",
        "Keras `fit` against a hand-written tf.function loop, VAE with LARS, batch of 128",
        notes=[
            "Both use the same model, loss and `tf.data` pipeline (shuffled, dynamically "
            f"binarized). The hand-written loop is one `tf.function` over {steps} steps.",
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
            warm_up=1,  # creating a model clears TensorFlow's cache for earlier models
        )
    result.timings.extend(times.timings())
    goal = Goal(
        f"speed of {FIT} over {BY_HAND}",
        at_least=0.95,
        bounded_by="the Keras loop around the step. The same `train_step` in a hand-written loop "
        f"takes {times.share(KERAS_STEP, FIT)} of the time of `fit`, the hand-written step "
        f"{times.share(BY_HAND, FIT)}.",
    )
    result.outcomes.append(times.ratio(goal, BY_HAND, FIT))
    return result
