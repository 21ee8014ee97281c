"""Check the exercise of a lesson, and say what is wrong with it.

python docs/tutorial/check.py 3                 the exercise of lesson 3
python docs/tutorial/check.py 3 --solution      its solution
python docs/tutorial/check.py --prove           that every solution passes, and that everything else fails with the
                                                right message: exercises with a hole, and solutions with a mistake
"""

from __future__ import annotations

import argparse
import re
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[1]))  # for the packet tests, which only a checkout has

from harness import Wrong, load  # noqa: E402

_HOLE = re.compile(r"( *# ---- hole (\d):[^\n]*\n)(.*?)( *# ---- end of hole \2\n)", re.DOTALL)


def folder_of(lesson: int) -> Path:
    """Return the folder of a lesson."""
    [folder] = HERE.glob(f"{lesson}_*")
    return folder


def lessons() -> list[int]:
    """Return the numbers of all lessons."""
    return sorted(int(path.parent.name.partition("_")[0]) for path in HERE.glob("*/check.py"))


def outcome(lesson: Any, program: Path) -> str:
    """Return what is wrong with a program; an empty text if nothing is."""
    try:
        lesson.check(program)
    except NotImplementedError as error:
        return f"not filled in yet: {error}"
    except Wrong as error:
        return str(error)
    return ""


def prove(number: int) -> list[str]:
    """Return what is wrong with a lesson itself."""
    folder = folder_of(number)
    lesson = load(folder / "check.py")
    exercise, solution = ((folder / f"{name}.py").read_text(encoding="utf-8") for name in ("exercise", "solution"))
    unfilled = {hole: inside for _, hole, inside, _ in _HOLE.findall(exercise)}
    wrong = []
    if _HOLE.sub(r"\1\4", exercise) != _HOLE.sub(r"\1\4", solution):
        wrong.append("exercise.py and solution.py differ outside of the holes")

    def expect(what: str, text: str, message: str) -> None:
        with tempfile.TemporaryDirectory() as directory:
            program = Path(directory) / "exercise.py"
            program.write_text(text, encoding="utf-8")
            began = time.monotonic()
            said = outcome(lesson, program)
        good = message in said if message else not said
        print(f"lesson {number}, {what}, {time.monotonic() - began:.0f} s: {said or 'passed'}", flush=True)
        if not good:
            wrong.append(f"{what}: {said or 'passed'}, without {message!r}")

    expect("solution", solution, "")
    expect("exercise", exercise, "not filled in yet: hole 1")
    second = _HOLE.sub(lambda found: found[1] + (unfilled["2"] if found[2] == "2" else found[3]) + found[4], solution)
    expect("solution without hole 2", second, "not filled in yet: hole 2")
    for old, new, message in lesson.MISTAKES:
        assert solution.count(old) == 1, f"lesson {number}: {old!r} is in the solution {solution.count(old)} times"
        expect(f"mistake {new.strip() or 'without ' + old!r}", solution.replace(old, new), message)
    return [f"lesson {number}: {one}" for one in wrong]


def main() -> int:
    """Check what the command line names."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("lessons", nargs="*", type=int, metavar="LESSON")
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--solution", action="store_true", help="check the solution in place of the exercise")
    which.add_argument("--prove", action="store_true", help="check the lessons themselves; all without a LESSON")
    options = parser.parse_args()
    known = lessons()  # not as `choices`, with which Python 3.11 refuses an empty list
    if unknown := sorted(set(options.lessons) - set(known)):
        parser.error(f"there is no lesson {unknown[0]}; the lessons are {known[0]} to {known[-1]}")
    if options.prove:
        wrong = [line for number in options.lessons or known for line in prove(number)]
        print("\n".join(wrong) or "all solutions pass, and all holes and mistakes are found")
        return bool(wrong)
    if not options.lessons:
        parser.error("name a lesson, such as 1")
    status = 0
    for number in options.lessons:
        program = folder_of(number) / ("solution.py" if options.solution else "exercise.py")
        said = outcome(load(folder_of(number) / "check.py"), program)
        print(f"lesson {number}, {program.name}: {said or 'passed'}")
        status |= bool(said)
    return status


if __name__ == "__main__":
    sys.exit(main())
