"""The lessons of the tutorial that need no PyTorch; `make tutorial` checks all of them, and their mistakes."""

import subprocess
import sys
from pathlib import Path

import pytest

CHECK = Path(__file__).parents[2] / "docs" / "tutorial" / "check.py"


def checked(lesson: int, *options: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(CHECK), str(lesson), *options]
    return subprocess.run(command, capture_output=True, text=True, timeout=500, check=False)


@pytest.mark.parametrize("lesson", [3, 4])
def test_the_solution_passes_and_the_exercise_does_not(lesson: int) -> None:
    solution = checked(lesson, "--solution")
    assert (solution.returncode, solution.stderr) == (0, ""), solution
    assert f"lesson {lesson}, solution.py: passed" in solution.stdout
    exercise = checked(lesson)
    assert exercise.returncode == 1, exercise
    assert f"lesson {lesson}, exercise.py: not filled in yet: hole 1: " in exercise.stdout
