"""Figures are believed only where the result file and the engine's own log line agree."""

from __future__ import annotations

from pathlib import Path

import pytest

from stack.bench import metrics


@pytest.mark.parametrize(
    ("path", "found"),
    [
        ("rate", 2.5), ("runs[1].rate", 4), ("runs[2].rate", None), ("runs.rate", None),
        ("no.such.key", None), ("deep.er.still", 1),
    ],
)
def test_a_path_leads_to_a_value_or_to_none(path: str, found: object) -> None:
    document = {"rate": 2.5, "runs": [{"rate": 3}, {"rate": 4}], "deep": {"er": {"still": 1}}}
    assert metrics.at(document, path) == found


@pytest.mark.parametrize(
    ("text", "outcome", "said"),
    [
        ("{", "blocked:no_result", "is not JSON"),
        ('{"other": 1}', "blocked:no_result", "no number at `rate`"),
        ('{"rate": "fast"}', "blocked:no_result", "no number at `rate`"),
        ('{"rate": true}', "blocked:no_result", "no number at `rate`"),
        ('{"rate": 0}', "quality:nan", "`rate` is 0"),
        ('{"rate": NaN}', "quality:nan", "`rate` is nan"),
        ('{"rate": -1.5}', "quality:nan", "`rate` is -1.5"),
    ],
)
def test_what_is_no_figure_says_why(tmp_path: Path, text: str, outcome: str, said: str) -> None:
    (tmp_path / "r.json").write_text(text)
    with pytest.raises(metrics.NoFigures) as caught:
        metrics.read(tmp_path / "r.json", "rate")
    assert caught.value.outcome == outcome
    assert said in caught.value.cause


def test_a_missing_result_is_no_figure(tmp_path: Path) -> None:
    with pytest.raises(metrics.NoFigures, match=r"without writing r\.json"):
        metrics.read(tmp_path / "r.json", "rate")


def test_the_log_is_read_at_its_end(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_bytes(b"Throughput: 1.00 x\n" + b"noise\n" * 900_000 + b"Throughput: 2.50 x\n\xff\n")
    assert metrics.logged(log, r"Throughput: ([0-9.]+) x") == "2.50"
    with pytest.raises(metrics.NoFigures, match="no line of the log"):
        metrics.logged(log, r"Latency: ([0-9.]+)")


@pytest.mark.parametrize(
    ("value", "printed", "fits"),
    [
        (14.398516, "14.40", True), (14.398516, "14.4", True), (0.1499845, "0.15", True),
        (1234567.0, "1234567", True), (14.398516, "14.50", False), (14.398516, "1.440", False),
        (2.0, "nan", False), (2.0, "1.2.3", False),
    ],
)
def test_both_figures_must_agree_to_the_printed_digits(
    value: float, printed: str, fits: bool
) -> None:
    if fits:
        assert metrics.agree(value, printed) == float(printed)
    else:
        with pytest.raises(metrics.NoFigures):
            metrics.agree(value, printed)


def test_the_gate_object_is_the_last_one_with_its_field(tmp_path: Path) -> None:
    log = tmp_path / "log"
    old, new = '{"sha256": "old"}', '{"sha256": "new", "n": 1}'
    log.write_text("\n".join([old, "INFO x", f"bar 3% {new}", '{"other": 2}', "{b"]))
    assert metrics.last_object(log, "sha256") == {"sha256": "new", "n": 1}
    with pytest.raises(metrics.NoFigures, match="no JSON object with `tokens`"):
        metrics.last_object(log, "tokens")
