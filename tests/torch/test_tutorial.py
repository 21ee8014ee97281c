"""A lesson of the tutorial that needs PyTorch; `make tutorial` checks all of them, and their mistakes."""

from tests.fabric.test_tutorial import checked


def test_a_compressor_trains() -> None:
    solution = checked(5, "--solution")
    assert solution.returncode == 0, solution
    assert "lesson 5, solution.py: passed" in solution.stdout
