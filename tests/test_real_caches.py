"""A compile cache of another arm gives another arm's tokens; every arm has a root of its own.

vLLM's cache key holds only files that were inlined into the graph. A patch that edits nothing but a
module of constants is not in it, so one shared root runs the graph of whoever came first.
"""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import msgspec
import pytest

from stack.bench import runner
from stack.bench.logs import catalogue
from stack.flows.builds import environment
from stack.flows.builds.layers import PROBE
from stack.flows.measure.arms import Arm, Comparison
from stack.flows.measure.trials import Ground, Session
from stack.model.line.line import Member
from stack.model.line.outcome import Outcome
from stack.model.project.settings import Bench, Gate
from stack.store.ledger import Ledger
from stack.store.paths import Paths
from tests.support.engine import REAL_ENVIRONMENT, ROOT, alone, build_engine

pytestmark = [pytest.mark.engine, pytest.mark.xdist_group("engine")]
MODEL = "vllm/model_executor/models/minimax_m2.py"
CONSTANTS = "vllm/model_executor/models/scale_constants.py"
# This release always fails to load what it compiled ahead of time on a CPU; a guard lets it.
LOADER = "vllm/compilation/decorators.py"
FINALIZE = "loaded_fn._artifacts.compiled_fn.finalize_loading(model.vllm_config)"
EMBED = "hidden_states = self.embed_input_ids(input_ids)"
IMPORT = "from .interfaces import "
ARGUMENTS = (
    "--dtype", "float32", "--max-model-len", "64", "--max-num-seqs", "4",
    "--kv-cache-memory-bytes", "32M", "--prompt-lengths", "8,12", "--output-tokens", "12",
)


def layer(folder: Path, site: Path, files: dict[str, bytes]) -> Path:
    """Links to everything that is installed, and real files in their places."""
    for name, data in files.items():
        parts = Path(name).parts
        for depth in range(1, len(parts)):
            real, installed = folder.joinpath(*parts[:depth]), site.joinpath(*parts[:depth])
            real.mkdir(parents=True, exist_ok=True)
            for entry in installed.iterdir():
                inner = Path(*parts[:depth], entry.name)
                shadowed = any(Path(other).is_relative_to(inner) for other in files)
                place = folder / inner
                if entry.name != "__pycache__" and not shadowed and not place.exists():
                    place.symlink_to(entry)
        (folder / name).write_bytes(data)
    return folder


def arm(folder: Path, site: Path, scale: float) -> Arm:
    loader = (site / LOADER).read_text()
    model = (site / MODEL).read_text()
    assert FINALIZE in loader
    assert model.count(EMBED) == 1
    guard = f"hasattr(loaded_fn._artifacts.compiled_fn, 'finalize_loading') and {FINALIZE}"
    scaled = f"{EMBED} * scale_constants.SCALE"
    imported = f"from . import scale_constants\n{IMPORT}"
    files = {
        LOADER: loader.replace(FINALIZE, guard).encode(),
        MODEL: model.replace(EMBED, scaled).replace(IMPORT, imported, 1).encode(),
        CONSTANTS: f"SCALE = {scale}\n".encode(),
    }
    knobs = {
        "HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1",
        "VLLM_PLUGINS": "", "VLLM_ENABLE_V1_MULTIPROCESSING": "0", "VLLM_USE_AOT_COMPILE": "1",
    }
    digests = {name: hashlib.sha256(data).hexdigest() for name, data in files.items()}
    return Arm(
        prefix=f"scale-{scale}", trees={"vllm/test": digests[CONSTANTS]}, knobs=knobs,
        layers=(layer(folder, site, files),), patched=digests,
    )


@pytest.mark.timeout(2400)
def test_a_stale_compile_cache_is_caught_by_roots_of_their_own(tmp_path: Path) -> None:
    engine = build_engine()
    site = environment.site_packages(engine.python.parents[1])
    driver = PROBE.with_name("greedy_tokens.py")
    command = (
        str(engine.python), "-P", str(driver), "--model",
        str(ROOT / ".stack/models/minimax-m2-softmax"), *ARGUMENTS,
    )
    gate = Gate(command=command, field="sha256", limit=900.0, stall=600.0)
    one, two = (arm(tmp_path / f"layer-{scale}", site, scale) for scale in (1.0, 4.0))
    asked = Comparison(
        line="vllm/test", member=Member(name="scale"), outcome=Outcome.CLEAN, mode="marginal",
        name="speed", bench=Bench(command=command, metric="x", unit="u", gate=gate),
        before=one, after=two,
    )
    paths = Paths(tmp_path, tmp_path / "cache")
    ground = Ground(
        profile="test", base_key="b", python=engine.python, site_packages=site, probe=PROBE,
        machine="m", values={}, inputs=(), outer=dict(REAL_ENVIRONMENT),
    )
    session = Session(ground, paths, Ledger(paths.ledger), catalogue(), lambda event: None)
    with alone("engine"):
        first = session.ask(asked, "before", "gate")
        assert first.ran, first
        assert first.cold
        own = session.ask(asked, "after", "gate")
        assert own.ran, own
        job = session._job(asked, "after", "gate", "shared")
        shared = msgspec.structs.replace(job, caches=session._roots(asked, "before", "gate")[0])
        stale = runner.run(shared, catalogue(), lambda seconds, size: None, ground.outer)
        warm = session.ask(asked, "after", "gate", place=4)
    assert own.tokens != first.tokens, "the constant matters"
    assert own.cold
    # The very process that the layer's files were proved in ran the other arm's graph.
    assert stale.outcome == "ok"
    assert CONSTANTS in stale.loaded
    assert stale.tokens == first.tokens, "one shared root would have hidden the patch"
    assert stale.engine["aot"] == "loaded", os.fspath(shared.folder)
    assert (warm.tokens, warm.cold) == (own.tokens, False)
    assert (own.engine["aot"], warm.engine["aot"]) == ("compiled", "loaded")
    assert first.cache != own.cache
