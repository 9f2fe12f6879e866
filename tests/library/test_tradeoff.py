"""`truncation_tradeoff`: log-likelihood and expected attempts for each truncation."""

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_probability as tfp

from tfp_lars import AcceptanceNetwork, LogNormalizer, MovingAverage, Resampled, truncation_tradeoff

tfd = tfp.distributions

T = (1, 2, 7, 1000, None)


def linear(**kwargs):
    """a(z) = z and Z = 1/2."""
    return Resampled(tfd.Uniform(), lambda z: z, **kwargs)


def points():
    return np.linspace(0.05, 1.0, 40).astype(np.float32)


def test_each_row_is_that_of_a_frozen_copy():
    dist = linear(T=3, normalizer=np.log(0.5))
    tradeoff = truncation_tradeoff(dist, points(), T)
    assert tradeoff.T == T
    assert tradeoff.estimate is None
    for i, t in enumerate(T):
        copy = dist.copy(T=t)
        log_prob = copy.log_prob(points()).numpy().astype(np.float64)
        np.testing.assert_allclose(tradeoff.log_likelihood[i], np.mean(log_prob), atol=1e-6)
        stderr = np.std(log_prob, ddof=1) / np.sqrt(40)
        np.testing.assert_allclose(tradeoff.stderr[i], stderr, rtol=1e-5, atol=1e-9)
        np.testing.assert_allclose(tradeoff.expected_attempts[i], copy.expected_attempts, rtol=1e-6)


def test_log_z_is_estimated_once_and_its_error_counts():
    dist = linear(normalizer=MovingAverage(16))
    tradeoff = truncation_tradeoff(dist, points(), T, num_samples=1000, seed=1)
    assert tradeoff.estimate.num_samples == 1000
    assert dist.normalizer.num_updates == 0
    exact = truncation_tradeoff(linear(normalizer=tradeoff.estimate.log_z), points(), T)
    np.testing.assert_allclose(tradeoff.log_likelihood, exact.log_likelihood, atol=1e-6)
    extra = np.sqrt(np.maximum(tradeoff.stderr**2 - exact.stderr**2, 0.0))
    # log p does not depend on Z at T = 1, and falls as log Z rises if T = None.
    np.testing.assert_allclose(extra[[0, -1]], [0.0, tradeoff.estimate.stderr], atol=1e-6)
    assert 0.0 < extra[1] < extra[-1]


def test_errors_of_nested_estimates_count():
    """The inner log Z shifts log p for every T, by as much as it changes."""
    dist = Resampled(linear(T=None), lambda z: 1.0 - 0.5 * z)
    frozen = dist.freeze(num_samples=200, seed=1)
    inner, outer = frozen.proposal.estimate, frozen.estimate
    exact = Resampled(
        linear(T=None, normalizer=inner.log_z), dist.accept_fn, normalizer=outer.log_z
    )
    without = truncation_tradeoff(exact, points(), (1, None)).stderr
    of_log_z = [inner.stderr, inner.stderr + outer.stderr]  # at T = 1 the outer one has no effect
    for found in (frozen, dist):
        tradeoff = truncation_tradeoff(found, points(), (1, None), num_samples=200, seed=1)
        np.testing.assert_allclose(tradeoff.stderr, np.hypot(without, of_log_z), rtol=1e-4)


def test_frozen_distribution_keeps_its_estimate():
    frozen = linear().freeze(num_samples=500, seed=1)
    assert truncation_tradeoff(frozen, points()).estimate is frozen.estimate


def test_member_of_a_frozen_batch_has_the_error_of_its_own_estimate():
    batch = Resampled(tfd.Uniform([0.0, 0.0], 1.0), lambda z: z).freeze(num_samples=200, seed=1)
    single = linear().freeze(
        LogNormalizer(batch.estimate.log_z[1], batch.estimate.stderr[1], 200, "monte_carlo")
    )
    tradeoffs = [truncation_tradeoff(dist, points(), T) for dist in (batch[1], single)]
    np.testing.assert_allclose(tradeoffs[0].stderr, tradeoffs[1].stderr, rtol=1e-6)
    assert tradeoffs[0].stderr[-1] > tradeoffs[0].estimate.stderr > 0.03


def test_points_outside_the_support_have_density_zero():
    tradeoff = truncation_tradeoff(linear(normalizer=-0.7), [0.5, 2.0], (1, 5))
    assert np.all(np.isneginf(tradeoff.log_likelihood))
    root = Resampled(tfd.Uniform(), tf.sqrt, normalizer=-0.4)  # NaN below 0
    tradeoff = truncation_tradeoff(root, [0.5, -1.0], (1, 5))
    assert np.all(np.isneginf(tradeoff.log_likelihood))


ESTIMATE = LogNormalizer(-0.4, 0.1, 100, "monte_carlo")


@pytest.mark.parametrize(
    "normalizer", [None, -0.4, ESTIMATE], ids=["average", "number", "estimate"]
)
def test_nested_average_is_frozen(normalizer):
    """A fixed log Z of the outer distribution stays, with its error."""
    inner = linear()
    dist = Resampled(inner, lambda z: 1.0 - 0.5 * z, normalizer=normalizer)
    rows = [truncation_tradeoff(dist, points(), T, num_samples=2000, seed=1) for _ in range(2)]
    np.testing.assert_array_equal(rows[0].log_likelihood, rows[1].log_likelihood)
    assert inner.normalizer.num_updates == 0
    if normalizer is not None:
        assert rows[0].estimate is dist.estimate
        frozen = dist.copy(proposal=inner.freeze(num_samples=2000, seed=1), normalizer=normalizer)
        expected = truncation_tradeoff(frozen, points(), T)
        np.testing.assert_array_equal(rows[0].log_likelihood, expected.log_likelihood)
        np.testing.assert_array_equal(rows[0].stderr, expected.stderr)


def test_repr_is_a_table():
    lines = repr(truncation_tradeoff(linear(normalizer=np.log(0.5)), points(), (1, None)))
    assert lines.splitlines()[0] == "TruncationTradeoff"
    assert lines.splitlines()[2].split() == ["1", "0.000", "±", "0.000", "1"]
    assert lines.splitlines()[3].split()[0] == "None"


def test_plot_names_each_truncation():
    """Points with nearly the same attempts share a label."""
    dist = linear(normalizer=np.log(0.5))
    figure = truncation_tradeoff(dist, points(), (1, 2, 3, 10, 100, None)).plot()
    (axis,) = figure.axes
    assert [text.get_text() for text in axis.texts] == ["T = 1", "T = 2", "T = 3", "T ≥ 10"]
    (axis,) = truncation_tradeoff(dist, points(), (1, None)).plot().axes
    assert [text.get_text() for text in axis.texts] == ["T = 1", "T = ∞"]
    assert axis.get_xlabel() == "expected attempts per draw"


def test_labels_of_the_plot_are_inside_the_axes():
    dist = Resampled(tfd.Normal(0.0, 1.0), tf.sigmoid)
    figure = truncation_tradeoff(dist, points(), (1, 2, 5, None)).plot()
    (axis,) = figure.axes
    figure.draw_without_rendering()
    inside = axis.get_window_extent()
    for text in axis.texts:
        box = text.get_window_extent()
        assert inside.x0 < box.x0 and box.x1 < inside.x1
        assert inside.y0 < box.y0 and box.y1 < inside.y1
    # Plain numbers. Matplotlib also makes ticks outside the axes, more or fewer in each release.
    ticks = {
        round(tick.get_loc(), 9): tick.label1.get_text()
        for tick in (*axis.xaxis.get_major_ticks(), *axis.xaxis.get_minor_ticks())
    }
    low, high = axis.get_xlim()
    assert {x: text for x, text in ticks.items() if low < x < high} == {0.9: "", 1: "1", 2: "2"}


@pytest.mark.parametrize(
    ("error", "message", "arguments"),
    [
        (TypeError, "`dist` must be a `Resampled`", (tfd.Uniform(), points())),
        (
            ValueError,
            r"batch shape \[\]; got \(2,\)",
            (Resampled(tfd.Normal([0.0, 1.0], 1.0), tf.sigmoid), points()),
        ),
        (ValueError, "`T` must be an integer", (linear(), points(), (0,))),
        (TypeError, "`T` must be an integer", (linear(), points(), "10")),
        (ValueError, "`T` is empty", (linear(), points(), ())),
        (ValueError, "`samples` has 1 NaN", (linear(), [0.1, np.nan])),
        (ValueError, r"shape \(3, 1\); expected \(N,\)", (linear(), np.zeros((3, 1)))),
        (ValueError, "has 1 rows; at least 2", (linear(), [0.1])),
        (
            TypeError,
            "must be an array of numbers or a tensor; got _TensorSliceDataset",
            (linear(), tf.data.Dataset.from_tensor_slices(points())),
        ),
        (
            ValueError,
            r"`samples` has the value 300 at index \(1,\), which is outside of uint8",
            (
                Resampled(
                    tfd.Categorical(probs=[0.5, 0.5], dtype=tf.uint8),
                    lambda z: tf.fill(tf.shape(z), 0.5),
                    normalizer=np.log(0.5),
                ),
                [1, 300, -1],
            ),
        ),
    ],
)
def test_wrong_arguments_are_named(error, message, arguments):
    with pytest.raises(error, match=message):
        truncation_tradeoff(*arguments)


def test_single_truncation_needs_no_tuple():
    dist = Resampled(
        tfd.Sample(tfd.Normal(0.0, 1.0), [2]), AcceptanceNetwork((4,)), normalizer=-1.0
    )
    assert truncation_tradeoff(dist, [[0.1, 0.2], [0.3, 0.4]], 5).T == (5,)
