"""Replies of the demo's retrieval bot to forty everyday openers: the table of docs/sample.md, unedited."""

import argparse
from pathlib import Path
from tempfile import TemporaryDirectory

from common import finish
from tertulia.core.dialogue import Dialogue, Turn
from tertulia.core.reply import Ask
from tertulia.corpus.mine import MineConfig, mine
from tertulia.lab.demo import DEMO_REPEATS, demo_index
from tertulia.talk.bots.tfidf import TfidfBot

OPENERS = """
hi | hello, how are you? | what's up? | how was your day? | what do you do for a living?
do you have any pets? | where are you from? | what's your name? | do you have any siblings?
what do you do for fun? | seen any good films lately? | what kind of music do you like?
what's your favourite food? | i'm so tired today | i'm bored | tell me a joke | are you a robot?
what did you do at the weekend? | do you like to cook? | what's the weather like there?
i had a terrible day at work | do you play any sports? | are you married? | do you have kids?
what are you doing right now? | i just got a new puppy | do you like coffee or tea?
what are you reading? | can you recommend a film? | i can't sleep | it's my birthday today
tell me something about yourself | what's your favourite season? | do you believe in ghosts?
i feel lonely | what should i have for dinner? | where do you live? | thank you so much | good night
bye, nice talking to you
"""


def openers() -> list[str]:
    """One by one."""
    return [text.strip() for line in OPENERS.strip().split("\n") for text in line.split("|")]


def main() -> None:
    """Mine the sample, reply, print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--quick", action="store_true", help="no effect: it takes seconds anyway")
    args = parser.parse_args()
    with TemporaryDirectory() as folder:
        mined = mine(MineConfig(out=Path(folder), max_repeats=DEMO_REPEATS, dialogues=True))
        bot = TfidfBot(demo_index(mined).index)
    asks = [Ask(Dialogue(str(i), (Turn("user", text),)), seed=args.seed) for i, text in enumerate(openers())]
    print("| opener | reply |\n|---|---|")
    replies = bot.reply(asks)
    for text, reply in zip(openers(), replies, strict=True):
        print(f"| {text} | {reply.text.replace('|', '/')} |")
    scores = [reply.score or 0.0 for reply in replies]
    finish(
        "sample_openers", {"openers": len(replies), "mean_similarity": sum(scores) / len(scores)}, {"seed": args.seed}
    )


if __name__ == "__main__":
    main()
