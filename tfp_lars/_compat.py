"""Everything that depends on the internals of TensorFlow, TFP or Keras.

Each entry states why it is needed. All were checked on TensorFlow 2.21, TFP 0.25, Keras 3.15 and
tf_keras 2.21. `tests/library/test_compat.py` has a test for each, so that an upgrade that breaks
one fails under its name. Private modules are imported where they are used, so that the rest of the
package works without them.

`Resampled` and the proposals also override or call these protected methods of TFP's
`Distribution`: `_parameter_properties`, `_batch_shape`, `_batch_shape_tensor`, `_event_shape`,
`_event_shape_tensor`, `_default_event_space_bijector`, `_log_prob`, `_sample_n`,
`_name_and_control_scope`, `_expand_sample_shape_to_vector`, `_set_sample_static_shape` and
`_experimental_tangent_space`.
"""

from __future__ import annotations

import contextlib
import inspect
import sys
from collections.abc import Iterator
from typing import Any

import keras
import tensorflow as tf
import tensorflow_probability as tfp

__all__ = [
    "DiscreteDistribution",
    "ModuleWithUnsavedVariables",
    "TransformedDistribution",
    "allocate",
    "can_write_rows",
    "ensure_shape",
    "in_autobatched_joint_distribution",
    "in_vectorized_map",
    "in_xla",
    "inference_mode",
    "keras_model_on_the_stack",
    "no_recording",
    "recording_is_stopped",
    "sublayers",
    "tape_is_recording",
    "untracked",
    "write_rows",
]

# `tfd.TransformedDistribution` is a composite tensor if all of its parts are. Parents of such a
# subclass lose its variables. This is the base class, which is never a composite tensor.
TransformedDistribution = tfp.distributions.TransformedDistribution.__mro__[1]

# TFP's discrete distributions inherit from `DiscreteDistributionMixin`, which is not exported. No
# public attribute marks them, and their dtype is often floating.
DiscreteDistribution = next(
    base for base in tfp.distributions.Bernoulli.__mro__ if base.__name__.startswith("Discrete")
)


class ModuleWithUnsavedVariables(tf.Module):
    """A `tf.Module` with variables that its `variables` and its checkpoints leave out.

    The graphs of a SavedModel read these variables, so SavedModels contain them. TensorFlow has no
    public way to treat checkpoints and SavedModels differently.
    """

    _unsaved_variables: frozenset[str] = frozenset()

    def __init_subclass__(cls, **kwargs):
        super().__init_subclass__(**kwargs)
        # TensorFlow's stubs lack these two.
        ignored = tf.Module._TF_MODULE_IGNORED_PROPERTIES  # pyright: ignore[reportAttributeAccessIssue]
        cls._TF_MODULE_IGNORED_PROPERTIES = frozenset(ignored | cls._unsaved_variables)

    def _trackable_children(self, save_type="checkpoint", **kwargs):
        children: dict[str, Any] = super()._trackable_children(save_type, **kwargs)  # pyright: ignore[reportAttributeAccessIssue]
        for name in self._unsaved_variables:
            children.pop(name, None)
            if save_type == "savedmodel" and getattr(self, name, None) is not None:
                children[name] = getattr(self, name)
        return children


def untracked(value: Any) -> Any:
    """Marks a value that a `tf.Module` or distribution holds, but that checkpoints leave out.

    Assign the result to an attribute. The attribute then has the plain value. TensorFlow has no
    public way to do this.
    """
    # TensorFlow's stubs lack this module.
    from tensorflow.python.trackable import (
        data_structures,  # pyright: ignore[reportAttributeAccessIssue]
    )

    return data_structures.NoDependency(value)


def in_autobatched_joint_distribution() -> bool:
    """Whether an auto-batched joint distribution of TFP is tracing one draw to repeat it.

    TFP marks this by a name scope only.
    """
    return "iid_sample_fn_stateful_body" in tf.get_current_name_scope()


def in_vectorized_map() -> bool:
    """Whether `tf.vectorized_map` is tracing. TensorFlow marks this by a name scope only."""
    return "loop_body" in tf.get_current_name_scope().split("/")


def in_xla() -> bool:
    """Whether code is being traced for `jit_compile=True`, at any depth.

    TensorFlow has no public function for this.
    """
    from tensorflow.python.ops import control_flow_util

    return control_flow_util.GraphOrParentsInXlaContext(tf.compat.v1.get_default_graph())


def no_recording() -> contextlib.AbstractContextManager:
    """Stops all gradient tapes and forward accumulators of this thread.

    `GradientTape.stop_recording` stops one tape, which must be known.
    """
    from tensorflow.python.eager import record

    return record.stop_recording()


def recording_is_stopped() -> bool:
    """Whether `no_recording` or `tf.recompute_grad` has stopped all gradient tapes of this thread.

    New tapes do not record then, either. TensorFlow has no public function for this.
    """
    from tensorflow.python import pywrap_tfe

    return pywrap_tfe.TFE_Py_TapeSetIsStopped()


def tape_is_recording() -> bool:
    """Whether a `GradientTape` or `ForwardAccumulator` is active in this thread.

    TensorFlow has no public function for this.
    """
    from tensorflow.python.eager import record

    return record.could_possibly_record()


def inference_mode() -> contextlib.AbstractContextManager[None]:
    """Runs Keras 3 and tf_keras networks with `training=False`, even inside a training step."""
    return _with_training(False)


def training_mode() -> contextlib.AbstractContextManager[None]:
    """Runs Keras 3 and tf_keras networks with `training=True`, as a training step of Keras does."""
    return _with_training(True)


@contextlib.contextmanager
def _with_training(value: bool) -> Iterator[None]:
    """Sets the default of `training` for all networks.

    Both libraries pass `training` on to nested layers through a private call context. An explicit
    argument would reach only networks that are called directly, not those that a user's function
    calls.
    """
    from keras.src.backend.common import global_state
    from keras.src.layers.layer import CallContext
    from tf_keras.src.engine import base_layer_utils

    outer = global_state.get_global_attribute("current_call_ctx")
    context = CallContext(entry_layer=None)
    context.training = value  # pyright: ignore[reportAttributeAccessIssue]
    global_state.set_global_attribute("current_call_ctx", context)
    enter = base_layer_utils.call_context().enter
    training: dict[str, Any] = {"training": value}
    if "call_context_args" in inspect.signature(enter).parameters:  # since tf_keras 2.20
        training = {"call_context_args": training}
    try:
        with enter(layer=None, inputs=None, build_graph=False, **training):
            yield
    finally:
        global_state.set_global_attribute("current_call_ctx", outer)


def keras_model_on_the_stack(*methods: str) -> tuple[keras.Model | None, str | None]:
    """Returns the Keras 3 model that is executing or tracing one of its methods, and the method.

    Keras has no hook for this.
    """
    frame = sys._getframe(1)
    while frame is not None:
        if frame.f_code.co_name in methods:
            owner = frame.f_locals.get("self")
            if isinstance(owner, keras.Model):
                return owner, frame.f_code.co_name
        frame = frame.f_back
    return None, None


def sublayers(layer) -> list:
    """Returns the layers directly inside a Keras 3 or tf_keras layer.

    Only models have a public list of their layers.
    """
    return list(layer._flatten_layers(include_self=False, recursive=False))


def can_write_rows() -> bool:
    """Whether TensorFlow has the op of `write_rows`. TensorFlow marks it as deprecated."""
    return hasattr(tf.raw_ops, "InplaceUpdate") and hasattr(tf.raw_ops, "Empty")


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


def ensure_shape(x: tf.Tensor, shape: Any) -> tf.Tensor:
    """Returns `tf.ensure_shape(x, shape)`, without an op for each shape in eager mode.

    The shape is an attribute of that op, and TensorFlow keeps an eager kernel (18 kB) for each
    combination of attributes for the life of the process.
    """
    if not tf.executing_eagerly():
        return tf.ensure_shape(x, shape)
    x.set_shape(shape)  # raises a `ValueError` if the shapes are not compatible
    return x
