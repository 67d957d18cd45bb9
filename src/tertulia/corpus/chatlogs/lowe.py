"""Extract dialogues of two from a chat log by the rules of the Ubuntu Dialogue Corpus.

Lowe et al. (2015, arXiv 1506.08909, section 3): a line whose first word is a nick is a reply to that user. It opens a
dialogue with the user's last utterance, if that is at most three minutes old, and everything the two say to each other
belongs to the dialogue. What one of them says without addressing anybody is added ("filling the holes") if they were
talking to this partner alone.

Figure 5 of the paper settles what "alone" means: the user may not address anybody in another dialogue that overlaps
with this one in time, even if that happens only after this one's last line.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from pydantic import Field

from tertulia.corpus.chatlogs.dialogues import (
    ExtractedDialogues,
    KeepRules,
    Utterance,
    filter_dialogues,
    nicks_of,
    utterances_of,
)
from tertulia.corpus.chatlogs.log import Log


class LoweRules(KeepRules):
    """The thresholds of the extraction."""

    question_minutes: float = Field(default=3, ge=0)
    """How old the initial question may be when it is answered, in minutes."""


@dataclass(frozen=True, slots=True)
class TwoPartyDialogue:
    """What two users say to each other: sorted indices into the list of utterances."""

    users: tuple[str, str]
    indices: tuple[int, ...]

    @property
    def span(self) -> tuple[int, int]:
        """Indices of its first and its last utterance."""
        return self.indices[0], self.indices[-1]


def two_party_dialogues(utterances: Sequence[Utterance], rules: LoweRules) -> list[TwoPartyDialogue]:
    """All pairs of users who address each other, with the initial question and the holes filled."""
    ignored = {nick.lower() for nick in rules.ignore}
    addressed: dict[tuple[str, str], list[int]] = {}
    by_sender: dict[str, list[int]] = {}
    questions: dict[tuple[str, str], int | None] = {}
    for index, utterance in enumerate(utterances):
        sender, recipient = utterance.sender, utterance.recipient
        if recipient is not None and not ignored & {sender, recipient}:
            users = (min(sender, recipient), max(sender, recipient))
            if users not in addressed:
                questions[users] = _initial_question(utterances, by_sender.get(recipient, []), utterance, rules)
            addressed.setdefault(users, []).append(index)
        by_sender.setdefault(sender, []).append(index)
    dialogues = [
        TwoPartyDialogue(users, tuple(indices) if (question := questions[users]) is None else (question, *indices))
        for users, indices in addressed.items()
    ]
    return _fill_holes(dialogues, utterances, by_sender)


def _initial_question(
    utterances: Sequence[Utterance], earlier: Sequence[int], response: Utterance, rules: LoweRules
) -> int | None:
    """The recipient's last utterance before the first response, if it is recent enough."""
    if earlier and response.line.time - utterances[earlier[-1]].line.time <= 60 * rules.question_minutes:
        return earlier[-1]
    return None


def _fill_holes(
    dialogues: Sequence[TwoPartyDialogue], utterances: Sequence[Utterance], by_sender: dict[str, list[int]]
) -> list[TwoPartyDialogue]:
    """Add what a user says without a recipient within the dialogue's span, unless they also address somebody else."""
    of_user: dict[str, list[TwoPartyDialogue]] = {}
    for dialogue in dialogues:
        for user in dialogue.users:
            of_user.setdefault(user, []).append(dialogue)
    filled = []
    for dialogue in dialogues:
        low, high = dialogue.span
        indices = set(dialogue.indices)
        for user in dialogue.users:
            if not any(_addresses_others(user, other, dialogue, utterances) for other in of_user[user]):
                own = by_sender.get(user, [])
                indices.update(i for i in own if low <= i <= high and utterances[i].recipient is None)
        filled.append(TwoPartyDialogue(dialogue.users, tuple(sorted(indices))))
    return filled


def _addresses_others(
    user: str, other: TwoPartyDialogue, dialogue: TwoPartyDialogue, utterances: Sequence[Utterance]
) -> bool:
    """Whether the user addresses the partner of another dialogue that overlaps with this one."""
    if other is dialogue or other.span[0] > dialogue.span[1] or other.span[1] < dialogue.span[0]:
        return False
    return any(utterances[i].sender == user and utterances[i].recipient in other.users for i in other.indices)


def extract_dialogues(
    log: Log, rules: LoweRules | None = None, *, nicks_before: Collection[str] = ()
) -> ExtractedDialogues:
    """The dialogues of one day; `nicks_before` are the nicks seen the day before."""
    rules = rules or LoweRules()
    utterances = utterances_of(log.lines, nicks_of(log.lines) | set(nicks_before))
    groups = (
        (f"{log.name}:{'+'.join(dialogue.users)}", [utterances[i] for i in dialogue.indices])
        for dialogue in two_party_dialogues(utterances, rules)
    )
    return filter_dialogues(groups, log, rules)


def dialogue_clusters(log: Log, rules: LoweRules | None = None) -> list[set[int]]:
    """The line numbers of each dialogue that is kept, in the order in which they begin, to compare with gold clusters.

    A line may be in several: every responder has a dialogue with the one who asked.
    """
    return [
        {int(source.rpartition(":")[2]) for turn in dialogue.turns for source in turn.source}
        for dialogue in sorted(extract_dialogues(log, rules).dialogues, key=lambda d: float(d.meta["time"]))
    ]
