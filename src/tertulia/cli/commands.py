"""The tree of commands as data: where each one is defined, and its line of help. Nothing is imported for it.

`tertulia --help` and `tertulia GROUP --help` print these lines; only a command that is called is imported.
"""

from collections.abc import Iterator, Mapping
from typing import NamedTuple


class Command(NamedTuple):
    """A command: `module:function` within tertulia.cli, and its line of help."""

    target: str
    help: str


class Group(NamedTuple):
    """Commands with a common name before theirs."""

    help: str
    commands: Mapping[str, Command]


_CORPUS = {
    "list": Command(
        "corpus:list_formats", "List the formats that can be read and written, and the corpora that `get` can download."
    ),
    "get": Command("corpus:get_corpus", "Download, verify and unpack a well-known corpus; each has its own licence."),
    "show": Command("corpus:show", "Show dialogues or exchanges in a readable form."),
    "stats": Command("corpus:stats", "Compute statistics of a corpus."),
    "convert": Command("corpus:convert", "Convert a corpus to another format."),
    "split": Command(
        "corpus_sets:split",
        "Split a corpus into train, valid and test; no conversation is in two of them, and near-duplicates are"
        " counted.",
    ),
    "testset": Command(
        "corpus_sets:ranking_set",
        "Create a test set for next-reply ranking, as in the Ubuntu papers: one item per dialogue; or training"
        " triples.",
    ),
    "silver": Command(
        "corpus_sets:silver",
        "Make labelled data for grounding classifiers from dialogues with evidence (BEGIN's recipe).",
    ),
    "personas": Command(
        "corpus_personas:personas",
        "Make labelled pairs for consistency classifiers from personas: what contradicts them, and what does not.",
    ),
    "dedup": Command(
        "corpus_quality:dedup", "Remove near-duplicates: of dialogues that are similar, the first one stays."
    ),
    "tag": Command(
        "corpus_quality:tag",
        "Measure every dialogue (language, length, repetition, safety, personal data) and keep the results with it.",
    ),
    "filter": Command(
        "corpus_quality:filter_items",
        "Keep what fulfils conditions on tags and no rule removes; replace personal data. Removals are counted by"
        " reason.",
    ),
    "push": Command(
        "corpus_quality:push",
        "Write a corpus in the folder layout of the Hugging Face hub, with a dataset card; nothing is uploaded.",
    ),
    "card": Command(
        "corpus_quality:card", "Write the dataset card (README.md) of a corpus folder again, such as after an erasure."
    ),
    "mine": Command(
        "corpus_mine:mine",
        "Mine message trees for context-reply pairs by Meena's rules; with --threads, chat logs for dialogues.",
    ),
    "erase": Command(
        "corpus_mine:erase",
        "Erase people, or single messages, from a mined corpus and what was made from it; then search all of it again.",
    ),
}
_ACCOUNT = {
    "add": Command(
        "account:add", "Add an account. You are asked for its password, unless TERTULIA_ACCOUNT_PASSWORD is set."
    ),
    "list": Command("account:list_accounts", "List the accounts."),
    "remove": Command("account:remove", "Remove an account, and end its sessions. What it did stays in the audit log."),
}
_STORE = {
    "export": Command(
        "store:export",
        "Export all conversations with everything that is known about each reply, also replaced and undone ones.",
    ),
    "backup": Command(
        "store:back_up",
        "Back up a database to a single file (SQLite, also for PostgreSQL). Servers may go on running.",
    ),
    "restore": Command(
        "store:restore_into",
        "Restore a backup into a new database, of this version and either kind. Nothing is overwritten.",
    ),
    "check": Command(
        "store:check_database",
        "Check a database: its file, its references, and what must always hold. Changes nothing.",
    ),
}
_JUDGE = {
    "rank": Command("judge:rank", "Measure how often bots find the true reply among distractors, with 95% intervals."),
    "curve": Command(
        "judge:curve",
        "Train a recipe on more and more dialogues and measure hits@1 by training size (Ubuntu paper, figure 3).",
    ),
    "profiles": Command(
        "judge:profiles",
        "Measure how often tf-idf predicts a speaker's profile wrongly (Persona-Chat, tables 13 and 14).",
    ),
    "perplexity": Command(
        "judge:perplexity",
        "Measure the perplexity of models on human turns, and how similar their replies are to human ones.",
    ),
    "samples": Command(
        "judge:samples",
        "Compare a model's best samples with beam search, and the effect of more samples (Meena, tables 2 and 3).",
    ),
    "conversations": Command(
        "judge_conversations:conversations",
        "Measure whole conversations (self-play, chats, corpora): sentiment, coherence, questions, repetition.",
    ),
    "grounding": Command(
        "judge_grounding:grounding",
        "Judge grounding classifiers on labelled responses (BEGIN, studies), or bots' replies by classifiers.",
    ),
    "meta": Command(
        "judge_meta:meta",
        "Correlate metrics and judges with people's ratings of replies, conversations and systems, and show agreement.",
    ),
    "hybrid": Command(
        "judge_meta:hybrid",
        "Fit a combination of metrics to people's ratings, leaving each bot out, and apply it to self-play.",
    ),
    "proxy": Command(
        "judge_meta:proxy",
        "Measure how much of the differences between bots in people's eyes a metric explains (SSA and perplexity).",
    ),
    "replies": Command(
        "judge_replies:replies",
        "Measure bots' replies in held-out contexts, or given replies, with and without references.",
    ),
    "llm": Command(
        "judge_llm:llm",
        "Ask a language model what people are asked in studies, and how far it agrees with people.",
    ),
    "ppi": Command(
        "judge_llm:ppi",
        "Estimate what people would say about all units from their labels of a random part and a judge's of all.",
    ),
    "replay": Command(
        "judge_replay:replay",
        "Replay stored conversations with another bot from some turn on, and compare both continuations.",
    ),
}
_STUDY = {
    "new": Command("study:new", "Print a study to start from, as TOML: `tertulia study new ssa-static > study.toml`."),
    "presets": Command("study:presets", "List the presets."),
    "check": Command(
        "study:check",
        "Check a study's TOML and items, and show what it asks of people: units, minutes, cost at its wage.",
    ),
    "open": Command(
        "study:open_",
        "Put a study into the database and open it to participants; a closed one is opened again.",
    ),
    "close": Command("study:close", "Close a study: it takes no more participants and no more answers."),
    "status": Command("study:status", "Show how far studies are: ratings, participants, and where people left."),
    "invite": Command(
        "study:invite",
        "Print signed invitation links, one per person, for people who come from no recruiting platform.",
    ),
    "plan": Command(
        "study:plan",
        "Plan a study: conversations per bot for a half-width or for the power to find an effect, with their cost.",
    ),
    "simulate": Command(
        "study_results:simulate",
        "Let simulated raters walk the real study through the real server, and show the report and the cost.",
    ),
    "import": Command(
        "study_results:import_ratings",
        "Import people's published ratings as a closed study, so that `study report` can read them.",
    ),
    "export": Command(
        "study_results:export",
        "Export a study in long format: one row per judgement, with bot, texts as shown and settings. Pseudonyms only.",
    ),
    "report": Command(
        "study_results:report",
        "Report a study: figures by bot with intervals, agreement, votes, comparisons. Also while it is still open.",
    ),
}

COMMANDS: dict[str, Command | Group] = {
    "demo": Command("demo:demo", "Run everything on the bundled sample: mine, rank, talk, report, serve."),
    "corpus": Group("Download, inspect, convert and mine corpora.", _CORPUS),
    "train": Command("train:train", "Train the model that a recipe describes: a name, or a TOML file."),
    "export": Command("export:export", "Write a fine-tuned model for others: merged, or its adapter."),
    "chat": Command("chat:chat", "Talk to a bot in the terminal."),
    "serve": Command("serve:serve", "Serve bots: a chat page and an OpenAI-compatible API."),
    "key": Command("key:key", "Make an API key for the server."),
    "account": Group("Manage the accounts of researchers.", _ACCOUNT),
    "store": Group("Export, back up and check the conversations of a server.", _STORE),
    "selfplay": Command("selfplay:selfplay", "Let bots talk to each other."),
    "judge": Group(
        "Judge bots: ranking, perplexity, replies, conversations, grounding, agreement with people.", _JUDGE
    ),
    "study": Group("Studies with people: plan, open, simulate, report.", _STUDY),
    "report": Command("report:report", "Report the results of judged runs and compare them."),
    "bots": Command("lists:bots", "List the bots with their options and defaults."),
    "recipes": Command("lists:recipes", "List the recipes with their settings, and the ready-made files."),
    "metrics": Command("lists:metrics", "List the metrics: unit, direction and citation."),
    "formats": Command("lists:formats", "List the formats that dialogues are read from and written to."),
    "presets": Command("lists:presets", "List the presets: of studies, and of decoding."),
}


def leaves() -> Iterator[tuple[tuple[str, ...], Command]]:
    """Every command that does something, with its path: ("corpus", "mine")."""
    for name, entry in COMMANDS.items():
        if isinstance(entry, Command):
            yield (name,), entry
        else:
            yield from (((name, sub), command) for sub, command in entry.commands.items())
