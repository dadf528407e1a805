"""Features as settings and arrays, and back: what a solution or a fingerprint keeps of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from ifef.backbones import MLP, Identity, Spots
from ifef.domain import Box
from ifef.features import FourierFeatures

_KINDS = {"mlp": MLP, "identity": Identity, "spots": Spots}


def pack_features(features: FourierFeatures) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Settings and arrays from which `unpack_features` makes the same features."""
    backbone = features.backbone
    kind = next((name for name, one in _KINDS.items() if isinstance(backbone, one)), "own")
    leaves = [leaf for leaf in jax.tree_util.tree_leaves(backbone) if eqx.is_array(leaf)]
    arrays = {f"backbone.{index}": np.asarray(leaf) for index, leaf in enumerate(leaves)}
    arrays["frequencies"] = np.asarray(features.frequencies)
    domain = {name: [low, high] for name, low, high in _sides(features.domain)}
    settings = {"kind": kind, "domain": domain, "enlarged": features.enlarged, "basis": len(features.basis)}
    if isinstance(backbone, Spots):
        settings["bells"] = list(backbone.bells)
    if features.decays is not None:
        arrays["decays"] = np.asarray(features.decays)
    return settings, arrays


def _sides(domain: Box) -> list[tuple[str, float, float]]:
    return list(zip(domain.names, domain.lows, domain.highs, strict=True))


def unpack_features(
    settings: Mapping[str, Any],
    arrays: Mapping[str, np.ndarray],
    basis: tuple[Callable[..., Any], ...] = (),
    backbone: Any = None,
) -> FourierFeatures:
    """Make features from what `pack_features` gave; an own backbone must be given again, to be filled."""
    leaves = [
        jnp.asarray(arrays[f"backbone.{index}"]) for index in range(sum(k.startswith("backbone.") for k in arrays))
    ]
    if settings["kind"] == "mlp":
        half = len(leaves) // 2
        backbone = MLP(tuple(leaves[:half]), tuple(leaves[half:]))
    elif settings["kind"] == "identity":
        backbone = Identity()
    elif settings["kind"] == "spots":
        backbone = Spots(*leaves, bells=tuple(map(bool, settings["bells"])))
    elif settings["kind"] != "own":
        raise TypeError(f"a backbone of a known kind, not {settings['kind']!r}")
    elif backbone is None:
        raise ValueError("load(...): this solution has a backbone of its own kind; give it again as backbone=....")
    else:
        flat, tree = jax.tree_util.tree_flatten(backbone)
        places = [index for index, leaf in enumerate(flat) if eqx.is_array(leaf)]
        if [np.shape(flat[index]) for index in places] != [leaf.shape for leaf in leaves]:
            raise ValueError("load(...): the given backbone has other shapes than the one that was saved.")
        for index, leaf in zip(places, leaves, strict=True):
            flat[index] = leaf
        backbone = jax.tree_util.tree_unflatten(tree, flat)
    if settings["basis"] != len(basis):
        raise ValueError(f"load(...): the solution has {settings['basis']} own basis functions; give its problem.")
    table, enlarged = arrays["frequencies"], settings["enlarged"]
    if table.ndim != 2 or table.dtype != np.float64 or not isinstance(enlarged, bool):
        raise TypeError(f"a table of frequencies, not {table.dtype} {table.shape}")
    try:
        domain = Box(**{name: tuple(pair) for name, pair in settings["domain"].items()})
    except ValueError as error:
        raise TypeError(f"a domain that makes sense: {error}") from error
    decays = None if "decays" not in arrays else jnp.asarray(arrays["decays"])
    return FourierFeatures(backbone, domain, jnp.asarray(table), enlarged, basis, None, decays)
