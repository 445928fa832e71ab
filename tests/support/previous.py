"""The code of the previous release, from the history of this repository: ``previous-release.toml`` says which commit.

It is kept outside of the repository, in a folder named after the commit, and runs with the packages that are
installed for the tests. Without the history its tests are skipped, or fail where they are required.
"""

from __future__ import annotations

import io
import os
import shutil
import subprocess
import tarfile
import tempfile
import tomllib
from pathlib import Path

from tests.support.required import missing
from tests.support.served import ROOT

CACHE = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "a2a-handoff" / "releases"
_SAID = tomllib.loads(Path(__file__).with_name("previous-release.toml").read_text(encoding="utf-8"))
VERSION: str = _SAID["version"]
COMMIT: str = _SAID["commit"]
_NEEDED = ("a2a_handoff", "agent_cards")


def code(commit: str = COMMIT, *, repository: Path = ROOT) -> Path:
    """The folder that has the package of a commit. Skips, or fails, if the history does not have it."""
    folder = CACHE / commit
    if folder.exists():
        return folder
    command = ("git", "-C", str(repository), "archive", "--format=tar", commit, *_NEEDED)
    try:
        archive = subprocess.run(command, check=True, capture_output=True).stdout
    except (OSError, subprocess.CalledProcessError) as error:
        why = getattr(error, "stderr", b"").decode(errors="replace").strip() or str(error)
        missing(
            f"the code of the previous release, {commit}, is not in the history of {repository}: a shallow clone gets "
            f"it by `git fetch --unshallow` ({why})"
        )
    CACHE.mkdir(parents=True, exist_ok=True)
    fresh = Path(tempfile.mkdtemp(dir=CACHE))
    with tarfile.open(fileobj=io.BytesIO(archive)) as tar:
        tar.extractall(fresh, filter="data")
    try:
        fresh.rename(folder)
    except OSError:
        shutil.rmtree(fresh)
        if not folder.exists():
            raise  # it was not that another process of the tests was faster
    return folder
