"""`tertulia serve`, `tertulia key`: what must be set before a server is exposed."""

import json
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import httpx
import pytest

from tertulia.cli.serve import with_secrets
from tertulia.web.auth import key_digest
from tertulia.web.config import ServeConfig

VARIABLES = ("TERTULIA_API_KEY", "TERTULIA_PASSWORD", "TERTULIA_SESSION_SECRET")


@pytest.fixture(autouse=True)
def clean_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in VARIABLES:
        monkeypatch.delenv(variable, raising=False)


@pytest.mark.parametrize("host", ["0.0.0.0", "::"])
def test_an_unprotected_server_refuses_to_start_and_says_how(tertulia: Any, host: str) -> None:
    result = tertulia("serve", "generic", "--host", host, "--db", "sqlite:///never-opened.db")
    assert result.code == 2
    for word in ("--password", "TERTULIA_PASSWORD", "TERTULIA_API_KEY", "tertulia key NAME", "--open"):
        assert word in result.stderr
    assert not Path("never-opened.db").exists()


def test_a_person_at_the_terminal_is_not_served_to_others(tertulia: Any) -> None:
    result = tertulia("serve", "human", "--host", "0.0.0.0", "--open")
    assert result.code == 2
    assert "'human' cannot be served on 0.0.0.0" in result.stderr


@pytest.mark.parametrize("variable", VARIABLES)
@pytest.mark.parametrize("value", ["", "  "])
def test_an_empty_secret_is_refused(tertulia: Any, monkeypatch: pytest.MonkeyPatch, variable: str, value: str) -> None:
    monkeypatch.setenv(variable, value)
    result = tertulia("serve", "generic")
    assert result.code == 2
    assert f"{variable} is set but empty" in result.stderr


def test_a_password_needs_a_terminal_or_the_variable(tertulia: Any) -> None:
    result = tertulia("serve", "generic", "--password")
    assert result.code == 2
    assert "Set TERTULIA_PASSWORD" in result.stderr


def test_secrets_come_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in VARIABLES:
        monkeypatch.setenv(variable, variable.lower())
    config = with_secrets(ServeConfig(ask_password=True))
    assert config.password is not None
    assert config.password.get_secret_value() == "tertulia_password"
    assert config.api_key is not None
    assert config.session_secret.get_secret_value() == "tertulia_session_secret"
    assert config.revoked_sessions is not None
    assert config.revoked_sessions.parent.is_dir()


def test_a_new_key_fits_into_the_config(tertulia: Any) -> None:
    result = tertulia("key", "ana", "--per-minute", "60")
    assert result.code == 0
    key, _, table = result.out.partition("\n")
    config = ServeConfig(**tomllib.loads(table))
    assert config.keys["ana"].key_sha256 == key_digest(key)
    assert config.keys["ana"].per_minute == 60
    made = json.loads(tertulia("key", "ben", "--json").out)
    assert made["key_sha256"] == key_digest(made["key"])
    assert tertulia("key", "not a name").code == 2


def test_a_wrong_key_in_the_config_file_is_reported(tertulia: Any, tmp_path: Path) -> None:
    (tmp_path / "serve.toml").write_text('[keys.ana]\nkey_sha256 = "secret"\n')
    result = tertulia("serve", "generic", "--config", tmp_path / "serve.toml")
    assert result.code == 2
    assert "serve.toml: keys.ana: must be" in result.stderr


def test_a_protected_server_starts_on_all_addresses(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tertulia", "serve", "generic", "--host", "0.0.0.0", "--port", "0"]
    command += ["--db", f"sqlite:///{tmp_path / 'chat.db'}", "--allow-host", "chat.example.org"]
    environment = os.environ | {"TERTULIA_PASSWORD": "open sesame", "TERTULIA_API_KEY": "a-key"}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as process:
        try:
            assert process.stdout is not None
            port = next(match[1] for line in process.stdout if (match := re.search(r"0\.0\.0\.0:(\d+)", line)))
            url = f"http://127.0.0.1:{port}"
            assert httpx.get(url).headers["location"] == "signin"
            assert httpx.get(f"{url}/healthz", headers={"Host": "chat.example.org"}).status_code == 200
            assert httpx.get(f"{url}/healthz", headers={"Host": "evil.example"}).status_code == 421
            with httpx.Client(base_url=url) as http:
                assert http.post("/signin", data={"password": "open sesame"}).status_code == 303
                assert http.get("/api/bots").status_code == 200
            models = httpx.get(f"{url}/v1/models", headers={"Authorization": "bearer a-key"})
            assert [model["id"] for model in models.json()["data"]] == ["generic"]
        finally:
            process.terminate()
