"""A walk of the first-hour tutorial in a fresh clone, with the time of every step.

    python benchmarks/first_hour.py [--repository .]

The repository's last commit is cloned into an empty folder. Then everything that docs/tutorials/first-hour.md says is
done as it stands there, by a shell, with the environment that its first step makes: installation, the demo, chatting
(what it says to type is typed, and two messages to the language model), judging, self-play, Python, and the server,
which is asked for its page and for a reply and is stopped by Ctrl-C. No command may fail; that they print what the page
says is checked by tests/docs/test_tutorials.py.
"""

import argparse
import http.cookiejar
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path

from common import finish

sys.path.insert(0, str(Path(__file__).parents[1]))

from tests.docs.markdown import Block, blocks

PAGE = "docs/tutorials/first-hour.md"
TYPED = {"tertulia chat companion": "Hi! What did you do today?\nDo you have any pets?\n/quit\n"}
"""What is typed where the page leaves it to its reader."""
READY_SECONDS = 120


def run(command: str, folder: Path, path: str, typed: str = "") -> float:
    """Seconds that a command takes; ends the walk if it fails."""
    start = time.perf_counter()
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", command],
        cwd=folder,
        env=clean_environment(path),
        input=typed,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise SystemExit(f"{command}\nended with {done.returncode}:\n{done.stdout[-3000:]}{done.stderr[-3000:]}")
    return time.perf_counter() - start


def clean_environment(path: str) -> dict[str, str]:
    """Ours without what a virtual environment or a development checkout sets."""
    left_out = ("PYTHONPATH", "VIRTUAL_ENV", "MAKEFLAGS", "MAKELEVEL")
    return {name: value for name, value in os.environ.items() if name not in left_out} | {"PATH": path}


def serve(command: str, folder: Path, path: str) -> float:
    """Start the server, open its page, get a reply, stop it."""
    start = time.perf_counter()
    server = subprocess.Popen(
        f"exec {command} --port 0",
        shell=True,
        cwd=folder,
        env=clean_environment(path),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )
    try:
        assert server.stdout
        url = next(m[0] for line in server.stdout if (m := re.search(r"http://127\.0\.0\.1:\d+", line)))
        opener = urllib.request.build_opener(urllib.request.HTTPCookieProcessor(http.cookiejar.CookieJar()))
        until = time.monotonic() + READY_SECONDS
        while time.monotonic() < until:
            try:
                opener.open(f"{url}/readyz").read()
                break
            except OSError:
                time.sleep(0.2)
        assert b"<html" in opener.open(url).read()
        conversation = post(opener, f"{url}/api/conversations", {"bot": "tfidf", "persona": None})
        message = {"text": "Hi!", "key": "1", "stream": False}
        assert post(opener, f"{url}/api/conversations/{conversation['id']}/messages", message)["bot"]["text"]
    finally:
        server.send_signal(signal.SIGINT)
        server.communicate(timeout=60)
    return time.perf_counter() - start


def post(opener: urllib.request.OpenerDirector, url: str, body: dict[str, object]) -> dict[str, dict[str, str]]:
    request = urllib.request.Request(url, json.dumps(body).encode(), {"Content-Type": "application/json"})
    answer: dict[str, dict[str, str]] = json.load(opener.open(request))
    return answer


def steps(block: Block) -> list[tuple[str, str]]:
    """The commands of a block, each with what is typed."""
    if block.language == "console":
        sessions = [session.splitlines() for session in re.split(r"^\$ ", block.text, flags=re.MULTILINE)[1:]]
        typed = [[line[5:] for line in rest if line.startswith("you: ")] for _, *rest in sessions]
        return [(first, "".join(f"{line}\n" for line in own)) for (first, *_), own in zip(sessions, typed, strict=True)]
    if block.language == "python":
        return [(f"python - <<'PYTHON'\n{block.text}PYTHON", "")]
    return [(line, TYPED.get(line, "")) for line in block.text.replace("\\\n", "").splitlines() if line]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repository", type=Path, default=Path(__file__).parents[1])
    args = parser.parse_args()
    figures: dict[str, float] = {}
    with tempfile.TemporaryDirectory() as name:
        clone, walk, path = Path(name, "clone"), Path(name, "walk"), os.environ["PATH"]
        walk.mkdir()
        figures["git clone"] = run(f"git clone -q '{args.repository.resolve()}' '{clone}'", Path(name), path)
        for block in blocks(clone / PAGE):
            if block.title:
                (walk / block.title).write_text(block.text, encoding="utf-8")
                continue
            for command, typed in steps(block) if block.language in ("sh", "console", "python") else ():
                is_setup = command.startswith(("make ", "source "))
                if command.startswith("source "):
                    path = f"{clone / '.venv/bin'}{os.pathsep}{path}"
                    continue
                shown = command.splitlines()[0]
                if command.startswith("tertulia serve"):
                    figures[shown] = serve(command, walk, path)
                else:
                    figures[shown] = run(command, clone if is_setup else walk, path, typed)
                print(f"{figures[shown]:>7.1f} s  {shown}", flush=True)
    total = sum(figures.values())
    print(f"{total:>7.1f} s  in all: {total / 60:.1f} minutes")
    finish("first_hour", figures | {"total": total}, {"page": PAGE})


if __name__ == "__main__":
    main()
