"""Losses, duplicates and delays at the switch's ports change no sum."""

from tests.support.fabric_harness import Ctl


def test_sums_are_right_with_one_percent_of_everything(ctl: Ctl) -> None:
    faults = ("--drop", "0.01", "--duplicate", "0.01", "--delay", "0.01", "--seed", "7")
    assert ctl.json("up", *faults)["options"]["drop"] == 0.01
    result = ctl.json("job", "start", "--workers", "8", *ctl.worker("sums", "--sizes", "1,65,300000"))
    assert result["state"] == "COMPLETED"
    switch = result["switch"]
    # Losses affect both directions and each copy: about 1 % of contributions, and 1 % of results at each of 8 ranks.
    assert switch["dropped"]["injected_loss"] > 0.005 * switch["contributions"]
    assert switch["resent"] > 0
    assert switch["duplicate"] > 0
    shown = ctl.json("switch", "show")
    assert shown["drop_reasons"]["injected_loss"] >= switch["dropped"]["injected_loss"]
    job = ctl.json("job", "show", result["name"])
    assert sum(int(rank["counters"]["retransmissions"]) for rank in job["ranks"]) > 0


def test_faults_of_a_fabric_that_a_job_starts_come_from_the_environment(ctl: Ctl) -> None:
    ctl.environment |= {"SWITCHML_FABRIC_DROP": "0.05", "SWITCHML_FABRIC_VALUES": "64"}
    result = ctl.json("job", "start", "--workers", "2", *ctl.worker("sums"))
    assert result["state"] == "COMPLETED"
    assert result["switch"]["dropped"]["injected_loss"] > 0
