"""Ownership of variables across TFP, tf_keras and Keras 3.

A `tf.Module`, and so every TFP distribution, finds variables by walking its attributes. It silently
skips Keras 3 layers, which are not `tf.Module`s and whose `keras.Variable`s are not `tf.Variable`s.
A Keras 3 layer in turn silently skips distributions. This module bridges the two.
"""

from __future__ import annotations

import contextlib
import functools
import warnings
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import keras
import tensorflow as tf
import tensorflow_probability as tfp
import tf_keras

from tfp_lars import _compat

__all__ = [
    "all_variables",
    "build_networks",
    "check_updated_once",
    "is_training",
    "keras3_layers",
    "keras3_variables",
    "keras_variable",
    "network_of",
    "remember_keras_variables",
    "remember_keras_variables_read",
    "shared_keras_variable",
    "shared_keras_variables",
    "tf_variables",
    "variables_in_keras3_layers",
    "warn_if_not_owned",
]

tfd = tfp.distributions

# By the id of the `tf.Variable`, which lives at least as long as the `keras.Variable` that has it.
_KERAS_VARIABLES: weakref.WeakValueDictionary[int, keras.Variable] = weakref.WeakValueDictionary()


def tf_variables(layer: keras.Layer) -> list[tf.Variable]:
    """Returns the variables of a Keras 3 layer as `tf.Variable`s, in the order of the layer.

    Every optimizer takes `tf.Variable`s. Those of tf_keras do not take `keras.Variable`s.
    """
    return [v.value if isinstance(v, keras.Variable) else v for v in layer.variables]


def keras_variable(variable: tf.Variable) -> keras.Variable | None:
    """Returns a remembered `keras.Variable` that shares the memory of `variable`.

    Keras compares `keras.Variable`s by identity. A model with two of them for one `tf.Variable`
    would update it twice in each step.
    """
    found = _KERAS_VARIABLES.get(id(variable))
    return found if found is not None and found.value is variable else None


def shared_keras_variable(variable: tf.Variable, number: int) -> keras.Variable:
    """Returns the `keras.Variable` that shares the memory of `variable`, if necessary a new one.

    It may belong to another layer of the model, which then lists it once.

    Args:
      variable: Variable of a distribution.
      number: Distinguishes variables of the same name.
    """
    known = keras_variable(variable)
    if known is not None:
        return known
    # Names of `tf.Variable`s need not be unique, so they are numbered. Keras allows no slashes.
    short_name = variable.name.split(":")[0].split("/")[-1]
    shared = keras.Variable(
        variable,
        dtype=variable.dtype.name,
        trainable=variable.trainable,
        # Distributions read the variable itself, under any precision policy.
        autocast=False,
        name=f"{short_name}_{number}",
    )
    if shared.value is not variable:
        raise RuntimeError(
            f"Keras {keras.__version__} with TensorFlow {tf.__version__} copies the variable "
            f"{variable.name!r} instead of sharing it, so the distribution would not be trained. "
            "tfp_lars needs Keras 3.12 or newer."
        )
    if variable.constraint is not None:
        # The masks of `tfb.AutoregressiveNetwork`, for example, are constraints of its kernels.
        shared.constraint = _SharedConstraint(variable.constraint)
    remember_keras_variables([shared])
    return shared


def shared_keras_variables(
    module: tf.Module, variables: Sequence[tf.Variable]
) -> list[keras.Variable]:
    """Returns the `keras.Variable` of each variable of a module.

    Those of Keras 3 layers have the constraints and paths that the layers gave them, which the
    optimizers of Keras 3 use.
    """
    of_layers = {
        id(v.value): v
        for layer in keras3_layers(module)
        for v in layer.variables
        if isinstance(v, keras.Variable)
    }
    return [
        of_layers[id(v)] if id(v) in of_layers else shared_keras_variable(v, number)
        for number, v in enumerate(variables)
    ]


def remember_keras_variables(variables: Iterable[keras.Variable]) -> None:
    """Lets `keras_variable` find these variables as long as they are in use elsewhere."""
    for variable in variables:
        _KERAS_VARIABLES[id(variable.value)] = variable


def remember_keras_variables_read(function: Callable[[], Any]) -> None:
    """Calls a function again, whose networks are built, and remembers what it reads.

    A `GradientTape` shows only the `tf.Variable`s.
    """
    with _ReadVariables() as read, _functions_run_eagerly():
        function()
    remember_keras_variables(read.variables.values())


@contextlib.contextmanager
def _functions_run_eagerly() -> Iterator[None]:
    """Runs the Python code of each `tf.function`, also of those that are traced already.

    Has no effect inside a graph, where the code may depend on Autograph.
    """
    before = tf.config.functions_run_eagerly()
    tf.config.run_functions_eagerly(before or tf.executing_eagerly())
    try:
        yield
    finally:
        tf.config.run_functions_eagerly(before)


class _ReadVariables(keras.StatelessScope):
    """Records the `keras.Variable`s that code within a `with` block reads."""

    def __init__(self):
        super().__init__()
        self.variables: dict[int, keras.Variable] = {}

    def get_current_value(self, variable):
        """Returns `None`, unless the block has changed the variable. Keras calls this."""
        self.variables[id(variable)] = variable
        return super().get_current_value(variable)


def keras3_layers(module: tf.Module) -> list[keras.Layer]:
    """Returns the outermost Keras 3 layers among the attributes of a module and its submodules."""
    found = {}
    for part in (module, *module.submodules):
        for leaf in _leaves(vars(part).values()):
            if isinstance(leaf, keras.Layer):
                found[id(leaf)] = leaf
    return list(found.values())


def keras3_variables(module: tf.Module) -> list[tf.Variable]:
    """Returns the variables of the outermost Keras 3 layers in a module, layer by layer."""
    return [v for layer in keras3_layers(module) for v in tf_variables(layer)]


def variables_in_keras3_layers(module: tf.Module) -> tuple[list[tf.Variable], list[tf.Variable]]:
    """Returns the variables of all Keras 3 layers in a module, once each.

    `module.variables` lacks all of them.

    Returns:
      reached: Variables that a checkpoint of `module` contains.
      missed: Variables that it lacks, too. They belong to layers in lists of a Keras layer.
    """
    tracked = {id(part) for part in tf.train.TrackableView(module).descendants()}
    reached, missed = {}, {}
    for layer in keras3_layers(module):
        for v, variable in zip(layer.variables, tf_variables(layer), strict=True):
            is_tracked = id(v) in tracked or id(variable) in tracked
            (reached if is_tracked else missed)[id(variable)] = variable
    return list(reached.values()), list(missed.values())


def all_variables(module: tf.Module) -> list[tf.Variable]:
    """Returns the variables of a module and of all Keras 3 layers in it, once each.

    `module.variables` lacks those of the layers.
    """
    variables = [*module.variables, *keras3_variables(module)]
    return list({id(v): v for v in variables}.values())


def network_of(function: Callable) -> Any:
    """Returns the layer or module that `function` is a method of, also through `partial`.

    Other functions are returned unchanged.
    """
    while isinstance(function, functools.partial):
        function = function.func
    owner = getattr(function, "__self__", None)
    is_network = isinstance(owner, (keras.Layer, tf_keras.layers.Layer, tf.Module))
    return owner if is_network else function


def build_networks(distribution: tfd.Distribution) -> None:
    """Builds the networks inside a TFP distribution.

    Some networks, such as `tfb.AutoregressiveNetwork`, have no variables before their first call.
    Variables that do not exist when they are listed would silently not be trained.
    """
    if all(_networks_built(distribution)):
        return
    with tf.init_scope():
        shape = [1, *distribution.batch_shape, *distribution.event_shape]
        # In an autoregressive flow only `log_prob` is cheap. The zeros may lie outside the support,
        # since the value is not used.
        distribution.log_prob(tf.zeros(shape, distribution.dtype))
    if not all(_networks_built(distribution)):
        warnings.warn(
            f"{distribution.name!r} contains networks that are not built. Their variables do not "
            "exist yet and will not be trained. Call `build` on these networks first.",
            stacklevel=3,
        )


def warn_if_not_owned(variables: Iterable[tf.Variable], name: str) -> bool:
    """Warns if a Keras 3 model is being fitted that does not own these variables.

    Keras has no hook for this. The model is found on the call stack while `fit` traces.

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
            f"{len(missing)} of its variables ({missing[0].name!r}, ...). They are neither trained "
            "nor saved with the model, because Keras 3 does not look into distributions. Wrap the "
            "distribution: `self.prior = tfp_lars.DistributionLayer(distribution)`.",
            stacklevel=2,
        )
    return True


def check_updated_once() -> None:
    """Raises if a Keras 3 model that is executing a training step owns a variable twice."""
    model, _ = _compat.keras_model_on_the_stack("train_step")
    if model is None:
        return
    seen = {}
    for variable in model.trainable_variables:
        first = seen.setdefault(id(variable.value), variable)
        if first is not variable:
            raise ValueError(
                f"{first.path!r} and {variable.path!r} of the Keras model {model.name!r} are one "
                "variable, which each step would update twice. A function that a distribution "
                "calls reads the weights of a layer of the model. Pass the layer itself, such as "
                "`accept_fn=net` instead of `accept_fn=lambda z: net(z)`."
            )


def is_training() -> bool | None:
    """Whether a Keras 3 model is executing a training step, as opposed to an evaluation step.

    Keras passes `training` only through models whose `call` has such an argument. The steps of all
    models are visible on the call stack. `export` counts as evaluation: it traces the predictions.

    Returns:
      training: `None` outside of training and evaluation steps.
    """
    _, step = _compat.keras_model_on_the_stack("train_step", "test_step", "predict_step", "export")
    return None if step is None else step == "train_step"


def _networks_built(distribution: tfd.Distribution) -> Iterator[bool]:
    for layer in (*distribution.submodules, *keras3_layers(distribution)):
        if isinstance(layer, (tf_keras.layers.Layer, keras.Layer)):
            yield _is_built(layer)


def _is_built(layer: keras.Layer | tf_keras.layers.Layer) -> bool:
    """Whether the variables of a layer exist.

    A layer that is never called itself has sublayers that are built.
    """
    parts = _compat.sublayers(layer)
    return layer.built or (bool(parts) and all(_is_built(part) for part in parts))


class _SharedConstraint(keras.constraints.Constraint):
    """The constraint of a `tf.Variable`. Keras up to 3.14 takes no plain functions."""

    def __init__(self, constraint: Callable[[tf.Tensor], tf.Tensor]):
        self._constraint = constraint

    def __call__(self, w):
        return self._constraint(tf.convert_to_tensor(w))


def _leaves(values: Iterable) -> Iterator:
    for value in values:
        if isinstance(value, dict):
            yield from _leaves(value.values())
        elif isinstance(value, (list, tuple)):
            yield from _leaves(value)
        else:
            yield value
