"""Two processes with several threads each lease, label and submit; one of them is killed in the middle."""

import signal
import subprocess
from collections import Counter
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from tertulia.store import Database, StudyStore
from tertulia.store.study_records import utc_now

Python = Callable[..., subprocess.Popen[str]]
Rows = Callable[[str, str], list[tuple[Any, ...]]]

RATERS, UNITS, RATINGS = 8, 30, 3
LEASE_SECONDS = 3600

RATER = """
import random, sys, threading, time
from tertulia.store import Database, StudyStore

url, study, seconds, pause, *participants = sys.argv[1:]
database = Database.open(url, busy_seconds=60)
studies = StudyStore(database)
lock = threading.Lock()

def say(*words):
    with lock:
        print(*words, flush=True)

def rate(participant):
    rng = random.Random(participant)
    while assignment := studies.lease_unit(
        study, participant, lambda units: rng.choice(units).id if units else None, float(seconds)
    ):
        for number in range(3):
            batch = [("unit", f"q{number}", rng.random()), (f"item:{number}", "vote", number)]
            for _ in range(2):  # each request twice, as a page does that got no answer
                added = studies.add_labels(assignment.id, participant, batch, key=str(number))
            time.sleep(float(pause))
            for label in added:
                say("label", assignment.id, label.number, label.target, label.question, label.value)
        studies.submit(assignment.id, participant, {"n": 3})
        studies.submit(assignment.id, participant, {"n": 3})
        say("submitted", assignment.id, assignment.unit, participant)

say("ready")
sys.stdin.readline()
threads = [threading.Thread(target=rate, args=(participant,)) for participant in participants]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
database.close()
"""


@pytest.mark.timeout(180)
def test_nothing_acknowledged_is_lost_or_doubled_when_a_process_is_killed(url: str, rows: Rows, python: Python) -> None:
    with Database.open(url) as database:
        studies = StudyStore(database)
        study = studies.create("hammer", {}, "d").id
        studies.add_units(study, [(f"u{n}", ["a"], {}, RATINGS) for n in range(UNITS)])
        studies.set_state(study, "open", "ada")
        people = [studies.enroll(study, "link", f"p{n}")[0].id for n in range(RATERS)]
        half = RATERS // 2
        lease = str(LEASE_SECONDS)
        killed = python(RATER, url, study, lease, "0.05", *people[:half])  # slow, to be killed before it is done
        survivor = python(RATER, url, study, lease, "0.02", *people[half:])
        start_together(killed, survivor)
        assert killed.stdout
        lines = [killed.stdout.readline() for _ in range(30)]
        killed.kill()
        lines += killed.stdout.readlines()  # what it had acknowledged by then
        assert killed.wait() == -signal.SIGKILL
        out, _ = survivor.communicate(timeout=120)
        assert survivor.returncode == 0
        check_acknowledged(studies, study, url, rows, [*lines, *out.splitlines(keepends=True)])

        # Time passes: what the killed process had leased is given out again, and the study can be completed.
        later = StudyStore(database, now=lambda: utc_now() + timedelta(seconds=LEASE_SECONDS))
        stuck = [one.id for who in people for one in studies.assignments_of(who) if one.state == "live"]
        for number in range(RATINGS):
            rater = later.enroll(study, "link", f"late{number}")[0].id
            while assignment := later.lease_unit(study, rater, lambda units: units[0].id if units else None, 60):
                later.submit(assignment.id, rater)
        assert {unit.done for unit in later.progress(study).units} == {RATINGS}
        assert {studies.assignment(id_).state for id_ in stuck} <= {"expired"}


def start_together(*processes: subprocess.Popen[str]) -> None:
    for process in processes:
        assert process.stdout
        assert process.stdout.readline() == "ready\n"
    for process in processes:
        assert process.stdin
        process.stdin.write("go\n")
        process.stdin.flush()


def check_acknowledged(studies: StudyStore, study: str, url: str, rows: Rows, lines: list[str]) -> None:
    acknowledged = [line.split() for line in lines if line.endswith("\n")]
    labels = [tuple(words) for kind, *words in acknowledged if kind == "label"]
    submitted = [tuple(words) for kind, *words in acknowledged if kind == "submitted"]
    assert len(labels) > 100
    assert len(submitted) > 20
    stored = Counter(
        (row.assignment, str(row.number), row.target, row.question, str(row.value))
        for row in studies.rows(study, history=True, unfinished=True)
    )
    assert set(stored.values()) == {1}
    assert set(labels) <= set(stored)
    keys = Counter((assignment, target, question) for assignment, _, target, question, _ in stored)
    assert set(keys.values()) == {1}  # a repeated request added nothing
    done = rows(url, "SELECT id, unit, participant FROM assignments WHERE state = 'submitted'")
    assert set(submitted) <= set(done)
    assert max(Counter(unit for _, unit, _ in done).values()) <= RATINGS
    taken = rows(url, "SELECT unit, participant FROM assignments WHERE state IN ('submitted', 'live')")
    assert max(Counter(unit for unit, _ in taken).values()) <= RATINGS
    assert len(set(taken)) == len(taken)  # nobody has a unit twice


LATE_RATER = """
import sys, threading, time
from tertulia.store import Database, StudyStore
from tertulia.store.study_records import LeaseExpired

url, study, *participants = sys.argv[1:]
database = Database.open(url, busy_seconds=60)
studies = StudyStore(database)
done = threading.Event()

def rate(participant, works):
    while not done.is_set():
        assignment = studies.lease_unit(study, participant, lambda units: units[0].id if units else None, 0.2)
        if assignment is None:
            done.wait(0.01)
            if all(unit.done >= unit.wanted for unit in studies.progress(study).units):
                done.set()
            continue
        time.sleep(works)
        try:
            studies.submit(assignment.id, participant)
        except LeaseExpired:
            return

threads = [threading.Thread(target=rate, args=(p, 0.0 if n >= 3 else 0.25)) for n, p in enumerate(participants)]
for thread in threads:
    thread.start()
    time.sleep(0.02)
for thread in threads:
    thread.join()
database.close()
"""


@pytest.mark.timeout(120)
def test_late_submissions_are_refused_and_never_exceed_the_ratings(url: str, rows: Rows, python: Python) -> None:
    """Leases expire while their holders are still at work, and the unit is given to others at the same time."""
    with Database.open(url) as database:
        studies = StudyStore(database)
        study = studies.create("late", {}, "d").id
        studies.add_units(study, [("u", ["a"], {}, 2)])
        studies.set_state(study, "open", "ada")
        people = [studies.enroll(study, "link", f"p{n}")[0].id for n in range(40)]
        processes = [python(LATE_RATER, url, study, *people[start::2]) for start in (0, 1)]
        assert [process.wait(100) for process in processes] == [0, 0]
        assert studies.progress(study).units[0].done == 2
    states = Counter(state for (state,) in rows(url, "SELECT state FROM assignments"))
    assert states["submitted"] == 2
    assert states["expired"] > 0
