"""The OpenAI-compatible API, through the clients people use: real clients against a real server on loopback.

The clients bring many dependencies, some of them at odds with each other or with ours, so they get virtual environments
of their own: one per major version of OpenAI's library. They are installed once, into the user's cache folder. Each
client runs as a subprocess that does the same things in its own way and prints what it got as JSON. OpenAI's current
library is tested in tests/web.
"""

import fcntl
import hashlib
import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tertulia.core.reply import Ask, FinishReason, Piece, Provenance, Reply, Usage
from tertulia.store import Database
from tertulia.talk.bots.generic import GenericBot
from tertulia.web.app import create_app
from tertulia.web.config import ServeConfig
from tertulia.web.server import running

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(900),  # the first test of an environment installs it: half a minute, or minutes on a slow line
]

KEY = "s3cret"
OPENAI_2 = ("litellm==1.105.2", "openai==2.54.0")
OPENAI_3 = ("inspect-ai==0.3.285", "langchain-openai==1.7.3", "llm==0.36", "openai==3.49.0")


class Environment(NamedTuple):
    """A virtual environment, unless there was no registry to install it from."""

    python: Path
    unreachable: str = ""
    """What pip said if it reached no registry."""


def install(requirements: tuple[str, ...]) -> Path:
    """The Python of a virtual environment with these packages; skips the test if pip reaches no registry."""
    environment = environment_with(requirements)
    if environment.unreachable:
        pytest.skip(f"pip reaches no registry with {', '.join(requirements)}: {environment.unreachable}")
    return environment.python


@cache  # a missing registry, too: waiting for it once is enough
def environment_with(requirements: tuple[str, ...]) -> Environment:
    """From the user's cache folder, or else installed there.

    It is built under a temporary name and then renamed, so that an interrupted installation is never used. Another
    process that needs it at the same time waits.
    """
    folder = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "tertulia-tests"
    folder.mkdir(parents=True, exist_ok=True)
    digest = hashlib.sha256(repr((requirements, sys.version, sys.base_prefix)).encode()).hexdigest()[:16]
    home = folder / f"clients-{digest}"
    with (folder / f"{home.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not home.exists():
            with tempfile.TemporaryDirectory(dir=folder) as temporary:
                built = build(Path(temporary) / "venv", requirements)
                if built.unreachable:
                    return built
                (Path(temporary) / "venv").rename(home)
    return Environment(home / "bin" / "python")


def build(home: Path, requirements: tuple[str, ...]) -> Environment:
    subprocess.run([sys.executable, "-m", "venv", home], check=True)
    python = home / "bin" / "python"
    pip = [str(python), "-m", "pip", "install", "--quiet", "--no-compile", "--retries=2", "--timeout=20", *requirements]
    installation = subprocess.run(pip, capture_output=True, text=True, check=False)
    if installation.returncode == 0:
        return Environment(python)
    errors = "\n".join(line for line in installation.stderr.splitlines() if line.startswith("ERROR:"))
    # Packages that do not fit this Python, or a version that does not exist, are no reason to skip.
    assert re.search(r"\(from versions: none\)|ConnectionPool", errors), installation.stderr
    assert "different python version" not in errors, installation.stderr
    return Environment(python, unreachable=errors)


class Parrot:
    """Says its persona and then the message, word by word; fails after its persona if the message is "fail"."""

    spec = "parrot"
    summary = "Repeats what you say."

    def reply(self, asks: Sequence[Ask], /) -> list[Reply]:
        return [piece.reply for piece in self.stream(asks, alive=lambda _: True) if piece.reply is not None]

    def stream(self, asks: Sequence[Ask], /, *, alive: Callable[[int], bool]) -> Iterator[Piece]:
        for index, ask in enumerate(asks):
            persona = ask.dialogue.persona_of(ask.speaker)
            words = [*(" ".join(persona.sentences).split() if persona else ()), *ask.last.split()]
            limit = min(len(words), ask.options.get("max_tokens", len(words)))
            for number, word in enumerate(words[:limit]):
                if word == "fail":
                    raise ValueError
                yield Piece(index, f" {word}" if number else word)
            finish: FinishReason = "length" if limit < len(words) else "stop"
            source, usage = Provenance(self.spec, seed=ask.seed), Usage(11, limit)
            yield Piece(index, reply=Reply(" ".join(words[:limit]), source, finish=finish, usage=usage))


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    file = tmp_path_factory.mktemp("server") / "chat.db"
    config = ServeConfig(api_key=KEY, grace_seconds=0)
    with (
        Database.open(f"sqlite:///{file}") as database,
        running(create_app({"parrot": Parrot(), "generic": GenericBot()}, database, config=config)) as address,
    ):
        yield address


# What all scripts begin with. A message's reply is "I like tea. Good morning, parrot!", which takes six tokens.
PRELUDE = """
import json
import os

BASE_URL, KEY = os.environ["BASE_URL"], os.environ["KEY"]
SYSTEM, USER = "I like tea.", "Good morning, parrot!"
MESSAGES = [{"role": "system", "content": SYSTEM}, {"role": "user", "content": USER}]
FAIL = [{"role": "system", "content": SYSTEM}, {"role": "user", "content": "fail"}]
TOOLS = [{"type": "function", "function": {"name": "f", "parameters": {"type": "object", "properties": {}}}}]
SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}
RESPONSE_FORMAT = {"type": "json_schema", "json_schema": {"name": "a", "schema": SCHEMA}}

def error_of(call):
    try:
        return f"no error: {call()}"
    except Exception as error:
        return f"{type(error).__name__}: {error}"
"""

OPENAI = """
import openai

client = openai.OpenAI(base_url=BASE_URL, api_key=KEY, max_retries=0)

def complete(messages=MESSAGES, client=client, **options):
    return client.chat.completions.create(model="parrot", messages=messages, **options)

completion = complete()
chunks = list(complete(stream=True, stream_options={"include_usage": True}))
limited = complete(max_tokens=2).choices[0]
print(json.dumps({
    "reply": completion.choices[0].message.content,
    "usage": [completion.usage.prompt_tokens, completion.usage.completion_tokens],
    "pieces": [chunk.choices[0].delta.content for chunk in chunks[:-1]],
    "stream usage": [chunks[-1].usage.prompt_tokens, chunks[-1].usage.completion_tokens],
    "limited": [limited.message.content, limited.finish_reason],
    "models": [model.id for model in client.models.list()],
    "refused": {
        "tools": error_of(lambda: complete(tools=TOOLS)),
        "tool_choice": error_of(lambda: complete(tool_choice="required")),
        "response_format": error_of(lambda: complete(response_format=RESPONSE_FORMAT)),
        "logit_bias": error_of(lambda: complete(logit_bias={"42": -100})),
    },
    "wrong key": error_of(lambda: complete(client=openai.OpenAI(base_url=BASE_URL, api_key="wrong"))),
    "failures": [
        error_of(lambda: complete(FAIL)),
        error_of(lambda: list(complete(FAIL, stream=True))),
    ],
}))
"""

LITELLM = """
import litellm

litellm.suppress_debug_info = True

def complete(messages=MESSAGES, api_key=KEY, **options):
    return litellm.completion("openai/parrot", messages, api_base=BASE_URL, api_key=api_key, max_retries=0, **options)

completion = complete()
chunks = list(complete(stream=True, stream_options={"include_usage": True}))
limited = complete(max_tokens=2).choices[0]
models = litellm.get_valid_models(
    check_provider_endpoint=True, custom_llm_provider="openai", api_base=BASE_URL.removesuffix("/v1"), api_key=KEY
)
print(json.dumps({
    "reply": completion.choices[0].message.content,
    "usage": [completion.usage.prompt_tokens, completion.usage.completion_tokens],
    "pieces": [chunk.choices[0].delta.content for chunk in chunks],
    "stream usage": [chunks[-1].usage.prompt_tokens, chunks[-1].usage.completion_tokens],
    "limited": [limited.message.content, limited.finish_reason],
    "models": [name.removeprefix("openai/") for name in models],
    "refused": {
        "tools": error_of(lambda: complete(tools=TOOLS)),
        "response_format": error_of(lambda: complete(response_format=RESPONSE_FORMAT)),
        "logit_bias": error_of(lambda: complete(logit_bias={"42": -100})),
    },
    "wrong key": error_of(lambda: complete(api_key="wrong")),
    "failures": [
        error_of(lambda: complete(FAIL)),
        error_of(lambda: list(complete(FAIL, stream=True))),
    ],
}))
"""

LANGCHAIN = """
from langchain_openai import ChatOpenAI

def chat(**options):
    return ChatOpenAI(**{"model": "parrot", "base_url": BASE_URL, "api_key": KEY, "max_retries": 0} | options)

model = chat()
message = model.invoke(MESSAGES)
chunks = list(chat(stream_usage=True).stream(MESSAGES))
limited = chat(max_tokens=2).invoke(MESSAGES)
usage = [chunk.usage_metadata for chunk in chunks if chunk.usage_metadata]
print(json.dumps({
    "reply": message.content,
    "usage": [message.usage_metadata["input_tokens"], message.usage_metadata["output_tokens"]],
    "pieces": [chunk.content for chunk in chunks],
    "stream usage": [usage[-1]["input_tokens"], usage[-1]["output_tokens"]],
    "limited": [limited.content, limited.response_metadata["finish_reason"]],
    "refused": {
        "tools": error_of(lambda: model.bind_tools(TOOLS).invoke(MESSAGES)),
        "tool_choice": error_of(lambda: model.bind(tool_choice="required").invoke(MESSAGES)),
        "response_format": error_of(lambda: model.with_structured_output({"title": "a", **SCHEMA}).invoke(MESSAGES)),
        "logit_bias": error_of(lambda: chat(logit_bias={42: -100}).invoke(MESSAGES)),
    },
    "wrong key": error_of(lambda: chat(api_key="wrong").invoke(MESSAGES)),
    "failures": [
        error_of(lambda: model.invoke(FAIL)),
        error_of(lambda: list(model.stream(FAIL))),
    ],
}))
"""

LLM = """
from pathlib import Path

MODEL = {
    "model_id": "tertulia", "model_name": "parrot", "api_base": BASE_URL, "api_key_name": "tertulia",
    "supports_tools": True, "supports_schema": True,
}
home = Path(os.environ["LLM_USER_PATH"])
home.mkdir()
(home / "extra-openai-models.yaml").write_text(json.dumps([MODEL]))
(home / "keys.json").write_text(json.dumps({"tertulia": KEY}))

import llm

model = llm.get_model("tertulia")

def prompt(text=USER, **options):
    return model.prompt(text, **{"system": SYSTEM, "stream": False} | options)

def f():
    pass

response, stream = prompt(), prompt(stream=True)
pieces, limited = list(stream), prompt(max_tokens=2)
print(json.dumps({
    "reply": response.text(),
    "usage": [response.usage().input, response.usage().output],
    "pieces": pieces,
    "stream usage": [stream.usage().input, stream.usage().output],
    "limited": [limited.text(), limited.response_json["choices"][0]["finish_reason"]],
    "refused": {
        "tools": error_of(lambda: prompt(tools=[f]).text()),
        "response_format": error_of(lambda: prompt(schema=SCHEMA).text()),
        "logit_bias": error_of(lambda: prompt(logit_bias={"42": -100}).text()),
    },
    "wrong key": error_of(lambda: prompt(key="wrong").text()),
    "failures": [
        error_of(lambda: prompt("fail").text()),
        error_of(lambda: prompt("fail", stream=True).text()),
    ],
}))
"""

INSPECT = """
from inspect_ai import Task, eval
from inspect_ai.dataset import Sample
from inspect_ai.model import ResponseSchema, get_model
from inspect_ai.scorer import includes
from inspect_ai.solver import generate, system_message, use_tools
from inspect_ai.tool import think
from inspect_ai.util import JSONSchema

SAMPLES = [Sample(input=f"Good {time}, parrot!", target="morning") for time in ("morning", "night")]

def run(*solvers, api_key=None, stream=None, **config):
    model = get_model("openai-api/tertulia/parrot", api_key=api_key, stream=stream)
    task = Task(dataset=SAMPLES, solver=[system_message(SYSTEM), *solvers, generate()], scorer=includes())
    config = {"max_retries": 0} | config
    return eval(task, model=model, display="none", log_dir=os.environ["LOGS"], log_samples=True, **config)[0]

def error_in(log):
    return f"{log.status}: {log.error.message if log.error else None}"

def summary(log):
    usage = log.stats.model_usage["openai-api/tertulia/parrot"]
    return {
        "status": log.status,
        "completions": [sample.output.completion for sample in log.samples],
        "accuracy": log.results.scores[0].metrics["accuracy"].value,
        "usage": [usage.input_tokens, usage.output_tokens],
        "stop reasons": [sample.output.stop_reason for sample in log.samples],
    }

schema = ResponseSchema(name="a", json_schema=JSONSchema(type="object"))
print(json.dumps({
    "eval": summary(run()),
    "streamed eval": summary(run(stream=True)),
    "limited eval": summary(run(max_tokens=2)),
    "refused": {
        "tools": error_in(run(use_tools(think()))),
        "response_format": error_in(run(response_schema=schema)),
        "logit_bias": error_in(run(logit_bias={42: -100})),
    },
    "wrong key": error_in(run(api_key="wrong")),
}))
"""

CHAT_CLIENTS = {
    "openai": (OPENAI_2, OPENAI),
    "litellm": (OPENAI_2, LITELLM),
    "langchain-openai": (OPENAI_3, LANGCHAIN),
    "llm": (OPENAI_3, LLM),
}
"""By client: what to install, and its script."""


def environ(url: str, home: Path) -> dict[str, str]:
    """Nothing of ours, and a way to the server only: what clients try to download is out of reach."""
    return {
        "PATH": os.defpath,
        "HOME": str(home),
        "BASE_URL": f"{url}/v1",
        "KEY": KEY,
        "HTTP_PROXY": "http://127.0.0.1:9",
        "HTTPS_PROXY": "http://127.0.0.1:9",
        "NO_PROXY": "127.0.0.1",
        "LITELLM_LOCAL_MODEL_COST_MAP": "True",
        "LLM_USER_PATH": str(home / "llm"),
        "LOGS": str(home / "logs"),
        "TERTULIA_BASE_URL": f"{url}/v1",  # Inspect derives these names from that of the service
        "TERTULIA_API_KEY": KEY,
    }


def run_client(command: Sequence[str | Path], url: str, home: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command, env=environ(url, home), cwd=home, capture_output=True, text=True, timeout=240, check=False
    )


def run_script(requirements: tuple[str, ...], script: str, url: str, home: Path) -> dict[str, Any]:
    """What the client got from the server."""
    client = run_client([install(requirements), "-c", PRELUDE + script], url, home)
    assert client.returncode == 0, client.stderr
    results: dict[str, Any] = json.loads(client.stdout.splitlines()[-1])
    return results


REFUSED = {
    "tools": "tools is not supported: the models of this server cannot call tools.",
    "tool_choice": "tool_choice is not supported: the models of this server cannot call tools.",
    "response_format": "response_format is not supported by the models of this server, except for",
    "logit_bias": "logit_bias is not supported by the models of this server.",
}


def check_errors(results: dict[str, Any]) -> None:
    """The client passes on what the server says about refused fields and a wrong key."""
    for field, error in results["refused"].items():
        assert REFUSED[field] in error
        assert re.search("Error code: 400|BadRequestError", error)
    assert "Incorrect API key provided." in results["wrong key"]
    assert re.search("Error code: 401|AuthenticationError", results["wrong key"])


@pytest.mark.parametrize("name", CHAT_CLIENTS)
def test_a_client_gets_replies_and_streams_and_shows_errors(name: str, url: str, tmp_path: Path) -> None:
    results = run_script(*CHAT_CLIENTS[name], url, tmp_path)
    assert results["reply"] == "I like tea. Good morning, parrot!"
    assert results["usage"] == [11, 6]
    pieces = [piece for piece in results["pieces"] if piece]
    assert pieces == ["I", " like", " tea.", " Good", " morning,", " parrot!"]
    assert results["stream usage"] == [11, 6]
    assert results["limited"] == ["I like", "length"]
    if "models" in results:  # LangChain and llm do not list a server's models
        assert results["models"] == ["parrot", "generic"]
    check_errors(results)
    for error in results["failures"]:
        assert re.search(r"The bot could not answer\. Reference: [0-9a-f]{6}\.", error)


def test_inspect_evaluates_a_bot_and_shows_errors(url: str, tmp_path: Path) -> None:
    results = run_script(OPENAI_3, INSPECT, url, tmp_path)
    completed = {
        "status": "success",
        "completions": ["I like tea. Good morning, parrot!", "I like tea. Good night, parrot!"],
        "accuracy": 0.5,
        "usage": [22, 12],
        "stop reasons": ["stop", "stop"],
    }
    assert results["eval"] == completed
    assert results["streamed eval"] == completed
    limited = {"completions": ["I like"] * 2, "accuracy": 0, "usage": [22, 4], "stop reasons": ["max_tokens"] * 2}
    assert results["limited eval"] == completed | limited
    check_errors(results)


def test_llm_talks_to_a_bot_on_the_command_line(url: str, tmp_path: Path) -> None:
    python = install(OPENAI_3)
    (tmp_path / "llm").mkdir()
    (tmp_path / "llm" / "extra-openai-models.yaml").write_text(
        f"- model_id: generic\n  model_name: generic\n  api_base: {url}/v1\n  api_key_name: tertulia\n"
    )

    def llm(*arguments: str) -> subprocess.CompletedProcess[str]:
        return run_client([python, "-m", "llm", *arguments], url, tmp_path)

    assert llm("keys", "set", "tertulia", "--value", KEY).returncode == 0
    assert llm("-m", "generic", "What is the capital of France?").stdout.strip() == "I don't know."
    assert llm("--continue", "It is Paris.").stdout.strip() == "ok"
