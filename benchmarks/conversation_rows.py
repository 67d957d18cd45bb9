"""Every conversation metric on the published chats of Meena's paper: Meena, people and Mitsuku side by side.

--data is a folder with meena.txt, human.txt and mitsuku.txt (and perhaps others) as Google released them: "Meena
Conversation 1", then "Human: ..." and "Meena: ..." lines, then a blank line. In chats of a bot, the bot is judged; in
chats of two people, both are ("Human 2" alone by --speaker). The chats of Mitsuku and Meena were not with the same
people or about the same topics, so differences are between sets of chats and not paired.
"""

import argparse
import re
from collections.abc import Iterator
from pathlib import Path

from common import finish
from tertulia.core.dialogue import Dialogue, Turn
from tertulia.core.progress import Silent
from tertulia.judge.conversations import (
    CONVERSATION_METRICS,
    MORE_METRICS,
    judged_conversations,
    prepare_resources,
    score_conversations,
)
from tertulia.judge.resources import load_resources
from tertulia.metrics.registry import metric_named
from tertulia.metrics.significance import estimates

HEAD = re.compile(r"\w+ Conversation (\d+)\s*")
TURN = re.compile(r"([\w ]{1,20}): ?(.*)")
ROWS = ("meena", "human", "mitsuku")


def read_chats(path: Path) -> Iterator[Dialogue]:
    """The chats of a file; a line that names no speaker continues the turn before it."""
    number, turns = "", list[Turn]()
    for line in [*path.read_text(encoding="utf-8").splitlines(), "End Conversation 0"]:
        if head := HEAD.fullmatch(line):
            if turns:
                bots = {turn.speaker: path.stem for turn in turns if not turn.speaker.startswith("Human")}
                yield Dialogue(f"{path.stem}-{number}", tuple(turns), meta={"bots": bots} if bots else {})
            number, turns = head.group(1), []
        elif turn := TURN.fullmatch(line):
            turns.append(Turn(*turn.groups()))
        elif line.strip() and turns:
            turns[-1] = Turn(turns[-1].speaker, f"{turns[-1].text}\n{line.strip()}")


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True, help="the folder with the released chats")
    parser.add_argument("--speaker", help="of the human chats, judge this speaker only")
    parser.add_argument("--quick", action="store_true", help="ten chats of each")
    args = parser.parse_args()
    names = (*CONVERSATION_METRICS, "laughter (literal)", *MORE_METRICS)
    metrics = [metric_named(name) for name in names]
    conversations = []
    for row in ROWS:
        chats = list(read_chats(args.data / f"{row}.txt"))[: 10 if args.quick else None]
        speaker = args.speaker if row == "human" else None
        conversations += judged_conversations([(row, chat) for chat in chats], by="file", speaker=speaker)
    resources = load_resources(metrics, {})
    prepare_resources(resources, conversations, Silent())
    scores = score_conversations(conversations, metrics, resources)
    table = dict(
        zip([(s.metric, s.subject) for s in scores], estimates(scores, {m.name: m for m in metrics}), strict=True)
    )
    print(f"{'':26}" + "".join(f"{row:>28}" for row in ROWS))
    figures: dict[str, float] = {}
    for name in names:
        cells = [table[name, row] for row in ROWS]
        print(f"{name:26}" + "".join(f"{f'{e.value:.3f} [{e.low:.3f}, {e.high:.3f}]':>28}" for e in cells))
        figures |= {f"{row}_{name}".replace(" ", "_"): e.value for row, e in zip(ROWS, cells, strict=True)}
    counts = {row: sum(one.subject == row for one in conversations) for row in ROWS}
    print("conversations: " + ", ".join(f"{row} {count}" for row, count in counts.items()))
    finish("conversation_rows", figures, {"conversations": counts, "human_speaker": args.speaker or "both"})


if __name__ == "__main__":
    main()
