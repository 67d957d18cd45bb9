"""Limits on what participants write: the number of words, and copying from a persona.

Comparison ignores case and punctuation. Strangers choose the texts, so all functions take linear time: the longest
common run of words is read off a suffix automaton of the persona.
"""

from collections.abc import Sequence

from tertulia.core.text import words
from tertulia.study.config import StudyConfig
from tertulia.study.texts import text as interface_text

_STOP_WORDS = {
    "en": """a about after all also am an and any are as at be because been but by can could did do does for from get
        go had has have he her him his how i i'm i've i'd i'll if in into is it it's its just like me more most much my
        no not of on one or our out she so some than that the their them then there they this to too up us very was we
        were what when where which who will with would you your""",
    "de": """aber alle als am an auch auf aus bei bin bis bist da das dass dem den der des dich die dir du ein eine
        einem einen einer eines er es für gern habe haben hat hatte ich ihm ihn ihr im in ist ja kann kein keine man
        mein meine meinem meinen meiner mich mir mit nach nicht noch nur oder sehr sein seine sich sie sind so über um
        und uns unser viel vom von vor war was wenn wer wie wir wird zu zum zur""",
    "es": """a al algo así aunque con como cuando de del desde dónde donde e el él ella ellas ellos en era eres es esa
        ese eso esta está este esto estoy fue ha hay he la las le les lo los más me mi mis mucho muy ni no nos o para
        pero por porque que qué se ser sí si sin sobre son soy su sus también te tengo tiene tu tus un una uno y ya
        yo""",
}
_STOP_SETS = {language: frozenset(listed.split()) for language, listed in _STOP_WORDS.items()}


def check_text(config: StudyConfig, text: str, persona: Sequence[str], lang: str) -> str | None:
    """Why a message or a rewritten sentence is refused, in words for the participant; None if it is fine."""
    written = words(text)
    if not text.strip():
        return interface_text("writing.empty", lang)
    if config.max_words is not None and len(written) > config.max_words:
        return interface_text("writing.too_many_words", lang, limit=config.max_words, count=len(written))
    if config.copy_limit is not None:
        run = longest_copied_run(text, persona)
        if len(run) > config.copy_limit:
            return interface_text("writing.copied", lang, words=" ".join(run))
    return None


def copy_warning(text: str, original: str, lang: str) -> str | None:
    """A warning about the words of the original that a rewritten sentence reuses; None if there are none."""
    reused = copied_words(text, original, lang)
    return interface_text("writing.copied_words_warning", lang, words=", ".join(reused)) if reused else None


def copied_words(text: str, original: str, lang: str) -> list[str]:
    """Words of the original, other than stop words, that a text reuses, in the order of the text.

    >>> copied_words("The sea is my love.", "I love the sea!", "en")
    ['sea', 'love']
    """
    stop_words = _STOP_SETS.get(lang, _STOP_SETS["en"])
    of_original = {*words(original)} - stop_words
    return [word for word in dict.fromkeys(words(text)) if word in of_original]


def longest_copied_run(text: str, persona: Sequence[str]) -> list[str]:
    """The longest run of adjacent words that a text has in common with a sentence of the persona.

    >>> longest_copied_run("Well, I HAVE two dogs and a cat.", ["I am tall.", "I have two dogs."])
    ['i', 'have', 'two', 'dogs']
    """
    written = words(text)
    return max((_longest_common_run(written, words(sentence)) for sentence in persona), key=len, default=[])


def _longest_common_run(written: Sequence[str], original: Sequence[str]) -> list[str]:
    """The longest common run of two lists, by the suffix automaton of the second, in linear time."""
    edges, link, depth = _suffix_automaton(original)
    state = length = best = end = 0
    for i, word in enumerate(written):
        while state and word not in edges[state]:
            state = link[state]
            length = depth[state]
        if word in edges[state]:
            state = edges[state][word]
            length += 1
        if length > best:
            best, end = length, i + 1
    return list(written[end - best : end])


def _suffix_automaton(sequence: Sequence[str]) -> tuple[list[dict[str, int]], list[int], list[int]]:
    """The automaton that accepts every run of the sequence: edges, suffix links and longest lengths by state."""
    edges: list[dict[str, int]] = [{}]
    link, depth = [-1], [0]
    last = 0
    for word in sequence:
        state = _add_state(edges, link, depth, {}, depth[last] + 1)
        p = last
        while p >= 0 and word not in edges[p]:
            edges[p][word] = state
            p = link[p]
        if p < 0:
            link[state] = 0
        elif depth[q := edges[p][word]] == depth[p] + 1:
            link[state] = q
        else:  # the state q stands for runs of several lengths: split off the short ones
            clone = _add_state(edges, link, depth, dict(edges[q]), depth[p] + 1)
            link[clone] = link[q]
            while p >= 0 and edges[p].get(word) == q:
                edges[p][word] = clone
                p = link[p]
            link[q] = link[state] = clone
        last = state
    return edges, link, depth


def _add_state(edges: list[dict[str, int]], link: list[int], depth: list[int], out: dict[str, int], size: int) -> int:
    edges.append(out)
    link.append(0)
    depth.append(size)
    return len(edges) - 1
