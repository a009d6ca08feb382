"""The report in a real browser, at the widths of a phone and of a desk: nothing overflows, nothing fails, everything can be used."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.browser import REMEDY, Browser, Page, find

WIDTHS = {"phone": 390, "desk": 1280}
# Every text that cannot be read to its ends: outside the window, hidden by a box around it, or out of reach of one that scrolls.
CUT_TEXTS = """
[...document.querySelectorAll('body *')].flatMap(element => [...element.childNodes].filter(node => {
  if (node.nodeType !== Node.TEXT_NODE || !node.data.trim()) return false;
  const range = document.createRange();
  range.selectNodeContents(node);
  const text = range.getBoundingClientRect();
  const leaves = (left, right) => text.width > 0 && (text.left < left - 1 || text.right > right + 1);
  for (let box = element; box; box = box.parentElement) {
    const {overflowX, overflowY} = getComputedStyle(box), place = box.getBoundingClientRect();
    if (/hidden|clip/.test(overflowX) && leaves(place.left, place.right)) return true;
    if (/hidden|clip/.test(overflowY) && text.width > 0 && (text.top < place.top - 1 || text.bottom > place.bottom + 1)) return true;
    if (/auto|scroll/.test(overflowX)) return leaves(place.left - box.scrollLeft, place.left - box.scrollLeft + box.scrollWidth);
  }
  return leaves(0, innerWidth);
}).map(node => node.data.trim()))
"""


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    if find() is None:
        pytest.skip(REMEDY)
    with Browser.start() as started:
        yield started


@pytest.fixture(params=["train", "grid", "mishaps"])
def report(request: pytest.FixtureRequest, reported: Callable[[str], Path]) -> Path:
    return reported(request.param) / "report.html"


@pytest.fixture(scope="module")
def grid(browser: Browser, reported: Callable[[str], Path]) -> Page:
    return browser.open(reported("grid") / "report.html", 1280)


def column(page: Page, title: str) -> list[str]:
    """Return what the rows of the summary say under a heading, in their order."""
    head = f"[...document.querySelectorAll('#table th')].findIndex(th => th.innerText.startsWith('{title}'))"
    rows = "[...document.querySelectorAll('#table tbody tr')].filter(row => !row.hidden)"
    found = page.run(f"{rows}.map(row => row.cells[{head}].firstChild.textContent)")
    return list(found)


def click(page: Page, title: str) -> None:
    page.run(f"[...document.querySelectorAll('#table th button')].find(b => b.innerText.startsWith('{title}')).click()")


def pointer(page: Page, kind: str, share: float) -> None:
    """Move the pointer over the viewer, at a share of its width."""
    page.send("Page.bringToFront")
    page.run("document.getElementById('viewer').scrollIntoView()")
    box = page.run("(() => {const b = document.querySelector('#viewer svg').getBoundingClientRect(); return [b.left, b.top, b.width]})()")
    where = {"x": box[0] + share * box[2], "y": box[1] + 60, "button": "left", "buttons": 1, "clickCount": 1}
    page.send("Input.dispatchMouseEvent", type=kind, **where)


@pytest.mark.parametrize("width", WIDTHS.values(), ids=WIDTHS)
def test_it_fits_and_nothing_fails(browser: Browser, report: Path, width: int) -> None:
    page = browser.open(report, width)
    assert page.run("document.documentElement.scrollWidth") <= width
    page.run("document.querySelectorAll('details').forEach(each => { each.open = true })")
    assert page.run("document.documentElement.scrollWidth") <= width
    assert page.run(CUT_TEXTS) == []
    figures = len(list((report.parent / "figures").glob("*.png")))
    assert page.run("[...document.images].map(each => each.complete && each.naturalWidth > 100)") == [True] * figures
    assert figures > 3
    assert page.run("document.querySelectorAll('#table tbody tr').length") >= 2
    assert page.run("document.querySelectorAll('#viewer path').length") >= 4
    assert page.requests() == [report.resolve().as_uri()]
    assert page.complaints() == []


@pytest.mark.parametrize(
    ("rule", "cut"),
    [
        ("h1 {margin-left: -9rem}", "train"),
        ("h1 {text-indent: 150vw; white-space: nowrap} body {overflow-x: hidden}", "train"),
        ("h1 {height: 1rem; overflow: hidden}", "train"),
        (".wide {overflow: hidden} #table {margin-left: 80rem}", "Uncompressed"),
    ],
    ids=["outside the window", "hidden by the page", "hidden by its own box", "in a box that does not scroll"],
)
def test_a_text_that_is_cut_is_found(browser: Browser, reported: Callable[[str], Path], rule: str, cut: str) -> None:
    page = browser.open(reported("train") / "report.html", 1280)
    page.run(f"document.head.append(Object.assign(document.createElement('style'), {{textContent: '{rule}'}}))")
    assert cut in page.run(CUT_TEXTS)


def test_a_heading_sorts_by_number_and_back(grid: Page) -> None:
    click(grid, "Throughput")
    falling = [float(text) for text in column(grid, "Throughput")]
    assert falling == sorted(falling, reverse=True)
    click(grid, "Throughput")
    assert [float(text) for text in column(grid, "Throughput")] == falling[::-1]
    click(grid, "Rate")
    rates = [float(text.removesuffix("mbit")) for text in column(grid, "Rate")]
    assert rates == sorted(rates, reverse=True)
    assert len(set(rates)) == 2


def test_the_filter_keeps_rows_with_all_its_words(grid: Page) -> None:
    write = "(words => {const f = document.getElementById('filter'); f.value = words; f.dispatchEvent(new Event('input'))})"
    grid.run(f"{write}('80mbit 1ms')")
    assert column(grid, "Delay") == ["1ms", "1ms"]
    assert column(grid, "Rate") == ["80mbit", "80mbit"]
    grid.run(f"{write}('')")
    assert len(column(grid, "Delay")) == 8


def test_the_viewer_tells_values_zooms_and_changes_runs(grid: Page) -> None:
    ticks = "[...document.querySelectorAll('#viewer text')].map(t => t.textContent).filter(t => t.endsWith(' s'))"
    lines = "[...document.querySelectorAll('#viewer path[data-run]')].map(p => p.dataset.run)"
    whole = grid.run(ticks)
    first = set(grid.run(lines))
    assert len(first) == 2
    pointer(grid, "mouseMoved", 0.5)
    assert "Uncompressed" in grid.run("document.getElementById('moment').innerText")
    for kind, share in (("mousePressed", 0.4), ("mouseMoved", 0.6), ("mouseReleased", 0.6)):
        pointer(grid, kind, share)
    assert grid.run(ticks) != whole
    grid.run("document.getElementById('reset').click()")
    assert grid.run(ticks) == whole
    grid.run("(s => {s.value = '3'; s.dispatchEvent(new Event('change'))})(document.getElementById('group'))")
    assert set(grid.run(lines)).isdisjoint(first)
    grid.run("document.querySelector('#legend button').click()")
    assert len(set(grid.run(lines))) == 1
    assert grid.complaints() == []


def test_a_link_opens_the_part_of_its_run(grid: Page) -> None:
    assert grid.run("document.getElementById('run-2').open") is False
    grid.run("document.querySelector('a[href=\"#run-2\"]').click()")
    grid.run("new Promise(done => setTimeout(done, 50))")
    assert grid.run("document.getElementById('run-2').open") is True


def test_a_figure_grows_inside_its_own_frame(grid: Page) -> None:
    grid.run("(i => i.click())(document.querySelector('figure img'))")
    assert grid.run("(i => i.clientWidth == i.naturalWidth)(document.querySelector('figure img'))")
    assert grid.run("document.documentElement.scrollWidth") <= 1280
