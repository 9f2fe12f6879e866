"""`fit`: wrong arguments are named."""

import keras
import numpy as np
import pytest
import tensorflow as tf
import tensorflow_probability as tfp
import tf_keras

from tests.library.fit_cases import FEW, Table, data, read, resampled
from tfp_lars import AcceptanceNetwork, Resampled, fit

tfb = tfp.bijectors
tfd = tfp.distributions


def bad(message, error=ValueError, dist=resampled, samples=data, **kwargs):
    return pytest.param(error, message, dist, samples, kwargs, id=message[:30])


def with_values(*values):
    z = data(100)
    z[3, 1], z[7, 0], z[9, 0] = values
    return z


def held():
    dist = resampled()
    dist.normalizer.hold()
    return dist


def held_inside():
    return Resampled(held(), AcceptanceNetwork((4,)))


def frozen():
    return resampled(normalizer=-1.0)


def over_integers():
    return Resampled(tfd.Categorical(logits=tf.zeros(4)), Table(4))


@pytest.mark.parametrize(
    ("error", "message", "dist", "samples", "kwargs"),
    [
        bad(r"shape \(3000, 3\); expected \(N, 2\)", samples=lambda: np.zeros((3000, 3))),
        bad(r"shape \(2,\); expected \(N, 2\)", samples=lambda: np.zeros(2)),
        bad(
            "has 2 NaN and 1 infinite values, in 3 of 100 rows.*index \\(3, 1\\)",
            samples=lambda: with_values(np.nan, np.inf, np.nan),
        ),
        bad(
            "1 infinite values after the cast from float64",
            samples=lambda: np.array([[1e300, 0]] + [[0.0, 1]] * 99),
        ),
        bad("empty: it has shape", samples=lambda: np.zeros((0, 2))),
        bad("has 5 rows; at least 20", samples=lambda: data(5)),
        bad("constant: all 300 rows", samples=lambda: np.ones((300, 2))),
        bad("constant: all", samples=lambda: lambda seed: np.ones((300, 2))),
        bad("type complex64; expected float32", TypeError, samples=lambda: data() * 1j),
        bad(
            "must be an array of numbers.*got list", TypeError, samples=lambda: [[1.0], [1.0, 2.0]]
        ),
        bad("must be an array of numbers", TypeError, samples=lambda: None),
        bad(
            "type float64, but the distribution is over int32",
            TypeError,
            dist=over_integers,
            samples=lambda: np.linspace(0, 3, 100),
        ),
        bad(
            r"`samples` has the value 4294967297 at index \(2,\), which is outside of int32",
            dist=over_integers,
            samples=lambda: np.array([0, 1, 2**32 + 1, -(2**32)] * 25),
        ),
        bad(
            "data set without elements",
            samples=lambda: tf.data.Dataset.from_tensor_slices(data()).take(0),
        ),
        bad(
            "one tensor. Select it",
            TypeError,
            samples=lambda: tf.data.Dataset.from_tensor_slices((data(), data())),
        ),
        bad(
            r"elements of shape \(3000, 2, 1\)|elements of shape \(\)",
            samples=lambda: tf.data.Dataset.from_tensor_slices(np.zeros(30)),
        ),
        bad("returned 3 values", samples=lambda: lambda seed: (data(), 1, 2)),
        bad("returned no samples", samples=lambda: lambda seed: data()[:0]),
        bad(
            "log densities of type int",
            TypeError,
            samples=lambda: lambda seed: (data(), np.arange(3000)),
        ),
        bad(r"log densities of shape \(3000, 2\)", samples=lambda: lambda seed: (data(), data())),
        bad(
            "fixed log Z.*copy\\(normalizer=tfp_lars.MovingAverage\\(\\)\\)",
            dist=frozen,
        ),
        bad(
            "'Resampled', a part of `dist`, has a fixed log Z",
            dist=lambda: tfb.Shift([0.1, 0.1])(frozen()),
        ),
        bad(
            "'inner', a part of `dist`, has a fixed log Z",
            dist=lambda: resampled(frozen().copy(name="inner")),
            trainable_proposal=True,
        ),
        bad("A moving average of `dist`, 'Resampled', is held.*`release\\(\\)`", dist=held),
        bad(
            "A moving average of `dist`, 'Resampled', is held",
            dist=held_inside,
            trainable_proposal=True,
        ),
        bad(
            "`trainable_proposal=True`, but the proposal .* has no trainable",
            trainable_proposal=True,
        ),
        bad("has `T=1`", dist=lambda: resampled(T=1)),
        bad(
            "`accept_fn` of `dist` has no trainable",
            dist=lambda: Resampled(
                tfd.MultivariateNormalDiag(tf.zeros(2)), lambda z: tf.sigmoid(z[..., 0])
            ),
        ),
        bad("`dist` has no trainable", dist=lambda: tfd.MultivariateNormalDiag(tf.zeros(2))),
        bad("must be a TFP distribution", TypeError, dist=AcceptanceNetwork),
        bad(
            "`dist` must have a single tensor as its event; 'Joint.*' is joint.*`tfd.Blockwise`",
            TypeError,
            dist=lambda: tfd.JointDistributionSequential([tfd.Normal(tf.Variable(0.0), 1.0)] * 2),
        ),
        bad(
            "have the log density -inf",
            dist=lambda: Resampled(
                tfd.Sample(tfd.Uniform(-1.0, 1.0), [2]), AcceptanceNetwork((4,))
            ),
        ),
        bad("`validation_split` must be", validation_split=1.0),
        bad("`validation_split=0.99` leaves none", validation_split=0.99, samples=lambda: data(21)),
        bad("`num_steps` must be", num_steps=0),
        bad("`batch_size` must be", TypeError, batch_size="all"),
        bad("`patience` must be", patience=-1),
        bad("`optimizer` must be an optimizer of Keras", TypeError, optimizer=1e-3),
        *(
            bad(
                "`optimizer` is a LossScaleOptimizer.*`inner_optimizer`.*loss_scale_factor",
                optimizer=scaling(library.optimizers.Adam()),
            )
            for library, scaling in (
                (keras, keras.optimizers.LossScaleOptimizer),
                (tf_keras, tf_keras.mixed_precision.LossScaleOptimizer),
            )
        ),
    ],
)
def test_wrong_arguments_are_named(error, message, dist, samples, kwargs):
    with pytest.raises(error, match=message):
        fit(dist(), samples(), **{**FEW, **kwargs})


def test_average_of_a_fixed_proposal_may_be_held():
    """The training does not change its Z."""
    dist = held_inside()
    fit(dist, data(), **FEW)
    assert int(dist.proposal.normalizer.num_updates) == 0 < int(dist.normalizer.num_updates)


def test_frozen_distribution_that_is_not_trained_keeps_its_log_z():
    dist = resampled(frozen())
    assert fit(dist, data(), **FEW).gain > 0.0
    assert float(dist.proposal.log_normalizer) == -1.0


def test_graph_is_refused():
    dist, z = resampled(), data()
    with pytest.raises(RuntimeError, match="inside a tf.function"):
        tf.function(lambda: fit(dist, z))()
    with pytest.raises(TypeError, match="symbolic tensor"):
        tf.function(read, autograph=False)(z)


def test_training_without_a_finite_gradient_is_an_error():
    class Broken(tf.Module):
        def __init__(self):
            super().__init__()
            self.slope = tf.Variable(0.0)

        def logits(self, z):
            # The derivative of the root is infinite at 0.
            return tf.sqrt(tf.abs(self.slope)) * z[..., 0]

    dist = Resampled(tfd.MultivariateNormalDiag(tf.zeros(2)), Broken())
    with pytest.raises(ValueError, match="None of 10 steps had a finite gradient"):
        fit(dist, data(), **FEW)
