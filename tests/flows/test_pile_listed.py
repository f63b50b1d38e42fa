"""Every file of a pile is listed with what became of it: links, pipes, archives and notes too."""

from __future__ import annotations

import gzip
import io
import os
import tarfile
import zipfile
from pathlib import Path

from tests.flows.test_pile_import import APP, changed
from tests.support.piles import Pile

HUNK = b"@@ -4,3 +4,3 @@\n line 4\n-line 5\n+LINE 5\n line 6\n"
DIFF = b"--- a/pkg/app.py\n+++ b/pkg/app.py\n" + HUNK


def test_archives_are_listed_whatever_they_are_named(tmp_path: Path) -> None:
    pile = Pile(tmp_path, {"pkg/app.py": APP})
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as zipped:
        zipped.writestr("a.patch", DIFF)
    pile.add("all.zip", packed.getvalue())
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as tar:
        info = tarfile.TarInfo("a.patch")
        info.size = len(DIFF)
        tar.addfile(info, io.BytesIO(DIFF))
    pile.add("all.tar.gz", packed.getvalue())
    pile.add("other.tgz", packed.getvalue())
    rows = pile.rows(code=1)
    assert set(rows) == {"all.zip", "all.tar.gz", "other.tgz"}
    for row in rows.values():
        assert row["result"] == "damaged"
        assert "an archive: unpack it first" in row["reason"]
    told = pile.stack("import", "--json", pile.inputs / "all.zip")
    assert "an archive: unpack it first" in told.json["data"]["inputs"][0]["reason"]


def test_a_note_that_was_named_is_kept_with_its_patch_and_nothing_is_aside(tmp_path: Path) -> None:
    pile = Pile(tmp_path, {"pkg/app.py": APP})
    patch, note = pile.add("a.patch", DIFF), pile.add("a.txt", b"Fewer copies\n\nMeasured.\n")
    data = pile.stack.ok("import", patch, note, "--json").json["data"]
    assert [row["result"] for row in data["inputs"]] == ["placed", "contained"]
    assert f"its words are kept with {patch}" in data["inputs"][1]["reason"]
    text = (pile.stack.folder / "patches/demo/1.0/a.patch").read_text()
    assert "Subject: Fewer copies" in text
    assert "\nMeasured.\n" in text


def test_the_page_of_an_import_needs_no_measurement(tmp_path: Path) -> None:
    pile = Pile(tmp_path, {"pkg/app.py": APP})
    assert pile.stack("report", "--html").code == 2
    pile.snap("01.patch", {"pkg/app.py": changed(APP, 10)})
    pile.add("02.patch.gz", gzip.compress(b"x")[:-3])
    assert pile.results(code=1) == {"01.patch": "placed", "02.patch.gz": "damaged"}
    told = pile.stack.ok("report", "--html", "-o", "page.html")
    assert "nothing was measured yet" in told.err
    page = (pile.stack.folder / "page.html").read_text()
    assert "<h2>Imported files</h2>" in page
    assert "02.patch.gz" in page


def test_what_a_series_does_not_name_is_told(tmp_path: Path) -> None:
    pile = Pile(tmp_path, {"pkg/app.py": APP})
    pile.add("a.diff", DIFF)
    pile.add("b.diff", DIFF.replace(b"LINE", b"five"))
    pile.add("series", b"a.diff\n# b.diff\n")
    row = pile.rows(code=1)["b.diff"]
    assert (row["result"], row["reason"]) == ("other", "its folder's series file does not name it")
    mail = b"From: Ann <ann@x.org>\nDate: Mon, 1 Jun 2026 10:00:00 +0000\nSubject: Five\n\n---\n"
    for name in ("a.diff", "b.diff"):
        pile.add(name, mail + (pile.inputs / name).read_bytes())
    told = pile.stack("import", "--as", "mails", "--dry-run", pile.inputs)
    assert "b.diff: its folder's series file does not name it" in told.err, told


def test_links_and_pipes_of_a_pile_are_listed_and_never_read(tmp_path: Path) -> None:
    pile = Pile(tmp_path, {"pkg/app.py": APP})
    real = pile.add("old/a.diff", DIFF)
    (pile.inputs / "current.diff").symlink_to(real)  # in the pile: it comes by its own name
    (tmp_path / "far").mkdir()
    (tmp_path / "far/b.diff").write_bytes(real.read_bytes().replace(b"LINE", b"five"))
    (pile.inputs / "b.diff").symlink_to(tmp_path / "far/b.diff")
    (pile.inputs / "more").symlink_to(tmp_path / "far")
    os.mkfifo(pile.inputs / "pipe.patch")
    rows = pile.rows(code=1)
    why = "a link that leads out of the pile: name what it leads to"
    assert {name: (row["result"], row["reason"]) for name, row in rows.items()} == {
        "a.diff": ("placed", "on what stood"), "b.diff": ("other", why), "more": ("other", why),
        "pipe.patch": ("other", "no file to read"),
    }
