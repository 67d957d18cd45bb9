"""Two people at two servers that share a PostgreSQL database, each in a browser of their own."""

# ruff: noqa: F811 - fixtures are imported, and arguments have their names

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import expect
from tests.e2e.studies import Join, OpenStudy, join, write_to  # noqa: F401 - fixtures
from tests.store.conftest import postgresql, postgresql_url  # noqa: F401 - fixtures

from tertulia.store import Database, StudyStore

pytestmark = [pytest.mark.browser, pytest.mark.slow]

SERVER = """
import sys
from tertulia.store import Database
from tertulia.talk.bots.generic import GenericBot
from tertulia.web.app import create_app
from tertulia.web.config import ServeConfig
from tertulia.web.server import serve

with Database.open(sys.argv[1]) as database:
    app = create_app({"generic": GenericBot()}, database, config=ServeConfig(grace_seconds=0, messages_per_minute=0))
    serve(app, port=0, ready=lambda address: print(address, flush=True))
"""
SETTINGS = 'preset = "collect-dialogues"\nitems = "items.jsonl"\nunits_per_participant = 1\n'
PERSONAS = [{"id": f"p{i}", "persona": [f"I am cook {i}.", "I sing."]} for i in range(4)]


@pytest.fixture
def servers(postgresql_url: str) -> Iterator[list[str]]:
    """The addresses of two servers, each a process of its own."""
    command = [sys.executable, "-c", SERVER, postgresql_url]
    folder = Path(__file__).parents[2]
    with Database.open(postgresql_url):  # creates the tables
        started = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=folder) for _ in range(2)]
    try:
        addresses = [process.stdout.readline().strip() for process in started if process.stdout]
        assert all(address.startswith("http://") for address in addresses), addresses
        yield addresses
    finally:
        for process in started:
            process.kill()
            process.communicate()


@pytest.mark.timeout(240)
def test_two_people_talk_across_two_servers_and_nobody_is_left_alone(
    servers: list[str], postgresql_url: str, join: Join
) -> None:
    """That the other is writing is stored nowhere: it shows that news travel from server to server."""
    with Database.open(postgresql_url) as database:
        store = StudyStore(database)
        study = OpenStudy(f"{servers[0]}/", store, SETTINGS + "min_turns = 4\nmin_turns_up_to = 4\n", PERSONAS)
        anna = join(study, "anna")
        study.url = f"{servers[1]}/"
        ben = join(study, "ben")
        assert anna.page.url.partition("/study")[0] != ben.page.url.partition("/study")[0]
        for person, address in ((anna, servers[0]), (ben, servers[1])):
            study.url = f"{address}/"
            person.skip_to_work()
        for person in (anna, ben):
            expect(person.page.locator(".own .persona")).to_be_visible()
        turns = ((anna, ben, "Hello!"), (ben, anna, "Hi."), (anna, ben, "So?"), (ben, anna, "No."))
        for speaker, listener, text in turns:
            write_to(speaker, listener, text)
        anna.page.locator("#finish").click()
        anna.submit()
        anna.expect_code()
        expect(ben.page.get_by_role("heading", name="The conversation has ended.")).to_be_visible()
        ben.choose("comfortable", True)
        ben.submit()
        ben.expect_code()

        study.url = f"{servers[0]}/"
        carla = join(study, "carla")
        carla.skip_to_work()
        expect(carla.page.locator(".countdown")).to_be_visible()
        study.url = f"{servers[1]}/"
        dan = join(study, "dan")
        dan.skip_to_work()
        for person in (carla, dan):
            expect(person.page.locator("#text")).to_be_visible()
        write_to(carla, dan, "Hello?")
        dan.page.locator("#withdraw").click()
        dan.page.locator("#withdraw-ok").click()
        carla.expect_code("partner_left")
        expect(carla.page.locator("main")).to_contain_text("Your partner has left.")
        assert [conversation for conversation in store.rows(study.id, unfinished=True) if conversation.turn_text] == []
