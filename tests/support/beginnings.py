"""The beginnings of commands that write: what stands before each, and the command line."""

from __future__ import annotations

from collections.abc import Callable

from tests.conftest import numbered
from tests.support.project import Demo

Begin = Callable[[Demo], tuple[str, ...]]


def _edit(demo: Demo, number: int, text: bytes) -> None:
    data = numbered(20).replace(b"line 7\n", b"changed %d\n" % number)
    demo.write({f"src/f{number}.py": data.replace(b"line 15\n", text)})


def apply_first(demo: Demo) -> tuple[str, ...]:
    return ("apply",)


def apply_fewer(demo: Demo) -> tuple[str, ...]:
    demo.apply()
    return ("apply", "--without", "edit-1")


def export(demo: Demo) -> tuple[str, ...]:
    demo.apply()
    demo.commit("New one\n\nWhy: it is new\n", {"src/new.py": b"1\n"})
    return ("export",)


def import_more(demo: Demo) -> tuple[str, ...]:
    demo.upstream.commit("Late\n\nWhy: late\n", {"src/late": b"1\n"})
    (mail,) = demo.upstream.patches("v1.0", demo.scratch / "late")
    return ("import", str(mail))


def new(demo: Demo) -> tuple[str, ...]:
    demo.apply()
    demo.write({"src/new.py": b"1\n"})
    return ("new", "fresh", "-m", "Fresh", "--why", "it is new")


def refresh(demo: Demo) -> tuple[str, ...]:
    demo.apply()
    _edit(demo, 2, b"more\n")
    return ("refresh", "edit-2")


def fold(demo: Demo) -> tuple[str, ...]:
    demo.apply()
    return ("fold", "edit-1", "--into", "edit-0")


def drop(demo: Demo) -> tuple[str, ...]:
    demo.apply()
    return ("drop", "edit-1")


def move(demo: Demo) -> tuple[str, ...]:
    demo.apply()
    return ("move", "edit-2", "--before", "edit-0")


def rename(demo: Demo) -> tuple[str, ...]:
    demo.apply()
    return ("rename", "edit-1", "renamed")


def undo(demo: Demo) -> tuple[str, ...]:
    demo.apply()
    demo.stack.ok("drop", "edit-1")
    return ("undo",)


def rebase(demo: Demo) -> tuple[str, ...]:
    demo.upstream.commit("Go on", {"README": b"on\n"})
    demo.upstream.git("tag", "v1.1")
    return ("rebase", "--onto", "demo@v1.1")


def line_add(demo: Demo) -> tuple[str, ...]:
    demo.upstream.commit("Go on", {"README": b"on\n"})
    demo.upstream.git("tag", "v1.1")
    return ("line", "add", "demo@v1.1")


def drop_continue(demo: Demo) -> tuple[str, ...]:
    demo.apply()
    demo.write({"src/f1.py": numbered(20).replace(b"line 7\n", b"changed twice\n")})
    demo.stack.ok("new", "twice", "-m", "Twice", "--why", "it is more")
    demo.write({"src/last.py": b"1\n"})
    demo.stack.ok("new", "last", "-m", "Last", "--why", "it stands above")
    assert demo.stack("drop", "edit-1").code == 3
    _answer(demo, "restack")
    return ("drop", "--continue")


def rebase_continue(demo: Demo) -> tuple[str, ...]:
    theirs = numbered(20).replace(b"line 7\n", b"theirs\n")
    demo.upstream.commit("Theirs", {"src/f1.py": theirs})
    demo.upstream.git("tag", "v1.1")
    assert demo.stack("rebase", "--onto", "demo@v1.1").code == 3
    _answer(demo, "rebase")
    return ("rebase", "--continue")


def rebase_skip(demo: Demo) -> tuple[str, ...]:
    rebase_continue(demo)
    return ("rebase", "--skip")


def _answer(demo: Demo, where: str) -> None:
    shown = demo.stack.folder / f".stack/{where}/tree/src/f1.py"
    shown.write_bytes(numbered(20).replace(b"line 7\n", b"answered\n"))


def init(demo: Demo) -> tuple[str, ...]:
    for name in ("stack.toml", ".gitignore", "patches/.gitattributes"):
        (demo.stack.folder / name).unlink(missing_ok=True)
    return ("init",)


def upstream_add(demo: Demo) -> tuple[str, ...]:
    return ("upstream", "add", "other", str(demo.upstream.folder))


def line_default(demo: Demo) -> tuple[str, ...]:
    demo.stack.ok(*line_add(demo))
    return ("line", "default", "demo/1.1")


def line_remove(demo: Demo) -> tuple[str, ...]:
    demo.stack.ok(*line_add(demo))
    return ("line", "remove", "demo/1.1")


def import_pile(demo: Demo) -> tuple[str, ...]:
    pile = demo.scratch / "pile"
    pile.mkdir()
    for number in (5, 6):
        demo.upstream.write({f"src/f{number}.py": numbered(20).replace(b"line 3\n", b"three\n")})
        (pile / f"{number}.diff").write_bytes(demo.upstream.git("diff") + b"\n")
    demo.upstream.git("checkout", "--", ".")
    return ("import", str(pile))


def edit(demo: Demo) -> tuple[str, ...]:
    demo.apply()
    return ("edit", "edit-1")


def edit_message(demo: Demo) -> tuple[str, ...]:
    demo.apply()
    return ("edit", "edit-1", "--message", "-m", "Another subject", "-m", "Why: it is better")


def edit_continue(demo: Demo) -> tuple[str, ...]:
    demo.stack.ok(*edit(demo))
    _edit(demo, 1, b"more\n")
    return ("edit", "--continue")


def edit_abort(demo: Demo) -> tuple[str, ...]:
    edit_continue(demo)
    return ("edit", "--abort")


def drop_abort(demo: Demo) -> tuple[str, ...]:
    drop_continue(demo)
    return ("drop", "--abort")


def rebase_abort(demo: Demo) -> tuple[str, ...]:
    rebase_continue(demo)
    return ("rebase", "--abort")


def resolve(demo: Demo) -> tuple[str, ...]:
    rebase_continue(demo)
    demo.stack.ok("rebase", "--abort")
    assert demo.stack("rebase", "--onto", "demo@v1.1").code == 3
    return ("resolve", "--take", "target")


def split(demo: Demo) -> tuple[str, ...]:
    demo.more("Both\n\nWhy: both", {"src/one.py": b"1\n", "src/two.py": b"2\n"})
    demo.apply()
    return ("split", "both", "--by", "file")


def park(demo: Demo) -> tuple[str, ...]:
    demo.apply()
    return ("park", "edit-2", "--reason", "obsolete", "--force")


def upstreamed(demo: Demo) -> tuple[str, ...]:
    demo.apply()
    return ("upstreamed", "edit-1", "--status", "Submitted", "--link", "https://h.invalid/1")


def gc(demo: Demo) -> tuple[str, ...]:
    demo.apply()
    demo.stack.ok("drop", "edit-1")
    return ("gc",)


def ledger_import(demo: Demo) -> tuple[str, ...]:
    table = demo.scratch / "table.md"
    table.write_text("| patch | before | after |\n|---|---|---|\n| edit-1 | 10.0 | 11.0 |\n")
    return ("ledger", "import", str(table), "--by", "a lab")


BEGINNINGS: list[Begin] = [
    apply_first, apply_fewer, export, import_more, new, refresh, fold, drop, move, rename, undo,
    rebase, line_add, drop_continue, rebase_continue, rebase_skip, init, upstream_add,
    line_default, line_remove, import_pile, edit, edit_message, edit_continue, edit_abort,
    drop_abort, rebase_abort, resolve, split, park, upstreamed, gc, ledger_import,
]  # fmt: skip
