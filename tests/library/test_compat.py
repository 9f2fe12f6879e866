"""The internals of TensorFlow, TFP and Keras that the library uses, one test for each entry."""

import keras
import numpy as np
import pytest
import tensorflow as tf
import tensorflow_probability as tfp
import tf_keras

from tfp_lars import _compat

tfd = tfp.distributions


def test_transformed_distribution_is_the_plain_base_class():
    assert _compat.TransformedDistribution.__name__ in (
        "TransformedDistribution",
        "_TransformedDistribution",
    )
    assert not issubclass(_compat.TransformedDistribution, tf.__internal__.CompositeTensor)
    assert issubclass(tfd.TransformedDistribution, _compat.TransformedDistribution)


def test_discrete_distribution_marks_discrete_distributions():
    discrete = [tfd.Bernoulli(0.5, dtype=tf.float32), tfd.Poisson(1.0), tfd.Categorical([0.0, 0.0])]
    assert all(isinstance(dist, _compat.DiscreteDistribution) for dist in discrete)
    assert not isinstance(tfd.Normal(0.0, 1.0), _compat.DiscreteDistribution)


def test_untracked_values_stay_out_of_checkpoints():
    module = tf.Module()
    module.tracked, module.untracked = tf.Variable(1.0), _compat.untracked(tf.Variable(2.0))
    assert float(module.untracked) == 2.0  # the plain value
    children = tf.train.TrackableView(module).children(module)
    assert "tracked" in children and "untracked" not in children


def test_in_autobatched_joint_distribution():
    seen = []

    class Spy(tfd.Normal):
        @classmethod
        def _parameter_properties(cls, dtype, num_classes=None):
            return tfd.Normal._parameter_properties(dtype, num_classes)

        def _sample_n(self, n, seed=None):
            seen.append(_compat.in_autobatched_joint_distribution())
            return super()._sample_n(n, seed)

    Spy(0.0, 1.0).sample(2, seed=1)
    assert seen == [False]
    tfd.JointDistributionSequentialAutoBatched([Spy(0.0, 1.0)]).sample(2, seed=1)
    assert seen[-1]


def test_in_vectorized_map():
    seen = []

    def body(x):
        seen.append(_compat.in_vectorized_map())
        return x

    body(tf.zeros([]))
    tf.vectorized_map(body, tf.zeros([3]))
    assert seen[0] is False and seen[-1] is True


@pytest.mark.parametrize("nested", [False, True])
def test_in_xla(nested):
    seen = []

    def body(x):
        seen.append(_compat.in_xla())
        return x + 1.0

    inner = tf.function(body) if nested else body
    body(tf.zeros([]))
    tf.function(inner, jit_compile=True)(tf.zeros([]))
    tf.function(body)(tf.zeros([]))
    assert [bool(s) for s in seen] == [False, True, False]


def test_no_recording_stops_all_tapes_and_accumulators():
    x = tf.Variable(3.0)
    with (
        tf.GradientTape(persistent=True) as outer,
        tf.GradientTape() as inner,
        tf.autodiff.ForwardAccumulator(x, tf.constant(1.0)) as accumulator,
    ):
        with _compat.no_recording():
            y = x * x
        z = x * x
    assert outer.gradient(y, x) is None and inner.gradient(y, x) is None
    assert accumulator.jvp(y) is None
    assert float(outer.gradient(z, x)) == 6.0 and float(accumulator.jvp(z)) == 6.0


def test_recording_is_stopped():
    assert not _compat.recording_is_stopped()
    with tf.GradientTape():
        assert not _compat.recording_is_stopped()
        with _compat.no_recording():
            assert _compat.recording_is_stopped()
            with tf.GradientTape():
                assert _compat.recording_is_stopped()
        assert not _compat.recording_is_stopped()


@pytest.mark.parametrize("library", [keras, tf_keras])
def test_inference_mode(library):
    dropout = library.layers.Dropout(0.5)
    ones = tf.ones([1, 1000])

    class Model(library.Model):
        def call(self, x):
            before = dropout(x)
            with _compat.inference_mode():
                inside = dropout(x)
            return before, inside, dropout(x)

    before, inside, after = Model()(ones, training=True)
    np.testing.assert_array_equal(inside, ones)
    assert np.any(before == 0.0) and np.any(after == 0.0)
    with _compat.inference_mode():
        np.testing.assert_array_equal(dropout(ones), ones)
        with _compat.training_mode():
            assert np.any(dropout(ones) == 0.0)


def test_rows_are_written_in_place():
    @tf.function
    def write(rows):
        buffer = _compat.allocate(tf.constant([4, 2]), tf.float32)
        return _compat.write_rows(buffer, rows, tf.ones([2, 2]))

    np.testing.assert_array_equal(write(tf.constant([3, 1]))[:, 0], [0.0, 1.0, 0.0, 1.0])
    np.testing.assert_array_equal(write(tf.constant([0, 1]))[:, 0], [1.0, 1.0, 0.0, 0.0])


def test_ensure_shape_runs_no_op_in_eager_mode():
    """TensorFlow keeps an eager kernel for each shape, so that memory would grow with each call."""
    x = tf.ones([3, 2])
    assert _compat.ensure_shape(x, [None, 2]) is x
    with pytest.raises(ValueError, match="not compatible"):
        _compat.ensure_shape(x, [None, 3])
    graph = tf.function(
        lambda x: _compat.ensure_shape(x, [None, 2]), input_signature=[tf.TensorSpec(None)]
    )
    assert graph.get_concrete_function().output_shapes == [None, 2]
    with pytest.raises(tf.errors.InvalidArgumentError):
        graph(tf.ones([3, 3]))
