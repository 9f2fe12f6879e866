"""`DistributionLayer`: a Keras 3 layer that owns the variables of a TFP distribution."""

from __future__ import annotations

import keras
import tensorflow as tf
import tensorflow_probability as tfp

from tfp_lars import ownership

__all__ = ["DistributionLayer"]

tfd = tfp.distributions


class DistributionLayer(keras.layers.Layer):
    """Lets a Keras 3 model train, save and restore the variables of a TFP distribution.

    TFP's distributions are `tf.Module`s, which Keras 3 does not look into: a distribution in a
    plain attribute of a Keras 3 model is silently neither trained nor saved. As a layer it is
    both, whether it is `Resampled` or any of TFP's own.

    >>> class Model(keras.Model):
    ...     def __init__(self):
    ...         super().__init__()
    ...         self.prior = DistributionLayer(tfd.Normal(tf.Variable(0.0), tf.Variable(1.0)))
    ...
    ...     def call(self, z):
    ...         return self.prior.distribution.log_prob(z)
    >>> len(Model().trainable_variables)
    2

    Calling the layer evaluates `log_prob`. Since a distribution does not say how it was made, a
    model that is to be saved as a whole (`.keras`) builds it in its own constructor.

    Args:
      distribution: Any TFP distribution. Its networks are built if they are not yet.
      **kwargs: Passed to `keras.layers.Layer`: `name`, `trainable`.
    """

    def __init__(self, distribution: tfd.Distribution, **kwargs):
        if not isinstance(distribution, tfd.Distribution):
            raise TypeError(f"`distribution` must be a TFP distribution; got {distribution!r}.")
        super().__init__(**kwargs)
        ownership.build_networks(distribution)
        self.distribution = distribution
        # Keras tracks these networks by itself, with names of their own.
        self.networks = ownership.keras3_layers(distribution)
        owned = {id(v) for net in self.networks for v in ownership.tf_variables(net)}
        own = [v for v in distribution.variables if id(v) not in owned]
        self.own_variables = [_share(v, number) for number, v in enumerate(own)]
        self.built = True

    def call(self, z: tf.Tensor, **kwargs) -> tf.Tensor:
        """`distribution.log_prob(z, **kwargs)`, of shape sample + batch."""
        return self.distribution.log_prob(z, **kwargs)

    def compute_output_shape(self, input_shape):
        """Sample and batch shape: what is left of `input_shape` without the event."""
        return tuple(input_shape)[: len(input_shape) - self.distribution.event_shape.rank]


def _share(variable: tf.Variable, number: int) -> keras.Variable:
    """A `keras.Variable` on top of `variable` itself, not on a copy."""
    # Numbered, since names of `tf.Variable`s may repeat; Keras allows no slash in them.
    short_name = variable.name.split(":")[0].split("/")[-1]
    shared = keras.Variable(
        variable,
        dtype=variable.dtype.name,
        trainable=variable.trainable,
        name=f"{short_name}_{number}",
    )
    if variable.constraint is not None:
        # Not a nicety: the masks of `tfb.AutoregressiveNetwork` are constraints of its kernels.
        shared.constraint = lambda value: variable.constraint(tf.convert_to_tensor(value))
    return shared
