"""Lets atheris see our modules.

An editable installation finds them by a finder of its own, whose modules atheris cannot instrument. To import this
module lets the ordinary finder come first, with the checkout on its path; only the native modules are found by the
other one then.
"""

from __future__ import annotations

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

sys.path[:0] = [str(ROOT), str(ROOT / "tests" / "loopback")]
sys.meta_path.sort(key=lambda finder: "ScikitBuild" in type(finder).__name__)
