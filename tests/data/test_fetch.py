"""Fetching: what is verified, what is kept, and what is refused with which sentence. Loopback only."""

from __future__ import annotations

import contextlib
import gzip
import hashlib
import http.server
import io
import os
import tarfile
import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import NamedTuple

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from decentral_dp.data import fetch
from decentral_dp.data.fetch import DeclaredFile, cache_folder, gunzip, members, read_verified
from decentral_dp.errors import InputError

CONTENT = bytes(range(256)) * 20


def sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


class Site(NamedTuple):
    """A server on the loopback: its address, what it answers per path (status, head, body), and what it was asked."""

    url: str
    answers: dict[str, tuple[int, dict[str, str], bytes]]
    asked: list[str]

    def serve(self, content: bytes, path: str = "/file") -> str:
        self.answers[path] = (200, {"Content-Length": str(len(content))}, content)
        return self.url + path


class Handler(http.server.BaseHTTPRequestHandler):
    """Answers from a table and then closes the connection, even where it promised more."""

    def __init__(self, site: Site, *args: object) -> None:
        self.site = site
        super().__init__(*args)  # type: ignore[arg-type]  # the server passes what the base class takes

    def do_GET(self) -> None:
        self.site.asked.append(self.path)
        status, head, body = self.site.answers.get(self.path, (404, {"Content-Length": "0"}, b""))
        self.send_response(status)
        for name, value in head.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Nothing: pytest reads the asked paths."""


@pytest.fixture
def site(monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    # A proxy of the machine would be asked for the loopback.
    monkeypatch.setenv("no_proxy", "*")
    answers: dict[str, tuple[int, dict[str, str], bytes]] = {}
    asked: list[str] = []
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), partial(Handler, Site("", answers, asked)))
    thread = threading.Thread(target=partial(server.serve_forever, poll_interval=0.01))
    thread.start()
    yield Site(f"http://127.0.0.1:{server.server_port}", answers, asked)
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "cache"
    monkeypatch.setenv("DECENTRAL_DP_CACHE", str(folder))
    return folder


def listed(folder: Path) -> list[str]:
    return sorted(p.name for p in folder.iterdir()) if folder.exists() else []


def test_a_download_is_kept_under_its_checksum_and_not_fetched_again(site: Site, cache: Path) -> None:
    file = DeclaredFile("problem.files.images", site.serve(CONTENT), sha256(CONTENT).upper())
    assert read_verified(file) == CONTENT
    assert listed(cache) == [sha256(CONTENT)]
    assert read_verified(file) == CONTENT
    assert site.asked == ["/file"]


def test_what_lies_in_the_cache_is_verified_again(site: Site, cache: Path) -> None:
    file = DeclaredFile("problem.files.images", site.serve(CONTENT), sha256(CONTENT))
    read_verified(file)
    (cache / sha256(CONTENT)).write_bytes(b"something else")
    assert read_verified(file) == CONTENT
    assert site.asked == ["/file", "/file"]
    assert (cache / sha256(CONTENT)).read_bytes() == CONTENT


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        ((200, {"Content-Length": "5120"}, CONTENT[:1000]), r"broke off after 1000 of 5120 bytes, and nothing was cac"),
        # Neither an end that was announced nor a length: only the checksum can tell.
        ((200, {}, CONTENT[:1000]), r"\(1000 bytes\) has the SHA-256 [0-9a-f]{64}, but [0-9a-f]{64} is declared"),
        ((200, {}, CONTENT[:-1] + b"x"), r"is damaged, truncated or another file, and none of it was used or cached"),
        ((200, {"Transfer-Encoding": "chunked"}, b"800\r\nabc"), r"could not be fetched \(.*nothing was cached"),
        ((404, {"Content-Length": "0"}, b""), r"could not be fetched \(Not Found\), and nothing was cached"),
        ((302, {"Location": "file:///etc/hostname"}, b""), r"could not be fetched"),
        ((302, {"Location": "ftp://127.0.0.1/x"}, b""), r"could not be fetched"),
    ],
)
def test_whatever_goes_wrong_is_one_sentence_and_nothing_is_cached(
    site: Site, cache: Path, answer: tuple[int, dict[str, str], bytes], message: str
) -> None:
    site.answers["/file"] = answer
    with pytest.raises(InputError, match=rf"^problem\.files\.images: 'http.*/file' .*{message}") as caught:
        read_verified(DeclaredFile("problem.files.images", f"{site.url}/file", sha256(CONTENT)))
    assert "\n" not in str(caught.value)
    assert listed(cache) == []


def test_a_redirection_is_followed_and_what_it_leads_to_is_verified(site: Site, cache: Path) -> None:
    site.serve(CONTENT, "/elsewhere")
    site.answers["/file"] = (302, {"Location": "/elsewhere", "Content-Length": "0"}, b"")
    assert read_verified(DeclaredFile("k", f"{site.url}/file", sha256(CONTENT))) == CONTENT
    with pytest.raises(InputError, match="SHA-256"):
        read_verified(DeclaredFile("k", f"{site.url}/file", sha256(b"")))
    assert listed(cache) == [sha256(CONTENT)]


def test_an_interrupted_write_leaves_nothing(site: Site, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(fetch.os, "replace", interrupted)
    with pytest.raises(KeyboardInterrupt):
        read_verified(DeclaredFile("k", site.serve(CONTENT), sha256(CONTENT)))
    assert listed(cache) == []


def test_a_file_that_never_ends_is_given_up(site: Site, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetch, "MOST_BYTES", 1000)
    monkeypatch.setattr(fetch, "_CHUNK", 100)
    file = DeclaredFile("k", site.serve(CONTENT), sha256(CONTENT))
    with pytest.raises(InputError, match=r"holds more than 1000 bytes"):
        read_verified(file)
    with pytest.raises(InputError, match=r"where holds more than 1000 bytes"):
        gunzip(gzip.compress(bytes(5000)), "where")
    assert listed(cache) == []


def test_a_cache_that_cannot_be_written_is_named(site: Site, cache: Path) -> None:
    cache.write_text("a file in its place")
    with pytest.raises(InputError, match=r"the cache folder '.*cache' cannot be written \(.*set DECENTRAL_DP_CACHE"):
        read_verified(DeclaredFile("k", site.serve(CONTENT), sha256(CONTENT)))


@pytest.mark.parametrize("url", ["http://127.0.0.1:1/x", "https://example.org/x", "file:///tmp/x", "s3://bucket/x"])
def test_a_url_without_a_checksum_is_refused_and_shown_how(url: str, cache: Path) -> None:
    with pytest.raises(InputError, match=r"without a checksum.*problem\.files\.sha256 = \{ images = \"<64 hex"):
        read_verified(DeclaredFile("problem.files.images", url))
    assert listed(cache) == []


@pytest.mark.parametrize("checksum", ["", "abc", "z" * 64, "a" * 63, "a" * 65, "a" * 64 + "\n"])
def test_a_malformed_checksum_is_refused(tmp_path: Path, checksum: str) -> None:
    (tmp_path / "x").write_bytes(CONTENT)
    with pytest.raises(InputError, match=r"the 64 hexadecimal digits of a SHA-256 are wanted"):
        read_verified(DeclaredFile("k", str(tmp_path / "x"), checksum))


@pytest.mark.parametrize("url", ["ftp://127.0.0.1/x", "s3://bucket/x", "file://elsewhere/x", "file:x"])
def test_other_schemes_and_other_hosts_files_are_refused(url: str, cache: Path) -> None:
    with pytest.raises(InputError, match=r"cannot be fetched, only http, https and local file URLs"):
        read_verified(DeclaredFile("k", url, "0" * 64))


def test_nobody_answers(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("no_proxy", "*")
    for url in ("http://127.0.0.1:1/x", "http://127.0.0.1:port/x", "http://[/x", "http://", "http://127.0.0.1:1/a b"):
        with pytest.raises(InputError, match=r"could not be fetched"):
            read_verified(DeclaredFile("k", url, "0" * 64))
    assert listed(cache) == []


def test_local_files_are_verified_where_they_lie(tmp_path: Path, cache: Path) -> None:
    (tmp_path / "a file").write_bytes(CONTENT)
    assert read_verified(DeclaredFile("k", "a file"), tmp_path) == CONTENT
    for place in (str(tmp_path / "a file"), (tmp_path / "a file").as_uri(), f"file:{tmp_path}/a%20file"):
        assert read_verified(DeclaredFile("k", place, sha256(CONTENT))) == CONTENT
        with pytest.raises(InputError, match=r"SHA-256 .* is declared"):
            read_verified(DeclaredFile("k", place, sha256(b"")))
    assert listed(cache) == []


def test_what_is_no_file_is_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for name in ("pipe", "."):
        with pytest.raises(InputError, match=r"is no file; give the path"):
            read_verified(DeclaredFile("k", name), tmp_path)
    for name in ("absent", "x" * 300, "nul\0"):
        with pytest.raises(InputError, match=r"k: .* cannot be read: "):
            read_verified(DeclaredFile("k", name), tmp_path)


def test_the_cache_folder_follows_the_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("DECENTRAL_DP_CACHE", str(tmp_path / "mine"))
    assert cache_folder() == tmp_path / "mine"
    monkeypatch.delenv("DECENTRAL_DP_CACHE")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.delenv("LOCALAPPDATA", raising=False)
    for platform, folder in (
        ("linux", ".cache"),
        ("darwin", "Library/Caches"),
        ("win32", "AppData/Local"),
    ):
        monkeypatch.setattr(fetch.sys, "platform", platform)
        assert cache_folder() == tmp_path / folder / "decentral_dp"
    monkeypatch.setattr(fetch.sys, "platform", "linux")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert cache_folder() == tmp_path / "xdg" / "decentral_dp"


def archive(*entries: tuple[str, bytes], kind: bytes = tarfile.REGTYPE) -> bytes:
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w") as tar:
        for name, content in entries:
            info = tarfile.TarInfo(name)
            info.size, info.type = (len(content) if kind == tarfile.REGTYPE else 0), kind
            info.linkname = "" if kind == tarfile.REGTYPE else "/etc/hostname"
            tar.addfile(info, io.BytesIO(content))
    return stream.getvalue()


@pytest.mark.parametrize("place", ["", "./", "box/", "./box/"])
def test_members_are_read_in_memory(place: str) -> None:
    content = archive((f"{place}a.bin", b"A"), ("other/a.bin", b"X"), ("readme", b"R"), (f"{place}b.bin", b"B"))
    for packed in (content, gzip.compress(content)):
        assert members(packed, ("a.bin", "b.bin"), "box", "here") == {"a.bin": b"A", "b.bin": b"B"}


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (archive(("../a.bin", b"A")), r"a member '\.\./a\.bin', whose path leads outside"),
        (archive(("box/../../x", b"A"), ("a.bin", b"A")), r"whose path leads outside"),
        (archive(("/etc/a.bin", b"A")), r"a member '/etc/a\.bin', whose path leads outside"),
        (archive(("a.bin", b""), kind=tarfile.SYMTYPE), r"'a\.bin' twice or not as a plain file"),
        (archive(("a.bin", b""), kind=tarfile.LNKTYPE), r"twice or not as a plain file"),
        (archive(("a.bin", b"A"), ("box/a.bin", b"B")), r"'box/a\.bin' twice"),
        (archive(("b.bin", b"A")), r"has no member 'a\.bin'"),
        (archive(("a.bin", bytes(3000)))[:1500], r"no tar archive, or a damaged one"),
        (gzip.compress(archive(("a.bin", CONTENT)))[:-9], r"truncated or damaged gzip"),
        (b"\x1f\x8b" + bytes(30), r"truncated or damaged gzip"),
        (b"no archive at all", r"no tar archive"),
        (b"", r"no tar archive"),
    ],
)
def test_refused_archives(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: bytes, message: str) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError, match=rf"^here .*{message}") as caught:
        members(content, ("a.bin",), "box", "here")
    assert "\n" not in str(caught.value)
    assert listed(tmp_path) == []


GOOD = archive(("box/a.bin", CONTENT))


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.integers(0, len(GOOD) - 1), st.integers(0, 255), st.booleans())
def test_a_damaged_archive_never_ends_in_another_error(place: int, byte: int, packed: bool) -> None:
    whole = gzip.compress(GOOD, mtime=0) if packed else GOOD
    content = bytearray(whole)
    content[place % len(whole)] = byte
    with contextlib.suppress(InputError):
        assert set(members(bytes(content), ("a.bin",), "box", "here")) == {"a.bin"}
