"""The methods of `Resampled`, and its messages for wrong arguments."""

import math

import keras
import numpy as np
import pytest
import tensorflow as tf
import tensorflow_probability as tfp

import tfp_lars as tfd_lars
from tfp_lars import AcceptanceNetwork, LogNormalizer, MovingAverage, Resampled

tfb = tfp.bijectors
tfd = tfp.distributions

Z = np.array([-1.0, 0.2, 2.5], np.float32)


def gentle(z):
    return tf.sigmoid(z - 1.0)


def make(**kwargs):
    return Resampled(tfd.Normal(0.0, 1.0), gentle, **kwargs)


def test_both_names_are_one_class():
    assert tfd_lars.ResampledDistribution is tfd_lars.Resampled
    assert isinstance(make(), tfd.Distribution)


def test_default_is_a_fresh_moving_average_truncated_at_100():
    a, b = make(), make()
    assert a.T == 100
    assert isinstance(a.normalizer, MovingAverage)
    assert a.normalizer is not b.normalizer
    assert (a.normalizer.num_samples, a.normalizer.decay) == (1024, 0.9)


@pytest.mark.parametrize("T", [None, math.inf, float("inf"), np.inf, np.float32(np.inf)])
def test_untruncated_is_none_or_infinity(T):
    assert make(T=T).T is None


def test_numpy_integers_are_integers():
    assert make(T=np.int64(7)).T == 7


@pytest.mark.parametrize(
    ("proposal", "support"),
    [
        (tfd.Categorical(np.log([0.5, 0.3, 0.2]), dtype=tf.float32), [0.0, 1.0, 2.0]),
        (tfd.FiniteDiscrete([0.0, 1.0], probs=np.array([0.7, 0.3])), [0.0, 1.0]),
        (tfd.Bernoulli(probs=0.4, dtype=tf.float64), [0.0, 1.0]),
        (tfd.OneHotCategorical([0.0, 1.0, 0.5], dtype=tf.float64), np.eye(3)),
    ],
    ids=["categorical", "finite discrete", "bernoulli", "one hot"],
)
def test_events_and_log_densities_may_have_different_types(proposal, support):
    """Real events of one type with log densities of another."""
    z = tf.constant(support, proposal.dtype)
    axes = [-1] if proposal.event_shape.rank else []

    def accept(z):
        return 0.1 + 0.2 * tf.reduce_sum(z * (tf.range(3, dtype=z.dtype) if axes else 1.0), axes)

    pi, a = np.exp(np.float64(proposal.log_prob(z))), np.float64(accept(z))
    Z = np.sum(pi * a)
    alpha = (1.0 - Z) ** 2
    dist = Resampled(proposal, accept, T=3, normalizer=np.log(Z))
    log_prob = dist.log_prob(z)
    assert log_prob.dtype == proposal.log_prob(z).dtype
    np.testing.assert_allclose(np.exp(log_prob), pi * (a * (1 - alpha) / Z + alpha), rtol=1e-6)
    trained = Resampled(proposal, AcceptanceNetwork((4,)), T=3)
    assert np.all(np.isfinite(trained.log_prob(z, target_log_prob=proposal.log_prob(z))))
    assert trained.sample(5, seed=1).dtype == proposal.dtype


def test_log_prob_with_a_moving_average_updates_it_once_per_call():
    dist = make()
    for expected in (1, 2, 3):
        dist.log_prob(Z)
        assert dist.normalizer.num_updates == expected


def test_log_prob_reaches_acceptance_proposal_and_z():
    loc, slope, z = tf.Variable(0.1), tf.Variable(1.0), tf.constant(Z)
    dist = Resampled(tfd.Normal(loc, 1.0), lambda z: tf.sigmoid(slope * z))
    with tf.GradientTape() as tape:
        tape.watch(z)
        value = tf.reduce_mean(dist.log_prob(z))
    for gradient in tape.gradient(value, [loc, slope, z]):
        assert np.all(np.isfinite(gradient))
        assert np.any(gradient.numpy() != 0.0)


def test_log_prob_with_a_fixed_log_z_is_a_pure_function():
    dist = make(normalizer=-1.2)
    first = dist.log_prob(Z)
    state = tf.random.get_global_generator().state.numpy()
    np.testing.assert_array_equal(first, dist.log_prob(Z))
    np.testing.assert_array_equal(state, tf.random.get_global_generator().state.numpy())
    assert [v.name for v in dist.variables] == ["Resampled/log_z:0"]
    assert dist.trainable_variables == ()


@pytest.mark.parametrize(
    "log_z",
    [
        -1.2,
        np.float64(-1.2),
        tf.constant(-1.2),
        tf.Variable(-1.2, trainable=False),
        LogNormalizer(np.array(-1.2), np.array(0.1), 100, "monte_carlo"),
    ],
    ids=["float", "numpy", "tensor", "variable", "LogNormalizer"],
)
def test_fixed_log_z_comes_in_every_form(log_z):
    dist = make(normalizer=log_z, T=3)
    z, a = np.exp(-1.2), gentle(Z)
    alpha = (1 - z) ** 2
    expected = dist.proposal.prob(Z) * (a * (1 - alpha) / z + alpha)
    np.testing.assert_allclose(dist.prob(Z), expected, rtol=1e-5)
    np.testing.assert_allclose(dist.log_normalizer, -1.2, rtol=1e-6)
    np.testing.assert_allclose(dist.acceptance_rate, z, rtol=1e-6)
    np.testing.assert_allclose(dist.truncation_weight, alpha, rtol=1e-5)
    np.testing.assert_allclose(dist.expected_attempts, (1 - (1 - z) ** 3) / z, rtol=1e-5)


@pytest.mark.parametrize("T", [2, 100, None])
def test_log_ratio_is_the_closed_form_and_needs_no_density(T):
    """For a(z) = z on the unit interval, where Z = 1/2."""

    class Unknown(tfd.Uniform):
        def _log_prob(self, value):
            raise NotImplementedError

    dist = Resampled(Unknown(), lambda z: z, T, normalizer=math.log(0.5))
    z = np.linspace(0.01, 0.99, 9, dtype=np.float32)
    alpha = 0.0 if T is None else 0.5 ** (T - 1)
    expected = np.log(z * (1.0 - alpha) / 0.5 + alpha)
    np.testing.assert_allclose(dist.log_ratio(z), expected, rtol=1e-5, atol=1e-6)


def test_log_ratio_is_log_prob_without_the_proposal():
    for normalizer in (-1.2, MovingAverage(16, seed=1)):
        dist = make(normalizer=normalizer)
        if isinstance(normalizer, MovingAverage):
            other = make(normalizer=MovingAverage(16, seed=1))
        else:
            other = dist
        for _ in range(2):
            ratio = dist.log_ratio(Z)
            difference = other.log_prob(Z) - dist.proposal.log_prob(Z)
            np.testing.assert_allclose(ratio, difference, rtol=1e-5, atol=1e-6)
    assert dist.normalizer.num_updates == 2


def test_log_ratio_of_one_proposal_is_zero():
    dist = Resampled(tfd.Normal([0.0, 1.0], 1.0), gentle, T=1)
    np.testing.assert_array_equal(dist.log_ratio(tf.zeros([3, 1])), np.zeros([3, 2]))
    assert dist.normalizer.num_updates == 0


def test_log_ratio_has_sample_and_batch_shape():
    dist = Resampled(tfd.Normal([0.0, 1.0], 1.0), gentle)
    assert dist.log_ratio(tf.zeros([5, 3, 1])).shape == [5, 3, 2]
    assert dist.log_ratio(0.3).shape == [2]


def log_prob_and_slope(log_prob):
    """Returns values and a gradient of `log_prob(dist, **kwargs)` at the second update of Z."""
    slope = tf.Variable(1.3)
    dist = Resampled(
        tfd.Normal(0.0, 1.0),
        lambda z: tf.sigmoid(slope * z - 1.0),
        T=7,
        normalizer=MovingAverage(64, seed=1),
    )
    target = tfd.Normal(1.0, 0.5).log_prob(Z)
    for _ in range(2):
        with tf.GradientTape() as tape:
            value = log_prob(dist, target_log_prob=target)
    return value, tape.gradient(value, slope, unconnected_gradients="zero")


@pytest.mark.parametrize("T", [1, 2, 100, 10**6, None])
@pytest.mark.parametrize("kind", ["number", "tensor", "variable", "graph"])
def test_log_prob_at_another_truncation_is_that_of_a_copy(T, kind):
    real = tf.constant(np.inf if T is None else T, tf.float32)
    given = {"number": T, "tensor": real, "graph": real, "variable": tf.Variable(real)}[kind]

    def log_prob(dist, **kwargs):
        def call(T):
            return dist.log_prob(Z, T=T, **kwargs)

        return (tf.function(call) if kind == "graph" else call)(given)

    actual = log_prob_and_slope(log_prob)
    expected = log_prob_and_slope(lambda dist, **kwargs: dist.copy(T=T).log_prob(Z, **kwargs))
    for x, y in zip(actual, expected, strict=True):
        np.testing.assert_allclose(x, y, rtol=1e-5, atol=1e-6)


def test_truncation_of_a_call_reaches_the_ratio_and_tfp_wrappers():
    dist = make(T=5, normalizer=np.log(0.3))
    T = tf.constant(3.0)
    expected = make(T=3, normalizer=np.log(0.3))
    np.testing.assert_allclose(dist.log_ratio(Z, T=T), expected.log_ratio(Z), rtol=1e-6)
    np.testing.assert_allclose(dist.prob(Z, T=T), expected.prob(Z), rtol=1e-6)
    np.testing.assert_allclose(
        tfd.Independent(dist.copy(proposal=tfd.Normal([0.0], 1.0), normalizer=np.log(0.3)), 1)
        .log_prob(Z[:, None], T=T),
        expected.log_prob(Z),
        rtol=1e-6,
    )  # fmt: skip


def test_graphs_check_a_truncation_that_is_a_tensor_when_asked_to():
    dist = make(T=5, normalizer=np.log(0.3), validate_args=True)
    call = tf.function(lambda T: dist.log_prob(Z, T=T))
    assert np.all(np.isfinite(call(tf.constant(1.0))))
    with pytest.raises(tf.errors.InvalidArgumentError, match="`T` must be at least 1"):
        call(tf.constant(0.5))


def test_unknown_arguments_of_log_prob_go_to_the_proposal():
    class Tempered(tfd.Normal):
        def _log_prob(self, z, power=1.0):
            return power * super()._log_prob(z)

    dist = Resampled(Tempered(0.0, 1.0), gentle, normalizer=-1.2)
    difference = dist.log_prob(Z, power=3.0) - dist.log_prob(Z)
    np.testing.assert_allclose(difference, 2.0 * dist.proposal.log_prob(Z), rtol=1e-5)
    with pytest.raises(TypeError, match="unexpected keyword argument 'powers'"):
        dist.log_prob(Z, powers=3.0)


def test_variable_log_z_is_read_at_each_call():
    log_z = tf.Variable(-1.0, trainable=False)
    dist = make(normalizer=log_z, T=None)
    before = dist.log_prob(0.3)
    log_z.assign(-2.0)
    np.testing.assert_allclose(dist.log_prob(0.3), before + 1.0, rtol=1e-5)


def test_freeze_estimates_and_shares_the_networks():
    dist = Resampled(tfd.MultivariateNormalDiag(tf.zeros(2)), AcceptanceNetwork((4,)))
    frozen = dist.freeze(num_samples=10_000, seed=1)
    expected = tfd_lars.estimate_log_normalizer(dist, 10_000, seed=1)
    np.testing.assert_allclose(frozen.log_normalizer, expected.log_z, rtol=1e-6)
    assert frozen.accept_fn is dist.accept_fn
    assert frozen.proposal is dist.proposal
    shared = {id(v) for v in dist.trainable_variables}
    assert {id(v) for v in frozen.variables} == shared | {id(frozen.normalizer)}
    assert not frozen.normalizer.trainable
    assert isinstance(dist.normalizer, MovingAverage)
    np.testing.assert_allclose(dist.freeze(-0.5).log_normalizer, -0.5)


def test_freeze_with_an_estimate_takes_no_options():
    with pytest.raises(TypeError, match="num_samples"):
        make().freeze(-0.5, num_samples=10)


def test_log_normalizer_draws_nothing_and_needs_a_value():
    dist = make()
    with pytest.raises(ValueError, match=r"before the first call of `log_prob`.*freeze\(\)"):
        _ = dist.log_normalizer
    dist.log_prob(Z)
    assert dist.log_normalizer == dist.log_normalizer
    assert dist.normalizer.num_updates == 1


def test_acceptance_ranks_samples():
    np.testing.assert_allclose(make().accept_log_prob(Z), tf.math.log_sigmoid(Z - 1.0), rtol=1e-5)


def test_sample_with_attempts_has_the_draws_of_sample():
    dist = Resampled(tfd.MultivariateNormalDiag(tf.zeros([3, 2])), AcceptanceNetwork((4,)), T=5)
    samples, attempts = dist.sample_with_attempts([4, 5], seed=1)
    np.testing.assert_array_equal(samples, dist.sample([4, 5], seed=1))
    assert samples.shape == [4, 5, 3, 2]
    assert attempts.shape == [4, 5, 3]
    assert attempts.dtype == tf.int32
    assert np.all((attempts >= 1) & (attempts <= 5))
    one, count = dist.sample_with_attempts(seed=1)
    assert (one.shape, count.shape) == ([3, 2], [3])


def test_each_member_of_a_batch_has_its_own_density():
    loc = tf.constant([0.0, 1.0, -2.0])
    batch = Resampled(tfd.Normal(loc, 1.0), gentle, T=4, normalizer=[-1.5, -0.7, -3.2])
    for i, log_z in enumerate([-1.5, -0.7, -3.2]):
        single = Resampled(tfd.Normal(loc[i], 1.0), gentle, T=4, normalizer=log_z)
        np.testing.assert_allclose(batch.log_prob(0.4)[i], single.log_prob(0.4), rtol=1e-5)
    assert batch.log_prob(tf.zeros([7, 1])).shape == [7, 3]
    assert batch.log_prob(tf.zeros([2, 7, 3])).shape == [2, 7, 3]


def test_acceptance_may_differ_between_batch_members():
    shift = tf.constant([0.0, 2.0])
    batch = Resampled(tfd.Normal([0.0, 0.0], 1.0), lambda z: tf.sigmoid(z - shift), normalizer=-1.0)
    np.testing.assert_allclose(
        batch.accept_log_prob(0.5), tf.math.log_sigmoid(0.5 - shift), rtol=1e-5
    )


def test_target_joins_the_estimate_through_tfp_wrappers():
    """Keyword arguments of `log_prob` pass through `Sample` and `Independent`."""
    dist = tfd.Independent(Resampled(tfd.Normal([0.0, 1.0], 1.0), gentle), 1)
    z = tf.constant([[0.1, 0.2], [0.3, 0.4], [0.5, 0.6]])
    value = dist.log_prob(z, target_log_prob=tf.fill([3, 2], -20.0))
    # A target density of exp(-20) gives a weight of about exp(19), so Z is far above 1.
    assert float(dist.distribution.normalizer.log_z[0]) > 5.0
    assert value.shape == [3]


def test_target_passes_no_gradient_to_its_density():
    """Only a(z) in the reweighted sample has a gradient, as in the paper."""
    dist = Resampled(tfd.Normal(0.0, 1.0), gentle)
    target = tf.constant([-1.0, -0.5])
    with tf.GradientTape() as tape:
        tape.watch(target)
        value = tf.reduce_sum(dist.log_prob([0.1, 0.7], target_log_prob=target))
    assert tape.gradient(value, target) is None


def test_dist_built_inside_a_graph_takes_an_average_from_outside():
    average = MovingAverage(16)
    loc = tf.Variable(0.5)

    @tf.function
    def log_prob(z):
        return Resampled(tfd.Normal(loc, 1.0), gentle, normalizer=average).log_prob(z)

    assert log_prob(tf.constant(Z)).shape == [3]
    log_prob(tf.constant(Z))
    assert average.num_updates == 2

    @tf.function
    def without(z):
        return Resampled(tfd.Normal(loc, 1.0), gentle).log_prob(z)

    with pytest.raises(ValueError, match="`normalizer`.*created outside"):
        without(tf.constant(Z))


def test_nested_resampling_multiplies_the_acceptances():
    """Untruncated resampling of a resampled proposal multiplies the two acceptance functions."""
    inner = Resampled(tfd.Normal(0.0, 1.0), gentle, T=None, normalizer=-1.4)
    outer = Resampled(inner, lambda z: tf.sigmoid(-z), T=None, normalizer=-0.9)
    expected = tfd.Normal(0.0, 1.0).log_prob(Z) + tf.math.log(gentle(Z) * tf.sigmoid(-Z)) + 2.3
    np.testing.assert_allclose(outer.log_prob(Z), expected, rtol=1e-5)
    assert outer.sample(3, seed=1).shape == [3]


spoiled = tf.Variable(False, trainable=False)  # Errors that the constructor detects.


def logits_net(z):
    return tf.where(spoiled, 5.0 * z, 0.5)


def nan_net(z):
    return tf.where(spoiled, z / 0.0 * 0.0, 0.5)


@pytest.fixture(autouse=True)
def _nothing_is_spoiled():
    spoiled.assign(False)


BAD_CONSTRUCTIONS = {
    "proposal of another kind": (
        lambda: Resampled("normal", gentle),
        TypeError,
        r"`proposal` must be a TFP distribution; got 'normal'",
    ),
    "proposal class, not instance": (
        lambda: Resampled(tfd.Normal, gentle),
        TypeError,
        r"`proposal` must be a TFP distribution; got the class Normal.*`Normal\(\.\.\.\)`",
    ),
    "joint proposal": (
        lambda: Resampled(
            tfd.JointDistributionSequential([tfd.Normal(0.0, 1.0), tfd.Normal(0.0, 1.0)]), gentle
        ),
        TypeError,
        "`proposal` must have a single tensor.*Blockwise",
    ),
    "T of 0": (lambda: make(T=0), ValueError, "`T` must be an integer.*got 0"),
    "T of -1": (lambda: make(T=-1), ValueError, "`T` must be an integer.*got -1"),
    "T of 2.5": (lambda: make(T=2.5), TypeError, "`T` must be an integer.*got 2.5"),
    "T of NaN": (lambda: make(T=math.nan), TypeError, "`T` must be an integer.*got nan"),
    "T of '100'": (lambda: make(T="100"), TypeError, "`T` must be an integer.*got '100'"),
    "T of True": (lambda: make(T=True), TypeError, "`T` must be an integer.*got True"),
    "accept_fn not callable": (
        lambda: Resampled(tfd.Normal(0.0, 1.0), 0.5),
        TypeError,
        "`accept_fn` must be callable.*got 0.5",
    ),
    "accept_fn of the wrong shape": (
        lambda: Resampled(tfd.MultivariateNormalDiag(tf.zeros(5)), tf.sigmoid),
        ValueError,
        r"`accept_fn` returned shape \(16, 5\).*expected \(16,\)",
    ),
    "network of the wrong shape": (
        lambda: Resampled(tfd.MultivariateNormalDiag(tf.zeros(5)), keras.layers.Dense(3)),
        ValueError,
        r"`accept_fn` returned shape \(16, 3\).*expected \(16,\)",
    ),
    "accept_fn of one number": (
        lambda: Resampled(tfd.Normal(0.0, 1.0), tf.reduce_mean),
        ValueError,
        r"`accept_fn` returned shape \(\)",
    ),
    "accept_fn of another type": (
        lambda: Resampled(tfd.Normal(tf.constant(0.0, tf.float64), 1.0), keras.layers.Dense(1)),
        TypeError,
        "`accept_fn` returned float32 for a proposal of float64.*dtype='float64'",
    ),
    "accept_fn of integers": (
        lambda: Resampled(tfd.Poisson(1.0), lambda k: tf.cast(k > 1.0, tf.int32)),
        TypeError,
        "`accept_fn` returned int32",
    ),
    "accept_fn of one class": (
        lambda: Resampled(tfd.Normal(0.0, 1.0), AcceptanceNetwork),
        TypeError,
        r"`accept_fn` .*the class AcceptanceNetwork. Pass an instance.*Network\(\.\.\.\)",
    ),
    "accept_fn of another class": (
        lambda: Resampled(tfd.Normal(0.0, 1.0), keras.Sequential),
        TypeError,
        "`accept_fn` .*the class Sequential. Pass an instance",
    ),
    "accept_fn of None": (
        lambda: Resampled(tfd.Normal(0.0, 1.0), lambda z: None),
        TypeError,
        "`accept_fn` must return a tensor.*object of type NoneType",
    ),
    "accept_fn of strings": (
        lambda: Resampled(tfd.Normal(0.0, 1.0), lambda z: "high"),
        TypeError,
        "`accept_fn` returned string",
    ),
    "accept_fn of a dict": (
        lambda: Resampled(tfd.Normal(0.0, 1.0), lambda z: {"a": tf.sigmoid(z)}),
        TypeError,
        "`accept_fn` must return a tensor.*of type dict",
    ),
    "accept_fn of a pair": (
        lambda: Resampled(tfd.Normal(0.0, 1.0), lambda z: (tf.sigmoid(z), tf.zeros([3]))),
        TypeError,
        "`accept_fn` must return a tensor.*of type tuple",
    ),
    "accept_fn of truth values": (
        lambda: Resampled(tfd.Normal(0.0, 1.0), lambda z: z > 0.0),
        TypeError,
        "`accept_fn` returned bool",
    ),
    "accept_fn of logits": (
        lambda: Resampled(tfd.Normal(0.0, 1.0), lambda z: 5.0 * z),
        ValueError,
        r"`accept_fn` must return probabilities in \[0, 1\], but returned values from -10\.08 to "
        r"7\.905 for 16 draws from the proposal.*pass from_logits=True",
    ),
    "accept_fn of NaN": (
        lambda: Resampled(tfd.Normal(0.0, 1.0), lambda z: tf.where(z > 1.0, np.nan, 0.5)),
        ValueError,
        "`accept_fn` returned NaN for 1 of 16 draws from the proposal",
    ),
    "logits of NaN": (
        lambda: Resampled(
            tfd.Normal(0.0, 1.0), lambda z: tf.where(z > 1.0, np.nan, 50.0), from_logits=True
        ),
        ValueError,
        "`accept_fn` returned NaN for 1 of 16 draws from the proposal",
    ),
    "proposal of NaN": (
        lambda: Resampled(tfd.Normal([0.0, np.nan], 1.0), gentle),
        ValueError,
        "`proposal` draws NaN in 16 of 32 draws. Check its parameters",
    ),
    "log Z above 0": (
        lambda: make(normalizer=0.3),
        ValueError,
        "`normalizer` must be log Z.*got 0.3.*pass its log",
    ),
    "log Z of NaN": (lambda: make(normalizer=math.nan), ValueError, "`normalizer` must be log Z"),
    "log Z of another kind": (
        lambda: make(normalizer="estimate"),
        TypeError,
        "`normalizer` must be a MovingAverage.*got 'estimate'",
    ),
    "log Z of another type": (
        lambda: make(normalizer=tf.constant(-1.0, tf.float64)),
        TypeError,
        "`normalizer`.*float64; expected float32",
    ),
    "log Z wider than the batch": (
        lambda: make(normalizer=[-1.0, -2.0]),
        ValueError,
        r"`normalizer`.*shape \(2,\); expected \(\)",
    ),
    "max_attempts of 0": (
        lambda: make(max_attempts=0),
        ValueError,
        "`max_attempts`.*got 0",
    ),
}


@pytest.mark.parametrize("case", BAD_CONSTRUCTIONS)
def test_bad_argument_is_named_at_construction(case):
    construct, error, message = BAD_CONSTRUCTIONS[case]
    with pytest.raises(error, match=message):
        construct()


BAD_CALLS = {
    "values outside [0, 1]": (
        lambda d: d.log_prob(Z),
        logits_net,
        ValueError,
        r"`accept_fn` must return probabilities in \[0, 1\].*from_logits=True",
    ),
    "draws with values outside [0, 1]": (
        lambda d: d.sample(100, seed=1),
        logits_net,
        ValueError,
        r"`accept_fn` must return probabilities in \[0, 1\].*from_logits=True",
    ),
    "NaN": (
        lambda d: d.log_prob(Z),
        nan_net,
        ValueError,
        "`accept_fn`.*NaN",
    ),
    "draws with NaN": (
        lambda d: d.sample(100, seed=1),
        nan_net,
        ValueError,
        "`accept_fn`.*NaN",
    ),
    "sample(T=0)": (
        lambda d: d.sample(3, seed=1, T=0),
        gentle,
        ValueError,
        "`T` must be an integer.*got 0",
    ),
    "sample_with_attempts(T=2.5)": (
        lambda d: d.sample_with_attempts(3, seed=1, T=2.5),
        gentle,
        TypeError,
        "`T` must be an integer.*got 2.5",
    ),
    "log_prob(T=0)": (
        lambda d: d.log_prob(Z, T=0),
        gentle,
        ValueError,
        "`T` must be an integer.*got 0",
    ),
    "log_prob(T=a tensor below 1)": (
        lambda d: d.log_prob(Z, T=tf.constant(0.5)),
        gentle,
        ValueError,
        "`T` must be at least 1; got .*0.5",
    ),
    "log_prob(T=NaN)": (
        lambda d: d.log_prob(Z, T=tf.constant(np.nan)),
        gentle,
        ValueError,
        "`T` must be at least 1; got .*nan",
    ),
    "log_prob(T=a vector)": (
        lambda d: d.log_prob(Z, T=tf.constant([2, 3, 4])),
        gentle,
        ValueError,
        r"`T` as a tensor must be .* of shape \[\]; got shape \(3,\)",
    ),
    "log_prob(T=a boolean tensor)": (
        lambda d: d.log_prob(Z, T=tf.constant(True)),
        gentle,
        TypeError,
        "`T` as a tensor must be a real number or an integer.*got type bool",
    ),
    "target_log_prob of the wrong shape": (
        lambda d: d.log_prob(Z, target_log_prob=tf.zeros([3, 2])),
        gentle,
        ValueError,
        r"`target_log_prob` has shape \(3, 2\); expected \(3,\)",
    ),
    "target_log_prob of one number": (
        lambda d: d.log_prob(Z, target_log_prob=0.0),
        gentle,
        ValueError,
        r"`target_log_prob` has shape \(\); expected \(3,\)",
    ),
    "target_log_prob of another type": (
        lambda d: d.log_prob(Z, target_log_prob=tf.zeros(3, tf.float64)),
        gentle,
        TypeError,
        "`target_log_prob` has type float64; expected float32",
    ),
}


@pytest.mark.parametrize("case", BAD_CALLS)
def test_bad_call_is_explained_and_changes_nothing(case):
    call, fn, error, message = BAD_CALLS[case]
    dist = Resampled(tfd.Normal(0.0, 1.0), fn)
    spoiled.assign(True)
    with pytest.raises(error, match=message):
        call(dist)
    assert dist.normalizer.num_updates == 0
    assert np.isnan(dist.normalizer.log_z)


@pytest.mark.parametrize("fn", [logits_net, nan_net], ids=["outside", "NaN"])
def test_graphs_check_values_when_asked_to(fn):
    dist = Resampled(tfd.Normal(0.0, 1.0), fn, validate_args=True)
    spoiled.assign(True)
    for method, kwargs in ((dist.log_prob, {"value": Z}), (dist.sample, {"sample_shape": 100})):
        with pytest.raises(tf.errors.InvalidArgumentError, match="accept_fn"):
            tf.function(method)(**kwargs)
    assert dist.normalizer.num_updates == 0


def test_eager_mode_checks_later_calls_only_when_asked_to():
    limit = tf.Variable(1.0, trainable=False)
    for validate_args in (False, True):
        limit.assign(1.0)
        dist = Resampled(
            tfd.Normal(0.0, 1.0), lambda z: limit * tf.sigmoid(z), validate_args=validate_args
        )
        dist.log_prob(Z)
        limit.assign(100.0)
        if validate_args:
            with pytest.raises(ValueError, match="from_logits=True"):
                dist.log_prob(Z)
        else:
            dist.log_prob(Z)


def test_discrete_proposal_and_acceptance_of_two_precisions_are_refused():
    dist = Resampled(
        tfd.Categorical(probs=[0.5, 0.5]),
        lambda i: tf.gather(tf.constant([0.1, 0.9], tf.float64), i),
    )
    with pytest.raises(TypeError, match="`accept_fn` returned float64.*float32"):
        dist.log_prob([0, 1])


def test_first_draws_for_z_are_checked_too():
    """A few of 1024 draws are above 2.5, but none of z and of the 16 draws at construction."""
    dist = Resampled(tfd.Normal(0.0, 1.0), lambda z: tf.where(z > 2.5, 1.5, 0.5))
    with pytest.raises(ValueError, match="values from 0.5 to 1.5 for 1024 values"):
        dist.log_prob(0.0)
    assert dist.normalizer.num_updates == 0


def test_values_are_not_checked_at_construction_inside_a_graph():
    @tf.function
    def log_prob(z):
        return Resampled(tfd.Normal(0.0, 1.0), lambda z: 5.0 * z, normalizer=-1.0).log_prob(z)

    assert log_prob(tf.constant(Z)).shape == [3]


def test_values_are_not_checked_where_the_proposal_does_not_sample():
    class Density(tfd.Normal):
        def _sample_n(self, n, seed=None):
            raise NotImplementedError

    dist = Resampled(Density(0.0, 1.0), gentle, normalizer=-1.2)
    np.testing.assert_allclose(dist.log_prob(Z), make(normalizer=-1.2).log_prob(Z), rtol=1e-6)


def test_autoregressive_flow_draws_nothing_at_construction(monkeypatch):
    """A draw takes one pass through the network per dimension."""
    flow = tfd_lars.proposals.masked_autoregressive_flow(2)
    monkeypatch.setattr(type(flow), "sample", lambda *_, **__: pytest.fail("drew"))
    Resampled(flow, AcceptanceNetwork((3,)))


def test_checks_at_construction_leave_the_random_state_alone():
    states = []
    for build in (False, True):
        tf.random.set_seed(1)
        if build:
            make(normalizer=-1.2)  # a moving average would derive its seed from it
        states.append(tf.random.normal([3]).numpy())
    np.testing.assert_array_equal(*states)


def test_log_prob_of_nan_is_nan():
    assert np.isnan(make(normalizer=-1.2).log_prob([0.0, np.nan])[1])


def test_density_of_a_tensor_follows_an_update_of_the_proposal():
    """TFP's bijectors cache their results by the identity of the tensor."""
    scale = tf.Variable(1.0)
    proposal = tfd.TransformedDistribution(tfd.Normal(0.0, 1.0), tfb.Scale(scale))
    dist = Resampled(proposal, tf.sigmoid, normalizer=-0.7)
    z = tf.constant([1.5, -0.5])
    dist.log_prob(z)
    scale.assign(3.0)
    expected = Resampled(tfd.Normal(0.0, 3.0), tf.sigmoid, normalizer=-0.7).log_prob(z)
    np.testing.assert_allclose(dist.log_prob(z), expected, rtol=1e-6)
