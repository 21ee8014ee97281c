"""Train a small network with DiLoCo: each replica makes many steps alone, then all average how far they have come.

These averages are torchft's, over SwitchML, in 8 bits for each parameter. So a parameter takes a byte in `--inner`
steps. With DistributedDataParallel it takes 4 bytes in each step. With `--delay` it is Streaming DiLoCo: one half of
the network is averaged at a time, while the replicas make this many steps.

    torchft_lighthouse --min_replicas 2 &
    export TORCHFT_LIGHTHOUSE=http://localhost:29510
    python examples/torch_diloco.py --replica 0 & python examples/torch_diloco.py --replica 1
"""

import argparse
import json
import sys
from datetime import timedelta

try:
    import torch
    import torch.distributed as dist
    from characters import Predictor, batch, text
    from torch import nn
    from torchft import Manager
    from torchft.local_sgd import DiLoCo
except ModuleNotFoundError as error:
    sys.exit(f"{error}; install what this example needs: pip install 'switchml[torchft]'")

import switchml.torch
from switchml.torchft import ProcessGroupSwitchML


def train(
    replica: int, options: argparse.Namespace, lighthouse: str | None = None, model: Predictor | None = None
) -> dict[str, float]:
    """Train, and return the loss on text of the test, and the bytes that DiLoCo has sent and that DDP would have sent.

    Args:
        replica: a number below `options.replicas`.
        options: the command line's.
        lighthouse: the lighthouse's address; None for that in TORCHFT_LIGHTHOUSE.
        model: the network to train; None for a new one.

    """
    torch.manual_seed(0)
    model, characters = model or Predictor(), text()
    split = len(characters) * 9 // 10
    inner = torch.optim.AdamW(model.parameters(), lr=2e-3)
    fragments = [model.layers[:3], model.layers[3:]] if options.delay else [model]
    outer = [torch.optim.SGD(part.parameters(), lr=0.7, momentum=0.9, nesterov=True) for part in fragments]
    lanes = switchml.torch.Options(wire="blocks:bits=8,rounding=stochastic") if options.wire == 8 else None
    store = dist.TCPStore("localhost", 0, is_master=True, wait_for_workers=False)  # of this replica's ranks
    manager = Manager(
        pg=ProcessGroupSwitchML(timedelta(seconds=30), lanes),
        load_state_dict=inner.load_state_dict,  # DiLoCo itself passes on the parameters and the outer optimizer
        state_dict=inner.state_dict,
        min_replica_size=options.replicas,
        use_async_quorum=False,
        rank=0,
        world_size=1,
        store_addr="localhost",
        store_port=store.port,
        hostname="localhost",
        lighthouse_addr=lighthouse,
        replica_id=f"diloco-{replica}-",
    )
    random = torch.Generator().manual_seed(replica)
    try:
        with DiLoCo(
            *(manager, fragments, inner, outer, options.inner), pin_memory=False, fragment_sync_delay=options.delay
        ):
            for _ in range(options.outer * options.inner):
                contexts, following = batch(characters[:split], 64, random)
                inner.zero_grad()
                nn.functional.cross_entropy(model(contexts), following).backward()
                inner.step()
        contexts, following = batch(characters[split:], 8192, torch.Generator().manual_seed(0))
        with torch.no_grad():
            loss = float(nn.functional.cross_entropy(model(contexts), following))
        parameters = sum(parameter.numel() for parameter in model.parameters())
        return {
            "loss": loss,
            "outer_steps": manager.current_step(),
            "bytes": switchml.torch.statistics()["wire_bytes"],
            "bytes_of_ddp": 4 * parameters * options.outer * options.inner,
        }
    finally:
        manager.shutdown()


def main() -> None:
    """Train this replica."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--replica", type=int, default=0)
    parser.add_argument("--replicas", type=int, default=2)
    parser.add_argument("--outer", type=int, default=20, help="averages")
    parser.add_argument("--inner", type=int, default=50, help="steps between two averages")
    parser.add_argument("--delay", type=int, default=0, help="steps during an average of one half; 0: all at once")
    parser.add_argument("--wire", type=int, choices=(8, 32), default=8, help="bits of a parameter in an average")
    options = parser.parse_args()
    print(json.dumps(train(options.replica, options)))


if __name__ == "__main__":
    main()
