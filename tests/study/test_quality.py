from tertulia.study.presets import load_preset
from tertulia.study.quality import RatedUnit, quality_flags

SSA = load_preset("ssa-static")
LIKERT = load_preset("interactive-likert")


def rated(person: str, i: int, seconds: float | None = 30.0, **values: object) -> RatedUnit:
    labels = tuple(("unit", question, value) for question, value in values.items())
    return RatedUnit(person, f"u{i}", labels, seconds)


def careful(person: str, n: int = 12) -> list[RatedUnit]:
    return [rated(person, i, sensible=i % 3 > 0, specific=i % 3 > 1) for i in range(n)]


def test_careful_participants_have_no_flags() -> None:
    assert quality_flags(SSA, [*careful("ana"), *careful("ben")], attention={"ana": [True]}) == []


def test_participants_far_below_the_planned_time_are_flagged() -> None:
    # Half a minute per unit is planned, so a fifth of it is 6 seconds.
    fast = [rated("ana", i, seconds=5.0 if i < 3 else 60.0, sensible=i > 2) for i in range(5)]
    (flag,) = quality_flags(SSA, [*fast, *careful("ben")])
    assert (flag.participant, flag.kind) == ("ana", "too-fast")
    assert "5.0 seconds" in flag.detail
    assert quality_flags(SSA, [rated("ana", i, seconds=1.0) for i in range(2)]) == []
    assert quality_flags(SSA, [rated("ana", i, seconds=None) for i in range(5)]) == []


def test_the_same_answer_every_time_is_flagged_unless_everybody_gives_it() -> None:
    lazy = [rated("ana", i, sensible=True, specific=True) for i in range(10)]
    flags = quality_flags(SSA, [*lazy, *careful("ben"), *careful("eva")])
    assert [(flag.participant, flag.kind) for flag in flags] == [("ana", "straight-lining")] * 2
    everybody = [rated(person, i, sensible=True) for person in ("ana", "ben", "eva") for i in range(10)]
    assert quality_flags(SSA, everybody) == []
    assert quality_flags(SSA, [*lazy[:9], *careful("ben")]) == []


def test_implied_answers_are_no_straight_line() -> None:
    strict = [rated("ana", i, sensible=i == 0, specific=i == -1) for i in range(12)]
    others = [rated("ben", i, sensible=i % 2 == 0, specific=i % 4 == 0) for i in range(12)]
    assert quality_flags(SSA, [*strict, *others]) == []


def test_scales_are_checked_and_votes_are_not() -> None:
    lazy = [rated("ana", i, seconds=300, quality=4, vote="up") for i in range(10)]
    others = [rated("ben", i, seconds=300, quality=1 + i % 7, vote="down") for i in range(14)]
    (flag,) = quality_flags(LIKERT, [*lazy, *others])
    assert flag.detail == "answered 4 to 'quality' 10 times out of 10 (others: 14%)"


def test_failed_checks_and_shared_identities_are_flagged() -> None:
    flags = quality_flags(
        SSA,
        [],
        attention={"ana": [True, False], "ben": [True]},
        identities={"ana": ["x"], "ben": ["y"], "eva": ["x", "z"], "leo": ["y2"]},
    )
    assert [(flag.participant, flag.kind, flag.detail) for flag in flags] == [
        ("ana", "duplicate", "shares an identity with eva"),
        ("ana", "failed-attention", "1 of 2 checks failed"),
        ("eva", "duplicate", "shares an identity with ana"),
    ]
