"""The keys and rows of `Communicator.sparse_all_reduce`: checks, the union of keys, and rows in its order."""

from __future__ import annotations

import sys
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from switchml.client.errors import UnsupportedTensor
from switchml.client.tensors import Buffer, Tensor, TorchTensor, buffer_of

__all__ = ["Keys", "checked_keys", "checked_rows", "like", "merged", "placed"]

Keys = npt.NDArray[np.int64]

ROW_DTYPES: Final = ("float32", "float16", "bfloat16", "int32")
_UNCHANGED: Final = "The arrays are unchanged"
_COALESCE: Final = (
    "sum rows of the same key and sort them first, as torch.sparse_coo_tensor(...).coalesce() does (numpy: "
    "numpy.unique with return_inverse, and numpy.add.at)"
)


def checked_keys(ids: Tensor) -> Keys:
    """Return a view of `ids` as an array of numpy.

    Raises:
        UnsupportedTensor: they are not int64 in contiguous CPU memory.
        ValueError: they do not have one dimension, or are negative, not sorted, or not unique.

    """
    dtype = buffer_of(ids, written=False).dtype
    if dtype != "int64":
        raise UnsupportedTensor(f"the ids are {dtype}, not int64. {_UNCHANGED}; convert them first.")
    keys: Keys = ids if isinstance(ids, np.ndarray) else np.asarray(ids)
    if keys.ndim != 1:
        raise ValueError(f"the ids have the shape {keys.shape}; they must have one dimension. {_UNCHANGED}")
    if keys.size and keys[0] < 0:
        raise ValueError(f"the id {keys[0]} is negative. {_UNCHANGED}; number the rows from 0")
    wrong = np.flatnonzero(keys[1:] <= keys[:-1])
    if wrong.size:
        place = int(wrong[0])
        what = "twice" if keys[place] == keys[place + 1] else "unsorted"
        raise ValueError(f"the ids are {what} at {place}: {keys[place]}, {keys[place + 1]}. {_UNCHANGED}; {_COALESCE}")
    return keys


def checked_rows(rows: Tensor, count: int) -> tuple[Buffer, int]:
    """Return the memory of `rows`, of which there must be `count`, and their dimension.

    Raises:
        UnsupportedTensor: their dtype is not one of `ROW_DTYPES`, or they are not in contiguous CPU memory.
        ValueError: they do not have two dimensions, or are not `count` rows.

    """
    buffer = buffer_of(rows, written=False)
    if buffer.dtype not in ROW_DTYPES:
        raise UnsupportedTensor(
            f"the rows are {buffer.dtype}, not {', '.join(ROW_DTYPES[:-1])} or {ROW_DTYPES[-1]}. {_UNCHANGED}; "
            "convert them first."
        )
    shape = tuple(_any(rows).shape)
    if len(shape) != 2 or shape[0] != count:
        raise ValueError(
            f"the rows have the shape {shape} for {count} ids; it must be ({count}, dimension). {_UNCHANGED}; a tensor "
            "that was made by coalesce() has a row for each id"
        )
    return buffer, shape[1]


def merged(table: Keys, counts: Keys) -> Keys:
    """Return the sorted union of the first `counts[r]` keys of each row `r` of `table`, which are sorted."""
    keys = np.concatenate([row[:count] for row, count in zip(table, counts, strict=True)])
    keys.sort(kind="stable")  # merges runs that are sorted already
    return keys[np.concatenate(([True], keys[1:] != keys[:-1]))] if keys.size else keys


def placed(rows: Tensor, keys: Keys, union: Keys) -> Tensor:
    """Return a row for each key of `union`: that of `rows`, which are the rows of `keys`, or zeros."""
    shape = (len(union), _any(rows).shape[1])
    if isinstance(rows, np.ndarray):
        given, result = rows, np.zeros(shape, rows.dtype)
    else:
        given, result = _any(rows).detach(), _any(rows).new_zeros(shape)
    result[np.searchsorted(union, keys)] = given
    return result


def like(ids: Tensor, keys: Keys) -> Tensor:
    """Return `keys` as a torch tensor if `ids` is one, otherwise as an array of numpy."""
    if isinstance(ids, np.ndarray):
        return keys
    tensor: TorchTensor = sys.modules["torch"].from_numpy(keys)
    return tensor


def _any(rows: Tensor) -> Any:
    """Return `rows`, of which `Tensor` does not tell all that arrays and tensors have."""
    return rows
