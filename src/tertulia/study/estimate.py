"""What a study asks of people: units, ratings, participants, minutes and money, before anybody is invited."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from tertulia.study.config import StudyConfig
from tertulia.study.units import Unit, ratings_wanted


@dataclass(frozen=True, slots=True)
class StudyEstimate:
    """The size of a study."""

    units: int
    ratings: int
    """Assignments to be done."""
    participants: int
    """People needed if each does as many units as allowed."""
    units_per_participant: float
    """On average."""
    minutes_per_participant: float
    hours: float
    """Of all participants together."""
    cost: float
    currency: str
    warnings: tuple[str, ...]


def what_it_asks(config: StudyConfig, units: Sequence[Unit]) -> StudyEstimate:
    """What a study asks of people, and what it costs at its wage, without the fees of a recruiting platform."""
    wanted = [ratings_wanted(config, unit) for unit in units]
    ratings = sum(wanted)
    most = min(config.units_per_participant or len(units), len(units))
    # Nobody rates a unit twice, so there are at least as many people as the unit with most ratings needs.
    participants = max([math.ceil(ratings / most), *wanted]) if units else 0
    each = ratings / participants if participants else 0.0
    minutes = config.pay.minutes_overhead + each * config.pay.minutes_per_unit
    hours = participants * minutes / 60
    return StudyEstimate(
        units=len(units),
        ratings=ratings,
        participants=participants,
        units_per_participant=each,
        minutes_per_participant=minutes,
        hours=hours,
        cost=round(hours * config.pay.per_hour, 2),
        currency=config.pay.currency,
        warnings=tuple(_warnings(config, participants, minutes, units)),
    )


def _warnings(config: StudyConfig, participants: int, minutes: float, units: Sequence[Unit]) -> list[str]:
    warnings = []
    if not units:
        warnings.append("The study has no units.")
    if config.max_participants is not None and config.max_participants < participants:
        warnings.append(f"max_participants is {config.max_participants}, but {participants} people are needed.")
    if minutes > 60:
        warnings.append(f"A participant needs {minutes:.0f} minutes; lower units_per_participant.")
    if config.lease_minutes < config.pay.minutes_per_unit:
        warnings.append("lease_minutes is shorter than a unit takes; units would expire under people's hands.")
    if config.protocol == "chat" and config.reply_seconds is None and len(config.bots) > 1:
        warnings.append("reply_seconds is not set: participants may tell bots by their speed.")
    return warnings
