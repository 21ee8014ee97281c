"""Lesson 1: sums over the ranks of a job without a switch, and the bytes that they take.

torchrun --nproc-per-node 4 docs/tutorial/1_a_distributed_job/exercise.py
"""

import json

import torch
import torch.distributed as dist

ELEMENTS = 1_200  # of the gradient; a multiple of the number of ranks


class Link:
    """The link of this rank, which counts the bytes that pass over it."""

    def __init__(self) -> None:
        self.rank, self.size = dist.get_rank(), dist.get_world_size()
        self.sent = self.received = 0

    def send(self, to: int, x: torch.Tensor) -> None:
        """Send a tensor to a rank."""
        self.sent += x.nbytes
        dist.send(x.clone(), to)

    def receive(self, source: int, like: torch.Tensor) -> torch.Tensor:
        """Return the tensor that a rank sends, with the shape and the dtype of another one."""
        got = torch.empty_like(like)
        dist.recv(got, source)
        self.received += got.nbytes
        return got

    def exchange(self, to: int, x: torch.Tensor, source: int) -> torch.Tensor:
        """Send a tensor to one rank while receiving one of the same shape from another."""
        self.sent += x.nbytes
        got = torch.empty_like(x)
        sending = dist.isend(x.clone(), to)
        dist.recv(got, source)
        sending.wait()
        self.received += got.nbytes
        return got


def server_sum(link: Link, x: torch.Tensor) -> None:
    """Replace x by its sum over all ranks: rank 0 is a parameter server besides."""
    if link.rank == 0:
        for other in range(1, link.size):
            x += link.receive(other, x)
        for other in range(1, link.size):
            link.send(other, x)
    else:
        link.send(0, x)
        x.copy_(link.receive(0, x))


def ring_sum(link: Link, x: torch.Tensor) -> None:
    """Replace x by its sum over all ranks; each sends only to the rank after it, and only parts of x."""
    parts = x.chunk(link.size)  # views: what is added to a part is added to x
    after, before = (link.rank + 1) % link.size, (link.rank - 1) % link.size
    # ---- hole 1: two loops of link.size - 1 steps, with link.exchange(after, parts[...], before) in each
    for step in range(link.size - 1):
        got = link.exchange(after, parts[(link.rank - step) % link.size], before)
        parts[(link.rank - step - 1) % link.size].add_(got)
    for step in range(link.size - 1):
        got = link.exchange(after, parts[(link.rank + 1 - step) % link.size], before)
        parts[(link.rank - step) % link.size].copy_(got)
    # ---- end of hole 1


def busiest_link(way: str, ranks: int, nbytes: int) -> float:
    """Return how many bytes the busiest link sends for one sum of a gradient of `nbytes`.

    The way is "server" (one of the ranks is it, as in server_sum), "ring", or "switch": there each rank sends its
    gradient to the switch, and gets the sum back.
    """
    # ---- hole 2: three formulas
    return {
        "server": (ranks - 1) * nbytes,
        "ring": 2 * (ranks - 1) / ranks * nbytes,
        "switch": nbytes,
    }[way]
    # ---- end of hole 2


def main() -> None:
    """Make a sum in each way, and print what this rank has sent, and how many elements are wrong."""
    dist.init_process_group("gloo")
    results = {}
    for way, summed in (("server", server_sum), ("ring", ring_sum)):
        link = Link()
        x = torch.arange(ELEMENTS, dtype=torch.float32) * (link.rank + 1)
        summed(link, x)
        right = torch.arange(ELEMENTS, dtype=torch.float32) * (link.size * (link.size + 1) // 2)
        results[way] = {
            "sent": link.sent,
            "received": link.received,
            "wrong": (x != right).nonzero().flatten().tolist(),
        }
    print(json.dumps({"rank": dist.get_rank(), **results}), flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
