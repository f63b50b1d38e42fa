"""Which package indexes are configured, and which of them answer."""

from __future__ import annotations

import http.server
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from stack.host import indexes
from stack.host.indexes import Sources


class _Index(http.server.BaseHTTPRequestHandler):
    """Answers with the status that the path names."""

    def do_HEAD(self) -> None:
        self.send_response(int(self.path.strip("/")))
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def index() -> Iterator[str]:
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Index) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()


@pytest.fixture
def closed() -> str:
    """An address where nobody listens."""
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        return f"http://127.0.0.1:{held.getsockname()[1]}/simple"


def test_any_answer_counts_but_a_broken_server_does_not(index: str) -> None:
    none = Sources(indexes=())
    for status in (200, 401, 403, 404, 405):
        assert indexes.why_unreachable(f"{index}/{status}", none) is None
    assert indexes.why_unreachable(f"{index}/503", none) == "it answers 503"


def test_a_refused_connection_is_skipped_with_its_reason_and_no_password(
    index: str, closed: str
) -> None:
    secret = closed.replace("://", "://user:password@")
    sources = Sources(indexes=(f"{index}/200",))
    answering, silent = indexes.reachable(sources, [secret])
    assert answering == (f"{index}/200",)
    assert dict(silent) == {closed: "Connection refused"}


def test_a_host_that_never_answers_costs_the_timeout_only() -> None:
    with socket.socket() as server:  # accepts at most what its queue holds, and says nothing
        server.bind(("127.0.0.1", 0))
        server.listen(1)
        url = f"http://127.0.0.1:{server.getsockname()[1]}/"
        why = indexes.why_unreachable(url, Sources(indexes=()), timeout=0.2)
        assert why is not None
        assert "timed out" in why


def test_local_folders(tmp_path: Path) -> None:
    none = Sources(indexes=())
    assert indexes.why_unreachable(tmp_path.as_uri(), none) is None
    assert indexes.why_unreachable((tmp_path / "no").as_uri(), none) == "no such folder"
    assert indexes.why_unreachable("ftp://example.invalid", none) == "ftp is not a kind of index"


def test_no_index_silences_the_profile_too(index: str) -> None:
    answering, silent = indexes.reachable(Sources(indexes=(), no_index=True), [f"{index}/200"])
    assert answering == ()
    assert list(silent) == [f"{index}/200"]


def test_pips_configuration_is_read_with_its_own_precedence() -> None:
    text = """:env:.find-links='/a /b'
global.extra-index-url='file:///x\\nfile:///y'
global.find-links='/never'
global.cert='/etc/ca.crt'
install.index-url='https://pypi.example/simple'
global.index-url='https://other.example/simple'
list.format='columns'
a line that is none
"""
    assert indexes.parse_config(text) == {
        "find-links": "/a /b", "extra-index-url": "file:///x\nfile:///y", "cert": "/etc/ca.crt",
        "index-url": "https://pypi.example/simple",
    }


def test_variables_of_pip_are_respected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PIP_INDEX_URL", "https://one.example/simple")
    monkeypatch.setenv("PIP_EXTRA_INDEX_URL", "https://two.example https://three.example")
    monkeypatch.setenv("PIP_FIND_LINKS", "/links")
    found = indexes.configured("/bin/false")
    assert found.indexes == (
        "https://one.example/simple", "https://two.example", "https://three.example",
    )
    assert found.find_links == ("/links",)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    assert indexes.configured("/bin/false").indexes == ()
