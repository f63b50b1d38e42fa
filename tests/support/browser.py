"""A headless Chromium, driven through its own debugging pipe."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import time
from pathlib import Path
from types import TracebackType
from typing import Any, Self

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("chrome")
_TIME = 60.0


class Browser:
    """One page; `errors` are the messages of its console and its uncaught exceptions."""

    def __init__(self, profile: Path) -> None:
        self.errors: list[str] = []
        self.requests: list[str] = []
        self._number = 0
        self._rest = b""
        self._session: str | None = None
        self._profile = profile

    def __enter__(self) -> Self:
        self._start()
        try:
            target = self.call("Target.createTarget", url="about:blank")["targetId"]
            attached = self.call("Target.attachToTarget", targetId=target, flatten=True)
            self._session = attached["sessionId"]
            for domain in ("Page", "Runtime", "Log", "Network"):
                self.call(f"{domain}.enable")
        except BaseException:
            self._end()
            raise
        return self

    def _start(self) -> None:
        theirs_in, self._out = os.pipe()
        self._in, theirs_out = os.pipe()
        # The pipe's ends have to be 3 and 4 in the browser: a shell puts them there.
        script = f'exec "$0" "$@" 3</proc/self/fd/{theirs_in} 4>/proc/self/fd/{theirs_out}'
        self._process = subprocess.Popen(
            [
                "sh", "-c", script, str(CHROMIUM), "--headless", "--no-sandbox", "--disable-gpu",
                "--disable-dev-shm-usage", "--no-first-run", f"--user-data-dir={self._profile}",
                "--remote-debugging-pipe", "about:blank",
            ],
            pass_fds=(theirs_in, theirs_out), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )
        os.close(theirs_in)
        os.close(theirs_out)

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._end()

    def _end(self) -> None:
        self._process.terminate()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        os.close(self._in)
        os.close(self._out)

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Send a command and wait for its answer."""
        self._number += 1
        message = {"id": self._number, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._out, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._next()
            if answer.get("id") == self._number:
                assert "error" not in answer, answer
                result: dict[str, Any] = answer["result"]
                return result

    def open(self, path: Path, *, width: int, height: int = 900) -> None:
        """Show a file in a window of this size, and wait until it is loaded."""
        self.call(
            "Emulation.setDeviceMetricsOverride", width=width, height=height,
            deviceScaleFactor=1, mobile=width < 600,
        )
        self.call("Page.navigate", url=path.as_uri())
        end = time.monotonic() + _TIME
        while self.js("document.readyState + location.protocol") != "completefile:":
            assert time.monotonic() < end, "the page does not load"
            time.sleep(0.05)

    def js(self, expression: str) -> Any:
        """The value of an expression in the page."""
        answer = self.call("Runtime.evaluate", expression=expression, returnByValue=True)
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    def _next(self) -> dict[str, Any]:
        while b"\0" not in self._rest:
            piece = os.read(self._in, 1 << 16)
            assert piece, "the browser has ended"
            self._rest += piece
        data, _, self._rest = self._rest.partition(b"\0")
        message: dict[str, Any] = json.loads(data)
        match message.get("method"):
            case "Runtime.exceptionThrown":
                self.errors.append(str(message["params"]["exceptionDetails"]))
            case "Runtime.consoleAPICalled":
                self.errors.append(str(message["params"]["args"]))
            case "Log.entryAdded":
                self.errors.append(str(message["params"]["entry"]))
            case "Network.requestWillBeSent":
                self.requests.append(message["params"]["request"]["url"])
        return message
