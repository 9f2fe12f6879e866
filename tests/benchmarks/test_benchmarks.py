"""Tests of the benchmarks. No test depends on run times."""

import argparse
import json
import math
import os
import runpy
import signal
import sys
import textwrap

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_probability as tfp
from scipy import special

import tfp_lars
from benchmarks import __main__ as command_line
from benchmarks import (
    charts,
    harness,
    held_out,
    loops,
    machine,
    normalizer_study,
    problem,
    report,
    with_keras,
    with_tensorflow,
)
from benchmarks.arena import Arena, Settings, Times
from benchmarks.cases import CASES
from benchmarks.harness import Spread
from benchmarks.processes import AbsentError, Child
from benchmarks.results import CaseResult, Curve, Goal, Outcome, Timing
from tests.bounds import FALSE_ALARM_RATE, chi_square_p_value, normal_bound
from tfp_lars import _proposal_draws

tfd = tfp.distributions


class Clock:
    """Clock that advances only in `sleep`."""

    def __init__(self):
        self.now = 0.0

    def __call__(self):
        return self.now

    def sleep(self, seconds):
        self.now += seconds


class Runner:
    """Contender that takes known times and logs its turns."""

    def __init__(self, name, clock, log, seconds):
        self.name, self.clock, self.log = name, clock, log
        self.seconds = iter(seconds)

    def __call__(self, num_calls):
        self.log.append((self.name, num_calls))
        seconds = next(self.seconds)
        return harness.time_calls(lambda: self.clock.sleep(seconds), num_calls, self.clock)


def run(rounds, times, **kwargs):
    clock, log = Clock(), []
    contenders = {name: Runner(name, clock, log, seconds) for name, seconds in times.items()}
    return harness.measure(contenders, rounds, sleep=clock.sleep, **kwargs), log, clock


def test_contenders_take_turns_and_each_round_begins_with_another():
    times = {"a": [1.0, 2.0, 3.0], "b": [4.0, 5.0, 6.0], "c": [7.0, 8.0, 9.0]}
    rounds = []
    seconds, log, clock = run(3, times, num_calls=1, rest=0.5, on_round=rounds.append)
    assert seconds == times
    assert "".join(name for name, _ in log) == "abcbcacab"
    assert rounds == [1, 2, 3]
    assert clock.now == sum(map(sum, times.values())) + 9 * 0.5


def test_short_calls_are_repeated_and_the_trial_does_not_count():
    seconds, log, _ = run(2, {"a": [0.25, 0.5, 0.5], "b": [8.0, 4.0, 4.0]}, least_seconds=2.0)
    assert log[:2] == [("a", 1), ("b", 1)]
    assert log[2:] == [("a", 8), ("b", 1), ("b", 1), ("a", 8)]
    assert seconds == {"a": [0.5, 0.5], "b": [4.0, 4.0]}


def test_rounds_to_warm_up_do_not_count():
    rounds = []
    times = {"a": [9.0, 1.0, 2.0], "b": [8.0, 3.0, 4.0]}
    seconds, log, _ = run(2, times, num_calls=1, warm_up=1, on_round=rounds.append)
    assert seconds == {"a": [1.0, 2.0], "b": [3.0, 4.0]}
    assert len(log) == 6 and rounds == [1, 2]


def test_number_of_calls_is_bounded_also_where_the_clock_is_too_coarse():
    assert harness.calls_needed(0.0, 0.1) == 1000
    assert harness.calls_needed(1e-9, 0.1) == 1000
    assert harness.calls_needed(0.03, 0.1) == 4
    assert harness.calls_needed(7.0, 0.1) == 1


def test_no_contenders_no_times():
    assert harness.measure({}, 3, num_calls=1) == {}


def test_spread_is_median_and_quartiles():
    assert Spread.of([5.0, 1.0, 2.0, 4.0, 3.0]) == Spread(3.0, 2.0, 4.0, 5)
    assert Spread.of([7.0]) == Spread(7.0, 7.0, 7.0, 1)


def test_ratios_are_paired_by_round():
    """A machine that is ten times slower in one round does not change the ratio."""
    slow, fast = [2.0, 20.0, 2.0], [1.0, 10.0, 1.0]
    assert harness.paired_ratio(slow, fast) == Spread(2.0, 2.0, 2.0, 3)
    with pytest.raises(ValueError, match="zip"):
        harness.paired_ratio(slow, fast[:2])


def test_slope_is_the_exponent_beyond_fixed_costs():
    sizes = [1, 10, 100, 1000]
    seconds = [[9.0, 1.0], *([3.0 * s**1.5, 0.1 * s] for s in sizes[1:])]
    slope = harness.slope(sizes, seconds, start=10)
    np.testing.assert_allclose([slope.low, slope.median, slope.high], [1.125, 1.25, 1.375])
    with pytest.raises(ValueError, match="leaves 1"):
        harness.slope(sizes, seconds, start=1000)


@pytest.mark.parametrize(
    ("bounds", "value", "status"),
    [
        ({"at_least": 4.0}, 4.0, "met"),
        ({"at_least": 4.0}, 3.99, "missed"),
        ({"at_most": 1.2}, 1.2, "met"),
        ({"at_most": 1.2}, 1.21, "missed"),
        ({"at_most": 10.0}, -3.0, "met"),
        ({"at_most": 10.0}, 0.0, "met"),
        ({"at_least": 0.85, "at_most": 1.15}, 1.0, "met"),
        ({"at_least": 0.85, "at_most": 1.15}, 0.8, "missed"),
        ({"at_least": 0.85, "at_most": 1.15}, 1.2, "missed"),
        ({"at_least": 0.85}, math.nan, "missed"),
        ({"at_most": 0.5}, math.nan, "missed"),
    ],
)
def test_the_median_decides(bounds, value, status):
    outcome = Outcome(Goal("speed", **bounds), Spread(value, 0.0, 99.0, 3))
    assert outcome.status == status


def test_a_ratio_with_an_absent_contender_is_absent():
    times = Times("n = 1", {"ours": [1.0], "loop": [3.0]}, {"theirs": "No module named 'theirs'"})
    goal = Goal("speed", at_least=2.0)
    outcome = times.ratio(goal, "theirs", "ours")
    assert outcome.status == "absent"
    assert outcome.absent == "theirs: No module named 'theirs'"
    assert times.ratio(goal, "loop", "ours") == Outcome(goal, Spread(3.0, 3.0, 3.0, 1))
    with pytest.raises(ValueError, match="theirs"):
        _ = outcome.margin


def results():
    """Returns results with one goal of each kind."""

    def goal(what, bounded_by):
        return Goal(what, at_least=4.0, bounded_by=bounded_by)

    spread = Spread(1.5, 1.25, 2.0, 3)
    curve = Curve("draws", "n", [1.0, 10.0, 100.0], [spread] * 3, 10.0, Spread(0.0, 0.0, 0.0, 3))
    first = CaseResult(
        "draws",
        "Draws",
        [
            Outcome(goal("over loop", "hidden because met"), Spread(5.0, 4.5, 6.0, 3)),
            Outcome(goal("over bare", "random numbers take 60 %"), spread),
            Outcome(goal("over theirs", "hidden because absent"), absent="theirs: not installed"),
        ],
        [Timing("n = 1", "ours", Spread(0.0015, 0.001, 0.002, 3)), Timing("n", "ours", spread)],
        notes=["A note."],
    )
    memory = Outcome(Goal("memory", at_most=16.0, unit="MB"), Spread(-1.0, -2.0, 3.0, 3))
    second = CaseResult(
        "growth", "Growth", [memory], [Timing("n", "excess", spread, "MB")], [curve]
    )
    return [first, second]


def test_every_goal_is_marked():
    rows = report.goals_table(results()).splitlines()[2:]
    assert rows == [
        "| draws | over loop | 5.00x | 4.50 to 6.00 | ≥ 4x | met |",
        "| draws | over bare | 1.50x | 1.25 to 2.00 | ≥ 4x | **missed** |",
        "| draws | over theirs | - | - | ≥ 4x | absent (theirs: not installed) |",
        "| growth | memory | -1.00 MB | -2.00 to 3.00 | ≤ 16 MB | met |",
    ]
    expected = "2 of 4 goals met, 1 missed, 1 not measured."
    assert report.summary(results()) == expected


def test_report_tells_what_bounds_a_goal_only_where_it_is_missed():
    text = report.markdown(results(), {"cores": "2"}, "full")
    assert "- draws, over bare: random numbers take 60 %" in text
    assert "hidden because" not in text
    for part in ("| cores | 2 |", "A note.", "| n = 1 | ours | 1.5 ms | 1 to 2 | 3 |", "1.5 MB"):
        assert part in text
    assert "quick run" not in text
    assert "quick run" in report.markdown(results(), {}, "quick")


def test_tables_have_as_many_cells_in_each_row():
    for block in report.markdown(results(), machine.describe(2), "full").split("\n\n"):
        if block.startswith("|"):
            assert len({line.count("|") for line in block.splitlines()}) == 1


def test_json_round_trip(tmp_path):
    path = tmp_path / "results.json"
    report.write_json(path, results(), {"cores": "2"}, "quick")
    assert report.read_json(path) == (results(), {"cores": "2"}, "quick")
    statuses = [o["status"] for c in json.loads(path.read_text())["cases"] for o in c["outcomes"]]
    assert statuses == ["met", "missed", "absent", "met"]


def test_charts_are_drawn(tmp_path):
    charts.draw_goals(tmp_path / "goals.png", results())
    charts.draw_growth(tmp_path / "growth.png", results())
    for name in ("goals.png", "growth.png"):
        assert (tmp_path / name).read_bytes().startswith(b"\x89PNG")


def test_machine_is_described():
    about = machine.describe(2)
    assert about["threads for each contender"] == "2"
    assert about["tensorflow"] == tf.__version__
    assert int(about["cores"]) >= 1
    assert set(machine.PACKAGES) <= set(about)


@pytest.fixture
def contenders(tmp_path, monkeypatch):
    """Name of a module of contenders that child processes can import."""
    code = """
        import os
        threads = None
        def use_threads(n):
            global threads
            threads = n
        def get_threads():
            return threads
        def double(*, x):
            return 2 * x
        def nothing():
            return lambda: None
        def peer():
            import there_is_no_such_module
        def broken():
            raise ValueError("broken on purpose")
        def die():
            os._exit(3)
    """
    (tmp_path / "made_up_contenders.py").write_text(textwrap.dedent(code))
    (tmp_path / "absent_contenders.py").write_text("import there_is_no_such_module\n")
    monkeypatch.syspath_prepend(tmp_path)
    return "made_up_contenders"


def test_a_child_runs_turns_and_survives_errors(contenders):
    with Child(contenders, threads=3) as child:
        assert child.call("get_threads") == 3
        assert isinstance(child.contender("nothing")(5), float)
        with pytest.raises(AbsentError, match="there_is_no_such_module"):
            child.contender("peer")
        with pytest.raises(RuntimeError, match="broken on purpose"):
            child.call("broken")
        assert child.call("double", x=21) == 42
        with pytest.raises(RuntimeError, match="exit code 3"):
            child.call("die")


def test_a_module_that_cannot_be_imported_is_absent(contenders):
    with pytest.raises(AbsentError, match="there_is_no_such_module"):
        Child("absent_contenders", threads=1)


PROPOSAL = np.array([0.1, 0.2, 0.3, 0.25, 0.15])
ACCEPT = np.array([0.9, 0.05, 0.3, 0.0, 0.6])


@pytest.mark.parametrize("T", [1, 2, 4, None])
def test_masked_loop_is_a_correct_sampler(T, seed, num_samples=20_000):
    """Compares cell counts with p_T computed by recursion.

    The fourth cell is kept only as the last, untested candidate. An off-by-one in T at T = 4 would
    change its share from 0.093 to 0.130 or 0.067, by 17 or 12 standard errors.
    """
    accept = tf.constant(ACCEPT, tf.float32)
    sample = loops.masked_sampler(
        tfd.Categorical(probs=PROPOSAL.astype(np.float32)), lambda z: tf.gather(accept, z), T
    )
    z = sample(tf.constant(num_samples), tf.constant([seed, 0]))
    Z = np.sum(PROPOSAL * ACCEPT)
    expected = PROPOSAL * ACCEPT / Z
    if T is not None:
        expected = PROPOSAL
        for _ in range(T - 1):
            expected = PROPOSAL * ACCEPT + (1.0 - Z) * expected
    counts = np.bincount(z, minlength=5)
    assert np.all(counts[expected == 0] == 0)
    possible = expected > 0
    assert chi_square_p_value(counts[possible], expected[possible]) > FALSE_ALARM_RATE


def test_masked_loop_draws_vectors():
    proposal = tfd.MultivariateNormalDiag(tf.zeros(3))
    sample = loops.masked_sampler(proposal, lambda z: tf.cast(z[:, 0] > 0, tf.float32), None)
    z = sample(tf.constant(50), tf.constant([1, 2])).numpy()
    assert z.shape == (50, 3) and np.all(z[:, 0] > 0)
    assert len(np.unique(z)) == 150


def test_bare_loop_evaluates_the_candidates_it_says():
    proposal, seed = tfd.MultivariateNormalDiag(tf.zeros(3)), tf.constant([3, 4])
    evaluate = loops.bare_loop(proposal, lambda z: tf.sigmoid(z[:, 0]))
    total, count = evaluate(tf.constant(100), tf.constant(32), seed)
    blocks = [
        _proposal_draws.sample(proposal, size, tf.random.fold_in(seed, i))
        for i, size in enumerate([32, 32, 32, 4])
    ]
    assert count == 100
    expected = np.sum(special.expit(np.concatenate(blocks)[:, 0]))
    np.testing.assert_allclose(total, expected, rtol=1e-5)


@pytest.mark.parametrize("z", [0.015, 0.001, 0.5])
def test_problem_has_the_acceptance_rate_it_says(z, num_draws=2**16):
    """The output bias and this estimate each use 2**16 draws, hence the factor of 2."""
    p = problem.make(50, z)
    assert p.d == 50 and p.hidden_units == (100, 100)
    draws = np.random.default_rng(1).normal(size=(num_draws, 50)).astype(np.float32)
    a = special.expit(p.logits(draws))
    stderr = np.std(a) * np.sqrt(2.0 / num_draws)
    assert abs(np.mean(a) - z) < normal_bound() * stderr
    assert stderr < 0.02 * z


def test_the_same_weights_give_the_same_probabilities_in_tensorflow():
    p = problem.make(7, 0.1, hidden_units=(6, 5))
    z = np.random.default_rng(0).normal(size=(20, 7)).astype(np.float32)
    expected = special.log_expit(p.logits(z))
    actual = with_tensorflow.resampled(p).accept_log_prob(z)
    np.testing.assert_allclose(actual, expected, rtol=1e-4)
    np.testing.assert_allclose(np.log(with_tensorflow.acceptance(p)(z)), expected, rtol=1e-4)


def test_contenders_in_tensorflow_do_what_they_are_called():
    small = {"d": 3, "z": 0.3}
    assert with_tensorflow.draws(n=7, T=5, **small)().shape == (7, 3)
    assert with_tensorflow.masked_draws(n=7, T=5, **small)().shape == (7, 3)
    assert with_tensorflow.log_prob(batch=9, T=5, **small)().shape == (9,)
    candidates = with_tensorflow.num_candidates(n=50, T=1, **small)
    assert candidates == 50
    bare = with_tensorflow.bare_candidates(candidates=candidates, block=16, **small)
    assert bare()[1] == 50
    alone = with_tensorflow.network_alone(candidates=50, block=16, **small)()
    assert 0.0 < alone < 64.0  # a(z) of four blocks
    assert with_tensorflow.estimate(num_samples=100, **small)().num_samples == 100


def test_draws_differ_from_call_to_call():
    draw = with_tensorflow.draws(n=5, T=5, d=3, z=0.3)
    masked = with_tensorflow.masked_draws(n=5, T=5, d=3, z=0.3)
    for call in (draw, masked):
        assert not np.any(call().numpy() == call().numpy())


needs_torch = "PyTorch is not installed. See benchmarks/requirements.txt."


def test_the_same_weights_give_the_same_probabilities_in_torch():
    torch = pytest.importorskip("torch", reason=needs_torch)
    from benchmarks import with_torch

    p = problem.make(7, 0.1, hidden_units=(6, 5))
    z = np.random.default_rng(0).normal(size=(20, 7)).astype(np.float32)
    a = with_torch.acceptance(p)(torch.from_numpy(z)).detach().numpy()
    assert a.shape == (20, 1)
    np.testing.assert_allclose(np.log(a[:, 0]), special.log_expit(p.logits(z)), rtol=1e-4)


def test_glasflow_and_the_library_agree_on_the_density():
    pytest.importorskip("torch", reason=needs_torch)
    pytest.importorskip(
        "glasflow", reason="glasflow is not installed. See benchmarks/requirements.txt."
    )
    from benchmarks import with_torch

    arguments = {"batch": 64, "T": 100, "d": 7, "z": 0.1}
    theirs = with_torch.log_prob(**arguments)().numpy()
    np.testing.assert_allclose(with_tensorflow.log_prob(**arguments)(), theirs, rtol=1e-4)


def test_resampled_prior_in_torch_follows_the_algorithm():
    """Compares values with the paper's formulas, and the gradient with finite differences."""
    torch = pytest.importorskip("torch", reason=needs_torch)
    from benchmarks import torch_vae

    torch.manual_seed(0)
    T, decay, S, N = 10, 0.9, 6, 4
    prior = torch_vae.ResampledPrior(3, (5, 5), num_samples=S, decay=decay, T=T).double()
    rng = np.random.default_rng(0)
    z, proposals = rng.normal(size=(2, N, 3)), rng.normal(size=(2, S, 3))
    log_q = rng.normal(size=(2, N)) - 3.0

    def formula(step, old=None):
        a, a_proposals = (
            special.expit(prior.network(torch.from_numpy(x)).detach().numpy()[:, 0])
            for x in (z[step], proposals[step])
        )
        pi = np.exp(-0.5 * np.sum(z[step] ** 2, -1)) / (2 * np.pi) ** 1.5
        current = (np.sum(a_proposals) + pi / np.exp(log_q[step]) * a) / (S + 1)
        smooth = current if old is None else decay * old + (1 - decay) * current
        alpha = (1 - smooth) ** (T - 1)
        return np.log(pi * (a * (1 - alpha) / smooth + alpha)), np.mean(smooth)

    def log_prob(step):
        return prior.log_prob(*map(torch.from_numpy, (z[step], log_q[step], proposals[step])))

    expected, old = formula(0)
    first = log_prob(0)
    np.testing.assert_allclose(first.detach().numpy(), expected, rtol=1e-10)
    np.testing.assert_allclose(log_prob(1).detach().numpy(), formula(1, old)[0], rtol=1e-10)

    bias = prior.network[-1].bias
    (gradient,) = torch.autograd.grad(first.sum(), bias)
    sums = []
    for change in (1e-5, -2e-5):
        bias.data += change
        sums.append(np.sum(formula(0)[0]))
    np.testing.assert_allclose(gradient.item(), (sums[0] - sums[1]) / 2e-5, rtol=1e-6)


def test_vae_in_torch_has_the_weights_of_ours():
    torch = pytest.importorskip("torch", reason=needs_torch)
    from benchmarks import torch_vae
    from examples.vae import models

    for prior, in_torch in (
        ("standard", torch_vae.StandardPrior()),
        ("lars", torch_vae.ResampledPrior(50)),
    ):
        model = torch_vae.VAE(in_torch)
        theirs = sum(p.numel() for p in model.parameters())
        assert theirs == models.num_parameters(with_keras.vae(prior))
        loss = model.loss(torch.zeros(8, 784), 1.0)
        assert loss.shape == () and torch.isfinite(loss)


def test_all_cases_are_listed(capsys):
    command_line.main(["--list"])
    out = capsys.readouterr().out
    assert [line.split()[0] for line in out.splitlines()] == list(CASES)
    assert len(CASES) == 11


def test_a_wrong_case_names_those_there_are(capsys):
    with pytest.raises(SystemExit):
        command_line.main(["--only", "speed"])
    assert "untruncated" in capsys.readouterr().err


def test_a_case_from_end_to_end(tmp_path, capsys):
    """All goals are reported and all files are written, with or without glasflow."""
    command_line.run(["log_prob"], tmp_path, "tiny")
    (result,), about, size = report.read_json(tmp_path / "results.json")
    assert size == "tiny" and about["tfp-lars"] == tfp_lars.__version__
    assert [o.goal.at_least for o in result.outcomes] == [1.0, 1.0]
    contenders = {timing.contender for timing in result.timings}
    assert "tfp_lars" in contenders
    for outcome in result.outcomes:
        assert (outcome.status == "absent") == ("glasflow" not in contenders)
    printed = capsys.readouterr()
    assert "batch of 16,384: speed of tfp_lars over glasflow" in printed.out
    assert "round 2 of 2" in printed.err
    assert {p.name for p in tmp_path.iterdir()} == {"goals.png", "report.md", "results.json"}


def test_an_arena_goes_on_without_absent_contenders(contenders, monkeypatch):
    monkeypatch.setattr("benchmarks.arena._TENSORFLOW", contenders)
    monkeypatch.setattr("benchmarks.arena._TORCH", "absent_contenders")
    lines = []
    with Arena(Settings("tiny", threads=1, show=lines.append), "a case") as arena:
        made = {"ours": arena.tensorflow("nothing"), "theirs": arena.torch("nothing")}
        times = arena.measure("n = 1", made, rounds=2, num_calls=1)
        assert arena.call_in_fresh_process("double", x=1) == 2
    assert set(times.seconds) == {"ours"} and len(times.seconds["ours"]) == 2
    assert "there_is_no_such_module" in times.absent["theirs"]
    assert lines[-1] == "a case, n = 1: round 2 of 2"


def test_normalizer_case_compares_speed_at_the_same_error(monkeypatch):
    """Known: the default takes half the time of the bare loop, with a third of the variance."""
    from benchmarks.cases import normalizer

    seconds = {"tfp_lars": [0.5], normalizer.SINGLE: [1.0], "bare candidates": [1.0]}

    class FakeArena(Arena):
        def call(self, function, **kwargs):
            return {"best_block": 8, "pair_variance_ratio": 1 / 3}[function]

        def measure(self, size, contenders, rounds, **kwargs):
            return Times(size, seconds, {"glasflow": "not installed"})

    monkeypatch.setattr(normalizer, "Arena", FakeArena)
    result = normalizer.run(Settings("tiny", threads=1, show=lambda line: None))
    bare, *glasflow, equal_error, equal_error_and_glasflow = result.outcomes
    assert bare.value.median == 1.0
    np.testing.assert_allclose(equal_error.value.median, 6.0)
    assert len(glasflow) == 2  # independent draws, and the default
    for outcome in (*glasflow, equal_error_and_glasflow):
        assert "not installed" in outcome.absent


def test_held_out_log_likelihood_is_that_of_the_library():
    """Z of both comes from 2**18 proposals each, which gives the bound."""
    p = problem.make(3, 0.1, hidden_units=(6, 5))
    samples = np.random.default_rng(0).normal(size=(50, 3)).astype(np.float32)
    frozen = with_tensorflow.resampled(p, 20).freeze(num_samples=2**18, seed=0)
    actual = held_out.HeldOut(samples, 20, 2**18)(p.layers)
    bound = normal_bound() * np.sqrt(2) * frozen.estimate.stderr
    assert bound < 0.05
    assert abs(actual - np.mean(frozen.log_prob(samples))) < bound


def test_first_time_at_a_log_likelihood():
    snapshots = [(float(i), i) for i in range(1, 8)]
    for target, expected in ((0.0, 1.0), (3.0, 3.0), (2.5, 3.0), (7.0, 7.0)):
        assert held_out.first_at(snapshots, target, lambda layers: layers) == expected
    assert math.isnan(held_out.first_at(snapshots, 7.5, lambda layers: layers))


def assert_learns(snapshots, samples):
    evaluate = held_out.HeldOut(samples, 100, 2**14)
    times = [seconds for seconds, _ in snapshots]
    assert times == sorted(times)
    assert evaluate(snapshots[-1][1]) > evaluate(snapshots[0][1]) + 0.2


@pytest.fixture(scope="module")
def two_clusters():
    rng = np.random.default_rng(0)
    return np.float32(0.3 * rng.normal(size=(2000, 2)) + rng.choice([-1, 1], size=(2000, 1)))


def test_curve_of_fit_has_its_weights_and_times(two_clusters):
    snapshots = with_tensorflow.fit_curve(train=two_clusters, T=100, seed=0, num_steps=200)
    assert_learns(snapshots, two_clusters)


@pytest.mark.parametrize("loop", ["epochs", "steps"])
def test_curve_of_glasflow_has_its_weights_and_times(loop, two_clusters):
    pytest.importorskip("torch", reason=needs_torch)
    pytest.importorskip(
        "glasflow", reason="glasflow is not installed. See benchmarks/requirements.txt."
    )
    from benchmarks import with_torch

    snapshots = with_torch.fit_curve(
        train=two_clusters, T=100, loop=loop, seed=0, num_epochs=80, num_steps=400
    )
    assert len(snapshots) == 40
    assert_learns(snapshots, two_clusters)


def test_fit_case_compares_times_to_the_last_value_of_a_loop(monkeypatch, tmp_path):
    """Known curves: glasflow ends at 4.0 after 40 s, and `fit` is there after 10 s."""
    from benchmarks.cases import fit_samples

    class FakeArena(Arena):
        def call_in_fresh_process(self, function, **kwargs):
            return np.zeros([3, 2]), np.zeros([4, 2])

        def call(self, function, **kwargs):
            return [(5.0, 2.0), (10.0, 4.5), (15.0, 5.0)]

        def call_torch(self, function, *, loop, **kwargs):
            if loop == "steps":
                raise AbsentError("not installed")
            return [(20.0, 3.0), (40.0, 4.0)]

    settings = Settings("tiny", threads=1, show=lambda line: None)
    monkeypatch.delenv("TFP_LARS_DATA_DIR", raising=False)
    assert {o.status for o in fit_samples.run(settings).outcomes} == {"absent"}
    (tmp_path / "mnist").mkdir()
    monkeypatch.setenv("TFP_LARS_DATA_DIR", str(tmp_path))
    monkeypatch.setattr(fit_samples, "Arena", FakeArena)
    monkeypatch.setattr(fit_samples, "HeldOut", lambda *args: lambda layers: layers)
    epochs, steps = fit_samples.run(settings).outcomes
    assert epochs.value.median == 0.25 and epochs.status == "met"
    assert "not installed" in steps.absent


def test_study_of_known_normalizers_agrees_with_monte_carlo():
    """Plain Monte Carlo for the cases with Z above 1e-3."""
    cases = {case.name: case for case in normalizer_study.known_cases()}
    for case in cases.values():
        assert case.log_z >= case.log_square >= 2 * case.log_z
        if case.log_z > np.log(1e-3):
            estimate = tfp_lars.estimate_log_normalizer(
                case.distribution, 10**5, seed=0, antithetic=False
            )
            assert abs(estimate.log_z - case.log_z) < normal_bound() * estimate.stderr
            variance = np.expm1(case.log_square - 2 * case.log_z) / 10**5
            np.testing.assert_allclose(estimate.stderr, np.sqrt(variance), rtol=0.1)
    linear = cases["sigmoid of a linear function, Z = 1e-09"]
    np.testing.assert_allclose(linear.log_z, np.log(1e-9), rtol=1e-9)


def test_coverage_study_prints_a_row_for_each_case(capsys, monkeypatch):
    few = normalizer_study.COVERAGE_CASES[:1] + normalizer_study.COVERAGE_CASES[-1:]
    monkeypatch.setattr(normalizer_study, "COVERAGE_CASES", few)
    normalizer_study.main(["coverage", "--runs", "20"])
    rows = capsys.readouterr().out.splitlines()[2:]
    assert [row.split("|")[1].strip() for row in rows] == [case.about for case in few]
    assert all(70 <= float(row.split("|")[5].strip(" %")) <= 100 for row in rows)


@pytest.mark.parametrize(
    ("module", "promise"),
    [
        ("benchmarks.__main__", "the report has the cases that were done"),
        ("benchmarks.fit_defaults", "the file has the rows that were done"),
        ("benchmarks.fit_latents", "nothing was written"),
        ("benchmarks.normalizer_study", "nothing was written"),
    ],
)
def test_signal_ends_a_benchmark_with_one_line(module, promise, monkeypatch, capsys):
    def terminated(*args):
        os.kill(os.getpid(), signal.SIGTERM)
        raise AssertionError("the signal was ignored")

    monkeypatch.setattr(argparse.ArgumentParser, "parse_args", terminated)
    monkeypatch.delitem(sys.modules, module, raising=False)  # `runpy` warns about it
    with pytest.raises(SystemExit) as stop:
        runpy.run_module(module, run_name="__main__")
    assert stop.value.code == 128 + signal.SIGTERM
    assert capsys.readouterr().err == f"terminated: {promise}\n"
