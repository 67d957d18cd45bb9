from pathlib import Path

from tertulia.lab.demo import demo_bots
from tertulia.talk.spec import check_spec


def test_the_bot_to_talk_to_is_served_first() -> None:
    bots = demo_bots(Path("out"), with_models=True)
    assert bots == ("companion", "smollm2", str(Path("out/tfidf")), "generic")
    for spec in (bots[0], bots[1], bots[3]):
        check_spec(spec)
    assert demo_bots(Path("out"), with_models=False) == bots[2:]
