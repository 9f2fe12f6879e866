"""A training step of a VAE: what the resampled prior adds, and the same in PyTorch."""

from __future__ import annotations

from benchmarks.arena import Arena, Settings, Times
from benchmarks.results import CaseResult, Goal

PRIORS = ("standard", "lars")
OURS = {prior: f"tfp_lars, {prior}" for prior in PRIORS}
TORCH = {prior: f"PyTorch, {prior}" for prior in PRIORS}
ALONE = "tfp_lars, a(z) alone"


def run(settings: Settings) -> CaseResult:
    """Steps on batches of 128 images, standard normal against LARS with S=1024."""
    rounds = settings.pick(full=11, quick=3, tiny=2)
    steps = settings.pick(full=250, quick=250, tiny=50)
    result = CaseResult(
        "training",
        "A VAE training step, batch of 128, standard against LARS (S=1024)",
        notes=[
            "tfp_lars: the `vae` of the examples under Keras `fit`, as they train it: 50 steps for "
            "each execution, two operations at a time, each on half of the cores. PyTorch: the "
            "same model, shapes and estimator of Z, eager, its fused Adam, one operation at a "
            "time on all cores. Both see the same batch again and again, so that no data pipeline "
            f"is measured. Times are of {steps} steps.",
        ],
    )
    with Arena(settings, result.name) as arena:
        contenders = {}
        for prior in PRIORS:
            contenders[OURS[prior]] = arena.keras("train", prior=prior, steps=steps)
            contenders[TORCH[prior]] = arena.torch("train", prior=prior, steps=steps)
        contenders[ALONE] = arena.keras("acceptance_alone", steps=steps)
        # A round to warm up: making a model clears TensorFlow's cache of those made before.
        times = arena.measure(f"{steps} steps", contenders, rounds, num_calls=1, warm_up=1)
    result.timings.extend(times.timings())
    added = Goal(
        "time of a LARS step over a standard one, tfp_lars",
        at_most=1.2,
        bounded_by="arithmetic: drawing 1,024 proposals and a(z) of 1,152 points, forward and "
        f"backward and nothing else, take {times.share(ALONE, OURS['standard'])} of the time of a "
        "standard step.",
    )
    result.outcomes.append(times.ratio(added, OURS["lars"], OURS["standard"]))
    for prior in PRIORS:
        goal = Goal(
            f"{prior}: steps per second of tfp_lars over PyTorch",
            at_least=1.0,
            bounded_by="the two libraries' kernels: most of a step are matrix products.",
        )
        result.outcomes.append(times.ratio(goal, TORCH[prior], OURS[prior]))
    result.notes.extend(_paper(times))
    return result


def _paper(times: Times) -> list[str]:
    """What LARS adds elsewhere."""
    added = times.ratio(Goal("", at_most=1.0), TORCH["lars"], TORCH["standard"]).value
    here = f"; PyTorch here: {added.median:.2f}" if added else ""
    return [f"What LARS adds to a step: the paper has 1.40 in time, 1.25 in multiply-adds{here}."]
