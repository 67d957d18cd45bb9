from hypothesis import given, settings
from hypothesis import strategies as st

from tertulia.study.presets import load_preset
from tertulia.study.writing import check_text, copied_words, copy_warning, longest_copied_run

PERSONA = ["I have two dogs and a cat.", "My favourite food is pizza."]
COLLECT = load_preset("collect-dialogues")


def test_messages_have_at_most_fifteen_words() -> None:
    assert check_text(COLLECT, "word " * 15, PERSONA, "en") is None
    assert check_text(COLLECT, "word " * 16, PERSONA, "en") == "Please use at most 15 words. You have 16."
    assert check_text(COLLECT, " \n", PERSONA, "de") == "Bitte schreiben Sie etwas."


def test_a_message_must_not_copy_the_persona_whatever_its_case_and_punctuation() -> None:
    assert check_text(COLLECT, "Yes: I HAVE, two... dogs!", PERSONA, "en") == (
        "Please use your own words. “i have two dogs” stands like this in the description."
    )
    assert check_text(COLLECT, "At home I have two barking friends.", PERSONA, "en") is None
    assert check_text(COLLECT, "Dogs and a cat. My favourite!", PERSONA, "en") is not None
    # A run does not reach from one sentence of the persona into the next.
    assert check_text(COLLECT, "a cat my favourite", PERSONA, "en") is None
    assert check_text(COLLECT, "Anything goes here.", [], "en") is None


def test_rewriting_warns_of_reused_words_but_not_of_stop_words() -> None:
    assert copy_warning("I own a pair of DOGS.", PERSONA[0], "en") == (
        "You reuse these words of the original: dogs. Can you say it without them?"
    )
    assert copy_warning("Nothing beats a slice from Naples.", PERSONA[1], "en") is None
    assert copied_words("Mit dem Strand bin ich eins", "Ich liebe den Strand", "de") == ["strand"]
    assert copied_words("La playa es lo mío", "Me encanta la playa", "es") == ["playa"]


letters = st.lists(st.sampled_from("abc"), max_size=12)


@settings(deadline=None)
@given(letters, st.lists(letters, max_size=3))
def test_the_longest_run_is_that_of_a_search_through_all_runs(written: list[str], persona: list[list[str]]) -> None:
    runs = {
        tuple(sentence[i:j])
        for sentence in persona
        for i in range(len(sentence))
        for j in range(i + 1, len(sentence) + 1)
    }
    expected = max(
        (j - i for i in range(len(written)) for j in range(i + 1, len(written) + 1) if tuple(written[i:j]) in runs),
        default=0,
    )
    run = longest_copied_run(" ".join(written), [" ".join(sentence) for sentence in persona])
    assert len(run) == expected
    assert not run or tuple(run) in runs
