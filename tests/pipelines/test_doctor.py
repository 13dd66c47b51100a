"""`sesame doctor` says what is missing and how to mend it; `sesame` alone names the commands to begin with."""

import pytest
import typer

from pipelines import cli, doctor


def test_a_checkout_is_ready_and_any_other_folder_is_not(lab, tmp_path_factory):
    said = lab.sesame("doctor")
    assert said.endswith("ready to run\n")
    for name in ("python", "packages", "git", "dvc", "params.yaml", "cores", "memory", "disk", "gpu", "package index", "prefect", "mlflow"):
        assert f"\n{name} " in f"\n{said}", name
    lab.path = tmp_path_factory.mktemp("elsewhere")
    said = lab.sesame("doctor", code=1)
    assert "there is no .dvc here: call sesame in the checkout" in said and "sesame: not ready to run: " in said


def test_what_is_missing_has_its_cure(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:9/simple/")
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(doctor, "ROOM", 2**70)
    cures = {check.name: check.cure for check in doctor.examined()}
    assert cures["git"] == "install git: DVC needs it" and cures["disk"].startswith("free some")
    assert cures["package index"].startswith("it does not answer (ConnectionError): set PIP_INDEX_URL")


def test_the_first_commands_are_commands(capsys):
    known = {*typer.main.get_command(cli.app).commands}
    assert {name.split()[0] for name in cli.FIRST} <= known and 5 < len(cli.FIRST) < 9
    with pytest.raises(SystemExit) as ended:
        cli.app([])
    assert ended.value.code == 0
    said = capsys.readouterr().out
    assert all(f"sesame {name}" in said for name in cli.FIRST) and "sesame --help" in said
