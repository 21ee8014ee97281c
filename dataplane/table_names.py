"""Names of tables of the P4 program, for programs that read them."""

from typing import Final

__all__ = ["LOSS_TABLES", "WORKER_TABLE"]

WORKER_TABLE: Final = "worker_table"
"""The table that admits contributions of the ranks."""

LOSS_TABLES: Final[dict[str, str]] = {"ingress": "loss_ingress_table", "egress": "loss_egress_table"}
"""The tables of the ports that lose packets on purpose, by direction."""
