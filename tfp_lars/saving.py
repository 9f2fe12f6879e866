"""`save` and `load`: a distribution in one file of JSON and arrays."""

from __future__ import annotations

import contextlib
import io
import json
import os
import pathlib
import shutil
import uuid
import zipfile
from typing import Any

import numpy as np
import tensorflow_probability as tfp

from tfp_lars import _description, _rebuilding

__all__ = ["load", "save"]

tfd = tfp.distributions

_FORMAT = "tfp_lars distribution"
_VERSION = 1
_CONFIG, _ARRAYS = "distribution.json", "arrays.npz"


def save(dist: tfd.Distribution, path: str | os.PathLike) -> None:
    """Saves a distribution with its networks, its weights and its estimate of Z.

    The file is a zip archive of JSON and NumPy arrays. It has no code in it.

    >>> import tempfile, os
    >>> dist = Resampled(proposals.standard_normal(2), AcceptanceNetwork((8,)))
    >>> frozen = dist.freeze(num_samples=1000, seed=1)
    >>> path = os.path.join(tempfile.mkdtemp(), "prior.lars")
    >>> save(frozen, path)
    >>> load(path).estimate.num_samples
    1000

    Args:
      dist: A `Resampled`, or a distribution of TFP. Its parameters are numbers, arrays, variables,
        distributions and bijectors of TFP, or the proposals of this package except `vamp_prior` and
        `vae_marginal`, which contain functions. `accept_fn` is a Keras 3 network: an
        `AcceptanceNetwork`, a model of Keras layers, or a class that is registered with
        `keras.saving.register_keras_serializable`. `Lambda` and other layers that run stored code
        or read files, functions, and other objects raise an error.
      path: Path of the file. An existing file is replaced and its mode is kept. For a symbolic
        link, that file is its target.
    """
    if not isinstance(dist, tfd.Distribution):
        raise TypeError(f"`dist` must be a TFP distribution; got {dist!r}.")
    described = _description.Describer(dist)
    header = {"format": _FORMAT, "version": _VERSION, "distribution": described.config}
    text = json.dumps(header, indent=1)
    path = pathlib.Path(os.path.realpath(path))
    # An interrupted `save` must not leave half a file. The files of `tempfile` can be read by their
    # owner only; this one has the mode of any new file.
    draft = path.parent / f"tmp{uuid.uuid4().hex}"
    try:
        with zipfile.ZipFile(draft, "x") as archive:
            archive.writestr(_CONFIG, text)
            with archive.open(_ARRAYS, "w", force_zip64=True) as arrays:
                np.savez(arrays, **described.arrays)  # pyright: ignore[reportArgumentType]
        if path.is_file():
            shutil.copymode(path, draft)
        os.replace(draft, path)
    except BaseException:
        draft.unlink(missing_ok=True)
        raise


def load(path: str | os.PathLike) -> tfd.Distribution:
    """Loads a distribution that `save` has written.

    The file can come from an unknown source: none of its contents is executed, and no module that
    it names is imported. Keras networks of your own classes need these classes: import the module
    that registers them first.

    >>> import tempfile, os
    >>> path = os.path.join(tempfile.mkdtemp(), "flow.lars")
    >>> flow = proposals.real_nvp(2, seed=1)
    >>> save(flow, path)
    >>> len(load(path).trainable_variables) == len(flow.trainable_variables)
    True

    Args:
      path: Path of the file.

    Returns:
      dist: The distribution, with new variables.

    Raises:
      ValueError: The file was not written by `save`, is damaged, or cannot be rebuilt.
    """
    header, arrays = _read(pathlib.Path(path))
    try:
        return _rebuilding.Rebuilder(arrays)(header["distribution"])
    except Exception as error:  # constructors raise many kinds for impossible values
        raise ValueError(
            f"The distribution in {os.fspath(path)!r} cannot be rebuilt: {error} If it has "
            "networks of your own classes, import these first. If not, the file was changed, or "
            "written for other versions of tfp_lars, TFP or Keras."
        ) from error


def _read(path: pathlib.Path) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    not_ours = f"{str(path)!r} is not a distribution that `tfp_lars.save` has written"

    @contextlib.contextmanager
    def damage_reported():
        try:
            yield
        except Exception as error:  # zipfile, its decompressors, JSON and NumPy raise many kinds
            raise ValueError(
                f"{not_ours}, or it is damaged: {str(error) or repr(error)}"
            ) from error

    with open(path, "rb") as file:
        with damage_reported():
            archive = zipfile.ZipFile(file)
            header = json.loads(archive.read(_CONFIG))
        if not isinstance(header, dict) or header.get("format") != _FORMAT:
            raise ValueError(f"{not_ours}.")
        if not isinstance(header.get("version"), int):
            raise ValueError(f"{not_ours}, or it is damaged: its version is not an integer.")
        if header["version"] > _VERSION:
            raise ValueError(
                f"{str(path)!r} has version {header['version']} of the file format; this "
                f"version of tfp_lars reads up to {_VERSION}. Upgrade tfp_lars."
            )
        with damage_reported():
            return header, _arrays(archive.read(_ARRAYS))  # checks all of it


def _arrays(content: bytes) -> dict[str, np.ndarray]:
    """Returns the arrays of an `.npz` file.

    `np.load` advises to enable pickles if the file is damaged.
    """
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        return {
            name.removesuffix(".npy"): np.lib.format.read_array(
                archive.open(name), allow_pickle=False
            )
            for name in archive.namelist()
        }
