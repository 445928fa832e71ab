"""``serve``: flags become settings; what is wrong stops the start with one line each."""

from __future__ import annotations

from pathlib import Path

import pytest

from a2a_handoff.cli import serving
from a2a_handoff.config import Settings, SettingsError
from a2a_handoff.config.sources import flag
from tests.cli.conftest import Run


@pytest.fixture(autouse=True)
def _empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize(
    ("args", "flags"),
    [
        ([], {}),
        (["--port", "9"], {"port": "9"}),
        (["--port=9", "--ack-wait=1.5"], {"port": "9", "ack_wait": "1.5"}),
        (["--enforce-triggers", "--port", "9"], {"enforce_triggers": True, "port": "9"}),
        (["--no-enforce-triggers"], {"enforce_triggers": False}),
        (["--enforce-triggers=false"], {"enforce_triggers": "false"}),
        (["--no-allow-private-addresses"], {"allow_private_addresses": False}),
        (["--port", "-1"], {"port": "-1"}),
        (["--port", "1", "--port", "2"], {"port": "2"}),
    ],
)
def test_flags_are_read(args: list[str], flags: dict[str, object]) -> None:
    assert serving.flags_of(args) == flags


@pytest.mark.parametrize(
    ("args", "lines"),
    [
        (["--prot", "9"], ("there is no flag --prot; did you mean --port?",)),
        (["--ack_wait", "9"], ("there is no flag --ack_wait; did you mean --ack-wait?",)),
        (["--threads", "4"], ("there is no flag --threads",)),
        (["--reload"], ("there is no flag --reload",)),
        (["--port"], ("the flag --port needs a value (allowed: 0 to 65535)",)),
        (["--port", "--host", "x"], ("the flag --port needs a value (allowed: 0 to 65535)",)),
        (["extra"], ("'extra' belongs to no flag",)),
        (["--no-port"], ("there is no flag --no-port; did you mean --port?",)),
    ],
)
def test_c097_what_is_no_flag_is_refused(args: list[str], lines: tuple[str, ...]) -> None:
    with pytest.raises(SettingsError) as caught:
        serving.flags_of(args)
    assert caught.value.lines == lines


def test_wrong_settings_stop_the_start_with_one_line_each_and_exit_code_2(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("A2A_HANDOFF_LOG_LEVEL", "loud")
    code, out, err = run("serve", "--port", "eighty")
    assert (code, out) == (2, "")
    port, level = err.splitlines()
    assert port == "a2a-handoff: the flag --port: 'eighty' is not a whole number (allowed: 0 to 65535)"
    assert level.startswith(
        "a2a-handoff: A2A_HANDOFF_LOG_LEVEL in the environment: 'loud' is not one of the choices"
    )


def test_a_settings_file_can_be_named(run: Run, tmp_path: Path) -> None:
    (tmp_path / "x.toml").write_text("prot = 1")
    code, _, err = run("serve", "--config", "x.toml")
    assert code == 2
    assert err == "a2a-handoff: x.toml: there is no setting 'prot'; did you mean port?\n"


def test_the_help_of_serve_names_every_setting_with_its_default(run: Run) -> None:
    code, out, _ = run("serve", "--help")
    assert code == 0
    for name in Settings.model_fields:
        assert f"\n  {flag(name)}" in out
    assert "[default: 8080; allowed: 0 to 65535]" in " ".join(out.split())
    assert max(map(len, out.splitlines())) <= 100
