"""The page beside the ladder: modes in columns, verdicts that may not hold, the forecast."""

from __future__ import annotations

from pathlib import Path

from stack.flows.measure.staleness import digest_of
from stack.store.ledger import Ledger
from stack.store.paths import Paths
from stack.store.project import Project
from tests.conftest import numbered
from tests.report.test_page import Parsed, verdict
from tests.support.cli import Stack
from tests.support.project import Demo

TOML = """
[profile.p]
lines = ["demo/1.0"]
[bench.speed]
command = ["x"]
metric = "m"
unit = "tok/s"
minimum-effect = 0.02
"""


def test_modes_stand_beside_each_other_and_a_changed_patch_makes_a_verdict_doubtful(
    stack: Stack, tmp_path: Path
) -> None:
    demo = Demo(stack, tmp_path)
    demo.patches(2)
    demo.upstream.commit("theirs", {"src/f1.py": numbered(20).replace(b"line 7\n", b"other\n")})
    demo.upstream.git("tag", "v1.1")
    config = stack.folder / "stack.toml"
    config.write_text(config.read_text() + TOML)
    line = Project(Paths(stack.folder, tmp_path)).line("demo", "1.0")
    ledger = Ledger(stack.folder / ".stack/ledger")
    for number, names in ((0, ["edit-0"]), (1, ["edit-0", "edit-1"])):
        for at, (mode, ratio) in enumerate((("marginal", 1.1), ("default-off", 1.01))):
            ledger.append(verdict(
                f"edit-{number}", "FASTER", f"2{number}", id=f"v{number}{at}", line="demo/1.0",
                mode=mode, ratio=ratio, low=ratio - 0.05, high=ratio + 0.05, pairs=3,
                sources={"demo/1.0": digest_of(line, names)},
            ))
    ledger.append(verdict(
        "edit-0", "SLOWER", "23", line="demo/1.0", mode="leave-one-out", ratio=0.75,
        sources={"demo/1.0": "of an older line"},
    ))
    stack.ok("report", "--html", "--forecast", "v1.1", "-o", "page.html")
    text = (stack.folder / "page.html").read_text()
    page = Parsed(text)
    effects = text[text.index('id="effects"'):text.index("Forecast of")]
    product = "&times;2 since base"
    for said in ("+10.0 %", "+1.0 %", product, "+21.0 %", "patches of demo/1.0 changed"):
        assert said in effects, said
    assert effects.count(">stale<") == 1
    forecast = text[text.index("Forecast of demo/1.0"):text.index("<h2>History")]
    assert 'class="figure clean"' in forecast
    assert 'class="figure conflict"' in forecast
    assert "1.1" in page.values()
    assert stack("report", "--forecast", "v1.1").code == 2

    # Words may change, code may not.
    patch = demo.line / "edit-0.patch"
    patch.write_text(patch.read_text().replace("reason 0", "a better reason"))
    assert "edit-1" in stack.ok("report").out
    assert stack.ok("report").out.count("may not hold any more") == 1
    patch.write_text(patch.read_text().replace("changed 0", "changed 9"))
    rows = stack.ok("report", "--json").json["data"]["patches"]
    assert [row["stale"] for row in rows] == ["patches of demo/1.0 changed since"] * 2
