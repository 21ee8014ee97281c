"""Make SwitchML's modules visible to atheris.

An editable installation finds them through a separate finder, whose modules atheris cannot instrument. Importing this
module puts Python's ordinary finder first, with the checkout on its path, so that the separate finder finds only the
native modules.
"""

from __future__ import annotations

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

sys.path.insert(0, str(ROOT))
sys.meta_path.sort(key=lambda finder: "ScikitBuild" in type(finder).__name__)
