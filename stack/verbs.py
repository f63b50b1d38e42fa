"""The verbs, in the order and groups in which help shows them; no verb is imported for that."""

from __future__ import annotations

GROUPS: dict[str, dict[str, str]] = {
    "Begin": {
        "init": "Start a project in a folder",
        "upstream": "Add, fetch and list upstreams",
        "line": "Add and list lines",
        "import": "Take mail patches, a branch or a pile of diffs into a line",
    },
    "Look": {
        "status": "Compare the workspaces with the patch files",
        "list": "List lines and their patches",
        "show": "Show a patch",
        "log": "List what was done, for undo",
    },
    "Change": {
        "apply": "Apply a line in its workspace, all or nothing",
        "export": "Write the workspace's commits back to the patch files",
        "new": "Make a patch of what is changed in the workspace",
        "edit": "Change a patch where it stands",
        "refresh": "Put what is changed in the workspace into a patch",
        "fold": "Make one patch of two",
        "split": "Cut a patch into parts whose sum is the patch",
        "drop": "Take patches out of a line",
        "move": "Put a patch elsewhere in its line",
        "rename": "Give a patch another name",
        "undo": "Take the last change back",
    },
    "Carry": {
        "forecast": "Say what a rebase would meet, without touching anything",
        "rebase": "Carry a line to another commit",
        "resolve": "Answer conflict regions, and tend the memory of answers",
        "range-diff": "Compare the patches of two lines",
    },
    "Serve": {
        "build": "Make the environment of a profile and a layer per prefix",
        "use": "Make a profile run a prefix of a line from now on",
        "rollback": "Make a profile run again what it ran before",
        "run": "Run a command in a prefix",
        "install": "Put a layer into an environment of your own, or take it out",
        "capture": "Make a patch of the edits in an installed package",
    },
    "Prove": {
        "verify": "Measure each patch against the prefix before it",
        "screen": "Try knobs of a bench against the best setting so far",
        "bisect": "Find the patch or upstream commit that changed a bench",
        "promote": "Make a patch active because a measurement says so",
        "park": "Take a patch out of use, with the reason and what was measured",
        "watch": "Look on while a verify or screen runs",
        "report": "Show the last verdicts as a table",
        "diagnose": "Say how runs ended and why, from their logs",
        "ledger": "Take in results of other labs, and hand out ours",
    },
    "Care": {
        "doctor": "Check this machine and project, and name what is missing",
        "lint": "Review the text of patches",
        "upstreamed": "Record where upstream's review of a patch stands",
        "ci": "Ask everything that a pull request has to answer, in one exit code",
        "gc": "Remove what nothing needs any more",
        "completion": "Print the shell completion script",
    },
}
