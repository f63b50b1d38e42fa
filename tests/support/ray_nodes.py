"""A real Ray cluster of three nodes on this machine, each a host with its own name and folders."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import pytest

NAMES = ("ash", "birch", "cedar")
_STORE = 80 * 2**20  # bytes; Ray's least is 75 MiB


class Nodes:
    """Three raylets that are hosts, and a head that runs no trials."""

    def __init__(self, folder: Path) -> None:
        from ray.cluster_utils import Cluster

        self.folder = folder
        environment = {
            "HOME": str(folder), "STACK_CACHE_DIR": str(folder / "cache"),
            "RAY_USAGE_STATS_ENABLED": "0", "RAY_health_check_period_ms": "1000",
            "RAY_health_check_timeout_ms": "5000", "RAY_health_check_failure_threshold": "3",
            "RAY_health_check_initial_delay_ms": "3000",
        }
        with pytest.MonkeyPatch.context() as patch:
            for name in [name for name in os.environ if name.startswith(("XDG_", "GIT_"))]:
                patch.delenv(name)
            for name, value in environment.items():
                patch.setenv(name, value)
            self.environment = dict(os.environ)
            self.cluster = Cluster()
            self.cluster.add_node(
                num_cpus=0, object_store_memory=_STORE, include_dashboard=False, node_name="head"
            )
            self.nodes: dict[str, Any] = {}
            for name in NAMES:
                self.add(name)

    @property
    def address(self) -> str:
        return str(self.cluster.address)

    def add(self, name: str, **environment: str) -> None:
        """Start a node; `environment` is its own."""
        with pytest.MonkeyPatch.context() as patch:
            for key in [key for key in os.environ if key not in self.environment]:
                patch.delenv(key)
            for key, value in {**self.environment, **environment}.items():
                patch.setenv(key, value)
            self.nodes[name] = self.cluster.add_node(
                num_cpus=1, object_store_memory=_STORE, include_dashboard=False, node_name=name,
            )

    def whole(self) -> Nodes:
        """The three nodes and no other, those that a test has killed started again."""
        for name in [name for name in self.nodes if name not in NAMES]:
            self.kill(name)
        for name in NAMES:
            if name not in self.nodes:
                self.add(name)
        return self

    def kill(self, name: str) -> None:
        """End a node without a goodbye."""
        self.cluster.remove_node(self.nodes.pop(name), allow_graceful=False)

    def contents(self, name: str) -> list[Path]:
        """The contents that have come to a host."""
        return sorted((self.folder / "cache" / "hosts" / name / "contents").glob("*"))

    def stop(self) -> None:
        self.cluster.shutdown()
        time.sleep(0.5)
