"""The report of an audit is one file that says what the day came to, in words, tables and plots, whatever is in it."""

import json
import re
from dataclasses import replace
from datetime import timedelta
from html.parser import HTMLParser
from typing import Any

import plotly.graph_objects as go
import pytest
from plotly.offline import get_plotlyjs
from tests.audit.sample import (
    DAY,
    HOUR_MS,
    MIDNIGHT_MS,
    WORST_HOUR_MS,
    clean_result,
    interval,
    ran,
    sample_result,
    warmup,
)

from batonpass import audit_words
from batonpass.audit import report
from batonpass.audit.findings import (
    STILL,
    AuditResult,
    Before,
    Finding,
    GroupDay,
    Outcome,
    Pictures,
    Severity,
    headline,
    named,
    summary,
    time_of,
)
from batonpass.audit.morning import CAUSES_SHOWN, Morning, cause_of
from batonpass.audit.report import as_html
from batonpass.core.state.durations import DASH
from batonpass.laws import LAWS, MEANINGS

NASTY = '"><script>window.hurt=1</script><img src=x onerror="window.hurt=1"><b>%{x}</b></script>\u2028&lt;'


class Page(HTMLParser):
    """What a browser would make of a page: its texts, and whatever it would fetch."""

    def __init__(self, source: str) -> None:
        super().__init__()
        self.texts: list[str] = []
        self.fetched: list[str] = []
        self.tags: list[str] = []
        self.ids: list[str] = []
        self.feed(source)
        self.text = re.sub(r"\s+", " ", " ".join(self.texts))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Take note of a tag."""
        self.tags.append(tag)
        for name, value in attrs:
            if name in {"src", "href", "srcset", "data", "poster", "action"} and not (value or "").startswith("#"):
                self.fetched.append(str(value))
            if name == "id":
                self.ids.append(str(value))

    def handle_data(self, data: str) -> None:
        """Take note of a text that is shown."""
        if self.tags[-1:] not in (["script"], ["style"]):
            self.texts.append(data)


def figures_of(source: str) -> dict[str, Any]:
    """Return the figures that a page draws, by their places."""
    found = re.search(r"^const FIGURES = (.*);$", source, re.MULTILINE)
    assert found is not None
    made: dict[str, Any] = json.loads(found[1])
    return made


def coloured(value: Any) -> Any:
    """Return a figure with a colour wherever it has the name of one."""
    if isinstance(value, dict):
        return {
            name: "#123456" if name.endswith("color") and str(one).startswith("--") else coloured(one)
            for name, one in value.items()
        }
    return [coloured(one) for one in value] if isinstance(value, list) else value


def named_so(result: AuditResult, name: str) -> AuditResult:
    """Return a result in which a group, a task, a member and every sentence of others is ``name``."""
    finding = Finding(name, "L1", Severity.FATAL, name, name, name, (1,), (WORST_HOUR_MS + 5,))
    owned = ran(name, name, WORST_HOUR_MS)
    outcome = Outcome({name: name}, 5, 1, 0)
    advice = replace(
        result.recommendations[0], group=name, confidence=name, present=outcome, recommended=replace(outcome, moves=2)
    )
    return replace(
        result,
        groups=(replace(result.groups[1], group=name),),
        findings=(finding,),
        recommendations=(advice, replace(advice, recommended=Outcome({name: "other"}, 4, 1, 0))),
        log_lines=(name,),
        code_version=name,
        pictures=Pictures(
            {name: WORST_HOUR_MS},
            ((name, owned), (name, ran(name, name + "2", WORST_HOUR_MS + 9))),
            tuple((name, one._replace(task=name, member=name, name=name)) for _, one in result.pictures.warmups),
            tuple((name, one) for _, one in result.pictures.generations),
        ),
    )


@pytest.fixture(scope="module")
def source() -> str:
    """The report of the sample."""
    return as_html(sample_result())


def test_the_report_fetches_nothing_from_anywhere_else(source: str) -> None:
    page = Page(source)
    assert page.fetched == []
    assert re.findall(r"url\(|@import", source.partition("<script>")[0]) == []


def test_the_verdict_comes_first_and_in_words(source: str) -> None:
    text = Page(source).text
    assert "Two members may have run a task at once (L1); 1 more law broken (L7), in 1 group of 3." in text
    for sentence in (
        "two members may have run a task at once (L1) · 4 times 0_7 of orders: orders-1 with orders-2 not known , 14:12:07 to",
        "0_3 of orders: orders-4 over , 14:31:40",
    ):
        assert sentence in text
        assert text.index(sentence) < text.index("What to do now.")
    for sentence in (
        "The audit made 21,700 decisions again, with the same code: every one of them came out the same.",
        "99.94 % least available group 21 min 25 s downtime of all tasks",
        "15 moves beyond the fewest 15 wasted warmups",
        "Change max_warmup_replicas from 2 to 4, num_standby_replicas from 0 to 1. In the simulation of the day, downtime goes from 2 min 16 s to 14 s,",
    ):
        assert text.index(sentence) > text.index("What to do now.")


def test_every_finding_is_there_with_its_evidence(source: str) -> None:
    text = Page(source).text
    for one in sample_result().findings:
        assert one.detail in text
    assert "Records 18,011, 18,204; at 13:40:02, 14:12:07, 14:12:11." in text
    assert "and 10 more." in text
    assert "3 more were counted but not kept." in text
    assert text.index("had confirmed that it stopped") < text.index("11 of 12 probes")


def bad_day() -> AuditResult:
    """Return a day with 370 findings of five laws in four groups, most of them of one cause."""
    laws = {"L10": 5, "L2": 215, "L8": 30, "L7": 20, "L1": 50}
    findings = [
        Finding(f"g{number % 4}", law, Severity.FATAL, f"0_{number}", "m1", f"record {number} of 0_{number} is odd",
                (number,), (WORST_HOUR_MS + number,))
        for law, count in laws.items()
        for number in range(1, count + 1)
    ]  # fmt: skip
    notices = [replace(findings[0], law="stuck-task", severity=Severity.NOTICE, group=f"g{n % 4}") for n in range(50)]
    before = Before(frozenset({("g1", "L1")}), {DAY - timedelta(days=2): 0.9994, DAY - timedelta(days=1): 0.99})
    return replace(sample_result(), findings=(*findings, *notices), left_out={"L2": 2_464}, before=before)


def test_a_bad_day_is_told_by_law_the_worst_first_with_one_card_for_each_cause() -> None:
    made = as_html(bad_day())
    text = Page(made).text
    assert made.count('<details class="card">') == 6 * 4
    told = re.findall(r"<h3>.*?</span> .*? \(([\w-]+)\) · ", made)
    assert told == ["L2", "L1", "stuck-task", "L10", "L7", "L8"]
    assert (
        "stored rows are missing or wrong (L2) · 2,679 times · new g1 (54 tasks): m1; g2 (54 tasks): m1; g3 (54 tasks): m1; 1 more not over"
        in text
    )
    assert "· 2,679 in 4 groups" in text
    assert "batonpass explain g1 0_1" in text
    assert made.count("What to do now.") == 6


def test_what_differs_only_in_tasks_members_and_numbers_is_one_cause() -> None:
    """Whoever the sentence names, not only the member that the finding is about."""
    alike = [
        Finding("g", "L7", Severity.FATAL, task, to, f"{owner}, which ran it, was told to stop at {at} for {to}")
        for task, owner, to, at in (
            ("0_1", "w06.1", "flapping.7", "2026-11-20 12:45:36.544"),
            ("1_12", "w00.4", "flapping.7", "2026-11-20 12:45:36.604"),
            ("0_3", "0f0e0d0c-0000-4000-8000-00000000000a", "a", "2026-11-20 20:37:05.601"),
        )
    ]
    assert len({cause_of(one) for one in alike}) == 1
    assert cause_of(replace(alike[0], detail="w06.1, which was gone, was told to stop")) != cause_of(alike[0])


def test_a_finding_is_new_or_known_since_the_day_before() -> None:
    text = Page(as_html(bad_day())).text
    assert "g1 · 13 times · 0_1 and 12 more · m1 · known" in text
    assert "g2 · 13 times · 0_2 and 12 more · m1 · new" in text
    unknown = Page(as_html(replace(bad_day(), before=Before()))).text
    assert "g2 · 13 times · 0_2 and 12 more · m1 · not known , 14:00:00" in unknown
    assert "Availability of the least available group on 3 days" in text
    assert "2026-11-18 99.94 %" in text
    assert "Availability of the least" not in unknown


def test_a_group_that_was_not_read_whole_is_in_no_figure() -> None:
    """Tiles left it out and tables did not: two figures of one name."""
    odd = Finding("orders", "replay-incomplete", Severity.NOTICE, None, None, "record 7 is missing")
    clicks, orders, quiet = sample_result().groups
    day = replace(sample_result(), groups=(clicks, orders.unknown(), quiet), findings=(odd,), recommendations=())
    made = as_html(day)
    text = Page(made).text
    assert "1 group (orders) could not be read whole and is in no figure." in text
    assert "21 min" not in text
    assert "99.9999 % least available group" in text
    rows = re.findall(r'<tr><th scope="row">orders</th>(.*?)</tr>', made)
    assert [set(re.findall(r">([^<]+)</td>", row)) for row in rows] == [{"0", DASH, "21,480"}, {"0", DASH}]
    assert text.index("Group orders") < text.index("Group clicks"), "it may have been the worst"
    tiles = re.findall(r"<div><b>(.*?)</b><span>", as_html(replace(day, groups=(orders.unknown(),))))
    assert tiles == [DASH] * 8


def test_every_law_says_what_it_means_that_it_was_broken_and_what_to_do() -> None:
    assert set(MEANINGS) == {*LAWS, "stuck-task"}
    assert all(all(one) for one in MEANINGS.values())


def test_every_place_for_a_plot_has_one(source: str) -> None:
    figures = figures_of(source)
    assert set(figures) == {"downtime", "moves", "warmups", "timeline-0", "frontier-0", "timeline-1"}
    assert set(figures) <= set(Page(source).ids)
    for made in figures.values():
        go.Figure(coloured(made))
    with pytest.raises(ValueError, match="no-such"):
        go.Figure({"data": [{"type": "bar", "no-such": 1}]})


def test_a_colour_is_one_that_the_page_has(source: str) -> None:
    style = source.partition("<style>")[2].partition("</style>")[0]
    used = set(re.findall(r'"(--\w+)"', json.dumps(figures_of(source)))) | set(re.findall(r"var\((--\w+)\)", style))
    for palette in re.findall(r":root \{(.*?)\}", style, re.DOTALL):
        assert used <= set(re.findall(r"(--\w+):", palette))


def test_a_command_is_broken_at_spaces_only(source: str) -> None:
    """What is copied out of two lines is one command still."""
    both = replace(sample_result().findings[0], group="pay-1", detail=f"granted, still so {STILL}")
    source += as_html(replace(clean_result(), findings=(both,)))
    shown = re.findall(
        r"<code>(batonpass .*?)</code>|^(batonpass .*?)(?:</pre>)?$|cannot reach .*?: (batonpass .*?)</span>$",
        source,
        re.MULTILINE,
    )
    assert len(shown) > 15
    for command in map("".join, shown):
        assert "-" not in re.sub(r'<span class="word">[^<]*</span>', "", command)


def test_what_came_from_users_is_only_shown() -> None:
    made = as_html(named_so(sample_result(), NASTY))
    page = Page(made)
    assert page.fetched == []
    assert page.tags.count("script") == Page(as_html(sample_result())).tags.count("script") == 2
    assert "img" not in page.tags
    figures = json.dumps(figures_of(made), ensure_ascii=False)
    assert "<script" not in figures
    assert "<img" not in figures
    assert "<b>" not in figures
    hovers = re.findall(r'"hovertemplate": "([^"]*)"', figures)
    assert hovers
    assert not [one for one in hovers if "%{x}" in one]


def test_a_clean_day_says_so() -> None:
    made = as_html(clean_result())
    text = Page(made).text
    assert "Every law held." in text
    assert "Nothing was found: no law was broken, and nothing else is worth a look." in text
    assert set(figures_of(made)) == {"downtime"}


def test_a_day_without_groups_is_a_report_too() -> None:
    text = Page(as_html(AuditResult(DAY, 0, 1_000, "v1"))).text
    assert "Nothing happened that day." in text
    assert "No group had a record that day." in text


def test_a_day_under_way_is_shown_so_far() -> None:
    under_way = replace(AuditResult(sample_result().day, 0, 1, "v"), so_far_ms=1_795_370_831_000)
    made = as_html(under_way)
    assert "so far, until 18:07 (UTC)" in made
    assert "<title>Audit of 2026-11-20 so far: Nothing happened so far.</title>" in made
    assert named(under_way) == "2026-11-20 so far, until 18:07 UTC"
    held = replace(under_way, groups=sample_result().groups)
    assert headline(held) == "Every law held so far."
    assert headline(replace(sample_result(), so_far_ms=1)).endswith(" broken (L7) so far, in 1 group of 3.")
    over = replace(held, so_far_ms=None)
    assert named(over) == "2026-11-20"
    assert "so far" not in headline(over)
    assert "so far" not in as_html(over).partition("<script>")[0]


def test_it_grows_with_groups_only_so_far() -> None:
    one = sample_result()
    groups = tuple(
        GroupDay(f"g{number}", one.groups[1].measures, one.groups[1].downtime_by_cause) for number in range(1_000)
    )
    ownership = tuple((group.group, owned) for group in groups for _, owned in one.pictures.ownership[:3])
    hours = {group.group: WORST_HOUR_MS for group in groups}
    notices = [replace(one.findings[2], group=f"g{number}") for number in range(1_000)]
    findings = (*notices, replace(one.findings[0], group="g777"))
    pictures = replace(one.pictures, ownership=ownership, worst_hour_ms=hours)
    made = as_html(replace(one, groups=groups, findings=findings, pictures=pictures, recommendations=()))
    figures = figures_of(made)
    assert len([place for place in figures if place.startswith("timeline")]) == report.GROUPS_PICTURED
    text = Page(made).text
    assert text.index("Group g777") < text.index("Group g0")
    assert f"{1_000 - CAUSES_SHOWN} more causes are in the database" in text
    assert "988 more groups have no pictures here; they are in the table" in text
    left = report.GROUPS_PICTURED + 1
    few = as_html(replace(one, groups=groups[:left], findings=findings[: CAUSES_SHOWN + 1], records=1))
    text = Page(few).text
    assert "1 more group has no pictures here; it is in the table" in text
    assert "1 more cause is in the database" in text
    assert ": 1 record." in text
    assert len(made) - len(get_plotlyjs()) < 2_500_000


def test_two_owners_at_once_lie_above_one_another() -> None:
    first = ran("0_1", "a", 0, 100)
    second = ran("0_1", "b", 50, 120)
    third = ran("0_1", "a", 120)
    restart = interval("0_2", "a", 0, 100, None)
    same = ran("0_2", "a", 90, 200)
    assert report.clashing([third, second, first, restart, same]) == {second}


def test_a_timeline_shows_the_tasks_to_which_most_happened() -> None:
    many = [
        ran(f"0_{task}", f"m{number}", WORST_HOUR_MS + number, WORST_HOUR_MS + number + 1)
        for task in range(200)
        for number in range(1 + task % 5)
    ]
    broken = Finding("orders", "L1", Severity.FATAL, "0_0", "m1", "x", (1,), (WORST_HOUR_MS + 1,))
    made, shown, there = report.timeline_figure(many, [broken], WORST_HOUR_MS)
    assert made is not None
    assert (shown, there) == (report.TASKS_SHOWN, 200)
    rows = made["layout"]["yaxis"]["categoryarray"]
    assert rows[:3] == ["0_0", "0_3", "0_4"]
    assert rows == sorted(rows, key=lambda task: int(task[2:]))
    assert report.timeline_figure(many, [], WORST_HOUR_MS + HOUR_MS * 2) == (None, 0, 0)


def test_the_mark_of_two_owners_is_where_the_second_was_granted_the_task() -> None:
    """Not where one of them stopped, minutes later."""
    begin, ended = WORST_HOUR_MS + 60_000, WORST_HOUR_MS + 600_000
    both = [ran("0_1", "a", WORST_HOUR_MS), ran("0_1", "b", begin, ended)]
    broken = Finding("orders", "L1", Severity.FATAL, "0_1", "b", "x", (1, 2), (WORST_HOUR_MS, begin, ended))
    made, *_ = report.timeline_figure(both, [broken], WORST_HOUR_MS)
    assert made is not None
    mark = made["data"][-1]
    assert (mark["name"], mark["x"]) == ("law broken", [time_of(begin)])
    assert mark["customdata"] == [["two members may have run a task at once (L1)", "14:01:00.000"]]


def test_nothing_is_drawn_beyond_what_was_read() -> None:
    minute = 60_000
    goes_on = [ran("0_1", "a", WORST_HOUR_MS + minute)]
    for read_ms, lasts in ((WORST_HOUR_MS + 16 * minute, 15), (WORST_HOUR_MS + 90 * minute, 59), (None, 59)):
        made, *_ = report.timeline_figure(goes_on, [], WORST_HOUR_MS, read_ms)
        assert made is not None
        assert made["data"][0]["x"] == [lasts * minute]


def test_a_warmup_that_became_a_standby_or_goes_on_was_not_wasted() -> None:
    outcomes = ("promoted", "standby", "open", "dropped")
    points = [("g", warmup("0_0", "m", (0, 11_000 + n), 3_000, one)) for n, one in enumerate(outcomes)]
    made = report.warmups_figure([*points, ("g", warmup("0_0", "m", (0, 9), None, "dropped"))], MIDNIGHT_MS)
    assert made is not None
    assert {one["name"]: len(one["x"]) for one in made["data"]} == {"put to use": 2, "under way": 1, "wasted": 1}
    assert made["layout"]["yaxis"]["tickformat"] == ",~r", "half a second is 0.5, not 500m"
    least, most = made["layout"]["xaxis"]["range"]
    assert 2_000 < 10**least < 3_000 < 10**most < 4_500
    made = report.warmups_figure([("g", warmup("0_0", "m", (0, 9), 0, "dropped"))], MIDNIGHT_MS)
    assert made is not None
    assert 10 ** made["layout"]["xaxis"]["range"][0] > 0.5, "no tick is at half a record"


def test_the_frontier_is_what_nothing_beats() -> None:
    tried = [Outcome({}, downtime, 0, copied) for downtime, copied in ((9, 1), (8, 2), (8, 3), (5, 4), (6, 5), (1, 9))]
    best = report.unbeaten(reversed(tried))
    assert [(one.downtime_ms, one.bytes) for one in best] == [(9, 1), (8, 2), (5, 4), (1, 9)]


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        (audit_words.share(1), "100 %"),
        (audit_words.share(0.99938), "99.94 %"),
        (audit_words.share(0.5), "50.0 %"),
        (audit_words.share(0.999_999), "99.9999 %"),
        (audit_words.share(0.999_999_4), "99.99994 %"),
        (audit_words.share(1 - 1e-15), "> 99.9999999 %"),
        (audit_words.number(21_480.0), "21,480"),
        (audit_words.number(1.2345), "1.23"),
    ],
)
def test_figures_are_written_for_people(text: str, wanted: str) -> None:
    assert text == wanted


def test_the_verdict_is_one_sentence_and_its_figures_another() -> None:
    """They stand in the database and at the end of the log."""
    assert summary(clean_result()) == (
        "Every law held. 1 group, 400 records, no fatal findings, no notices."
        " 398 decisions made again, 0 of them with another outcome."
    )
    result = sample_result()
    assert summary(result).startswith(
        "Two members may have run a task at once (L1); 1 more law broken (L7), in 1 group of 3. 3 groups, 21,880 records, 2 fatal"
    )
    odd = replace(result, findings=tuple(replace(result.findings[0], law=law) for law in ("unbalanced", "L10", "L2")))
    assert headline(odd).startswith("Stored rows are missing or wrong (L2); 2 more laws broken (L10, unbalanced), in ")
    assert [one["law"] for one in Morning(odd).found()] == ["L2", "L10", "unbalanced"]
    differing = replace(result, decisions_differing=3)
    assert "3 of them came out differently" in " ".join(Morning(differing).notes())


def test_of_how_many_decisions_those_are_that_were_made_again_is_said() -> None:
    """And where it stopped."""
    why = "without record 1232 nothing that follows can be decided again"
    odd = Finding("clicks", "replay-incomplete", Severity.NOTICE, None, None, why)
    day = replace(clean_result(), decisions=1_068, decisions_replayed=427, findings=(odd,))
    made = "The audit made 427 of 1,068 decisions again, with the same code: every one of them came out the same;"
    assert f"{made} {why}." in Morning(day).notes()
    assert f"{made} it stopped at 2 places." in Morning(replace(day, findings=(odd, odd))).notes()
    assert "427 of 1,068 decisions made again, 0 of them with another outcome." in summary(day)
