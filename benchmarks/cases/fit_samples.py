"""`tfp_lars.fit` against the training loops of glasflow's examples."""

from __future__ import annotations

import dataclasses
import os
import pathlib
from collections.abc import Sequence

from benchmarks.arena import Arena, Settings, Times
from benchmarks.held_out import HeldOut, Snapshot, first_at
from benchmarks.processes import AbsentError
from benchmarks.results import CaseResult, Goal, Outcome

T = 100
TOLERANCE = 0.02  # nats, about twice the error of a difference between log-likelihoods
OURS = "tfp_lars.fit"
LOOPS = {"epochs": "glasflow, 200 epochs of 1,000", "steps": "glasflow, 5,000 steps of 128"}


def run(settings: Settings) -> CaseResult:
    """Measures the time to the same held-out log-likelihood, on the latents of a VAE."""
    rounds = settings.pick(full=3, quick=1, tiny=1)
    steps_of_vae = settings.pick(full=5000, quick=1000, tiny=3)
    num_proposals = settings.pick(full=2**21, quick=2**19, tiny=2**12)
    result = CaseResult(
        "fit_samples",
        "Time to the held-out log-likelihood of glasflow, latents of a VAE, a = 20-100-100-1",
        notes=[
            f"Latents of MNIST in 20 dimensions from a VAE trained for {steps_of_vae:,} steps, one "
            "for each of 60,000 training and 10,000 test images. The proposal is N(0, I), and "
            f"T = {T}. `fit` has its defaults. The loops are those of glasflow's examples with "
            "Adam at 0.001: one over a data set, with a validation after each epoch, and one of "
            "5,000 steps. Each round has another initialization. Times are those to the "
            f"log-likelihood of the end of the loop, less {TOLERANCE} nats, on the test latents, "
            f"for both. Its Z comes from {num_proposals:,} proposals. Each contender has one "
            "thread, and times are CPU times, so that other processes do not change them.",
        ],
    )
    goals = {
        loop: Goal(
            f"time of {OURS} over {name}",
            at_most=0.5,
            bounded_by="the 1,024 proposals for Z of each step of `fit`. glasflow draws as many "
            "as the batch has samples.",
        )
        for loop, name in LOOPS.items()
    }
    folder = pathlib.Path(os.environ.get("TFP_LARS_DATA_DIR", "")) / "mnist"
    if not folder.is_dir():
        absent = "MNIST is not in the directory that TFP_LARS_DATA_DIR names"
        result.outcomes.extend(Outcome(goal, absent=absent) for goal in goals.values())
        return result
    with Arena(dataclasses.replace(settings, threads=1), result.name) as arena:
        arena.show("training the VAE")
        train, test = arena.call_in_fresh_process(
            "latents", folder=str(folder), num_steps=steps_of_vae
        )
        held_out = HeldOut(test, T, num_proposals)
        seconds = {loop: {OURS: [], name: []} for loop, name in LOOPS.items()}
        absent: dict[str, str] = {}
        for seed in range(rounds):
            arena.show(f"round {seed + 1} of {rounds}")
            ours = arena.call("fit_curve", train=train, T=T, seed=seed)
            result.notes.append(f"Round {seed + 1}: {OURS} ends at {_end(ours, held_out):.3f} nats")
            for loop, name in LOOPS.items():
                try:
                    theirs = arena.call_torch("fit_curve", train=train, T=T, loop=loop, seed=seed)
                except AbsentError as reason:
                    absent[name] = str(reason)
                    continue
                end = _end(theirs, held_out)
                result.notes[-1] += f", {name} at {end:.3f}"
                for contender, curve in ((OURS, ours), (name, theirs)):
                    time = first_at(curve, end - TOLERANCE, held_out)
                    seconds[loop][contender].append(time)
            result.notes[-1] += "."
            arena.show(result.notes[-1])
    for loop, name in LOOPS.items():
        times = Times(f"to the end of {name}", seconds[loop] if name not in absent else {}, absent)
        result.timings.extend(times.timings())
        result.outcomes.append(times.ratio(goals[loop], OURS, name))
    return result


def _end(curve: Sequence[Snapshot], held_out: HeldOut) -> float:
    return held_out(curve[-1][1])
