"""One rank of a test of tests/jax: `python -m tests.jax.rank NAME` runs the function of that name."""

from __future__ import annotations

import os
import signal
import sys
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import switchml
from switchml.jax import all_reduce

# ---- sums ------------------------------------------------------------------------------------------------------------

FLOATS = (jnp.float64, jnp.float32, jnp.float16, jnp.bfloat16)
INTEGERS = (jnp.int8, jnp.int16, jnp.int32, jnp.int64, jnp.uint8, jnp.uint16, jnp.uint32, jnp.uint64)


def types(comm: switchml.Communicator) -> None:
    ranks = comm.world_size
    for dtype in (*FLOATS, *INTEGERS):
        x = (jnp.arange(1000) % 7 + comm.rank).astype(dtype).reshape(10, 100)
        expected = ranks * (np.arange(1000) % 7) + sum(range(ranks))
        total = jax.jit(lambda x: all_reduce(x, comm))(x)
        assert (total.dtype, total.shape) == (x.dtype, x.shape)
        assert (np.asarray(total, np.float64).ravel() == expected).all(), dtype
    for dtype in FLOATS:
        average = all_reduce(jnp.full(10, comm.rank, dtype), comm, "avg")
        assert (np.asarray(average, np.float64) == (ranks - 1) / 2).all(), dtype
    assert all_reduce(jnp.arange(3) == comm.rank, comm).tolist() == [True, True, True]
    assert np.isnan(all_reduce(jnp.array([1.0, jnp.nan, jnp.inf]), comm)).tolist() == [False, True, True]


def trees(comm: switchml.Communicator) -> None:
    ranks = comm.world_size
    tree = {"a": jnp.ones(3), "b": [2.0, jnp.ones((2, 0)), jnp.ones((), jnp.int32)]}
    total = all_reduce(tree, comm)
    assert total["a"].tolist() == [ranks] * 3
    assert (float(total["b"][0]), total["b"][1].shape, int(total["b"][2])) == (2.0 * ranks, (2, 0), ranks)
    x = jnp.ones(2)
    assert [each.tolist() for each in all_reduce((x, x), comm)] == [[ranks, ranks]] * 2
    assert all_reduce([], comm) == []


# ---- the order of calls ----------------------------------------------------------------------------------------------


def order(comm: switchml.Communicator) -> None:
    """Sum arrays of many lengths: in one compiled function at rank 0, and in the order of its text at rank 1.

    XLA runs independent operations at the same time. Here the arguments of most calls are ready long before those of
    earlier ones.
    """

    def program(x: Any) -> list[Any]:
        results = []

        def slow(steps: int) -> Any:
            y = x
            for _ in range(steps):
                y = jnp.sin(y @ x)
            return y.ravel()

        def add(length: int, steps: int) -> None:
            results.append(all_reduce(slow(steps)[:length], comm))

        nested = jax.jit(lambda y: all_reduce(y[:2000], comm) + all_reduce(y[:2001], comm).sum())

        def in_loop(carry: Any, _: Any) -> tuple[Any, Any]:
            return all_reduce(carry, comm) / 2, all_reduce(carry[:10], comm)

        add(1000, 6)
        add(1001, 0)
        results.append(nested(slow(0)))
        add(1002, 3)
        results.extend(jax.lax.scan(in_loop, x.ravel()[:3000], None, length=3))
        add(1003, 0)
        positive = slow(2)[:5]
        results.append(
            jax.lax.cond(
                x[0, 0] > 0,
                lambda y: all_reduce(y[:4], comm)[:3],
                lambda y: all_reduce(y, comm)[:3],
                positive,
            )
        )
        add(1004, 0)
        for i in range(20):
            add(1100 + i, 0 if i % 2 else 2)
        return results

    lengths = [1000, 1001, 2000, 2001, 1002, *[3000, 10] * 3, 1003, 4, 1004, *range(1100, 1120)]
    if comm.rank == 0:
        compiled = jax.jit(program)
        x = jnp.full((500, 500), 1e-3)
        for _ in range(3):
            results = compiled(x), compiled(x)  # both are in flight
            jax.block_until_ready(results)
    else:
        for length in 6 * lengths:
            comm.all_reduce(np.zeros(length, np.float64))


# ---- derivatives -----------------------------------------------------------------------------------------------------


def derivatives(comm: switchml.Communicator) -> None:
    ranks = comm.world_size
    x = jnp.arange(4.0) * (comm.rank + 1)
    y = jnp.arange(4.0) * (ranks + 1) / 2  # the average
    direction = jnp.full(4, comm.rank + 1.0)
    average_direction = jnp.full(4, (ranks + 1) / 2)

    def loss(x: Any) -> Any:
        return (all_reduce(x, comm, "avg") ** 2).sum()

    for gradient in (jax.grad(loss), jax.jit(jax.grad(loss))):
        assert np.allclose(gradient(x), 2 * y / ranks)
    assert np.allclose(jax.grad(lambda x: (all_reduce(x, comm) ** 2).sum())(x), 2 * y * ranks)
    # Second derivatives, of which each is a sum over ranks: forward over reverse, and reverse over reverse.
    assert np.allclose(jax.jvp(jax.grad(loss), (x,), (direction,))[1], 2 * average_direction / ranks)
    assert np.allclose(jax.grad(lambda x: jax.grad(loss)(x) @ direction)(x), 2 * average_direction / ranks)
    # One of the arrays of a call may have no derivative.
    both = jax.grad(lambda x: all_reduce((x, jnp.arange(3)), comm)[0].sum())(x)
    assert both.tolist() == [1.0] * 4
    assert (jax.vmap(lambda row: all_reduce(row, comm))(jnp.ones((3, 2))) == ranks).all()
    assert (jax.jacfwd(lambda x: all_reduce(x, comm))(x) == ranks * jnp.eye(4)).all()

    def in_loop(carry: Any, _: Any) -> tuple[Any, None]:
        return all_reduce(carry, comm, "avg") * 2, None

    def looped(x: Any) -> Any:
        return jax.lax.scan(in_loop, x, None, length=3)[0].sum()

    assert np.allclose(jax.jit(jax.grad(looped))(x), (2 / ranks) ** 3)


def training(comm: switchml.Communicator) -> None:
    """Train a small network over shards, and compare it with the training over the whole batch."""
    batch = 64
    keys = jax.random.split(jax.random.key(0), 4)
    inputs = jax.random.normal(keys[0], (batch, 20))
    targets = jnp.sin(inputs @ jax.random.normal(keys[1], (20, 1)))
    initial = {
        "hidden": jax.random.normal(keys[2], (20, 64)) / 5,
        "bias": jnp.zeros(64),
        "output": jax.random.normal(keys[3], (64, 1)) / 8,
    }

    def loss(parameters: Any, inputs: Any, targets: Any) -> Any:
        hidden = jnp.tanh(inputs @ parameters["hidden"] + parameters["bias"])
        return ((hidden @ parameters["output"] - targets) ** 2).mean()

    def step(parameters: Any, inputs: Any, targets: Any, shared: bool) -> Any:
        gradients = jax.grad(loss)(parameters, inputs, targets)
        if shared:
            gradients = all_reduce(gradients, comm, "avg")
        return jax.tree.map(lambda value, gradient: value - 0.1 * gradient, parameters, gradients)

    compiled = jax.jit(step, static_argnames="shared")
    rows = slice(comm.rank * batch // comm.world_size, (comm.rank + 1) * batch // comm.world_size)
    sharded = whole = initial
    for _ in range(50):
        sharded = compiled(sharded, inputs[rows], targets[rows], shared=True)
        whole = compiled(whole, inputs, targets, shared=False)
    assert loss(whole, inputs, targets) < loss(initial, inputs, targets) / 2
    for name, value in whole.items():
        assert np.allclose(sharded[name], value, rtol=1e-9, atol=1e-9), name
        # The bits are those of all ranks: as integers, their sums show it.
        bits = np.asarray(sharded[name]).view(np.int64)
        total = bits.copy()
        comm.all_reduce(total)
        assert (total == comm.world_size * bits).all(), name


# ---- failures --------------------------------------------------------------------------------------------------------


def refusals(comm: switchml.Communicator) -> None:
    x = jnp.ones(3)
    with pytest.raises(switchml.UnsupportedTensor, match="not complex64"):
        all_reduce(x.astype(jnp.complex64), comm)
    with pytest.raises(switchml.UnsupportedTensor, match="not int32"):
        all_reduce(jnp.ones(3, jnp.int32), comm, "avg")
    with pytest.raises(ValueError, match=r"op is .max."):
        all_reduce(x, comm, "max")
    traced = jax.jit(lambda x: all_reduce(x, comm)).trace(x)
    with pytest.raises(NotImplementedError, match="runs on CPUs"):
        traced.lower(lowering_platforms=("cuda",))
    several = jax.pmap(lambda x: all_reduce(x, comm))
    with pytest.raises(ValueError, match=r"[Oo]rdered effects (are )?not supported"):
        several(jnp.ones((2, 3)))
    compiled = jax.jit(lambda x: all_reduce(x, comm))
    assert compiled(x).tolist() == [comm.world_size] * 3
    comm.close()
    with pytest.raises(jax.errors.JaxRuntimeError, match=r"was closed|is closed"):
        compiled(x).block_until_ready()
    with pytest.raises(jax.errors.JaxRuntimeError, match=r"was closed|is closed"):
        all_reduce(x, comm)


def policies(comm: switchml.Communicator) -> None:
    with pytest.raises(ValueError, match=r"the policy of job .* is shrink"):
        all_reduce(jnp.ones(3), comm)


def killed(comm: switchml.Communicator) -> None:
    compiled = jax.jit(lambda x: all_reduce(x, comm) / comm.world_size)
    x = jnp.ones(1_000_000)
    for _ in range(3):
        x = compiled(x)
    x.block_until_ready()
    if comm.rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    for _ in range(2):
        with pytest.raises(jax.errors.JaxRuntimeError, match=r"rank 1 (was lost|exited).*Start the job again"):
            compiled(x).block_until_ready()
    assert isinstance(comm.failure, switchml.WorkerLost)
    assert comm.failure.ranks == (1,)
    print(f"rank {comm.rank} was told", flush=True)


if __name__ == "__main__":
    jax.config.update("jax_enable_x64", True)
    jax.config.update("jax_num_cpu_devices", 2)
    with switchml.connect() as communicator:
        globals()[sys.argv[1]](communicator)
