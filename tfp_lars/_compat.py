"""Everything that depends on the internals of TensorFlow, TFP or Keras.

Each entry states why it is needed and the versions that it was checked on: TensorFlow 2.21,
TFP 0.25, Keras 3.15 and tf_keras 2.21, unless it says otherwise. `tests/test_compat.py` has a test
for each, so that an upgrade that breaks one fails under its name.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import tensorflow as tf
import tensorflow_probability as tfp
from keras.src.backend.common import global_state
from keras.src.layers.layer import CallContext
from tensorflow.python.eager import record
from tensorflow.python.ops import control_flow_util
from tensorflow_probability.python.distributions.distribution import DiscreteDistributionMixin
from tf_keras.src.engine import base_layer_utils

__all__ = [
    "DiscreteDistribution",
    "TransformedDistribution",
    "allocate",
    "in_autobatched_joint_distribution",
    "in_vectorized_map",
    "in_xla",
    "inference_mode",
    "no_recording",
    "tape_is_recording",
    "write_rows",
]

# `tfd.TransformedDistribution` is a composite tensor if all of its parts are. Parents of such a
# subclass lose its variables. This is the base class, which is never a composite tensor.
TransformedDistribution = tfp.distributions.TransformedDistribution.__mro__[1]

# TFP's discrete distributions inherit from this class. No public attribute marks them, and their
# dtype is often floating.
DiscreteDistribution = DiscreteDistributionMixin


def in_autobatched_joint_distribution() -> bool:
    """Whether an auto-batched joint distribution of TFP is tracing one draw to repeat it.

    TFP marks this by a name scope alone.
    """
    return "iid_sample_fn_stateful_body" in tf.get_current_name_scope()


def in_vectorized_map() -> bool:
    """Whether `tf.vectorized_map` is tracing. TensorFlow marks this by a name scope alone."""
    return "loop_body" in tf.get_current_name_scope().split("/")


def in_xla() -> bool:
    """Whether code is being traced for `jit_compile=True`, at any depth.

    TensorFlow has no public function for this.
    """
    return control_flow_util.GraphOrParentsInXlaContext(tf.compat.v1.get_default_graph())


def no_recording() -> contextlib.AbstractContextManager:
    """Stops all gradient tapes and forward accumulators of this thread.

    `GradientTape.stop_recording` stops one tape, which must be known.
    """
    return record.stop_recording()


def tape_is_recording() -> bool:
    """Whether a `GradientTape` or `ForwardAccumulator` is active in this thread.

    TensorFlow has no public function for this.
    """
    return record.could_possibly_record()


@contextlib.contextmanager
def inference_mode() -> Iterator[None]:
    """Runs Keras 3 and tf_keras networks with `training=False`, even inside a training step.

    Both libraries pass `training` on to nested layers through a private call context. An explicit
    `training=False` would reach only networks that are called directly, not those that a user's
    function calls.
    """
    outer = global_state.get_global_attribute("current_call_ctx")
    context = CallContext(entry_layer=None)
    context.training = False
    global_state.set_global_attribute("current_call_ctx", context)
    try:
        with base_layer_utils.call_context().enter(
            layer=None, inputs=None, build_graph=False, call_context_args={"training": False}
        ):
            yield
    finally:
        global_state.set_global_attribute("current_call_ctx", outer)


def allocate(shape: tf.Tensor, dtype: tf.DType) -> tf.Tensor:
    """Returns zeros that `write_rows` may write to.

    `tf.zeros` can be a constant of the graph, which a later call would find overwritten.
    """
    return tf.raw_ops.Empty(shape=shape, dtype=dtype, init=True)


def write_rows(tensor: tf.Tensor, row: tf.Tensor, values: tf.Tensor) -> tf.Tensor:
    """Writes `values[k]` to `tensor[row[k]]`, in place.

    `tf.tensor_scatter_nd_update` writes in place only where TensorFlow can see that nothing else
    reads the tensor. In a `tf.while_loop` it copies the whole tensor each time. The op has neither
    a gradient nor an XLA kernel.
    """
    return tf.raw_ops.InplaceUpdate(x=tensor, i=row, v=values)
