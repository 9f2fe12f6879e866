"""Exact draws, compared with the density, the law of the attempts, and a sequential sampler."""

import itertools

import keras
import numpy as np
import pytest
import tensorflow as tf
import tensorflow_probability as tfp
import tf_keras
from scipy import stats

from tests.bounds import FALSE_ALARM_RATE, chi_square_p_value, dkw_band, normal_bound
from tests.counting import CountingNormal
from tests.processes import run_python
from tfp_lars import AcceptanceNetwork, Resampled, _seeds, sampler

tfd = tfp.distributions

TRUNCATIONS = [1, 2, 5, 100, None]


def run_sequentially(accepted, T):
    """Returns the candidates that a sequential sampler keeps, and their attempts."""
    kept, attempts, k = [], [], 0
    for accept in accepted:
        k += 1
        keep = accept or k == T
        kept.append(keep)
        attempts.append(k)
        if keep:
            k = 0
    return kept, attempts


@pytest.mark.parametrize("T", [1, 2, 3, 7, 64, None])
@pytest.mark.parametrize(("block", "xla"), [(1, False), (5, False), (32, False), (32, True)])
def test_blocks_keep_what_the_sequential_sampler_keeps(T, block, xla):
    rng = np.random.default_rng(0)
    accepted = rng.random((3, 20 * block)) < np.array([[0.02], [0.3], [1.0]])
    decide = tf.function(sampler.decide, jit_compile=xla, autograph=False)
    since, kept, attempts = tf.zeros([3], tf.int32), [], []
    for part in np.split(accepted, 20, axis=1):
        log_accept = tf.constant(np.where(part.T, 0.0, -np.inf).astype(np.float32))
        k, a, since = decide(log_accept, since, tf.constant(T or 0), tf.constant([1, 2]))
        kept.append(np.transpose(k))
        attempts.append(np.transpose(a))
    for row in range(3):
        expected_kept, expected_attempts = run_sequentially(accepted[row], T)
        np.testing.assert_array_equal(np.concatenate(kept, 1)[row], expected_kept)
        np.testing.assert_array_equal(np.concatenate(attempts, 1)[row], expected_attempts)


def test_samples_follow_the_density(seed, num_samples=20_000):
    """Uniform proposal, a(z) = z, T = 2: Z = 1/2 and the CDF is (z**2 + z) / 2.

    The band is +-0.019. An off-by-one in T would move the CDF by 0.0625. Keeping the first rejected
    candidate instead of a new one would move it by 0.125.
    """
    dist = Resampled(tfd.Uniform(), lambda z: z, T=2)
    z = np.sort(dist.sample(num_samples, seed=seed))
    gap = np.max(np.abs((z**2 + z) / 2 - np.arange(num_samples) / num_samples))
    assert gap < dkw_band(num_samples)


def wavy(z):
    return 0.02 + 0.6 * tf.sin(3.0 * z) ** 2 * tf.sigmoid(2.0 * z)


@pytest.mark.parametrize("T", TRUNCATIONS)
def test_draws_fill_the_cells_of_the_density_in_1d(T, seed, num_samples=100_000):
    proposal = tfd.Normal(0.3, 1.2)
    edges = np.linspace(-6.0, 6.6, 1261)  # fine cells for quadrature, 20 to a cell of the test
    grid, step = np.float32(0.5 * (edges[1:] + edges[:-1])), edges[1] - edges[0]
    z = np.sum(proposal.prob(grid) * wavy(grid)) * step
    mass = Resampled(proposal, wavy, T=T, normalizer=np.log(z)).prob(grid).numpy() * step
    draws = Resampled(proposal, wavy, T=T).sample(num_samples, seed=seed)
    counts = np.histogram(draws, edges[::20])[0]
    assert counts.sum() > num_samples - 20  # the grid misses 1e-6 of the mass
    cells = mass.reshape(-1, 20).sum(1)
    assert chi_square_p_value(counts, cells / cells.sum()) > FALSE_ALARM_RATE


@pytest.mark.parametrize("T", TRUNCATIONS)
def test_draws_fill_all_states_of_eight_bits(T, seed, num_samples=100_000):
    states = np.array(list(itertools.product([0, 1], repeat=8)), np.int32)
    proposal = tfd.Independent(tfd.Bernoulli(probs=tf.linspace(0.2, 0.8, 8)), 1)

    def accept_fn(x):
        return tf.sigmoid(tf.cast(tf.reduce_sum(x, -1), tf.float32) - 6.0)

    z = np.sum(proposal.prob(states) * accept_fn(states))
    probabilities = Resampled(proposal, accept_fn, T=T, normalizer=np.log(z)).prob(states)
    draws = Resampled(proposal, accept_fn, T=T).sample(num_samples, seed=seed).numpy()
    counts = np.bincount(draws @ 2 ** np.arange(7, -1, -1), minlength=256)
    assert chi_square_p_value(counts, probabilities.numpy()) > FALSE_ALARM_RATE


@pytest.mark.parametrize("T", [2, 5, 100, None])
def test_attempts_follow_the_truncated_geometric_law(T, seed, num_samples=50_000):
    z = 0.07
    dist = Resampled(tfd.Normal(0.0, 1.0), lambda x: tf.fill(tf.shape(x), z), T=T)
    _, attempts = dist.sample_with_attempts(num_samples, seed=seed)
    last = T or 400
    law = z * (1 - z) ** np.arange(last)
    law[-1] = (1 - z) ** (last - 1)  # the last one is kept without a test
    counts = np.bincount(np.minimum(attempts, last), minlength=last + 1)[1:]
    assert chi_square_p_value(counts, law) > FALSE_ALARM_RATE


def test_neighbouring_draws_and_attempts_are_independent(seed, num_samples=50_000):
    dist = Resampled(tfd.Normal(0.0, 1.0), lambda x: tf.sigmoid(3.0 * x - 2.0), T=5)
    draws, attempts = dist.sample_with_attempts(num_samples, seed=seed)
    draws, attempts = draws.numpy(), attempts.numpy()
    pairs = [
        (draws[1:], draws[:-1]),
        (attempts[1:], attempts[:-1]),
        (draws[1:], attempts[:-1]),
        (attempts[1:], draws[:-1]),
    ]
    for x, y in pairs:
        correlation = np.corrcoef(x, y)[0, 1]
        assert abs(correlation) * np.sqrt(num_samples) < normal_bound(len(pairs))
    # Uncorrelated draws may be dependent, so signs and sizes are compared, too.
    table = np.histogram2d(draws[1:], draws[:-1], bins=np.quantile(draws, np.linspace(0, 1, 9)))[0]
    assert stats.chi2_contingency(table).pvalue > FALSE_ALARM_RATE


@pytest.mark.parametrize("T", [1, 2, 20, None])
@pytest.mark.parametrize("n", [1, 37, 5000])
def test_no_more_than_one_block_beyond_the_attempts_is_drawn(T, n, seed):
    proposal = CountingNormal()
    dist = Resampled(proposal, lambda x: tf.fill(tf.shape(x), 0.04), T=T)
    proposal.drawn.assign(0)  # the constructor draws to check `accept_fn`
    _, attempts = dist.sample_with_attempts(n, seed=seed)
    used, drawn = int(tf.reduce_sum(attempts)), int(proposal.drawn)
    assert used <= drawn < used + int(proposal.last)
    assert T == 1 or int(proposal.last) <= 16_384
    # The mean is (1 - (1 - Z)**T) / Z. The variance of one draw is at most 1 / Z**2.
    mean = n * (1 - 0.96**T) / 0.04 if T else n / 0.04
    assert abs(used - mean) <= normal_bound() * np.sqrt(n) / 0.04


@pytest.mark.parametrize("rate", [0.5, 0.02, 0.001])
def test_blocks_follow_the_acceptance_rate(rate, seed, n=200):
    """There are few unused candidates at every rate, and few blocks.

    The standard deviation of the attempts of 200 draws is 7 % of their sum. The sampler aims one
    standard deviation above the mean. At 4.5 standard deviations, less than 40 % are unused.
    """
    proposal = CountingNormal()
    dist = Resampled(proposal, lambda x: tf.fill(tf.shape(x), rate), T=None)
    _, attempts = dist.sample_with_attempts(n, seed=seed)
    used = int(tf.reduce_sum(attempts))
    assert int(proposal.drawn) < 1.4 * used + 256
    assert int(proposal.calls) < 12 + used / 16_384


def test_blocks_follow_the_slowest_member(seed, n=200):
    """The first member is done after 200 of about 10,000 candidates."""
    proposal = CountingNormal([0.0, 0.0])
    dist = Resampled(proposal, lambda x: tf.fill(tf.shape(x), 1.0) * [1.0, 0.02], T=None)
    dist.sample(n, seed=seed)
    assert int(proposal.calls) < 12


def test_block_is_what_the_missing_draws_need():
    def size(missing, candidates, drawn, T=0, numbers=1):
        return int(sampler.block_size(*map(tf.constant, (missing, candidates, drawn, T, numbers))))

    assert size(1, 0, 0, T=5) == 5  # a draw takes at most five
    assert size(2, 1000, 30, T=3) == 6
    assert size(1, 0, 0) == 256  # a small block, to observe the rate
    assert size(36, 1000, 40) == pytest.approx((36 + 6) * 1000 / 40.5, abs=1)
    assert size(10**9, 10**9, 10**6) == 16_384
    assert size(10**6, 4096, 50, numbers=2**14) == 64  # of 2**20 numbers in all
    assert size(10**6, 4096, 50, numbers=2**30) == 16


def test_draws_do_not_write_on_each_other(seed):
    """Draws are written in place. A shared buffer would change the result of the first call."""
    dist = Resampled(tfd.Normal(0.0, 1.0), tf.sigmoid, T=10)
    graph = tf.function(lambda s: dist.sample(50, seed=s))
    for sample in (graph, lambda s: dist.sample(50, seed=s)):
        first = sample(tf.constant([seed, 0]))
        kept = np.array(first)
        second = sample(tf.constant([seed, 1]))
        np.testing.assert_array_equal(first, kept)
        assert np.all(second != first)
        np.testing.assert_array_equal(sample(tf.constant([seed, 0])), kept)


def test_draws_are_the_same_under_vectorized_map(seed):
    """There the sampler writes by scatter instead of in place."""
    dist = Resampled(tfd.Normal(0.0, 1.0), tf.sigmoid, T=10)
    seeds = tf.constant([[seed, i] for i in range(3)])
    mapped = tf.vectorized_map(lambda s: dist.sample(20, seed=s), seeds)
    for row, s in zip(mapped, seeds, strict=True):
        np.testing.assert_allclose(row, dist.sample(20, seed=s), rtol=1e-6)


@pytest.mark.parametrize("T", [3, 50, None])
def test_runs_go_on_from_block_to_block(T, seed, n=200):
    """Candidates are 0, 1, 2, ..., so the kept ones are known for any block sizes."""
    position = tf.Variable(0, trainable=False)
    sizes = []

    def propose(block, _):
        end = position.assign_add(block)
        sizes.append(int(block))
        return tf.cast(tf.range(end - block, end), tf.float32)

    def log_accept_fn(z):
        index = tf.cast(z, tf.int32)
        return tf.where(tf.equal(index * index % 97, 3), 0.0, -np.inf)

    draws = sampler.draw(
        propose,
        log_accept_fn,
        tf.constant(n),
        tf.constant(T or 0),
        tf.constant([seed, 0]),
        num_streams=1,
        event_size=1,
        dtype=tf.float32,
        max_attempts=10**6,
    )
    candidates = np.arange(sum(sizes))
    kept, attempts = map(np.array, run_sequentially(candidates * candidates % 97 == 3, T))
    np.testing.assert_array_equal(draws.samples[:, 0, 0], candidates[kept][:n])
    np.testing.assert_array_equal(draws.attempts[:, 0], attempts[kept][:n])
    assert len(sizes) > 1


@pytest.mark.parametrize("shape", [7, np.int64(7), (7,), [7]])
def test_every_way_to_ask_for_seven_draws_gives_the_same(shape, seed):
    dist = Resampled(tfd.Normal([0.0, 1.0], 1.0), tf.sigmoid, T=10)
    expected = dist.sample_with_attempts(7, seed=seed)[0]
    np.testing.assert_array_equal(dist.sample(shape, seed=seed), expected)
    short = dist.sample_with_attempts(7, seed=seed, T=2)[0]
    np.testing.assert_array_equal(dist.sample(shape, seed=seed, T=2), short)
    with pytest.raises(TypeError, match="unexpected"):
        dist.sample(shape, seed=seed, t=2)


def test_each_member_of_a_batch_has_draws_of_its_own(seed, num_samples=20_000):
    """Uniform on [0, s], a(z) = z: Z = s / 2. With untruncated resampling the CDF is (z / s)**2."""
    high = np.array([1.0, 0.5, 0.1], np.float32)
    dist = Resampled(tfd.Uniform(0.0, high), lambda z: z, T=None)
    draws, attempts = dist.sample_with_attempts(num_samples, seed=seed)
    for i, s in enumerate(high):
        assert stats.kstest(draws[:, i] / s, lambda u: u**2).pvalue > FALSE_ALARM_RATE
        error = np.mean(attempts[:, i]) * (s / 2) - 1.0
        assert abs(error) * np.sqrt(num_samples) < normal_bound()
    correlations = np.corrcoef(draws.numpy().T)[np.triu_indices(3, 1)]
    assert np.all(np.abs(correlations) * np.sqrt(num_samples) < normal_bound(3))


def test_tiny_probabilities_are_accepted_at_their_own_rate(seed):
    """Half of the candidates have a = 1e-12. Uniforms in float32 would accept 1e-7 of them."""
    n = 2_000_000

    @tf.function
    def decide(log_accept, seed):
        return sampler.decide(log_accept, tf.zeros([1], tf.int32), tf.constant(0), seed)[0]

    log_accept = tf.fill([n, 1], tf.constant(np.log(1e-12), tf.float32))
    hits = sum(
        int(tf.reduce_sum(tf.cast(decide(log_accept, tf.constant([seed, i])), tf.int32)))
        for i in range(40)
    )
    # In 8e7 trials 8e-5 hits are expected. With float32 there would be 9.
    assert hits == 0


def test_a_uniform_number_of_zero_stands_for_half_of_the_spacing(monkeypatch):
    """It would accept every a(z) above 0, however small."""
    zeros = lambda shape, seed, dtype: tf.zeros(shape, dtype)  # noqa: E731
    monkeypatch.setattr(tf.random, "stateless_uniform", zeros)
    log_accept = tf.math.log(tf.constant([[1.0], [2.0**-52], [2.0**-54], [0.0]], tf.float64))
    _, attempts, _ = sampler.decide(log_accept, tf.zeros([1], tf.int32), 0, tf.constant([1, 2]))
    np.testing.assert_array_equal(attempts[:, 0], [1, 1, 1, 2])


@pytest.mark.parametrize("make_seed", [lambda s: s, lambda s: tf.constant([s, 7])])
def test_eager_and_graph_draw_the_same(make_seed, seed):
    dist = Resampled(tfd.Normal([0.0, 1.0], 1.0), tf.sigmoid, T=10)
    eager = dist.sample([2, 3], seed=make_seed(seed))
    np.testing.assert_array_equal(eager, dist.sample([2, 3], seed=make_seed(seed)))
    graph = tf.function(lambda: dist.sample([2, 3], seed=make_seed(seed)))()
    np.testing.assert_array_equal(eager, graph)
    assert np.all(eager != dist.sample([2, 3], seed=make_seed(seed + 1)))


def test_large_and_negative_seeds_are_seeds():
    pairs = {tuple(_seeds.stateless_seed(s).numpy()) for s in (0, 1, -1, 2**31, 2**32, 2**40 + 1)}
    assert len(pairs) == 6


def test_truncation_can_be_changed_for_one_call(seed):
    proposal = tfd.Normal(0.0, 1.0)
    dist = Resampled(proposal, lambda z: tf.fill(tf.shape(z), 0.01), T=100)
    assert int(tf.reduce_max(dist.sample_with_attempts(500, seed=seed)[1])) > 3
    assert int(tf.reduce_max(dist.sample_with_attempts(500, seed=seed, T=3)[1])) == 3
    assert int(tf.reduce_max(dist.sample_with_attempts(500, seed=seed, T=None)[1])) > 100
    np.testing.assert_array_equal(
        dist.sample(5, seed=seed, T=1), proposal.sample(5, seed=_seeds.stateless_seed(seed))
    )
    assert dist.T == 100


def test_a_new_number_of_draws_is_no_new_graph(seed):
    traces = []

    def accept_fn(z):
        traces.append(1)
        return tf.sigmoid(z)

    dist = Resampled(tfd.Normal(0.0, 1.0), accept_fn, T=10)
    dist.sample(3, seed=seed)
    before = len(traces)
    for n, T in [(1, 10), (1000, 10), (7, 3), (7, None)]:
        dist.sample(n, seed=seed, T=T)
    assert len(traces) == before


def test_many_distributions_are_no_retracing(caplog, seed):
    for _ in range(8):
        Resampled(tfd.Normal(0.0, 1.0), tf.sigmoid, T=3).sample(2, seed=seed)
    assert "retracing" not in caplog.text


@pytest.mark.parametrize("T", [1, 3])
def test_draws_carry_no_gradient(T, seed):
    loc = tf.Variable(0.0)
    dist = Resampled(tfd.Normal(loc, 1.0), tf.sigmoid, T=T)
    with tf.GradientTape() as tape:
        total = tf.reduce_sum(dist.sample(5, seed=seed))
    assert tape.gradient(total, loc) is None
    assert dist.reparameterization_type == tfd.NOT_REPARAMETERIZED


def test_untruncated_resampling_that_never_accepts_is_an_error(seed):
    dist = Resampled(tfd.Normal(0.0, 1.0), tf.zeros_like, T=None, max_attempts=10_000)
    with pytest.raises(RuntimeError, match="max_attempts=10000.*acceptance rate.*0.*finite `T`"):
        dist.sample(3, seed=seed)
    with pytest.raises(tf.errors.InvalidArgumentError, match="max_attempts=10000"):
        tf.function(lambda: dist.sample(3, seed=seed))()
    assert dist.sample(3, seed=seed, T=5).shape == [3]


def test_a_rare_acceptance_within_the_cap_is_found(seed):
    dist = Resampled(
        tfd.Normal(0.0, 1.0), lambda z: tf.where(z > 4.0, 1.0, 0.0), T=None, max_attempts=10**7
    )
    assert np.all(dist.sample(3, seed=seed) > 4.0)


def test_nan_acceptance_shows_in_the_draws_of_a_graph(seed):
    """Rejecting it would bias the sample."""
    upper = tf.Variable(0.5, trainable=False)
    dist = Resampled(tfd.Normal(0.0, 1.0), lambda z: tf.where(z > 0.0, upper, 0.5), T=None)
    upper.assign(np.nan)  # set after the constructor, which checks `accept_fn`
    draws = tf.function(lambda: dist.sample(1000, seed=seed))()
    share = np.mean(np.isnan(draws))
    # 1/2 of the candidates are NaN and 1/4 are accepted, so 2/3 of the draws are NaN.
    assert abs(share - 2 / 3) < normal_bound() * np.sqrt(2 / 9 / 1000)


@pytest.mark.parametrize(
    "make_tape",
    [
        lambda: tf.GradientTape(persistent=True),
        lambda: tf.GradientTape(),
    ],
)
@pytest.mark.parametrize("in_graph", [False, True])
def test_no_tape_records_a_draw(make_tape, in_graph, seed):
    """Ops of the sampler have no gradients, so tapes must not record them."""
    slope = tf.Variable(2.0)
    dist = Resampled(tfd.Normal(tf.Variable(0.0), 1.0), lambda z: tf.sigmoid(slope * z), T=10)

    def gradient():
        with make_tape() as outer:
            with tf.GradientTape() as inner:
                loss = slope**2 * tf.reduce_mean(dist.sample(20, seed=seed))
            slope_gradient = inner.gradient(loss, slope)
        return slope_gradient, outer.gradient(slope_gradient, slope)

    first, second = tf.function(gradient)() if in_graph else gradient()
    mean = np.mean(dist.sample(20, seed=seed))
    np.testing.assert_allclose([first, second], [4.0 * mean, 2.0 * mean], rtol=1e-5)


def test_symbolic_gradients_stop_at_a_draw():
    """`tf.gradients` follows the graph, which no tape can stop."""

    @tf.function
    def gradients(loc):
        dist = Resampled(tfd.Normal(loc, 1.0), tf.sigmoid, T=2, normalizer=-0.7)
        found.extend(tf.gradients(dist.sample(4, seed=1), loc))
        return loc

    found = []
    gradients(tf.constant(0.0))
    assert found == [None]


def test_forward_accumulators_ignore_a_draw(seed):
    slope = tf.Variable(2.0)
    dist = Resampled(tfd.Normal(0.0, 1.0), lambda z: tf.sigmoid(slope * z), T=10)
    with tf.autodiff.ForwardAccumulator(slope, tf.constant(1.0)) as accumulator:
        z = dist.sample(5, seed=seed)
    assert accumulator.jvp(z) is None


def test_keras_fit_can_draw_in_its_step(seed):
    prior = Resampled(tfd.Normal(tf.Variable(0.0), 1.0), tf.sigmoid, T=10)
    model = tf_keras.Sequential(
        [
            tf_keras.layers.Dense(1),
            tfp.layers.DistributionLambda(lambda t: tfd.Normal(t + prior.sample(seed=seed), 1.0)),
        ]
    )
    model.compile("sgd", loss=lambda y, p: -p.log_prob(y))
    history = model.fit(np.ones([8, 2]), np.ones([8, 1]), verbose=0)
    assert np.isfinite(history.history["loss"][-1])


@pytest.mark.parametrize("library", [keras, tf_keras])
@pytest.mark.parametrize("as_function", [False, True])
def test_networks_draw_in_inference_mode(library, as_function, seed):
    """Also if the first draw, which traces the graph, happens inside a training step."""
    network = library.Sequential(
        [library.layers.Dropout(0.999), library.layers.Dense(1, "sigmoid")]
    )
    network(tf.zeros([1, 1]))
    accept_fn = (lambda z: network(z[:, tf.newaxis])[:, 0]) if as_function else network
    dist = Resampled(tfd.Normal(0.0, 1.0), accept_fn, T=20)
    expected = Resampled(tfd.Normal(0.0, 1.0), accept_fn, T=20).sample(50, seed=seed)

    class Model(library.Model):
        def call(self, x):
            return x + dist.sample(50, seed=seed) + 0.0 * network(x[:, tf.newaxis])[:, 0]

    in_step = Model()(tf.zeros([50]), training=True)
    np.testing.assert_allclose(in_step, expected, rtol=1e-6)
    np.testing.assert_allclose(dist.sample(50, seed=seed), expected, rtol=1e-6)


def test_the_training_flag_of_the_step_survives_a_draw(seed):
    seen = []

    class Spy(keras.layers.Layer):
        def call(self, z, training=None):
            seen.append(training)
            return z

    spy, dist = Spy(), Resampled(tfd.Normal(0.0, 1.0), tf.sigmoid, T=5)

    class Model(keras.Model):
        def call(self, x):
            dist.sample(3, seed=seed)
            return spy(x)

    Model()(tf.zeros([2, 1]), training=True)
    assert seen[-1] is True


def test_python_values_are_fixed_at_the_first_draw_and_variables_are_not(seed):
    """Python values are fixed when the graph is traced, as in every `tf.function`."""
    level = {"python": 1.0}
    variable = tf.Variable(1.0, trainable=False)
    dist = Resampled(
        tfd.Uniform(), lambda z: tf.where(z < level["python"] * variable, 1.0, 0.0), T=None
    )
    assert np.max(dist.sample(200, seed=seed)) > 0.9
    level["python"] = 0.5
    assert np.max(dist.sample(200, seed=seed)) > 0.9
    variable.assign(0.5)
    assert np.max(dist.sample(200, seed=seed)) < 0.5


def test_nan_candidates_are_blamed_on_the_proposal(seed):
    loc = tf.Variable(0.0)
    dist = Resampled(tfd.Normal(loc, 1.0), tf.sigmoid, T=5, validate_args=True)
    loc.assign(np.nan)
    with pytest.raises(ValueError, match="`proposal`.*Normal.*drew NaN"):
        dist.sample(3, seed=seed)
    with pytest.raises(tf.errors.InvalidArgumentError, match="`proposal`.*Normal.*drew NaN"):
        tf.function(lambda: dist.sample(3, seed=seed))()


@pytest.mark.parametrize(("n", "error"), [(-1, ValueError), (2.5, TypeError), ("a", TypeError)])
def test_a_wrong_number_of_draws_is_named(n, error):
    dist = Resampled(tfd.Normal(0.0, 1.0), tf.sigmoid, T=5)
    with pytest.raises(error, match="`sample_shape`.*" + str(n)):
        dist.sample(n)
    with pytest.raises(error, match="`sample_shape`.*" + str(n)):
        dist.sample_with_attempts(n)
    if error is ValueError:
        with pytest.raises(error, match="`sample_shape`.*" + str(n)):
            dist.sample(tf.constant([3, n]))


def test_streams_of_seeds_work_as_in_tfp():
    dist = Resampled(tfd.Normal(0.0, 1.0), tf.sigmoid, T=5)
    draws = []
    for shape in (2, [2], tf.constant(2)):
        stream = tfp.util.SeedStream(3, "salt")
        draws += [dist.sample(shape, seed=stream), dist.sample(shape, seed=stream)]
    np.testing.assert_array_equal(draws[0], draws[2])
    np.testing.assert_array_equal(draws[1], draws[5])
    assert not np.array_equal(draws[0], draws[1])


@pytest.mark.parametrize(
    ("bad", "error"),
    [("abc", TypeError), (1.5, TypeError), (tf.constant(3), ValueError), ([1, 2, 3], ValueError)],
)
def test_a_wrong_seed_is_named(bad, error):
    dist = Resampled(tfd.Normal(0.0, 1.0), tf.sigmoid, T=5)
    with pytest.raises(error, match="`seed`.*Python int"):
        dist.sample(2, seed=bad)


def test_draws_pass_the_numerics_check_of_tensorflow():
    """Runs in a new process, because the check cannot be limited to one test."""
    run_python(
        """
        import numpy as np, tensorflow as tf, tensorflow_probability as tfp
        import tfp_lars
        tf.debugging.enable_check_numerics()
        tfd = tfp.distributions
        for T in (5, None):
            dist = tfp_lars.Resampled(
                tfd.MultivariateNormalDiag(tf.zeros(3)), tfp_lars.AcceptanceNetwork((4,)), T=T)
            assert np.all(np.isfinite(dist.sample(100, seed=1)))
            assert np.all(np.isfinite(tf.function(lambda: dist.sample(100, seed=1))()))
        """
    )


@pytest.mark.parametrize("T", [1, 2, 20, None])
def test_draws_compile_with_xla(T, seed, num_samples=20_000):
    """Uniform proposal: the CDF is z**2 without truncation and (1 - w) z**2 + w z with T."""
    dist = Resampled(tfd.Uniform(), lambda z: z, T=T)
    draw = tf.function(lambda: dist.sample_with_attempts(num_samples, seed=seed), jit_compile=True)
    z, attempts = (x.numpy() for x in draw())
    weight = 0.5 ** (T - 1) if T else 0.0
    z = np.sort(z)
    gap = np.max(np.abs((1 - weight) * z**2 + weight * z - np.arange(num_samples) / num_samples))
    assert gap < dkw_band(num_samples)
    mean = 2.0 * (1.0 - 0.5**T) if T else 2.0
    assert abs(np.mean(attempts) - mean) < normal_bound() * np.sqrt(2.0 / num_samples)
    assert len(np.unique(z)) > 0.99 * num_samples


def test_batches_and_networks_compile_with_xla(seed):
    proposal = tfd.MultivariateNormalDiag(tf.zeros([2, 3]), [[1.0] * 3, [2.0] * 3])
    dist = Resampled(proposal, AcceptanceNetwork((4,)), T=10)
    z = tf.function(lambda: dist.sample(500, seed=seed), jit_compile=True)()
    assert z.shape == [500, 2, 3] and np.all(np.isfinite(z))
    spread = np.std(z, axis=(0, 2))
    assert spread[1] > 1.5 * spread[0]


def test_xla_marks_draws_that_were_given_up(seed):
    """XLA cannot compile error messages."""
    for proposal, missing in [
        (tfd.Normal(0.0, 1.0), np.nan),
        (tfd.Bernoulli(0.3), np.iinfo(np.int32).min),
        (tfd.Bernoulli(0.3, dtype=tf.bool), False),
    ]:
        never = lambda z: tf.zeros(tf.shape(z))  # noqa: E731
        dist = Resampled(proposal, never, T=None, max_attempts=1000, normalizer=0.0)
        draw = tf.function(lambda d=dist: d.sample_with_attempts(3, seed=seed), jit_compile=True)
        z, attempts = draw()
        np.testing.assert_array_equal(z, [missing] * 3)
        np.testing.assert_array_equal(attempts, [0, 0, 0])
