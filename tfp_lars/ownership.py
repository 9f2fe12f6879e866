"""Who owns which variables, where TFP, tf_keras and Keras 3 meet.

A `tf.Module`, and so every TFP distribution, finds variables by walking attributes. It
stops at a Keras 3 layer, which is no `tf.Module` and whose `keras.Variable` is no
`tf.Variable`; a Keras 3 layer in turn does not look into a distribution. Both are silent
about it. What is here carries variables across.
"""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import keras
import tensorflow as tf
import tensorflow_probability as tfp
import tf_keras

from tfp_lars import _compat

__all__ = [
    "build_networks",
    "is_training",
    "keras3_layers",
    "network_of",
    "tf_variables",
    "variables_in_keras3_layers",
    "warn_if_not_owned",
]

tfd = tfp.distributions


def tf_variables(layer: keras.Layer) -> list[tf.Variable]:
    """The `tf.Variable`s inside a Keras 3 layer's own variables, in its order.

    TF's and tf_keras's optimizers take only these, Keras 3's take them, too.
    """
    return [v.value if isinstance(v, keras.Variable) else v for v in layer.variables]


def keras3_layers(module: tf.Module) -> list[keras.Layer]:
    """The outermost Keras 3 layers among the attributes of a module and its submodules."""
    found = {}
    for part in (module, *module.submodules):
        for leaf in _leaves(vars(part).values()):
            if isinstance(leaf, keras.Layer):
                found[id(leaf)] = leaf
    return list(found.values())


def variables_in_keras3_layers(module: tf.Module) -> tuple[list[tf.Variable], list[tf.Variable]]:
    """The variables of Keras 3 layers that a module holds, once each.

    Returns:
      reached: Those that a checkpoint of `module` holds, although `module.variables` lacks them.
      missed: Those that it does not hold, either. They belong to layers in lists of a Keras layer.
    """
    tracked = {id(part) for part in tf.train.TrackableView(module).descendants()}
    reached, missed = {}, {}
    for layer in keras3_layers(module):
        for v, variable in zip(layer.variables, tf_variables(layer), strict=True):
            is_tracked = id(v) in tracked or id(variable) in tracked
            (reached if is_tracked else missed)[id(variable)] = variable
    return list(reached.values()), list(missed.values())


def network_of(function: Callable) -> Any:
    """The layer or module whose method, or a partial of it, `function` is; else `function`."""
    while isinstance(function, functools.partial):
        function = function.func
    owner = getattr(function, "__self__", None)
    is_network = isinstance(owner, (keras.Layer, tf_keras.layers.Layer, tf.Module))
    return owner if is_network else function


def build_networks(distribution: tfd.Distribution) -> None:
    """Makes networks inside a TFP distribution create the variables they put off.

    `tfb.AutoregressiveNetwork`, for one, has none until its first call. What is not built
    before variables are counted would silently not be trained.
    """
    if all(_networks_built(distribution)):
        return
    with tf.init_scope():
        shape = [1, *distribution.batch_shape, *distribution.event_shape]
        # Only `log_prob` is cheap in a MAF; that zeros may lie outside the support is no
        # matter, since the value is thrown away.
        distribution.log_prob(tf.zeros(shape, distribution.dtype))
    if not all(_networks_built(distribution)):
        warnings.warn(
            f"{distribution.name!r} holds networks that are not built, so their variables do not "
            "exist yet and will be missed: call `build` on them first.",
            stacklevel=3,
        )


def warn_if_not_owned(variables: Iterable[tf.Variable], name: str) -> bool:
    """Warns when a Keras 3 model is being fitted that does not own these variables.

    Keras has no hook for this, so the model is looked for where `fit` left it: on the stack
    of the trace.

    Returns:
      found: Whether `fit` of a Keras 3 model was found on the stack.
    """
    model, _ = _compat.keras_model_on_the_stack("fit", "train_on_batch")
    if model is None:
        return False
    owned = {id(v) for v in tf_variables(model)}
    missing = [v for v in variables if id(v) not in owned]
    if missing:
        warnings.warn(
            f"The Keras model {model.name!r} uses the distribution {name!r} but does not own "
            f"{len(missing)} of its variables ({missing[0].name!r}, ...): they are neither trained "
            "nor saved with the model. Keras 3 does not look into distributions; hold it as "
            "`self.prior = tfp_lars.DistributionLayer(distribution)`.",
            stacklevel=2,
        )
    return True


def is_training() -> bool | None:
    """Whether a Keras 3 model is in a step of its training, or of its evaluation.

    Keras passes `training` on only through models whose `call` has such an argument. The steps of
    all models can be seen on the stack.

    Returns:
      training: `None` outside of the steps of a model.
    """
    _, step = _compat.keras_model_on_the_stack("train_step", "test_step", "predict_step")
    return None if step is None else step == "train_step"


def _networks_built(distribution: tfd.Distribution) -> Iterator[bool]:
    for layer in (*distribution.submodules, *keras3_layers(distribution)):
        if isinstance(layer, (tf_keras.layers.Layer, keras.Layer)):
            yield _is_built(layer)


def _is_built(layer: keras.Layer | tf_keras.layers.Layer) -> bool:
    """Whether its variables exist; a layer that is used by its methods is built in its parts."""
    parts = _compat.sublayers(layer)
    return layer.built or (bool(parts) and all(_is_built(part) for part in parts))


def _leaves(values: Iterable) -> Iterator:
    for value in values:
        if isinstance(value, dict):
            yield from _leaves(value.values())
        elif isinstance(value, (list, tuple)):
            yield from _leaves(value)
        else:
            yield value
