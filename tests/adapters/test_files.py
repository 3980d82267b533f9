from __future__ import annotations

import os
import threading

import pytest

from orchestrator.adapters import files
from orchestrator.authoring import Permanent


@pytest.fixture
def root(tmp_path, options):
    options(FILES_ROOT=str(tmp_path / "files"))
    return tmp_path / "files"


def test_what_was_written_is_read(root):
    stored = files.write(tenant="acme", path="reports/2030/may.csv", content=b"a,b\n")

    assert files.read(tenant="acme", path="reports/2030/may.csv") == b"a,b\n"
    assert (stored.size, stored.sha256[:8]) == (4, "5be08c96")
    assert (root / "acme" / "reports" / "2030" / "may.csv").exists()


def test_a_file_is_replaced_whole_and_nothing_else_is_left(root):
    files.write(tenant="acme", path="a.txt", content=b"old" * 100)

    files.write(tenant="acme", path="a.txt", content=b"new")

    assert files.read(tenant="acme", path="a.txt") == b"new"
    assert [path.name for path in (root / "acme").iterdir()] == ["a.txt"]


def test_tenants_do_not_see_each_others_files(root):
    files.write(tenant="acme", path="a.txt", content=b"x")

    with pytest.raises(Permanent, match=r"there is no a\.txt"):
        files.read(tenant="other", path="a.txt")


@pytest.mark.parametrize("tenant", ["..", ".", "", "a/b", "../acme", "a\x00b", "ünï"])
def test_a_tenants_name_never_leads_out_of_the_root(root, tenant):
    files.write(tenant=tenant, path="a.txt", content=b"x")

    assert files.read(tenant=tenant, path="a.txt") == b"x"
    assert [path.parent.parent for path in root.rglob("a.txt")] == [root]


@pytest.mark.parametrize(
    "path",
    [
        "",
        "/etc/passwd",
        "../secret",
        "a/../../secret",
        "a/..",
        "..",
        ".",
        "./a",
        "a//b",
        "a/",
        "a\x00b",
        "..\\secret",
        "x" * 300,
        "/".join("a" * 40),
    ],
)
def test_a_path_that_leads_elsewhere_is_refused(root, path):
    files.write(tenant="acme", path="a/b", content=b"x")
    (root / "secret").write_text("secret")

    with pytest.raises(Permanent, match="path"):
        files.read(tenant="acme", path=path)
    with pytest.raises(Permanent, match="path"):
        files.write(tenant="acme", path=path, content=b"y")

    assert (root / "secret").read_text() == "secret"


@pytest.mark.parametrize("link", ["file", "folder", "dangling"])
def test_links_are_not_followed(root, tmp_path, link):
    files.write(tenant="acme", path="real/a.txt", content=b"x")
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "secret.txt").write_text("secret")
    home = root / "acme"
    targets = {
        "file": ("link.txt", outside / "secret.txt", "link.txt"),
        "folder": ("link", outside, "link/secret.txt"),
        "dangling": ("link", outside / "nothing", "link/x.txt"),
    }
    name, target, path = targets[link]
    (home / name).symlink_to(target)

    with pytest.raises(Permanent, match="path"):
        files.read(tenant="acme", path=path)
    if link == "file":
        files.write(tenant="acme", path=path, content=b"mine")
        assert files.read(tenant="acme", path=path) == b"mine"
    else:
        with pytest.raises(Permanent, match="path"):
            files.write(tenant="acme", path=path, content=b"mine")

    assert (outside / "secret.txt").read_text() == "secret"
    assert [path.name for path in outside.iterdir()] == ["secret.txt"]


def test_a_folder_swapped_for_a_link_while_reading_gives_nothing_away(root, tmp_path):
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "a.txt").write_bytes(b"secret")
    files.write(tenant="acme", path="box/a.txt", content=b"mine")
    home, stop = root / "acme", threading.Event()

    def swap():
        while not stop.is_set():
            (home / "box").rename(home / "kept")
            (home / "box").symlink_to(outside)
            (home / "box").unlink()
            (home / "kept").rename(home / "box")

    swapper = threading.Thread(target=swap)
    swapper.start()
    seen = set()
    try:
        for _ in range(300):
            try:
                seen.add(files.read(tenant="acme", path="box/a.txt"))
            except Permanent:
                seen.add(b"refused")
    finally:
        stop.set()
        swapper.join()

    assert seen <= {b"mine", b"refused"}
    assert files.read(tenant="acme", path="box/a.txt") == b"mine"


@pytest.mark.parametrize("kind", ["folder", "pipe"])
def test_only_regular_files_are_read(root, kind):
    files.write(tenant="acme", path="folder/a.txt", content=b"x")
    os.mkfifo(root / "acme" / "pipe")

    with pytest.raises(Permanent, match="path"):
        files.read(tenant="acme", path=kind)


def test_sizes_are_bounded(root):
    with pytest.raises(Permanent, match="more than"):
        files.write(tenant="acme", path="big", content=b"x" * (files.MAX_FILE_BYTES + 1))
    files.write(tenant="acme", path="fits", content=b"x" * 2000)
    with pytest.raises(Permanent, match="more than 1,000 bytes"):
        files.read(tenant="acme", path="fits", max_bytes=1000)


def test_a_file_where_a_folder_is_needed_is_named(root):
    files.write(tenant="acme", path="a", content=b"x")

    with pytest.raises(Permanent, match="path"):
        files.write(tenant="acme", path="a/b", content=b"x")


def test_without_a_configured_folder_there_are_no_files(options):
    options(FILES_ROOT=None)

    with pytest.raises(Permanent, match="FILES_ROOT"):
        files.read(tenant="acme", path="a")
