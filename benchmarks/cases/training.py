"""VAE training step: standard and resampled prior, in Keras and PyTorch."""

from __future__ import annotations

from benchmarks.arena import Arena, Settings, Times
from benchmarks.results import CaseResult, Goal

PRIORS = ("standard", "lars")
OURS = {prior: f"tfp_lars, {prior}" for prior in PRIORS}
TORCH = {prior: f"PyTorch, {prior}" for prior in PRIORS}
ALONE = "tfp_lars, a(z) alone"


def run(settings: Settings) -> CaseResult:
    """Measures steps on batches of 128 images, standard normal against LARS with S=1024."""
    rounds = settings.pick(full=11, quick=3, tiny=2)
    steps = settings.pick(full=250, quick=250, tiny=50)
    result = CaseResult(
        "training",
        "VAE training step, batch of 128, standard against LARS (S=1024)",
        notes=[
            "tfp_lars: the `vae` of the examples with Keras `fit` and their settings: 50 steps per "
            "execution, two operations at a time, each on half of the cores. PyTorch: the same "
            "model, shapes and estimator of Z, in eager mode with fused Adam, one operation at a "
            "time on all cores. Both repeat one batch, so that no data pipeline is measured. "
            f"Times are for {steps} steps.",
        ],
    )
    with Arena(settings, result.name) as arena:
        contenders = {}
        for prior in PRIORS:
            contenders[OURS[prior]] = arena.keras("train", prior=prior, steps=steps)
            contenders[TORCH[prior]] = arena.torch("train", prior=prior, steps=steps)
        contenders[ALONE] = arena.keras("acceptance_alone", steps=steps)
        # One warm-up round: creating a model clears TensorFlow's cache for earlier models.
        times = arena.measure(f"{steps} steps", contenders, rounds, num_calls=1, warm_up=1)
    result.timings.extend(times.timings())
    added = Goal(
        "time of a LARS step over a standard one, tfp_lars",
        at_most=1.2,
        bounded_by="arithmetic. Drawing 1,024 proposals and computing a(z) of 1,152 points, "
        f"forward and backward, takes {times.share(ALONE, OURS['standard'])} of the time "
        "of a standard step.",
    )
    result.outcomes.append(times.ratio(added, OURS["lars"], OURS["standard"]))
    for prior in PRIORS:
        goal = Goal(
            f"{prior}: steps per second of tfp_lars over PyTorch",
            at_least=1.0,
            bounded_by="the kernels of the two libraries. Matrix products take most of a step.",
        )
        result.outcomes.append(times.ratio(goal, TORCH[prior], OURS[prior]))
    result.notes.extend(_paper(times))
    return result


def _paper(times: Times) -> list[str]:
    """Returns a note on the cost of LARS in the paper and in PyTorch."""
    added = times.ratio(Goal("", at_most=1.0), TORCH["lars"], TORCH["standard"]).value
    here = f"; PyTorch in this run, {added.median:.2f} in time" if added else ""
    return [
        "Cost of a LARS step relative to a standard step: paper, 1.40 in time and 1.25 in "
        f"multiply-adds{here}."
    ]
