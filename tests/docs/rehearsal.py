"""How each command of README and docs is run by the tests: what stands for its placeholders, and what makes it short.

A command runs as it is printed, on a stage where the names it uses exist, but for the changes in the tables below. What
cannot run there is named with the test that runs it instead.
"""

import re
import traceback
from collections.abc import Iterator
from typing import NamedTuple

from tests.docs.markdown import ROOT, CommandLine, blocks, words
from tests.docs.shell import call
from tests.docs.stage import Stage
from tests.docs.test_commands import LINES, TREE, UsageError

AS_PRINTED = ("tertulia chat companion", "tertulia bots smollm2", "tertulia chat smollm2 --evidence")
"""Commands that run with the two bundled language models; the others run with a tiny one."""
STANDS_FOR = {
    # Language models.
    r"(?<=tertulia serve )companion smollm2": "hf:MODEL other=hf:MODEL",
    r"(?<=[ =\"])(?:smollm2|companion)(?=[?&\" ]|$)": "hf:MODEL",
    r"\bhf:NAME_OR_FOLDER": "hf:NLI",
    r"\bhttp://127\.0\.0\.1:8000/v1|\bURL\b": "ENDPOINT",
    # Placeholders whose kind depends on the command.
    r"(?<=tertulia export )RUN": "FINETUNED",
    r"(?<=--base )FOLDER": "MODEL --merged FOLDER",
    r"(?<=tertulia judge rank )RUN": "RANKER",
    r"(?<=tfidf:PERSONACHAT) RUN RUN RUN": " RANKER",
    r"(?<=\?context=all\") RUN RUN": " RANKER",
    r"\"RUN(?=\?filters=consistent)": '"RANKER',
    r"(?<=--classifier )RUN": "GROUNDING",
    r"(?<=judge replies )RUN": "OTHER",
    r"(?<=tertulia report )(?:RUN RUN|VERDICT VERDICT)": "runs/monday runs/tuesday",
    r"\bRUN RUN RUN\b": "RUN OTHER THIRD",
    r"\bRUN RUN\b": "RUN OTHER",
    r"(?<=--prompts )FILE|(?<=--openers )FILE": "openers.txt",
    r"(?<=study import )FILE": "fed_data.json",
    r"(?<=disentangler.toml --data )FOLDER": "ROOMS",
    r"(?<=corpus silver )DATA": "cmu_dog",
    r"(?<=corpus erase )FOLDER --author NAME": "mined --author Ingrid_S",
    r"(?<=--author )NAME": "kettle",
    r"(?<=--vectors )GLOVE": "GLOVE.npz",
    r"(judge curve) RECIPE\.toml (.*) --data FOLDER": r"\1 configs/ubuntu-lstm.toml --data UBUNTU \2",
    r"\bRECIPE\.toml|\bmy-recipe\.toml": "configs/personachat-transformer.toml",
    r"\bSTUDY\.toml": "study.toml",
    r"(?<=judge proxy )HUMAN ppl": "HUMAN CHATS --score SSA --metric perplexity",
    r"--score SSA --metric perplexity": "--score quality --metric warmth",
    r"(?<=--metrics CHATS --selfplay )metrics": "PLAYED",
    r"\brun/new-bots": "run/selfplay",
    r"(?<=study export )(?:STUDY|study)(?= --out \w+\.jsonl)": "tea",
    r"(?<=study report )study(?: --db sqlite:///study\.db)?": "my-study",
    r"\bBOT\b": "generic",
    # Machines that are not here.
    r"/var/lib/(runs/evolved) --host 10\.0\.0\.7": r"run/evolved --host 127.0.0.1",
}
"""What is put in the place of what is printed, in this order."""
SHORTER = {
    r"(train \S*(?:finetune|companion)\S*)": (
        r"\1 --data DATA --set base=MODEL --set max_steps=1 --set valid_dialogues=1 --set accumulate=1"
        " --set batch_tokens=500 --set precision=float32"
    ),
    r"(train \S*(?:transformer|meena)\S*.*)": (
        r"\1 --set max_steps=1 --set vocabulary=400 --set model.d_model=16 --set precision=float32"
        " --set valid_dialogues=2 --set batch_tokens=400"
    ),
    r"(train \S*seq2seq\S*.*)": (
        r"\1 --set max_steps=1 --set model.hidden=16 --set precision=float32 --set valid_dialogues=2"
    ),
    r"(train \S*hred\S*.*)": (
        r"\1 --set max_steps=1 --set model.context=16 --set precision=float32 --set valid_dialogues=2"
    ),
    r"(train \S*starspace\S*.*)": r"\1 --set max_steps=1 --set batch=16",
    r"(train \S*prefer\S*.*)": (
        r"\1 --set max_steps=1 --set perplexity_dialogues=1 --set kl_samples=1 --set kl_tokens=4"
        " --set precision=float32"
    ),
    r"(train \S*ubuntu\S*)(?!.* --data)": r"\1 --data UBUNTU",
    r"(train \S*ubuntu\S*.*)": r"\1 --set max_steps=1 --set batch=16 --set precision=float32",
    r"(train \S*(?:minilm|cross|entailment|combined)\S*.*)": (
        r"\1 --set max_steps=1 --set model.encoder=ENCODER --set batch=4 --set precision=float32"
    ),
    r"(train \S*combined\S*.*)": (
        r"\1 --set model.language_model=MODEL --set model.max_scored=50 --set per_label=10 --set max_valid_pairs=10"
    ),
    r"(train \S*disentangler\S*.*)": r"\1 --set trees=2 --set second_trees=2",
    r"(train configs/grounding.toml$)": r"\1 --set per_label=50",
    r" -n \d+": " -n 1",
    r"(tertulia selfplay (?!.* -n ).*)": r"\1 -n 1",
    r"--processes 2": "--processes 1",
    r"--per-label \d+": "--per-label 8",
    r"(corpus silver (?!.*--per-label).*)": r"\1 --per-label 8",
    r"--written \d+": "--written 2",
    r"--limit \d+": "--limit 2",
    r"--ranked \d+": "--ranked 2",
    r"--replies \d+": "--replies 2",
    r"--raters 12 --seed": "--raters 3 --seed",
    r"--sizes [\d,]+": "--sizes 20",
    r"--metric all": '--metric "words per turn" --metric "question score"',
    r"(judge llm .*)": r"\1 --cache answers",
    r"(judge replies (?!--given|.*--replies).*)": r"\1 --replies 2",
    r"(judge rank (?!.*--limit).*)": r"\1 --limit 50",
    r"(judge perplexity .*--table personachat.*)": r"\1 --ranked 2 --replies 2",
    r"(judge perplexity (?!.*--limit).*)": r"\1 --limit 2",
}
"""What is given besides, or made smaller."""
ELSEWHERE = {
    r"run/words|words\.toml|sample-lines|parrot|shouting": (
        "it needs the plugin of the page",
        "tests/docs/test_plugin.py::test_the_plugin_of_the_page_is_built_installed_and_used",
    ),
    r"corpus get (NAME|personachat)": (
        "it downloads",
        "tests/cli/test_corpus_formats.py::test_get_downloads_and_verifies",
    ),
    r"s3://.* --engine ray": (
        "it needs a cluster and a store",
        "tests/corpus/mining/test_stores.py::"
        "test_machines_without_a_shared_disk_give_the_bytes_of_a_disk_even_if_one_is_lost",
    ),
    r"serve --workers 4": (
        "it starts processes that import everything again",
        "tests/web/test_server.py::test_several_processes_serve_one_port_and_a_crashed_one_is_replaced",
    ),
    r"report logs/other\.eval": (
        "Inspect AI writes that log",
        "tests/e2e/test_inspect.py::test_we_read_the_logs_of_inspect_in_both_formats",
    ),
    r"demo$|tertulia-demo/": (
        "the demo takes long enough to be run in one place",
        "tests/cli/test_demo.py::test_the_demo_end_to_end",
    ),
    r"demo --no-serve": (
        "the built package runs it",
        "tests/docs/test_package.py::test_the_installed_package_runs_the_demo_of_the_first_tutorial",
    ),
}
"""Commands that another test runs: why, and which."""
ALONE = {"bots", "recipes", "demo", "serve", "corpus list", "study presets"}
"""Commands that a sentence means to be given without arguments; of others it only mentions the name."""

AGAIN = re.compile(r"study (open|import) ")
"""Commands that each page gives for itself, since those that follow go on from there."""
FIRST = ("README.md", "docs/getting-started.md")
"""Pages to which a command belongs that others print, too."""


class Failure(NamedTuple):
    """A command that did not work."""

    where: str
    command: str
    printed: str

    def __str__(self) -> str:
        return f"{self.where}: {self.command}\n{self.printed[-2000:]}"


def page_of(line: CommandLine) -> str:
    return line.where.rpartition(":")[0]


def number_of(line: CommandLine) -> int:
    return int(line.where.rpartition(":")[2])


def text_of(line: CommandLine) -> str:
    """The command without its comment; in a sentence, `[--option X]` is an option, and `...` for more of the same."""
    text = re.sub(r"\s#\s.*", "", line.text)
    return " ".join((text if line.pasted else re.sub(r"[\[\]]|(?<!\")\.\.\.", " ", text)).split())


def is_command(line: CommandLine) -> bool:
    """Whether it can be given as it is, and is not just the name of a command in a sentence."""
    command, rest = TREE, words(line)
    if rest[-1] == "--help":
        return True
    named: list[str] = []
    while rest and hasattr(command, "commands"):
        named.append(rest.pop(0))
        command = command.commands[named[-1]]
    if hasattr(command, "commands") or (not line.pasted and not rest and " ".join(named) not in ALONE):
        return False
    try:
        command.make_context("tertulia", rest)
    except UsageError:
        return False
    return True


def run_by_tutorials() -> set[str]:
    """Commands that tests/docs/test_tutorials.py runs: those in the tutorials' blocks."""
    left_out = {
        f"{page.relative_to(ROOT).as_posix()}:{block.line}"
        for page in (ROOT / "docs/tutorials").glob("*.md")
        for block in blocks(page)
        if block.not_run
    }
    walked = (line for line in LINES if line.pasted and page_of(line).startswith("docs/tutorials/"))
    return {text_of(line) for line in walked if line.where not in left_out}


def changes_of(command: str) -> dict[str, str]:
    """What the rows of the tables make of a command, one after the other, by those that change it."""
    changes: dict[str, str] = {}
    if command == AS_PRINTED[0] or command.startswith(AS_PRINTED[1:]):
        return changes
    for pattern, instead in (STANDS_FOR | SHORTER).items():
        replaced = re.sub(pattern, instead, command)
        if replaced != command:
            command = changes[pattern] = replaced
    return changes


def changed(command: str) -> str:
    """The command as it is run."""
    *_, last = command, *changes_of(command).values()
    return " ".join(last.split())


def as_run(line: CommandLine) -> str:
    """What makes two commands equal: a server's port does not matter."""
    return re.sub(r" --port \d+|(?<= )&$", "", changed(text_of(line))).strip()


def to_run() -> dict[str, list[CommandLine]]:
    """By page: the first of all equal commands, in their order."""
    done = run_by_tutorials()
    pages: dict[str, list[CommandLine]] = {page: [] for page in [*FIRST, *map(page_of, LINES)]}
    for line in sorted(LINES, key=lambda line: (page_of(line) not in FIRST, page_of(line), number_of(line))):
        text, run = text_of(line), as_run(line)
        if not is_command(line) or any(re.search(pattern, text) for pattern in ELSEWHERE):
            continue
        if not {text, run} & done or AGAIN.search(text):
            pages[page_of(line)].append(line)
        done |= {text, run}
    return pages


def rehearse(page: str, lines: list[CommandLine], stage: Stage) -> Iterator[Failure]:
    """Run the commands of a page; yields those that fail."""
    with stage.scene(page):
        for line in lines:
            command = changed(text_of(line))
            try:
                stage.set_up(command)
                ended = call(command.replace("ENDPOINT", stage.endpoint) if "ENDPOINT" in command else command)
            except Exception:
                yield Failure(line.where, command, traceback.format_exc())
            else:
                if ended.code:
                    yield Failure(line.where, command, f"ended with {ended.code}:\n{ended.printed}{ended.errors}")
