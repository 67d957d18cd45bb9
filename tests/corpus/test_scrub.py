"""Personal data on a hand-made list: what must be found, and what looks similar and must stay."""

from collections import Counter

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tertulia.core.dialogue import Dialogue, Evidence, Persona, Turn, exchanges
from tertulia.corpus.scrub import KINDS, PLACEHOLDERS, scrub, scrub_column
from tertulia.corpus.scrub_step import ScrubMaker

PERSONAL = {
    "email": """ana@example.org | j.doe+news@mail.example.co.uk | BOB_77@Example.COM | x@y.io | josé.núñez@correo.es
        | first-last@sub.domain.museum | write to me (ana@example.org). | <bob@example.net> |
        mail:bob@example.net | a1@b2.c3.de | bob (at) example (dot) com | ana [at] example.org | me@my-
        host.info! | "kim@uni-berlin.de", | 12345@qq.com""",
    "phone": """+49 30 1234567 | +1 (415) 555-2671 | 415-555-2671 | (415) 555-2671 | 415.555.2671 | 1-800-555-0199 |
        0049 171 2345678 | 0171 2345678 | 030/12345678 | +44 20 7946 0958 | +33-1-42-68-53-00 | call me:
        5552671 | my cell is 555 2671 | Tel.: 089 1234567 | whatsapp +5511987654321 | phone 5551234567 | +91
        98765 43210""",
    "key": """AKIAIOSFODNN7EXAMPLE | ghp_16C7e42F292c6912E7710c838347Ae178B4a | sk-proj-abcDEF1234567890abcDEF12 |
        sk_live_4eC39HqLyjWDarjtT1zdp7dc | xoxb-123456789012-abcdefGHIJKL |
        AIzaSyA1234567890abcdefghijklmnopqrstuv | hf_abcdefghijklmnopqrstuvwxyzABCDEFGH12 | password:
        hunter2! | password = "s3cr3t-Pass" | api_key=9f8e7d6c5b4a |
        eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.dozjgNryP4J3jVmNHl0w5N | access token: 12ab34cd56ef |
        github_pat_11ABCDEFG0123456789_abcdefghijkl""",
    "ip": """93.184.216.34 | my ip is 203.0.113.77. | 192.168.1.10 | 10.0.0.1:8080 |
        2001:0db8:85a3:0000:0000:8a2e:0370:7334 | fe80::1ff:fe23:4567:890a | 2001:db8::1 | ping 8.8.8.8 |
        (172.16.254.1) | 255.255.255.0""",
    "card": """4111 1111 1111 1111 | 4111111111111111 | 5500-0000-0000-0004 | 3400 000000 00009 | 6011000990139424
        | 378282246310005 | 5105105105105100 exp 12/27 | 4012 8888 8888 1881 12/25 | 3530111333300000""",
    "address": """221B Baker Street | 1600 Pennsylvania Avenue | 12 elm st | 742 Evergreen Terrace, Springfield | 350
        Fifth Avenue, New York, NY 10118 | 4 Privet Drive | 10 Downing Street, London | Springfield, IL
        62704 | SW1A 1AA | Hauptstraße 12 | Lindenweg 3a, 10115 Berlin | Bahnhofstr. 7 | P.O. Box 1234 | 55
        Broad St, Apt 4B | 9 Abbey Road | Königsplatz 1""",
}
HARMLESS = """ana at example | @ana | a@b | meet @ 5 | :@ | 1@ | user@ | 3.14 | 1,234,567 | 2008-04-11 | 11/04/2008 |
    12:30:45 | 10:30 | 2008-04-11T04:24:00.000Z | 1998-2004 | 123-45 | version 1.2.3.4 | kernel 2.6.32.1 | v. 10.0.1.2 |
    127.0.0.1 | 0.0.0.0 | localhost:8080 | 1.2.3 | 192.168.1 | 1.2.3.4.5 | 300.1.2.3 | 00:1A:2B:3C:4D:5E |
    std::vector | a::b | :: | 1234 5678 9012 3456 | 4111 1111 1111 1112 | 0000000000000000 | 12345678901234567890123
    | 1234567890123 | $415 555 | 555-2671 was the year | 20 000 000 people | 100 000 | 1 2 3 4 5 6 7 8 9 10 11 12 13
    14 15 16 | isbn 978-3-16-148410-0 | 5 minutes down the road | 3 miles up the street | 2 guys on my street | 10
    more things to drive | I took 3 buses to the court | 50 ways | 24 hours a day | 1st street fair | went 2 the
    place | 7 other way | 100 percent close | password: please | the secret: honestly, no | my password is weak |
    token ring | sk-8 board | hf_short | AKIA | eyJ.eyJ.eyJ | call me maybe | call 911 | phone 12 | dial 112 | I was
    born in 1984 in Springfield | IL 62704 | A1 2 | Route 66 | Formula 1 | 42nd | 3rd avenue | a weg 3 | Platz 1 |
    box 12 | 99 bottles of beer | GTX 1080 Ti | 1080p 60 fps | 6'2" 180 lbs | C3PO 4 | MP3 4GB | win 10 64 bit |
    0800 hours | 1-0 | 3-2-1 | from 1990 to 2000 | 415 | 2001: a space odyssey | 12:34 | 1:2 | Genesis 1:1 | 16:9 |
    4/5 | 1/2 cup | 50% | #12345 | id 123456789"""


def listed(text: str) -> list[str]:
    return [" ".join(part.split()) for part in text.split("|")]


def confusion() -> dict[str, Counter[str]]:
    """For each kind: found where it is, missed, and found where it is not."""
    counts = {kind: Counter({"right": 0, "missed": 0, "wrong": 0}) for kind in KINDS}
    for kind, examples in PERSONAL.items():
        for example in listed(examples):
            kinds = scrub(f"well, {example} ok").counts
            counts[kind]["right" if kinds[kind] else "missed"] += 1
            for other in set(kinds) - {kind}:
                counts[other]["wrong"] += 1
    for example in listed(HARMLESS):
        for kind in scrub(f"well, {example} ok").counts:
            counts[kind]["wrong"] += 1
    return counts


@pytest.mark.parametrize("kind", KINDS)
def test_precision_and_recall_on_the_hand_made_list(kind: str) -> None:
    counts = confusion()[kind]
    recall = counts["right"] / (counts["right"] + counts["missed"])
    precision = counts["right"] / (counts["right"] + counts["wrong"])
    assert (recall, precision) >= (0.9, 0.9), counts
    assert precision >= 0.9, counts


def test_nothing_of_what_was_found_is_left() -> None:
    text = "I'm Ana: ana@example.org, +49 30 1234567, 4111 1111 1111 1111, 93.184.216.34, 221B Baker Street"
    text += "; password=abc12345"
    scrubbed = scrub(text)
    assert scrubbed.text == "I'm Ana: [EMAIL], [PHONE], [CARD], [IP], [ADDRESS]; password=[KEY]"
    assert scrubbed.counts == Counter(dict.fromkeys(KINDS, 1))
    assert scrub(text, ("email",)).text == text.replace("ana@example.org", "[EMAIL]")
    key = "-----BEGIN RSA PRIVATE KEY-----\nMIIEpAIBAAKCAQEA7\n9x+/=\n-----END RSA PRIVATE KEY-----"
    assert scrub(f"here: {key} bye").text == "here: [KEY] bye"


@given(st.lists(st.sampled_from([*(e for own in PERSONAL.values() for e in listed(own)), *listed(HARMLESS), "and"])))
def test_scrubbing_twice_changes_nothing_more(parts: list[str]) -> None:
    once = scrub(" ".join(parts)).text
    assert scrub(once).text == once
    assert scrub("\n".join(PLACEHOLDERS.values())).counts == Counter()


def test_all_texts_of_an_item_are_scrubbed_and_counted() -> None:
    mail = "ana@example.org"
    dialogue = Dialogue(
        "d", (Turn("a", f"I am {mail}"), Turn("b", "ok")), {"a": Persona((mail,), (mail,))}, (Evidence(mail),)
    )
    step = ScrubMaker().make()
    results = step([dialogue, *exchanges(dialogue)])
    assert mail not in repr(results)
    assert repr(results).count("[EMAIL]") == step.changes["email"] == 8
    assert results[0].speakers == dialogue.speakers


def test_a_column_is_scrubbed_like_its_texts() -> None:
    texts = [*(e for own in PERSONAL.values() for e in listed(own)), *listed(HARMLESS), "", "日本 @ 3"]
    column, counts = scrub_column(pa.array(texts))
    assert column.to_pylist() == [scrub(text).text for text in texts]
    assert counts == sum((scrub(text).counts for text in texts), Counter())
    plain = pa.array(["hi", "there"])
    assert scrub_column(plain) == (plain, Counter())
