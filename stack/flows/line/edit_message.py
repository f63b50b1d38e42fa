"""Give a patch other words; what it changes stays."""

from __future__ import annotations

from collections.abc import Callable

from stack.errors import UsageError
from stack.flows.events import Emit
from stack.flows.line.arrange import picks
from stack.flows.line.restack import Plan, Restacked, restack
from stack.flows.line.standing import Standing
from stack.model.line.restack import Pick
from stack.model.objects import Commit
from stack.repo.format import refuse_unmailable
from stack.store.project import Line, Project


def edit_message(
    project: Project, line: Line, name: str, ask: Callable[[str], str | None], emit: Emit, *,
    dry_run: bool = False, command: tuple[str, ...] = (),
) -> Restacked:
    """Give a patch other words: `ask` is given its message and gives the new one."""
    text: dict[str, bytes] = {}

    def plan(here: Standing) -> Plan:
        old = here.odb.commit(here.commit_of(name))
        if not text:
            said = ask(old.message.decode("utf-8", "replace"))
            text["new"] = (said.strip("\n") + "\n").encode() if said and said.strip() else b""
        if not text["new"]:
            raise UsageError("the message is empty", hint="nothing was changed")
        made = Commit(
            tree=old.tree, parents=old.parents, author=old.author, committer=old.committer,
            message=text["new"],
        )
        oid = here.odb.add("commit", made.render())
        refuse_unmailable(made.message, f"patch `{name}`")
        found = [Pick(name=p.name, commit=oid if p.name == name else p.commit) for p in picks(here)]
        return Plan(what=f"edit {name}", picks=found, order=here.names)

    return restack(project, line, f"edit {name}", plan, emit, dry_run=dry_run, command=command)
