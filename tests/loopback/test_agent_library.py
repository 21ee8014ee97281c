"""The library with an agent: the errors that it raises, and the resources that it releases."""

import gc
import os
import signal
import socket
import subprocess
import sys
import textwrap
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

import switchml
from switchml.controller.proto import switchml_pb2 as pb
from switchml.controller.records import ranks_were_lost
from switchml.dataplane.constants import PROTOCOL_MAX_WORLD, Verdict
from tests.support.collective_harness import DEADLINE, Fabric, running_fabric


@pytest.fixture
def fabric(tmp_path: Path) -> Iterator[Fabric]:
    with running_fabric(tmp_path) as running:
        yield running


def wait_until(condition: object, what: str) -> None:
    end = time.monotonic() + DEADLINE
    while not condition():  # type: ignore[operator]
        assert time.monotonic() < end, what
        time.sleep(0.005)


def kinds(fabric: Fabric, rank: int) -> list[int]:
    return [event.kind for event in fabric.events if event.rank == rank]


# ---- arguments ----


def test_arguments_are_checked_before_anything_is_sent(fabric: Fabric) -> None:
    fabric.add_job(1, 1)
    with fabric.connect(0) as comm:
        x = np.ones(4, np.float32)
        with pytest.raises(ValueError, match="op is 'max'"):
            comm.all_reduce(x, "max")
        with pytest.raises(switchml.UnsupportedTensor, match=r'op="sum" takes float64, .*, not complex64'):
            comm.all_reduce(np.ones(4, np.complex64))
        with pytest.raises(switchml.UnsupportedTensor, match=r'op="avg" takes float64, .* or bfloat16, not int32'):
            comm.all_reduce(np.ones(4, np.int32), "avg")
        with pytest.raises(switchml.UnsupportedTensor, match="not C-contiguous"):
            comm.all_reduce(np.ones((4, 4), np.float32).T)
        for timeout in (0, -1, float("nan"), float("inf")):
            with pytest.raises(ValueError, match="timeout"):
                comm.all_reduce(x, timeout=timeout)
        for root in (-1, 1):
            with pytest.raises(ValueError, match="the ranks are 0 to 0"):
                comm.broadcast(x, root)
        for wrong in (0.0, 0.5, False, "0", None, np.True_):
            with pytest.raises(TypeError, match=r"root is .*; it must be an integer"):
                comm.broadcast(x, wrong)  # type: ignore[arg-type]
        comm.broadcast(x, np.int64(0))
        assert (x == 1).all()
        comm.all_reduce(x)  # none of these calls had an effect


# ---- ranks out of step ----

LONG = "u1, " * 40  # for a structured dtype, whose name is longer than the limit of the controller


@pytest.mark.parametrize(
    ("of_rank_0", "of_rank_1"),
    [
        (lambda c: c.all_reduce(np.ones(10, np.float32)), lambda c: c.all_reduce(np.ones(11, np.float32))),
        (lambda c: c.all_reduce(np.ones(10, np.float32)), lambda c: c.all_reduce(np.ones(10, np.int32))),
        (lambda c: c.all_reduce(np.ones(10, np.float32)), lambda c: c.all_reduce(np.ones(10, np.float32), "avg")),
        (lambda c: c.all_reduce(np.ones(10, np.float32)), lambda c: c.broadcast(np.ones(10, np.float32), 0)),
        (lambda c: c.broadcast(np.ones(10), 0), lambda c: c.broadcast(np.ones(10), 1)),
        (lambda c: c.broadcast(np.ones(3, LONG + "u1"), 0), lambda c: c.broadcast(np.ones(3, LONG + "i1"), 0)),
        (lambda c: c.barrier(), lambda c: c.all_reduce(np.ones(0, np.float32))),
        (
            lambda c: c.all_reduce(np.ones(10, np.float32), wire=switchml.Blocks(16)),
            lambda c: c.all_reduce(np.ones(10, np.float32), wire=switchml.Blocks(8)),
        ),
        (
            lambda c: c.all_reduce(np.ones(10, np.float32)),
            lambda c: c.all_reduce(np.ones(10, np.float32), wire=switchml.Blocks(8)),
        ),
        (
            lambda c: c.all_reduce(np.ones(10, np.float32), wire=switchml.Blocks(8, "stochastic", 2**64 - 1)),
            lambda c: c.all_reduce(np.ones(10, np.float32), wire=switchml.Blocks(8)),
        ),
        (
            lambda c: c.all_reduce(np.ones(10, np.int8), wire=switchml.Integers(8, 3)),
            lambda c: c.all_reduce(np.ones(10, np.int8), wire=switchml.Integers(8, 4)),
        ),
        (
            lambda c: c.all_reduce(np.ones(10, np.float32)),
            lambda c: c.reduce_scatter(np.ones(10, np.float32), np.ones(5, np.float32)),
        ),
        (
            lambda c: c.reduce_scatter(np.ones(10, np.float32), np.ones(5, np.float32), "avg"),
            lambda c: c.reduce_scatter(np.ones(10, np.float32), np.ones(5, np.float32)),
        ),
        (
            lambda c: c.all_gather(np.ones(5, np.float32), np.ones(10, np.float32)),
            lambda c: c.all_gather(np.ones(6, np.float32), np.ones(12, np.float32)),
        ),
    ],
    ids=[
        *("size", "dtype", "op", "operation", "root", "long dtype", "barrier"),
        *("bits", "bits of one", "rounding", "bound"),
        *("parts", "op of parts", "length of parts"),
    ],
)
def test_ranks_that_disagree_get_an_error_that_says_so(fabric: Fabric, of_rank_0: object, of_rank_1: object) -> None:
    fabric.add_job(1, 2)

    def run(comm: switchml.Communicator) -> str:
        with pytest.raises(switchml.CollectiveMismatch) as raised:
            (of_rank_0, of_rank_1)[comm.rank](comm)  # type: ignore[operator]
        with pytest.raises(switchml.CollectiveMismatch, match="was not started"):
            comm.barrier()
        return str(raised.value)

    for message in fabric.run_ranks(2, run):
        assert "the ranks call differently" in message
        assert "This rank's call there is" in message
        assert "undefined" in message


def test_a_failed_check_without_a_verdict_ends_too(fabric: Fabric) -> None:
    fabric.held_back.add(pb.RankEvent.KIND_CHECK_FAILED)
    fabric.add_job(1, 2)

    def run(comm: switchml.Communicator) -> None:
        with pytest.raises(switchml.IntegrityError, match="no verdict came within 10 s"):
            comm.all_reduce(np.ones(10 + comm.rank, np.float32))

    fabric.run_ranks(2, run)


# ---- time ----


def test_a_timeout_names_the_missing_rank_and_is_final(fabric: Fabric, limit: Callable[[float], float]) -> None:
    fabric.add_job(1, 3)
    comms = [fabric.connect(rank) for rank in range(3)]
    x = np.ones(100, np.float32)
    waits = comms[1].all_reduce(x.copy(), async_op=True)
    wait_until(lambda: fabric.verdicts()[Verdict.AGGREGATED] > 0, "rank 1 takes part")
    began = time.monotonic()
    work = comms[0].all_reduce(x.copy(), async_op=True, timeout=0.2)
    with pytest.raises(switchml.CollectiveTimeout, match="rank 2 had not taken part") as raised:
        work.wait()
    assert 0.1 < time.monotonic() - began < limit(1.5)
    assert not waits.is_completed()
    assert raised.value.ranks == (2,)
    with pytest.raises(switchml.CollectiveTimeout, match="was not started") as again:
        comms[0].all_reduce(x)
    assert again.value.ranks == (2,)
    assert (x == 1).all()
    # A rank that gives up is missing to the others: after its close they still get a timeout.
    comms[0].close()
    wait_until(lambda: pb.RankEvent.KIND_LOST in kinds(fabric, 0), "rank 0 is not reported as lost")
    assert "rank 2 had not taken part" in fabric.events[-1].detail


def test_everyone_who_is_out_of_time_hears_of_the_culprit(fabric: Fabric) -> None:
    """Test that the loss of the first rank that gives up does not hide the reason from the others."""
    fabric.add_job(1, 4)

    def run(comm: switchml.Communicator) -> None:
        if comm.rank == 3:
            wait_until(lambda: "ready" not in repr(comm), "it hears that the job has failed")
            with pytest.raises(switchml.WorkerLost, match="rank 3 had not taken part"):
                comm.barrier()
            return
        if comm.rank == 0:
            wait_until(lambda: fabric.verdicts()[Verdict.AGGREGATED] == 2, "ranks 1 and 2 take part")
        with pytest.raises(switchml.SwitchMLError, match="rank 3 had not taken part"), comm:
            comm.barrier(timeout=0.3 if comm.rank == 0 else DEADLINE)

    fabric.run_ranks(4, run)


def test_a_result_that_comes_late_is_still_a_result(fabric: Fabric) -> None:
    fabric.add_job(1, 2)

    def run(comm: switchml.Communicator) -> float:
        x = np.ones(10, np.float32)
        time.sleep(0.2 * comm.rank)
        comm.all_reduce(x, timeout=DEADLINE)
        return float(x[0])

    assert fabric.run_ranks(2, run) == [2, 2]


# ---- ends ----


def test_a_lost_rank_ends_the_calls_of_the_others_at_once(fabric: Fabric, limit: Callable[[float], float]) -> None:
    fabric.add_job(1, 2)
    survivor, victim = fabric.connect(0), fabric.connect(1)
    work = survivor.all_reduce(np.ones(10, np.float32), async_op=True)
    began = time.monotonic()
    victim.end("its host is on fire")
    with pytest.raises(switchml.WorkerLost, match=r"rank 0 of job 'job-1'.*its host is on fire"):
        work.wait()
    assert time.monotonic() - began < limit(2)
    survivor.close()


def test_leaving_a_with_block_by_an_exception_is_a_loss(fabric: Fabric) -> None:
    fabric.add_job(1, 2)
    with pytest.raises(ZeroDivisionError), fabric.connect(0):
        raise ZeroDivisionError
    wait_until(lambda: kinds(fabric, 0) == [pb.RankEvent.KIND_ATTACHED, pb.RankEvent.KIND_LOST], "no loss was reported")


def test_closing_with_unfinished_calls_is_a_loss(fabric: Fabric) -> None:
    fabric.add_job(1, 2)
    comm = fabric.connect(0)
    work = comm.all_reduce(np.ones(10, np.float32), async_op=True)
    comm.close()
    wait_until(lambda: kinds(fabric, 0) == [pb.RankEvent.KIND_ATTACHED, pb.RankEvent.KIND_LOST], "no loss was reported")
    with pytest.raises(switchml.CommunicatorClosed, match="undefined"):
        work.wait()


def test_after_close(fabric: Fabric) -> None:
    fabric.add_job(1, 1)
    comm = fabric.connect(0)
    x = np.ones(10, np.float32)
    done = comm.all_reduce(x, async_op=True)
    done.wait()
    unread = comm.all_reduce(x, async_op=True)
    wait_until(unread.is_completed, "the call did not end")
    comm.close()
    comm.close()
    assert kinds(fabric, 0) == [pb.RankEvent.KIND_ATTACHED, pb.RankEvent.KIND_CLOSED]
    done.wait()
    unread.wait()
    assert unread.is_completed()
    assert "closed" in repr(comm)
    assert (comm.rank, comm.world_size, comm.name, comm.epoch) == (0, 1, "job-1", 1)
    with pytest.raises(switchml.CommunicatorClosed, match="was closed"):
        comm.barrier()


def test_close_releases_threads_that_wait(fabric: Fabric) -> None:
    fabric.add_job(1, 2)
    comm = fabric.connect(0)
    errors: list[BaseException] = []

    def wait() -> None:
        try:
            comm.barrier()
        except switchml.CommunicatorClosed as error:
            errors.append(error)

    threads = [threading.Thread(target=wait) for _ in range(3)]
    for thread in threads:
        thread.start()
    wait_until(lambda: comm._membership.native.waiters == 3, "the threads do not wait")
    comm.close()
    for thread in threads:
        thread.join(DEADLINE)
    assert len(errors) == 3


def test_a_communicator_that_is_dropped_is_closed(fabric: Fabric) -> None:
    fabric.add_job(1, 1)
    comm = fabric.connect(0)
    comm.barrier()
    dropped = weakref.ref(comm)
    del comm
    gc.collect()
    assert dropped() is None
    assert kinds(fabric, 0) == [pb.RankEvent.KIND_ATTACHED, pb.RankEvent.KIND_CLOSED]


def test_nothing_is_left_behind(fabric: Fabric) -> None:
    def count() -> tuple[int, int]:
        return len(list(Path("/proc/self/fd").iterdir())), len(list(Path("/proc/self/task").iterdir()))

    fabric.add_job(1, 2)
    fabric.run_ranks(2, lambda comm: comm.barrier())
    fabric.revoke(1, pb.REVOCATION_REASON_JOB_COMPLETED)
    before = count()
    for job in range(2, 8):
        fabric.add_job(job, 2)
        fabric.run_ranks(2, lambda comm: comm.barrier(), job=job)
        fabric.revoke(job, pb.REVOCATION_REASON_JOB_COMPLETED)
    gc.collect()
    wait_until(lambda: count() <= before, f"before {before}, now {count()}")


@pytest.mark.parametrize("lost", [(4095,), tuple(range(1, 4096, 2)), tuple(range(1, PROTOCOL_MAX_WORLD))])
def test_lost_ranks_of_the_largest_job_are_named(fabric: Fabric, lost: tuple[int, ...]) -> None:
    fabric.add_job(1, 2)
    with fabric.connect(0) as comm:
        fabric.revoke(1, pb.REVOCATION_REASON_WORKER_LOST, lost, ranks_were_lost(list(lost)))
        with pytest.raises(
            switchml.WorkerLost, match=rf"ranks? {lost[0]}(, 3, .* and 2032 more| to 4095)? w"
        ) as raised:
            comm.barrier()
    assert raised.value.ranks == lost


def test_arrays_live_as_long_as_they_are_in_flight(fabric: Fabric) -> None:
    fabric.add_job(1, 2)
    first, second = fabric.connect(0), fabric.connect(1)
    x = np.ones(100_000, np.float32)
    alive = weakref.ref(x)
    first.all_reduce(x, async_op=True)  # neither the handle nor the array is kept here
    del x
    gc.collect()
    assert alive() is not None
    second.all_reduce(np.ones(100_000, np.float32))
    # Each call releases the calls that ended before it.
    for _ in range(2):
        works = [comm.all_reduce(np.ones(1, np.float32), async_op=True) for comm in (first, second)]
        for work in works:
            work.wait()
    gc.collect()
    assert alive() is None
    first.close()
    second.close()


def test_the_agent_ends(tmp_path: Path) -> None:
    with running_fabric(tmp_path) as fabric:
        fabric.add_job(1, 2)
        comm = fabric.connect(0)
        work = comm.all_reduce(np.ones(10, np.float32), async_op=True)
        fabric.wait(fabric.agents[0].server.close())
        with pytest.raises(switchml.AgentLost, match="ended without a message"):
            work.wait()
        comm.close()


# ---- processes ----


def run_program(fabric: Fabric, program: str, rank: int = 0) -> subprocess.Popen[str]:
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(sys.path),
        "SWITCHML_AGENT": str(fabric.socket),
        "SWITCHML_JOB": "job-1",
        "SWITCHML_RANK": str(rank),
    }
    program = (
        # Background jobs of a shell ignore SIGINT, and so do their children.
        "import os, signal, sys\nsignal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "import numpy as np\nimport switchml\ncomm = switchml.connect()\n" + textwrap.dedent(program)
    )
    return subprocess.Popen(
        [sys.executable, "-c", program], env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


@pytest.mark.parametrize(
    ("program", "status", "end"),
    [
        ("comm.barrier()", 0, pb.RankEvent.KIND_CLOSED),
        ("sys.exit(3)", 3, pb.RankEvent.KIND_CLOSED),
        ("1 / 0", 1, pb.RankEvent.KIND_LOST),
        ("os._exit(0)", 0, pb.RankEvent.KIND_LOST),
        ("os.kill(os.getpid(), signal.SIGKILL)", -9, pb.RankEvent.KIND_LOST),
        ("work = comm.all_reduce(np.ones(3, np.float32), async_op=True); os.abort()", -6, pb.RankEvent.KIND_LOST),
    ],
)
def test_how_a_process_ends(fabric: Fabric, program: str, status: int, end: int) -> None:
    fabric.add_job(1, 1)
    process = run_program(fabric, program)
    _, errors = process.communicate(timeout=DEADLINE)
    assert process.returncode == status, errors
    wait_until(lambda: kinds(fabric, 0) == [pb.RankEvent.KIND_ATTACHED, end], f"{fabric.events}")


def voluntary_switches(pid: int) -> int:
    """Return how often the main thread of a process has gone to sleep."""
    [line] = [line for line in Path(f"/proc/{pid}/status").read_text().splitlines() if line.startswith("voluntary")]
    return int(line.split()[1])


@pytest.mark.parametrize("way", ["comm.all_reduce(x)", "work = comm.all_reduce(x, async_op=True); work.wait()"])
def test_a_call_goes_on_after_an_exception_of_a_signal_handler(fabric: Fabric, way: str) -> None:
    """Let a handler raise while a call waits for another rank: the calls that follow it have all results."""
    fabric.add_job(1, 2)
    process = run_program(
        fabric,
        f"""
        class Preempted(Exception):
            pass
        def handler(number, frame):
            raise Preempted
        signal.signal(signal.SIGUSR1, handler)
        x = np.ones(1000, np.float32)
        try:
            {way}
        except Preempted:
            print("preempted", flush=True)
        comm.barrier()
        assert (x == 3).all(), x  # the barrier ends after the call before it
        x *= 2
        comm.all_reduce(x)  # a checkpoint of the same array
        assert (x == 8).all(), x
        assert comm.calls == 3
        print("saved", flush=True)
        comm.close()
        """,
    )
    try:
        wait_until(lambda: fabric.verdicts()[Verdict.AGGREGATED] > 0, "the call is under way")
        # A thread that waits for a call wakes ten times per second. A signal at an earlier moment is another test.
        before = voluntary_switches(process.pid)
        wait_until(lambda: voluntary_switches(process.pid) > before + 10, "it waits")
        process.send_signal(signal.SIGUSR1)
        assert process.stdout is not None
        assert process.stdout.readline() == "preempted\n"
        with fabric.connect(1) as comm:
            x = np.full(1000, 2, np.float32)
            comm.all_reduce(x)
            assert (x == 3).all()
            comm.barrier()
            x[:] = 2
            comm.all_reduce(x)
            assert (x == 8).all()
        output, errors = process.communicate(timeout=DEADLINE)
    finally:
        process.kill()
    assert process.returncode == 0, errors
    assert output == "saved\n"
    wait_until(lambda: kinds(fabric, 0) == [pb.RankEvent.KIND_ATTACHED, pb.RankEvent.KIND_CLOSED], f"{fabric.events}")


def test_an_interrupt_during_a_call_is_a_loss_if_the_process_ends_by_it(fabric: Fabric) -> None:
    fabric.add_job(1, 2)
    process = run_program(fabric, "comm.all_reduce(np.ones(1000, np.float32))")
    wait_until(lambda: fabric.verdicts()[Verdict.AGGREGATED] > 0, "the call is under way")
    before = voluntary_switches(process.pid)
    wait_until(lambda: voluntary_switches(process.pid) > before + 10, "it waits")
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=DEADLINE)
    assert "KeyboardInterrupt" in errors
    wait_until(lambda: kinds(fabric, 0) == [pb.RankEvent.KIND_ATTACHED, pb.RankEvent.KIND_LOST], f"{fabric.events}")
    assert fabric.events[-1].detail == "its program ended by an exception (KeyboardInterrupt)"


def test_a_forked_child_neither_uses_nor_keeps_the_rank(fabric: Fabric) -> None:
    fabric.add_job(1, 1)
    process = run_program(
        fabric,
        """
        read_end, write_end = os.pipe()
        child = os.fork()
        if child == 0:
            try:
                comm.barrier()
            except switchml.CommunicatorClosed as error:
                os.write(1, f"{error}\\n".encode())  # two processes write: whole lines only
            comm.close()
            del comm
            os.read(read_end, 1)  # outlives its parent
            os._exit(0)
        comm.barrier()
        os.write(1, f"{child}\\n".encode())
        os.kill(os.getpid(), signal.SIGKILL)
        """,
    )
    assert process.stdout is not None
    lines = sorted([process.stdout.readline(), process.stdout.readline()])
    assert "from which this one was forked" in lines[1]
    try:
        wait_until(
            lambda: kinds(fabric, 0) == [pb.RankEvent.KIND_ATTACHED, pb.RankEvent.KIND_LOST],
            "the child hides its parent's end",
        )
    finally:
        os.kill(int(lines[0]), signal.SIGKILL)
        process.communicate(timeout=DEADLINE)


# ---- connecting ----


def test_errors_of_connecting(fabric: Fabric, tmp_path: Path) -> None:
    fabric.add_job(1, 2)
    with pytest.raises(switchml.ConnectError, match="there is no agent socket at") as raised:
        switchml.connect(agent=tmp_path / "nothing.sock", job=1, rank=0)
    assert raised.value.reason == ""
    with pytest.raises(switchml.ConnectError, match="has 2 ranks, not 3") as raised:
        fabric.connect(0, world_size=3)
    assert raised.value.reason == "WrongWorldSize"
    (tmp_path / "file").touch()
    with pytest.raises(switchml.ConnectError, match="its agent has ended"):
        switchml.connect(agent=tmp_path / "file", job=1, rank=0)
    with pytest.raises(switchml.ConnectError, match="cannot be used"):
        switchml.connect(agent=tmp_path / ("x" * 200), job=1, rank=0)
    with fabric.connect(0) as comm:
        assert repr(comm) == "<switchml.Communicator job 'job-1' rank 0 of 2, epoch 1, ready>"
        with pytest.raises(switchml.ConnectError, match=f"belongs to process {os.getpid()}"):
            fabric.connect(0)


def test_an_agent_that_does_not_answer(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
        listener.bind(str(tmp_path / "agent.sock"))
        listener.listen()
        with pytest.raises(switchml.ConnectError, match=r"did not answer within 0\.2 s"):
            switchml.connect(agent=tmp_path / "agent.sock", job=1, rank=0, timeout=0.2)


@pytest.mark.parametrize("answer", [b"", b"{}", b"[", b'{"type": "attached"}', b'{"type": "attached", "job_id": "x"}'])
def test_something_that_is_no_agent(tmp_path: Path, answer: bytes) -> None:
    def serve(listener: socket.socket) -> None:
        connected, _ = listener.accept()
        connected.recv(99999)
        if answer:
            connected.send(answer)
        connected.close()

    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
        listener.bind(str(tmp_path / "agent.sock"))
        listener.listen()
        thread = threading.Thread(target=serve, args=(listener,))
        thread.start()
        with pytest.raises(switchml.ConnectError):
            switchml.connect(agent=tmp_path / "agent.sock", job=1, rank=0)
        thread.join(DEADLINE)
