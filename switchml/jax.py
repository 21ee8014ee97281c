"""All-reduces of JAX programs on CPUs, also inside `jax.jit`: `switchml.jax.all_reduce`.

XLA calls the library's native code, without a copy and without Python. JAX's ordered effects keep the calls of a thread
in the order of the program: each call takes a token that the call before it has made, also across compiled functions
and inside loops. XLA's executor for CPUs runs independent operations at the same time; to it a token is memory, of size
zero, that one operation writes and the next one reads.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, Final, TypeVar

import numpy as np

from switchml import _native
from switchml.client.calls import Call
from switchml.client.communicator import Communicator
from switchml.client.tensors import Buffer
from switchml.common.installation import install_command

try:
    import jax
    import jax.numpy as jnp

    # JAX has no public interface for ordered effects; `make test-jax` covers the versions in pyproject.toml.
    from jax._src import core, dispatch, effects
    from jax.extend.core import Primitive
    from jax.interpreters import ad, batching, mlir
except ImportError as error:
    raise ImportError(f"switchml.jax needs JAX ({error}): {install_command('jax')}") from error

__all__ = ["all_reduce"]

Tree = TypeVar("Tree")

_TARGET: Final = "switchml_all_reduce"


def all_reduce(x: Tree, comm: Communicator, op: str = "sum") -> Tree:
    """Return the sum or the average of `x` over all ranks, on every rank.

    All ranks must make the same calls in the same order, from one thread each. A tree is one call: its arrays travel
    together. The bounds of sums are those of `Communicator.all_reduce`, except that NaN and infinity are not an error:
    the result is NaN there.

    Derivatives are those of a program in which all ranks compute the same loss from the result, as with `jax.lax.psum`
    in `jax.shard_map`: the cotangent of a sum is passed on as it is, that of an average divided by the number of ranks,
    and neither is sent. Tangents are summed like values.

    Args:
        x: an array or a tree of arrays, of float64, float32, float16, bfloat16, integers of 8 to 64 bits or bool; the
            same tree, shapes and dtypes on every rank.
        comm: what `switchml.connect` has returned. It must exist as long as functions that were compiled with it run.
        op: "sum" or, for floating-point numbers, "avg".

    Raises:
        UnsupportedTensor: an array has a dtype without such a sum; while the program is traced.
        ValueError: `op` is neither "sum" nor "avg", or the policy of the job is not "abort".
        jax.errors.JaxRuntimeError: the call failed, with the text of the library's error; raised where JAX raises the
            errors of a computation. `comm.failure` is then the error itself.

    """
    native = comm._membership.native
    if native.on_failure != "abort":
        raise ValueError(
            f"the policy of job {native.name!r} is {native.on_failure}; a job of JAX programs needs the policy abort, "
            "since JAX starts no call after one that has failed. Nothing was sent"
        )
    leaves, structure = jax.tree.flatten(x)
    arrays = [jnp.asarray(leaf) for leaf in leaves]
    for array in arrays:
        buffer = Buffer(None, 0, array.size, array.size * array.dtype.itemsize, str(array.dtype))
        Call("all_reduce", op, buffer).described(native.world_size, native.formats)
    if not arrays:
        return x
    totals = _all_reduce.bind(
        *arrays, membership=native.xla_number, average=op == "avg", ranks=native.world_size, transposed=False
    )
    return jax.tree.unflatten(structure, totals)  # type: ignore[no-any-return]


# ---- the primitive ---------------------------------------------------------------------------------------------------

# Its parameters are `membership`, the number by which native code finds the communicator; `average`; `ranks`, their
# number; and `transposed`, for the linear map that is the transpose of the sum or the average, which sends nothing.
_all_reduce = Primitive(_TARGET)
_all_reduce.multiple_results = True


class _CallOrder(effects.Effect):  # type: ignore[misc]
    """The order of this process's calls. JAX carries a token for it from each call to the next."""


_ORDER: Final = _CallOrder()

for _allowed in (
    effects.ordered_effects,
    effects.lowerable_effects,
    effects.control_flow_allowed_effects,
    effects.custom_derivatives_allowed_effects,
):
    _allowed.add_type(_CallOrder)


def _results_of(*arrays: Any, transposed: bool, **_: Any) -> tuple[list[Any], set[Any]]:
    results = [core.ShapedArray(array.shape, array.dtype) for array in arrays]
    return results, set() if transposed else {_ORDER}


def _lowered(context: Any, *arrays: Any, membership: int, average: bool, ranks: int, transposed: bool) -> Any:
    if transposed:
        share = partial(_share_of, divisor=ranks if average else 1)
        return mlir.lower_fun(share, multiple_results=True)(context, *arrays)
    with_token = context.replace(
        avals_in=(*context.avals_in, core.abstract_token), avals_out=(*context.avals_out, core.abstract_token)
    )
    call = jax.ffi.ffi_lowering(_TARGET, has_side_effect=True)
    *totals, token = call(
        with_token,
        *arrays,
        context.tokens_in.get(_ORDER),
        membership=np.int64(membership),
        average=np.int64(average),
    )
    context.set_tokens_out(mlir.TokenSet({_ORDER: token}))
    return totals


def _share_of(*cotangents: Any, divisor: int) -> list[Any]:
    return [cotangent / divisor if divisor > 1 else cotangent for cotangent in cotangents]


def _refused(*_: Any, **__: Any) -> Any:
    raise NotImplementedError(
        "switchml.jax.all_reduce runs on CPUs, in a process with one JAX device. On GPUs JAX sums through NCCL, which "
        "loads SwitchML as a network plugin."
    )


# ---- derivatives and batches -----------------------------------------------------------------------------------------


def _bind_moving(values: Sequence[Any], parameters: dict[str, Any]) -> list[Any]:
    """Return the results for the values that are not symbolic zeros, which are the same at all ranks; others stay."""
    moving = [value for value in values if type(value) is not ad.Zero]
    results = iter(_all_reduce.bind(*moving, **parameters) if moving else ())
    return [value if type(value) is ad.Zero else next(results) for value in values]


def _derivative(primals: Sequence[Any], tangents: Sequence[Any], **parameters: Any) -> tuple[list[Any], list[Any]]:
    return _all_reduce.bind(*primals, **parameters), _bind_moving(tangents, parameters)


def _transpose(cotangents: Sequence[Any], *_: Any, transposed: bool, **parameters: Any) -> list[Any]:
    # The transpose of the transpose is the sum again: in a second derivative, cotangents may differ between ranks.
    return _bind_moving(cotangents, {**parameters, "transposed": not transposed})


def _batched(arrays: Sequence[Any], dimensions: Sequence[Any], **parameters: Any) -> tuple[list[Any], Sequence[Any]]:
    return _all_reduce.bind(*arrays, **parameters), dimensions


jax.ffi.register_ffi_target(_TARGET, _native.xla_all_reduce(), platform="cpu")
_all_reduce.def_impl(partial(dispatch.apply_primitive, _all_reduce))
_all_reduce.def_effectful_abstract_eval(_results_of)
mlir.register_lowering(_all_reduce, _refused)
mlir.register_lowering(_all_reduce, _lowered, platform="cpu")
ad.primitive_jvps[_all_reduce] = _derivative
ad.primitive_transposes[_all_reduce] = _transpose
batching.primitive_batchers[_all_reduce] = _batched
