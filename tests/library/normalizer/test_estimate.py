"""Monte Carlo against known Z, its standard error and interval."""

import os
import pickle
import re
import signal
import types

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_probability as tfp
from scipy import stats

from tests.bounds import normal_bound
from tests.library.normalizer.problem import make
from tfp_lars import (
    LogNormalizer,
    Resampled,
    _proposal_draws,
    _seeds,
    estimate_log_normalizer,
)
from tfp_lars.normalizer import monte_carlo
from tfp_lars.normalizer.run import Run

tfd = tfp.distributions


def test_monte_carlo_agrees_with_known_rates_within_its_standard_error(seed):
    """Uniform on [0, s] and a(z) = z: Z = s / 2. Three members, one bound for all."""
    high = np.array([1.0, 0.5, 0.1], np.float32)
    dist = Resampled(tfd.Uniform(0.0, high), lambda z: z)
    estimate = estimate_log_normalizer(dist, 300_001, antithetic=False, seed=seed)
    error = estimate.log_z - np.log(high / 2)
    assert np.all(np.abs(error) < normal_bound(3) * estimate.stderr)
    # sd(a) / E(a) is 1 / sqrt(3) for a uniform on [0, s].
    np.testing.assert_allclose(estimate.stderr, 1 / np.sqrt(3 * 300_001), rtol=0.02)
    assert estimate.num_samples == 300_001
    assert estimate.method == "monte_carlo"


def test_a_second_estimate_is_no_new_graph(seed):
    traces = []

    def accept(z):
        traces.append(1)
        return tf.sigmoid(z)

    dist = Resampled(tfd.Normal(0.0, 1.0), accept)
    first = estimate_log_normalizer(dist, 1000, seed=seed)
    before = len(traces)
    second = estimate_log_normalizer(dist, 3000, batch_size=200, seed=seed + 1)
    assert len(traces) == before
    assert second.log_z != first.log_z


def test_monte_carlo_is_the_mean_over_all_batches(seed):
    dist = Resampled(tfd.Normal(0.0, 1.0), lambda z: 40.0 * z - 700.0, from_logits=True)
    estimate = estimate_log_normalizer(dist, 1000, batch_size=64, seed=seed)
    key = _seeds.stateless_seed(seed)
    sizes = [64] * 15 + [40]
    draws = np.concatenate(
        [
            _proposal_draws.sample(dist.proposal, n, tf.random.fold_in(key, i))
            for i, n in enumerate(sizes)
        ]
    )
    log_accept = dist.accept_log_prob(draws).numpy().astype(np.float64)
    accept = np.exp(log_accept - log_accept.max())
    np.testing.assert_allclose(estimate.log_z, np.log(accept.mean()) + log_accept.max(), rtol=1e-6)
    expected = accept.sum() ** 2 / np.sum(accept**2)
    np.testing.assert_allclose(estimate.effective_samples, expected, rtol=1e-4)
    # a(z) is at most exp(-500). The draws may have missed a region of higher a(z).
    assert estimate.stderr > 1e100


def test_monte_carlo_stops_at_the_wanted_error(seed):
    dist = Resampled(tfd.Uniform(), lambda z: z)
    estimate = estimate_log_normalizer(dist, 10**8, target_stderr=0.002, seed=seed)
    assert estimate.stderr <= 0.002
    assert estimate.num_samples < 10**6


def test_same_seed_gives_the_same_estimate(seed):
    dist = Resampled(tfd.Uniform(), lambda z: z)
    a, b, c = (estimate_log_normalizer(dist, 5000, seed=s).log_z for s in (seed, seed, seed + 1))
    assert a == b != c


def test_progress_shows_the_current_estimate_and_its_error(capsys):
    dist = Resampled(tfd.Uniform(), lambda z: z)
    estimate_log_normalizer(dist, 100, seed=0)
    assert capsys.readouterr().out == ""
    estimate = estimate_log_normalizer(dist, 100, seed=0, batch_size=10, progress=True)
    shown = capsys.readouterr().out
    assert "100/100" in shown
    last = re.findall(r"log_z: (\S+) - stderr: (\S+)", shown)[-1]
    np.testing.assert_allclose([float(x) for x in last], [estimate.log_z, estimate.stderr], 1e-3)


class Interrupting:
    """a(z) = z, which presses Ctrl-C in a batch."""

    def __init__(self, batch):
        self.batch = batch

    def __call__(self, z):
        def count(z):
            self.batch -= 1
            if self.batch == 0:
                os.kill(os.getpid(), signal.SIGINT)
            return z

        return tf.reshape(tf.numpy_function(count, [z], z.dtype), tf.shape(z))


@pytest.fixture
def interruptible():
    """Lets SIGINT interrupt, which processes in the background of a shell ignore."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("interruptible")
def test_ctrl_c_returns_what_is_there_and_it_can_be_continued(seed):
    """The first batch is the fingerprint. Chunks have 2, 4, 8, ... batches of 10."""
    accept_fn = Interrupting(batch=0)
    dist = Resampled(tfd.Uniform(), accept_fn)
    whole = estimate_log_normalizer(dist, 1000, batch_size=10, seed=seed)
    accept_fn.batch = 1 + 2 + 4 + 1
    part = estimate_log_normalizer(dist, 1000, batch_size=10, seed=seed)
    assert part.num_samples in (60, 140)  # Python handles the signal before or after the sums
    rest = 1000 - part.num_samples
    both = estimate_log_normalizer(dist, rest, batch_size=10, continue_from=part)
    assert both.num_samples == 1000
    np.testing.assert_allclose(both.log_z, whole.log_z, rtol=1e-12)
    np.testing.assert_allclose(both.stderr, whole.stderr, rtol=1e-9)


@pytest.mark.usefixtures("interruptible")
@pytest.mark.parametrize("batch", [1, 2])
def test_ctrl_c_before_the_first_result_is_not_hidden(batch, seed):
    """In the fingerprint, and in the first of two batches of the first chunk."""
    accept_fn = Interrupting(batch=0)
    dist = Resampled(tfd.Uniform(), accept_fn)
    estimate_log_normalizer(dist, 100, batch_size=10, seed=seed)
    accept_fn.batch = batch
    with pytest.raises(KeyboardInterrupt):
        estimate_log_normalizer(dist, 100, batch_size=10, seed=seed)


def test_a_result_is_continued_with_new_draws_also_after_pickling(seed):
    dist = Resampled(tfd.Uniform(), lambda z: z)
    whole = estimate_log_normalizer(dist, 3000, batch_size=500, seed=seed)
    part = estimate_log_normalizer(dist, 1000, batch_size=500, seed=seed)
    part = pickle.loads(pickle.dumps(part))
    both = estimate_log_normalizer(dist.freeze(-0.7), 2000, batch_size=500, continue_from=part)
    np.testing.assert_allclose(both.log_z, whole.log_z, rtol=1e-12)
    # The same seed again does not repeat the draws.
    again = estimate_log_normalizer(dist, 2000, batch_size=500, seed=seed, continue_from=part)
    np.testing.assert_allclose(again.log_z, whole.log_z, rtol=1e-12)
    other = estimate_log_normalizer(dist, 2000, batch_size=500, seed=seed + 1, continue_from=part)
    assert abs(other.log_z - whole.log_z) > 1e-6


def test_a_result_that_has_reached_the_target_is_returned_as_it_is(seed):
    dist = Resampled(tfd.Uniform(), lambda z: z)
    first = estimate_log_normalizer(dist, 10**6, target_stderr=0.01, antithetic=False, seed=seed)
    assert first.warning is None
    again = estimate_log_normalizer(dist, 10**6, target_stderr=0.01, continue_from=first)
    assert again.num_samples == first.num_samples
    better = estimate_log_normalizer(dist, 10**6, target_stderr=0.005, continue_from=first)
    assert better.num_samples > first.num_samples
    assert better.stderr <= 0.005


def test_a_result_of_another_distribution_is_not_continued(seed):
    slope = tf.Variable(1.0)
    dist = Resampled(tfd.Normal(0.0, 1.0), lambda z: tf.sigmoid(slope * z))
    estimate = estimate_log_normalizer(dist, 100, seed=seed)
    others = [
        Resampled(tfd.Normal(0.0, 1.0), lambda z: tf.sigmoid(2.0 * z)),
        Resampled(tfd.Normal(0.1, 1.0), tf.sigmoid),
        Resampled(tfd.Normal([0.0, 0.0], 1.0), tf.sigmoid),
    ]
    for other in others:
        with pytest.raises(ValueError, match="`continue_from` is an estimate of another dist"):
            estimate_log_normalizer(other, 100, continue_from=estimate)
    slope.assign(1.1)
    with pytest.raises(ValueError, match="weights of this one have changed"):
        estimate_log_normalizer(dist, 100, continue_from=estimate)
    with pytest.raises(ValueError, match="`continue_from` must be a result of `estimate_log"):
        estimate_log_normalizer(dist, 100, continue_from=LogNormalizer(-1.0, 0.1, 9, "guess"))
    with pytest.raises(TypeError, match="`continue_from` must be a result.*float"):
        estimate_log_normalizer(dist, 100, continue_from=-1.0)


def test_too_few_acceptances_are_reported_with_a_large_error(seed):
    """10,000 draws, a(z) = 1e-6 everywhere that they see: 0.01 expected acceptances."""
    dist = Resampled(tfd.Uniform(), lambda z: tf.where(z < 1e-7, 1.0, 1e-6))
    estimate = estimate_log_normalizer(dist, 10_000, seed=seed)
    assert "too few acceptances: about 0.01 of 10000" in estimate.warning
    assert 'warning="too few acceptances' in repr(estimate)
    assert estimate.stderr > 10.0
    enough = estimate_log_normalizer(Resampled(tfd.Uniform(), lambda z: z), 10_000, seed=seed)
    assert enough.warning is None
    assert "warning" not in repr(enough)


def test_estimate_of_another_batch_shape_is_not_frozen(seed):
    dist = Resampled(tfd.Uniform(), lambda z: z)
    estimate = estimate_log_normalizer(dist, 100, seed=seed)
    other = Resampled(tfd.Uniform([0.0, 0.0], 1.0), lambda z: z)
    with pytest.raises(ValueError, match=r"batch shape \(\); this one has batch shape \(2,\)"):
        other.freeze(estimate)
    with pytest.raises(ValueError, match=r"batch shape \(2,\); this one has batch shape \(\)"):
        dist.freeze(estimate_log_normalizer(other, 100, seed=seed))


def test_interval_of_a_result_needs_only_its_error():
    """a(z) of 0 or 1: the interval is between those of Jeffreys and of Clopper and Pearson."""
    n, accepted = 1000, 250
    Z = accepted / n
    estimate = LogNormalizer(np.log(Z), np.sqrt((1 - Z) / Z / n), n, "monte_carlo")
    lower, upper = np.exp(estimate.interval(0.95))
    rejected = n - accepted
    outer = stats.beta.ppf([0.025, 0.975], [accepted, accepted + 1], [rejected + 1, rejected])
    inner = stats.beta.ppf([0.025, 0.975], accepted + 0.5, rejected + 0.5)
    assert outer[0] * 0.999 < lower <= inner[0]
    assert inner[1] * 0.999 < upper <= outer[1]
    assert LogNormalizer(-0.001, 0.01, 10, "monte_carlo").interval()[1] == 0.0
    with pytest.raises(ValueError, match="`level`.*95"):
        estimate.interval(95)


def test_interval_of_pairs_is_that_of_their_number():
    values = {"effective_samples": np.array(40.0)}
    pairs = LogNormalizer(-1.0, 0.1, 100, "monte_carlo", num_values=50, **values)
    expected = LogNormalizer(-1.0, 0.1, 50, "monte_carlo", **values)
    np.testing.assert_array_equal(pairs.interval(), expected.interval())


def test_interval_of_replicates_is_that_of_student():
    """At most 0, since Z is a probability."""
    estimate = LogNormalizer(-0.01, 0.02, 10**4, "importance", degrees_of_freedom=31)
    lower, upper = estimate.interval(0.95)
    np.testing.assert_allclose(lower, -0.01 - 0.02 * stats.t.ppf(0.975, 31), rtol=1e-3)
    assert upper == 0.0


@pytest.mark.parametrize(
    ("values", "largest"),
    [
        (np.linspace(0.2, 0.4, 1000), "error"),
        (np.linspace(0.2, 0.4, 100_000), "upper"),
        (np.array([0.0, 1.0]), "lower"),
    ],
)
def test_target_is_compared_with_the_largest_error(values, largest):
    """The standard error with four further draws at each end of [0, 1], or that of the interval."""
    n, mean = len(values), values.mean()
    effective = values.sum() ** 2 / np.sum(values**2)
    estimate = LogNormalizer(
        np.log(mean), 0.0, n, "monte_carlo", num_values=n, effective_samples=effective
    )
    more = np.concatenate([values, np.repeat([0.0, 1.0], 4)])
    lower, upper = estimate.interval(0.95)
    errors = {
        "error": more.std() / np.sqrt(n) / mean,
        "lower": (np.log(mean) - lower) / stats.norm.ppf(0.975),
        "upper": (upper - np.log(mean)) / stats.norm.ppf(0.975),
    }
    assert max(errors, key=errors.get) == largest
    error = monte_carlo.MonteCarlo(lambda *_: []).error(estimate)
    np.testing.assert_allclose(error, errors[largest], rtol=1e-9)


def test_numbers_of_draws_are_rounded_to_whole_pairs_and_replicates():
    method = types.SimpleNamespace(num_replicates=4, draws_per_value=2)
    run = Run(method, 7, None)
    assert [run.round_up(n) for n in (1, 8, 9)] == [8, 8, 16]


def test_default_batch_size_limits_the_memory():
    """At most 2**22 numbers, but 16 draws."""
    sizes = [monte_carlo.default_batch_size(n) for n in (0, 1, 2**13, 2**30)]
    assert sizes == [32768, 32768, 512, 16]


def test_never_accepting_is_a_bound():
    dist = Resampled(tfd.Normal(0.0, 1.0), tf.zeros_like, T=None)
    estimate = estimate_log_normalizer(dist, 1000, seed=0)
    assert estimate.log_z == -np.inf
    assert estimate.stderr == np.inf
    assert estimate.effective_samples == 0.0
    lower, upper = estimate.interval()
    assert lower == -np.inf
    np.testing.assert_allclose(upper, np.log(-np.log(0.05) / 1000), rtol=1e-12)
    assert "no draw with a(z) > 0: log_z < -5.81 at 95 %" in repr(estimate)
    with pytest.raises(ValueError, match=r"none of 1000 draws.*below -5.81.*`num_samples`"):
        dist.freeze(num_samples=1000, seed=0)
    with pytest.raises(ValueError, match="finite"):
        dist.freeze(-np.inf)


def rarely_high(rate):
    """a(z) of a uniform z: 1 with probability `rate`, else 1e-9."""
    one = tf.ones([], tf.float64)  # float32 has no uniform numbers between 0 and 1e-7
    return Resampled(
        tfd.Uniform(0.0 * one, one), lambda z: tf.where(z < rate, one, 1e-9 * one), T=None
    )


def test_what_was_not_seen_does_not_stop_the_estimate(seed):
    """Without a hit, all draws have the same a(z). 16,384 draws rarely have one.

    10^6 draws have none with probability 2e-9. The interval misses the truth with probability 1e-6.
    """
    estimate = estimate_log_normalizer(rarely_high(2e-5), 10**6, target_stderr=0.05, seed=seed)
    assert estimate.num_samples == 10**6
    assert estimate.warning == "`target_stderr` of 0.05 was not reached: raise `num_samples`"
    lower, upper = estimate.interval(1.0 - 1e-6)
    assert lower < np.log(2e-5) < upper


def test_interval_includes_what_was_not_seen(seed):
    """1,000 draws have a hit with probability 1e-6."""
    estimate = estimate_log_normalizer(rarely_high(1e-9), 1000, seed=seed)
    np.testing.assert_allclose(estimate.log_z, np.log(1e-9), atol=1e-3)
    lower, upper = estimate.interval()
    assert lower < np.log(2e-9) < upper


def test_a_constant_stops_the_estimate_as_soon_as_it_can(seed):
    """If a(z) is the same for all draws, the error is what they may have missed, -log(0.05) / n."""
    dist = Resampled(tfd.Uniform(), lambda z: tf.fill(tf.shape(z), 0.5))
    estimate = estimate_log_normalizer(dist, 10**6, target_stderr=0.01, batch_size=64, seed=seed)
    missed = np.log1p(-np.log(0.05) / estimate.num_samples / 0.5)
    assert missed / 1.959964 <= 0.01 < 3 * missed


@pytest.mark.parametrize(
    ("log_z", "stderr", "expected"),
    [
        (-1.2e-6, 3e-7, "log_z=-0.00000120 ± 0.00000030"),
        (-1.2e-12, 3e-13, "log_z=-1.2e-12 ± 3e-13"),
        (np.log(0.5), 0.0, "log_z=-0.693147 ± 0,"),
        (np.log(0.5), 0.02, "log_z=-0.6931 ± 0.0200, Z=0.5,"),
        (np.log([0.5, 0.2]), np.array([0.02, 1e-6]), "[-0.6931 ± 0.0200, -1.6094379 ± 0.0000010]"),
        (np.full(9, -1.0), np.full(9, 0.1), "..., -1.0000 ± 0.1000"),
    ],
)
def test_repr_shows_the_digits_that_matter(log_z, stderr, expected):
    assert expected in repr(LogNormalizer(log_z, stderr, 1000, "monte_carlo"))


@pytest.mark.parametrize(
    ("kwargs", "message"),
    [
        ({"num_samples": 0}, "`num_samples`.*got 0"),
        ({"num_samples": float("nan")}, "`num_samples`.*got nan"),
        ({"num_samples": "a"}, "`num_samples`.*got 'a'"),
        ({"batch_size": -1}, "`batch_size`.*got -1"),
        ({"batch_size": 0}, "`batch_size`.*got 0"),
        ({"num_samples": -5}, "`num_samples`.*got -5"),
        ({"target_stderr": 0.0}, "`target_stderr`.*got 0.0"),
        ({"target_stderr": -0.1}, "`target_stderr`.*got -0.1"),
        ({"target_stderr": float("nan")}, "`target_stderr`.*got nan"),
        ({"method": "guess"}, "`method`.*'guess'"),
    ],
)
def test_bad_arguments_of_the_estimate_are_named(kwargs, message):
    dist = Resampled(tfd.Uniform(), lambda z: z)
    with pytest.raises((TypeError, ValueError), match=message):
        estimate_log_normalizer(dist, **kwargs)


def test_estimate_of_what_is_not_resampled_is_an_error():
    for dist in (tfd.Normal(0.0, 1.0), tfd.Independent(make(), 0)):
        with pytest.raises(TypeError, match="`dist` must be a `Resampled`; got <tfp.distributions"):
            estimate_log_normalizer(dist)


def test_estimate_refuses_to_run_inside_a_graph():
    dist = Resampled(tfd.Uniform(), lambda z: z)
    with pytest.raises(RuntimeError, match="outside"):
        tf.function(lambda: estimate_log_normalizer(dist).log_z)()


def test_nan_acceptance_is_an_error_of_the_estimate():
    dist = Resampled(tfd.Normal(0.0, 1.0), lambda z: tf.where(z > 3.0, np.nan, 0.5))
    with pytest.raises(ValueError, match="NaN"):
        estimate_log_normalizer(dist, 10**5, seed=0)


def test_acceptance_above_one_is_an_error_of_the_estimate():
    dist = Resampled(tfd.Normal(0.0, 1.0), lambda z: tf.where(z > 2.5, 1.5, 0.5))
    with pytest.raises(ValueError, match=r"\[0, 1\].*from_logits=True"):
        estimate_log_normalizer(dist, 10**4, seed=0)


def test_static_shapes_may_be_unknown(seed):
    loc = tf.Variable(tf.zeros([3]), shape=[None])
    dist = Resampled(tfd.Normal(loc, 1.0), tf.sigmoid, normalizer=-0.7)
    frozen = dist.freeze(num_samples=10**4, seed=seed)
    assert frozen.estimate.log_z.shape == (3,)
    error = (frozen.estimate.log_z - np.log(0.5)) / frozen.estimate.stderr
    assert np.all(np.abs(error) < normal_bound(3))


@pytest.mark.parametrize("kwargs", [{}, {"target_stderr": 0.1}, {"antithetic": True}])
def test_a_batch_may_be_empty(kwargs):
    dist = Resampled(tfd.Normal(tf.zeros([0]), 1.0), tf.sigmoid)
    estimate = estimate_log_normalizer(dist, 1000, seed=0, **kwargs)
    assert estimate.log_z.shape == estimate.stderr.shape == (0,)
    assert estimate.warning is None
