"""Train a small network with replicas that may die and return, with torchft over SwitchML; this process is one replica.

Start a lighthouse, by which the replicas find each other, then three or more replicas; kill one, and start it again.

    torchft_lighthouse --min_replicas 2 --heartbeat_timeout_ms 1000 &
    export TORCHFT_LIGHTHOUSE=http://localhost:29510
    for replica in 0 1 2; do python examples/torchft_ddp.py --replica $replica & done

The replicas that are left go on with the next step. A replica that returns gets the parameters of the others, and all
end with the same bits: each prints the sha256 of its parameters. None trains alone, because it could not know whether
others train as well: it waits for a second one, at the beginning too, and gives up after a minute.
"""

import argparse
import hashlib
import sys
import time
from collections.abc import Callable
from datetime import timedelta

try:
    import torch
    import torch.distributed as dist
    from characters import Predictor, batch, text
    from torch import nn
    from torchft import DistributedDataParallel, Manager, Optimizer
except ModuleNotFoundError as error:
    sys.exit(f"{error}; install what this example needs: pip install 'switchml[torchft]'")

from switchml.torchft import ProcessGroupSwitchML

LEAST_REPLICAS = 2  # of a step; a lighthouse that forms smaller groups lets them repeat it until another one comes


def digest(model: nn.Module) -> str:
    """Return the sha256 of the parameters."""
    return hashlib.sha256(b"".join(p.detach().numpy().tobytes() for p in model.parameters())).hexdigest()


def train(replica: int, steps: int, on_step: Callable[[int, int, float], None], lighthouse: str | None = None) -> str:
    """Train until the group has made `steps` steps, and return the sha256 of the parameters.

    Args:
        replica: a number that no other replica has.
        steps: of all replicas together.
        on_step: called after each step with its number, the replicas that took part and its seconds.
        lighthouse: the lighthouse's address; None for that in TORCHFT_LIGHTHOUSE.

    """
    torch.manual_seed(0)
    model, characters = Predictor(), text()
    adam = torch.optim.AdamW(model.parameters(), lr=2e-3)

    def load(state: dict[str, dict]) -> None:
        model.load_state_dict(state["model"])
        adam.load_state_dict(state["optimizer"])

    store = dist.TCPStore("localhost", 0, is_master=True, wait_for_workers=False)  # of this replica's ranks
    manager = Manager(
        pg=ProcessGroupSwitchML(timedelta(seconds=10)),
        load_state_dict=load,
        state_dict=lambda: {"model": model.state_dict(), "optimizer": adam.state_dict()},
        min_replica_size=LEAST_REPLICAS,
        timeout=timedelta(seconds=10),
        rank=0,
        world_size=1,
        store_addr="localhost",
        store_port=store.port,
        hostname="localhost",
        lighthouse_addr=lighthouse,
        replica_id=f"replica-{replica}-",
    )
    try:
        replicated = DistributedDataParallel(manager, model)
        optimizer = Optimizer(manager, adam)
        while manager.current_step() < steps:
            begin = time.monotonic()
            optimizer.zero_grad()  # agrees on the replicas of this step
            random = torch.Generator().manual_seed(1000 * manager.current_step() + replica)
            contexts, following = batch(characters, 64, random)
            nn.functional.cross_entropy(replicated(contexts), following).backward()
            optimizer.step()  # if all sums of this step succeeded
            on_step(manager.current_step(), manager.num_participants(), time.monotonic() - begin)
        return digest(model)
    finally:
        manager.shutdown()


def main() -> None:
    """Train this replica."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--replica", type=int, default=0)
    parser.add_argument("--steps", type=int, default=1000)
    options = parser.parse_args()

    def show(step: int, replicas: int, seconds: float) -> None:
        print(f"step {step}: {replicas} replicas, {seconds:.3f} s", flush=True)

    print(train(options.replica, options.steps, show))


if __name__ == "__main__":
    main()
