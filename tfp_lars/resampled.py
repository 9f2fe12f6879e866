"""`Resampled`: connects TFP's distributions with density, sampler and normalizer."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp

from tfp_lars import _arguments, _compat, _nested, _seeds, density, ownership
from tfp_lars._arguments import UNSET, truncation_of_call
from tfp_lars._points import Points
from tfp_lars._proposal_checks import check_proposal, probe_draws, tangent_space
from tfp_lars._run_sampler import SamplerRun
from tfp_lars.acceptance import LogAcceptance, SlicedAcceptance
from tfp_lars.normalizer import (
    LogNormalizer,
    MovingAverage,
    all_held,
    estimate_log_normalizer,
    moving_averages,
)
from tfp_lars.normalizer.argument import (
    as_normalizer,
    check_estimate,
    check_outside_of_functions,
    if_still_valid,
    settings_of_inner,
)
from tfp_lars.normalizer.monte_carlo import ProposalSums
from tfp_lars.normalizer.training_estimate import log_mean_accept

__all__ = ["Resampled", "ResampledDistribution"]

tfd = tfp.distributions


class Resampled(tfd.Distribution):
    """A proposal, resampled with a learned acceptance probability (LARS).

    The sampler draws `z` from the proposal `pi` and accepts it with probability `a(z)`. Otherwise
    it draws again. It keeps the `T`-th draw without a test. With `Z = E_pi[a]`, the result has the
    density

        p_T(z) = pi(z) * (a(z) * (1 - alpha) / Z + alpha),    alpha = (1 - Z)**(T - 1)

    `T = 1` gives the proposal. `T = None`, untruncated resampling, gives `pi(z) * a(z) / Z`.

    #### Example

    >>> prior = Resampled(
    ...     proposal=tfd.MultivariateNormalDiag(tf.zeros(50)),
    ...     accept_fn=AcceptanceNetwork(),
    ...     T=100,
    ... )
    >>> z = prior.sample(7, seed=1)
    >>> z.shape
    TensorShape([7, 50])
    >>> prior.log_prob(z).shape  # for training: each call updates the average of Z
    TensorShape([7])
    >>> frozen = prior.freeze(num_samples=10_000, seed=2)  # for evaluation
    >>> bool(tf.reduce_all(frozen.log_prob(z) == frozen.log_prob(z)))
    True

    #### Training

    With a `MovingAverage`, the default, the gradient of `log_prob` reaches `accept_fn`, the
    proposal and `z`. It includes the gradient of log Z. Each call updates the average once. In a
    VAE, pass the encoder's log density: `log_prob(z, target_log_prob=q.log_prob(z))`. This adds `z`
    to the estimate of Z, which lowers its variance.

    Keras 3 models do not look into distributions. Wrap this one in a `DistributionLayer`. Otherwise
    a Keras 3 model silently neither trains nor saves it.

    #### Evaluation

    `freeze` returns a distribution with the same networks and a fixed log Z. Its `log_prob` is a
    pure function. `with dist.held():` evaluates with the current value of the moving average.
    Sampling is exact and does not need Z.

    #### Batches

    Each member of the proposal's batch has its own Z and its own stream of draws. The member with
    the smallest Z determines the cost of sampling. `accept_fn` receives all members, so it may
    treat them differently. A slice still calls it on the whole batch and keeps the values of the
    remaining members. A Keras network receives one flat batch and cannot distinguish members. A
    slice calls it on the remaining members only.

    #### Support

    `log_prob` is -inf wherever that of the proposal is, for any a(z). Transforming a discrete
    proposal adds no Jacobian term. This includes `tfd.Independent`, `tfd.Sample` and other wrappers
    of a discrete distribution, for which TFP adds one.

    #### Variables

    `trainable_variables` lists the weights of `accept_fn` and of the proposal as `tf.Variable`s,
    once each. For a plain function it lists the trainable variables that the function read when the
    constructor called it. `network.trainable = False` does not remove the weights of a Keras
    network from the list.

    #### References

    M. Bauer and A. Mnih. Resampled Priors for Variational Autoencoders. AISTATS 2019.
    """

    def __init__(
        self,
        proposal: tfd.Distribution,
        accept_fn: Callable[[tf.Tensor], tf.Tensor],
        T: int | float | None = 100,
        *,
        from_logits: bool = False,
        normalizer: MovingAverage | LogNormalizer | tf.Tensor | float | None = None,
        max_attempts: int = 10**7,
        validate_args: bool = False,
        allow_nan_stats: bool = True,
        name: str = "Resampled",
    ):
        """Wraps `proposal`.

        Args:
          proposal: Any TFP distribution with a single-tensor event, continuous or discrete, with
            or without a batch shape.
          accept_fn: The acceptance probability a(z), in [0, 1]: a function, a Keras 3 or tf_keras
            model, or a `tf.Module`. It maps `z` of shape sample + batch + event to shape
            sample + batch, or the same with a trailing 1. A Keras model receives one flat batch,
            shape `[N]` + event (`[N, 1]` for scalar events). If its class has a method `logits`,
            this method is called instead. In eager mode the constructor calls it on a few draws
            from the proposal and checks the result. Sampling and estimating Z trace it once, as
            `tf.function` does. This fixes the Python values that it reads. Use a `tf.Variable` for
            a value that changes.
          T: Maximum number of proposals for a draw, of which the last is kept without a test: an
            integer of at least 1, or `None` (also `math.inf`) for untruncated resampling.
          from_logits: Whether `accept_fn` returns logits instead of probabilities.
          normalizer: Source of log Z: a `MovingAverage` (by default a new one) or a fixed value. A
            fixed value is a number, tensor, non-trainable variable, or `LogNormalizer`, of shape
            `[]` or of the proposal's batch shape. It is kept in a non-trainable variable, which is
            saved with the weights. A tensor stays a tensor inside a `tf.function` and under a
            `GradientTape`, so that gradients reach it.
          max_attempts: Untruncated resampling raises if a draw takes more proposals than this. The
            limit is checked after each block of candidates, so a draw may take more.
          validate_args: Whether to check values at run time, also in graphs.
          allow_nan_stats: As in all TFP distributions.
          name: Name of the distribution.
        """
        parameters = dict(locals())
        with tf.name_scope(name) as name:
            check_proposal(proposal)
            self._T = _arguments.checked_truncation(T)
            self._max_attempts = _arguments.checked_count("max_attempts", max_attempts, most=2**30)
            self._from_logits = bool(from_logits)
            self._proposal = proposal
            ownership.build_networks(proposal)
            # TFP does not find the variables of Keras 3 layers.
            self._proposal_keras3_variables = ownership.keras3_variables(proposal)
            self._accept_fn = _compat.untracked(accept_fn)
            self._points = Points(proposal)
            draws = probe_draws(proposal)
            # Replaces z outside the support. If training moves the support away from this point,
            # values stay right. Gradients do, too, as long as those of a(z) are finite there.
            self._point = None if draws is None else draws[0].numpy()
            self._log_accept = LogAcceptance(
                accept_fn,
                from_logits=self._from_logits,
                batch_shape=proposal.batch_shape,
                event_shape=proposal.event_shape,
                dtype=tf.as_dtype(proposal.dtype),
                draws=draws,
                validate_args=validate_args,
            )
            self._normalizer = as_normalizer(normalizer)
            self._normalizer.build(proposal.batch_shape, self._log_accept.output_dtype)
            self._estimate = normalizer if isinstance(normalizer, LogNormalizer) else None
            # A copy must share the normalizer that was created here. The others are numbers of
            # Python, which can be saved, also if they were given as numbers of NumPy.
            parameters |= {"normalizer": self._normalizer.argument}
            parameters |= {"T": self._T, "max_attempts": self._max_attempts}
            self._sampler = SamplerRun(
                proposal,
                self._log_accept.unchecked,
                max_attempts=self._max_attempts,
                complaint=self._log_accept.complaint,
                validate_args=validate_args,
            )
            self._proposal_sums = ProposalSums(proposal, self._log_accept)
            self._ownership_checked = False
            super().__init__(
                dtype=proposal.dtype,
                reparameterization_type=tfd.NOT_REPARAMETERIZED,
                validate_args=validate_args,
                allow_nan_stats=allow_nan_stats,
                parameters=parameters,
                name=name,
            )

    @classmethod
    def _parameter_properties(cls, dtype, num_classes=None):
        return {
            "proposal": tfp.util.BatchedComponentProperties(),
            "normalizer": tfp.util.ParameterProperties(event_ndims=0),
        }

    @property
    def proposal(self) -> tfd.Distribution:
        """The distribution that candidates are drawn from."""
        return self._proposal

    @property
    def accept_fn(self) -> Callable[[tf.Tensor], tf.Tensor]:
        """The acceptance function as given. In a slice, that of the remaining members."""
        return self._accept_fn

    @property
    def T(self) -> int | None:
        """Maximum number of proposals for a draw; `None` for untruncated resampling."""
        return self._T

    @property
    def from_logits(self) -> bool:
        """Whether `accept_fn` returns logits, as given."""
        return self._from_logits

    @property
    def normalizer(self) -> MovingAverage | tf.Tensor | tf.Variable:
        """The `MovingAverage`, or the fixed log Z as a variable or tensor."""
        return self._normalizer.argument

    @property
    def estimate(self) -> LogNormalizer | None:
        """The estimate behind the fixed log Z, with its standard error.

        `None` if log Z is not fixed, was given as a number, or was restored from a checkpoint.
        """
        return if_still_valid(self._estimate, self._normalizer.argument)

    @property
    def max_attempts(self) -> int:
        """Maximum number of proposals for a draw of untruncated resampling."""
        return self._max_attempts

    @property
    def proposal_sums(self) -> ProposalSums:
        """Sums of a(z) over batches of proposals, for `estimate_log_normalizer`."""
        return self._proposal_sums

    def accept_log_prob(self, z: tf.Tensor, name: str = "accept_log_prob") -> tf.Tensor:
        """Returns `log a(z)`, for example to rank samples.

        >>> dist = Resampled(tfd.Uniform(), lambda z: z)
        >>> dist.accept_log_prob([1.0, 0.5]).numpy().round(4)
        array([ 0.    , -0.6931], dtype=float32)

        Args:
          z: Shape sample + batch + event.
          name: Name of the ops.

        Returns:
          log_accept: Shape sample + batch.
        """
        with self._name_and_control_scope(name):
            z = self._points.broadcast(tf.convert_to_tensor(z, self.dtype, name="z"))
            return self._points.unflatten(self._log_accept(self._points.flatten(z)), z)

    def log_ratio(
        self, z: tf.Tensor, name: str = "log_ratio", *, T: Any = UNSET, **proposal_kwargs: Any
    ) -> tf.Tensor:
        """Returns `log p_T(z) - log pi(z)`, what resampling adds to the proposal's log density.

        If only a bound on the log density of the proposal is known (`proposals.vae_marginal`), the
        sum of that bound and this ratio is a bound on the resampled log density. With a
        `MovingAverage` each call is one update. The gradient is that of `log_prob` without the part
        through `log pi(z)`.

        >>> dist = Resampled(tfd.Uniform(), lambda z: z, T=None, normalizer=np.log(0.5))
        >>> dist.log_ratio([1.0, 0.5]).numpy().round(4)
        array([0.6931, 0.    ], dtype=float32)

        Args:
          z: Shape sample + batch + event.
          name: Name of the ops.
          T: Overrides the truncation for this call, as in `log_prob`.
          **proposal_kwargs: Arguments for the proposal's `log_prob` of the draws that estimate Z.
            Only `MovingAverage(score_function=True)` calls it.

        Returns:
          log_ratio: Shape sample + batch; 0, without an update, if `T` is 1.
        """
        with self._name_and_control_scope(name):
            z = self._points.broadcast(tf.convert_to_tensor(z, self.dtype, name="z"))
            T = truncation_of_call(T, self.T, self.validate_args)
            return self._log_ratio(z, T, None, proposal_kwargs)

    @property
    def log_normalizer(self) -> tf.Tensor:
        """The current log Z, of the batch shape. Draws nothing."""
        return tf.broadcast_to(self._normalizer.value, self.batch_shape_tensor())

    @property
    def acceptance_rate(self) -> tf.Tensor:
        """Z, the mean acceptance probability, of the batch shape."""
        return tf.exp(self.log_normalizer)

    @property
    def truncation_weight(self) -> tf.Tensor:
        """`(1 - Z)**(T - 1)`, the share of draws kept without a test, of the batch shape."""
        return tf.exp(density.log_truncation_weight(self.log_normalizer, self.T))

    @property
    def expected_attempts(self) -> tf.Tensor:
        """`(1 - (1 - Z)**T) / Z`, the mean number of proposals per draw, of the batch shape."""
        return tf.exp(density.log_expected_attempts(self.log_normalizer, self.T))

    def freeze(self, estimate: LogNormalizer | tf.Tensor | float | None = None, **kwargs):
        """Returns a distribution with the same networks and a fixed log Z.

        Resampled distributions inside the proposal are frozen, too, each with its own estimate. The
        distributions that contain them are created again from their constructor arguments.

        >>> dist = Resampled(tfd.Uniform(), lambda z: z, T=100)  # Z = 1/2
        >>> frozen = dist.freeze(num_samples=10**5, seed=0)
        >>> frozen.estimate
        LogNormalizer(log_z=-0.6948 ± 0.0018, Z=0.4992, num_samples=100000, method='monte_carlo')

        Args:
          estimate: A `LogNormalizer`, or log Z as a number or tensor. By default log Z is
            estimated.
          **kwargs: Passed to `estimate_log_normalizer`: `num_samples`, `target_stderr`, `seed`, ...
            Distributions inside the proposal get them, too, except for `antithetic`, `reflect_fn`,
            `importance_distribution` and `continue_from`, which belong to one distribution.

        Returns:
          frozen: A `Resampled` that shares `accept_fn` and the proposal. `frozen.log_prob` is a
            pure function: the same input gives the same output. Its log Z is saved with the
            weights; `frozen.estimate` has the standard error.
        """
        inner_kwargs = settings_of_inner(kwargs) if moving_averages(self.proposal) else {}
        check_estimate(estimate, unused=kwargs.keys() - inner_kwargs.keys())
        proposal = self._freeze_proposal(inner_kwargs)
        if estimate is None:
            dist = self
            if proposal is not self.proposal:
                # The fixed log Z is a placeholder, which no estimate reads.
                dist = self.copy(proposal=proposal, normalizer=0.0)
            estimate = estimate_log_normalizer(dist, **kwargs)
        frozen = self.copy(normalizer=estimate, proposal=proposal)
        if moving_averages(frozen):
            raise ValueError(
                f"`freeze` cannot reach a moving average inside {self.name!r}. It belongs to a "
                "distribution that is not a constructor argument of the one that contains it. "
                "Freeze that distribution first, then build this one with it."
            )
        return frozen

    def _freeze_proposal(self, kwargs: dict[str, Any]) -> tfd.Distribution:
        def replace(part):
            if not moving_averages(part):
                return part
            if not isinstance(part, Resampled):
                return None
            is_fixed = not moving_averages(part._normalizer)
            return part.freeze(part._normalizer.argument if is_fixed else None, **kwargs)

        return _nested.rebuild(self.proposal, replace)

    @contextlib.contextmanager
    def held(self) -> Iterator[Resampled]:
        """Holds all moving averages of the distribution within a `with` block.

        `log_prob` then uses the current averages, also in graphs that are already traced. Averages
        of nested distributions are held, too. With a fixed log Z this has no effect.

        >>> dist = Resampled(tfd.Normal(0.0, 1.0), tf.sigmoid)
        >>> _ = dist.log_prob(0.3)  # one update
        >>> with dist.held():
        ...     value = dist.log_prob(0.3)
        >>> int(dist.normalizer.num_updates)
        1
        """
        with all_held(self):
            yield self

    def sample(self, sample_shape=(), seed=None, name: str = "sample", **kwargs) -> tf.Tensor:
        """Returns exact, independent draws from p_T.

        The draws do not need an estimate of Z. They carry no gradient.

        >>> Resampled(tfd.Uniform(), lambda z: z).sample([2, 3], seed=1, T=None).shape
        TensorShape([2, 3])

        Args:
          sample_shape: Number of draws, or shape of the draws.
          seed: Python `int`, or an `int32[2]` stateless seed. The same seed gives the same draws.
          name: Name of the ops.
          **kwargs: `T` overrides the truncation for this call.

        Returns:
          samples: Shape sample + batch + event.
        """
        _arguments.check_sample_shape(sample_shape)
        plain = isinstance(sample_shape, (int, np.integer)) and not kwargs.keys() - {"T"}
        if plain and tf.executing_eagerly():
            # TFP's handling of general shapes costs several times as much as drawing one sample.
            return self._draw(sample_shape, seed, **kwargs)[0]
        return super().sample(sample_shape, seed, name, **kwargs)

    def sample_with_attempts(
        self, sample_shape=(), seed=None, name: str = "sample_with_attempts", *, T=UNSET
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """Returns draws and the number of proposals that each of them took.

        >>> dist = Resampled(tfd.Uniform(), lambda z: z, T=5)
        >>> z, attempts = dist.sample_with_attempts(1000, seed=1)
        >>> int(tf.reduce_max(attempts))
        5

        Args:
          sample_shape: Number of draws, or shape of the draws.
          seed: Python `int`, or an `int32[2]` stateless seed.
          name: Name of the ops.
          T: Overrides the truncation for this call.

        Returns:
          samples: Shape sample + batch + event.
          attempts: `int32`, shape sample + batch; at most `T`.
        """
        _arguments.check_sample_shape(sample_shape)
        with self._name_and_control_scope(name):
            sample_shape, n = self._expand_sample_shape_to_vector(
                tf.cast(sample_shape, tf.int32), "sample_shape"
            )
            samples, attempts = self._draw(n, seed, T)
            samples = tf.reshape(samples, tf.concat([sample_shape, tf.shape(samples)[1:]], 0))
            attempts = tf.reshape(attempts, tf.concat([sample_shape, tf.shape(attempts)[1:]], 0))
            samples = self._set_sample_static_shape(samples, sample_shape)
            event_ndims = self.event_shape.rank
            return samples, _compat.ensure_shape(
                attempts, samples.shape[: samples.shape.rank - event_ndims]
            )

    def copy(self, **override_parameters_kwargs) -> Resampled:
        """Returns a distribution with some arguments replaced and all others shared.

        Another `accept_fn`, `proposal` or `from_logits` changes Z. Such a copy gets a new moving
        average with the same settings. If log Z is fixed, pass `normalizer=` as well.

        >>> dist = Resampled(tfd.Uniform(), lambda z: z, T=5)
        >>> dist.copy(T=None).normalizer is dist.normalizer
        True

        Args:
          **override_parameters_kwargs: Arguments of the constructor, such as `T=None`.

        Returns:
          copy: A `Resampled` that shares the networks and, unless Z changes, the normalizer.
        """
        old, new = self.parameters, {**self.parameters, **override_parameters_kwargs}
        replaced = [n for n in ("proposal", "accept_fn", "from_logits") if new[n] is not old[n]]
        keeps_normalizer = "normalizer" not in override_parameters_kwargs
        if replaced and keeps_normalizer:
            check_outside_of_functions()
            new["normalizer"] = self._normalizer.fresh(replaced)
        # TFP's own `copy` would keep a reference to the original.
        copy = type(self)(**new)
        if keeps_normalizer and not replaced:
            copy._estimate = self._estimate
        return copy

    def __reduce_ex__(self, protocol):
        """Raises: `copy` and `pickle` do not know which network owns which variable."""
        raise TypeError(
            f"The distribution {self.name!r} cannot be copied with the `copy` module or pickled, "
            "because its networks and graphs are tied to their variables. To copy it, use "
            "`dist.copy()`, which shares the networks. To store it, use `tfp_lars.save`, or save "
            "its variables with `tf.train.Checkpoint` and restore them into a distribution that is "
            "built in the same way."
        )

    def __getitem__(self, slices) -> Resampled:
        """Returns the distribution of some batch members. Needs a fixed log Z."""
        slices = tuple(slices) if isinstance(slices, (list, tuple)) else (slices,)
        # Symbolic slices do not fit the arrays of an estimate.
        estimate = self.estimate if tf.executing_eagerly() else None
        normalizer = self._normalizer[slices] if estimate is None else estimate.sliced(slices)
        accept_fn = self.accept_fn
        if self._log_accept.sees_members:
            accept_fn = SlicedAcceptance.of(
                accept_fn, self.batch_shape_tensor(), slices, self.event_shape.rank
            )
        return self.copy(
            proposal=self.proposal[slices],
            accept_fn=accept_fn,
            normalizer=normalizer,
        )

    @property
    def _experimental_tangent_space(self):
        # TFP checks with `hasattr` whether there is one. Without it, TFP adds a Jacobian term to a
        # transformed discrete distribution.
        hook = tangent_space(self.proposal)
        if hook is None:
            raise AttributeError("_experimental_tangent_space")
        return hook

    def _batch_shape(self):
        return self.proposal.batch_shape

    def _batch_shape_tensor(self, **_):
        return self.proposal.batch_shape_tensor()

    def _event_shape(self):
        return self.proposal.event_shape

    def _event_shape_tensor(self):
        return self.proposal.event_shape_tensor()

    def _default_event_space_bijector(self):
        return self.proposal.experimental_default_event_space_bijector()

    def _log_prob(self, z, target_log_prob=None, T=UNSET, **proposal_kwargs):
        """Returns the log density, log p_T(z).

        With a `MovingAverage`, each call is one update. `target_log_prob`, of shape sample + batch,
        is the log density of `z` under the distribution that it was drawn from (the encoder of a
        VAE). It adds `z` to the estimate of Z. `T` overrides the truncation for this call. It may
        be a scalar tensor, integer or real, so that training can let it grow; infinity means
        untruncated. With the Python number `T = 1` the result is the log density of the proposal,
        without an update. Other keyword arguments are passed to the proposal's `log_prob`.
        """
        # TFP's bijectors cache results by tensor and do not notice that a variable has changed.
        z = tf.identity(z)
        log_proposal = self.proposal.log_prob(z, **proposal_kwargs)
        if target_log_prob is not None:
            target_log_prob = _arguments.checked_target(target_log_prob, log_proposal)
        T = truncation_of_call(T, self.T, self.validate_args)
        if isinstance(T, int) and T == 1:
            return log_proposal
        dtype, result_dtype = self._log_accept.output_dtype, log_proposal.dtype
        if not self.dtype.is_floating:
            _arguments.check_accept_dtype(dtype, result_dtype)
        # Some proposals have real events of one type and log densities of another.
        wider = max(dtype, result_dtype, key=lambda kind: kind.size)
        log_proposal = tf.cast(log_proposal, wider)
        # Outside the support a(z) may have any value, also NaN. There it is evaluated at another
        # point, and the value is not used.
        outside = log_proposal < wider.min  # -inf
        z = self._points.broadcast(z)
        if self._point is not None:
            z = self._points.replace(z, outside, self._point)
        log_weight = None
        if target_log_prob is not None:
            log_weight = log_proposal - tf.cast(target_log_prob, wider)
            log_weight = tf.cast(tf.where(outside, log_proposal, log_weight), dtype)
        log_ratio = tf.cast(self._log_ratio(z, T, log_weight, proposal_kwargs), wider)
        log_prob = tf.where(outside, log_proposal, log_proposal + log_ratio)
        return tf.cast(log_prob, result_dtype)

    def _log_ratio(self, z, T, log_weight, proposal_kwargs):
        """Returns `log p_T(z) - log pi(z)` for broadcast `z`, of shape sample + batch."""
        # `z` and the draws for Z are evaluated separately: the draws do not depend on the encoder
        # that `z` comes from, and need no gradient if the proposal is not trained.
        log_accept = self._log_accept(self._points.flatten(z))  # [R] + B
        if isinstance(T, int) and T == 1:
            return self._points.unflatten(tf.zeros_like(log_accept), z)
        log_target = None
        if log_weight is not None:
            log_weight = self._points.flatten_values(log_weight, z, tf.shape(log_accept))
            log_target = tf.stop_gradient(log_weight) + log_accept

        def estimate(num_samples, seed, score_function):
            self._warn_if_not_owned()
            return log_mean_accept(
                self.proposal,
                self._log_accept,
                num_samples,
                seed,
                score_function,
                proposal_kwargs,
            )

        log_z = self._normalizer(estimate, log_target)
        return self._points.unflatten(density.log_ratio(log_accept, log_z, T), z)

    def _sample_n(self, n, seed=None, T=UNSET):
        """`T` overrides the truncation for this call. The draws carry no gradient.

        The same `seed`, an `int` or a stateless `int32[2]`, gives the same draws in eager mode and
        in graphs.
        """
        return self._draw(n, seed, T)[0]

    def _draw(self, n, seed, T=UNSET):
        """Returns `n` draws of each member, `[n] + B + event`, and their attempts, `[n] + B`."""
        T = self.T if T is UNSET else _arguments.checked_truncation(T)
        seed = _seeds.new_seed() if seed is None else _seeds.stateless_seed(seed)
        if T == 1:
            attempts = tf.ones(tf.concat([[n], self.batch_shape_tensor()], 0), tf.int32)
            return tf.stop_gradient(self.proposal.sample(n, seed=seed)), attempts
        return self._sampler(n, T or 0, seed)

    def _warn_if_not_owned(self):
        # `fit` traces this code. In eager mode the check would run at every call.
        if not self._ownership_checked and not tf.executing_eagerly():
            self._ownership_checked = ownership.warn_if_not_owned(self.variables, self.name)


ResampledDistribution = Resampled
