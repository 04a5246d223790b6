"""`kept bench --report`: one page with every figure, safe to open, and never in the place of something else."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from kept.bench.curves import TOKEN_BUDGETS, calibration_curve, recall_by_tokens
from kept.bench.metrics import ReturnedHit
from kept.bench.svg_plot import BOTTOM, HEIGHT, LEFT, RIGHT, TOP, WIDTH, Plot, PlotLine, PlotPoint, draw_plot, scale_x
from kept.records import LIKELY_FROM, STRONG_FROM
from tests.support.commands import kept_environment, run_kept
from tests.support.files import tree_of, write_file
from tests.support.json_schema import check

ODD = "<script>alert(1)<∕script> & \"odd\" 'set'"
VOID = {"meta", "path", "rect"}
NOTES = (
    "# Garden\n\n## Pruning the old pear\n\nCut the water shoots of the pear tree in August, never in frost.\n\n"
    + ("## Compost rules\n\nNeither citrus peel nor cooked rice goes on the heap behind the shed.\n")
)


class PageReader(HTMLParser):
    """Reads a page. Fails if its elements are not nested properly."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[str] = []
        self.feed(page)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.texts.append(data)

    def all(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.tags if name == tag]


def write_odd_set(folder: Path) -> Path:
    """Write a set whose names would be markup if they were not escaped."""
    write_file(folder / "corpus.jsonl", '{"id": "d", "text": "herons"}\n{"id": "e", "text": "storks"}\n')
    queries = [
        {"id": "1", "text": "herons", "category": "</svg><img src=x>\x1b"},
        {"id": "2", "text": "storks", "category": "b"},
    ]
    write_file(folder / "queries.jsonl", "".join(json.dumps(query) + "\n" for query in queries))
    write_file(folder / "qrels.tsv", "query-id\tcorpus-id\trel\n1\td\t1\n2\te\t1\n")
    return folder


@pytest.fixture(scope="module")
def report(tmp_path_factory) -> tuple[str, Any]:
    """The page and the JSON of a starter set and of the odd set, measured by the real command."""
    tmp = tmp_path_factory.mktemp("report")
    env = kept_environment(tmp)
    write_file(tmp / "workspace" / "memory" / "garden.md", NOTES)
    starter = run_kept("bench", "--init", tmp / "starter", env=env, cwd=tmp)
    assert starter.code == 0, starter.err
    odd = write_odd_set(tmp / ODD)
    done = run_kept("bench", tmp / "starter", odd, "--jobs", "1", "--report", "new/page", "--json", env=env, cwd=tmp)
    assert done.code == 0, done.err
    assert done.json["report"] == str(tmp / "new/page/index.html")
    assert [*tree_of(tmp / "new/page")] == ["index.html"]
    return (tmp / "new/page/index.html").read_text(encoding="utf-8"), done.json


def iter_svgs(page: str) -> Iterator[ElementTree.Element]:
    for svg in re.findall(r"<svg.*?</svg>", page, re.DOTALL):
        yield ElementTree.fromstring(svg)


def test_the_page_has_every_set_with_its_variants_and_categories(report):
    page, shape = report
    texts = {*PageReader(page).texts}
    for measurement in shape["sets"]:
        assert measurement["set"] in texts
        assert {"kept", "keyword", "vector", "seed"} <= texts
        assert f"{measurement['kept']['recall@1']:.3f}" in texts
    assert {"heading", "words", "adversarial", "b", "</svg><img src=x>"} <= texts
    assert {"Recall", "Grades", "Cost"} <= texts


def test_the_page_needs_no_network_and_runs_nothing(report):
    reader = PageReader(report[0])
    assert "://" not in report[0]
    assert not re.search(r"url\(|@import", report[0])
    assert not {"script", "link", "img", "iframe", "object"} & {tag for tag, _ in reader.tags}
    assert all((link["href"] or "").startswith("#set") for link in reader.all("a"))
    for _, attributes in reader.tags:
        assert not {name for name in attributes if name.startswith("on") or name == "src"}


def test_links_labels_and_ids_of_the_page_agree(report):
    reader = PageReader(report[0])
    ids = [attributes["id"] for _, attributes in reader.tags if "id" in attributes]
    assert len(ids) == len({*ids})
    named = " ".join(attributes.get("aria-labelledby") or "" for _, attributes in reader.tags).split()
    assert {*named, *((link["href"] or "")[1:] for link in reader.all("a"))} <= {*ids}
    assert all(header["scope"] in ("col", "row", "rowgroup") for header in reader.all("th"))


def test_every_plot_is_sound_described_and_inside_its_frame(report):
    svgs = [*iter_svgs(report[0])]
    assert len(svgs) == 6
    for svg in svgs:
        assert [element.tag for element in svg[:2]] == ["title", "desc"]
        assert all(element.text for element in svg[:2])
        for text in svg.iter("text"):
            assert 0 <= float(text.attrib["x"]) <= WIDTH
            assert 0 <= float(text.attrib["y"]) <= HEIGHT
        for bar in svg.iter("rect"):
            left, top, width, height = (float(bar.attrib[name]) for name in ("x", "y", "width", "height"))
            assert LEFT <= left < left + width <= RIGHT
            assert TOP <= top < top + height <= BOTTOM + 0.1


def test_the_calibration_plot_marks_the_bounds_of_grades(report):
    labels = [{text.text for text in svg.iter("text")} for svg in iter_svgs(report[0])]
    assert {f"likely from {LIKELY_FROM:g}", f"strong from {STRONG_FROM:g}"} <= labels[1]


def test_text_and_plots_have_enough_contrast_in_light_and_dark(report):
    light, dark = (dict(re.findall(r"--(\w+): (#\w{6})", part)) for part in report[0].split("@media")[:2])
    assert light.keys() == dark.keys() >= {"page", "text", "quiet", "warning", "series0", "series3"}
    for colours in (light, dark):
        for name in colours.keys() - {"page", "rule"}:
            assert contrast(colours[name], colours["page"]) >= 4.5, name


def contrast(first: str, second: str) -> float:
    """Return the contrast ratio of two colours as WCAG 2 defines it."""
    darker, lighter = sorted((luminance(first), luminance(second)))
    return (lighter + 0.05) / (darker + 0.05)


def luminance(colour: str) -> float:
    channels = [int(colour[start : start + 2], 16) / 255 for start in (1, 3, 5)]
    red, green, blue = (value / 12.92 if value <= 0.04045 else ((value + 0.055) / 1.055) ** 2.4 for value in channels)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def test_the_json_has_the_points_and_they_agree_with_the_figures(report):
    check("bench", report[1])
    for measurement in report[1]["sets"]:
        for variant, points in measurement["recall_by_tokens"].items():
            assert [point["tokens"] for point in points] == [*TOKEN_BUDGETS]
            at_2000 = next(point for point in points if point["tokens"] == 2000)
            assert at_2000["recall"] == measurement[variant]["recall@2000tok"]
        for name in ("hits", "right"):
            by_grade = sum(figures[name] for figures in measurement["grades"].values())
            assert sum(score_bin[name] for score_bin in measurement["calibration_curve"]) == by_grade


# refusals


def test_a_folder_that_is_a_file_is_refused_before_measuring(kept, tmp_path):
    write_file(tmp_path / "taken", "my own work")
    for folder in (tmp_path / "taken", tmp_path / "taken" / "below"):
        done = kept("bench", write_odd_set(tmp_path / "set"), "--report", folder)
        assert (done.code, done.out, len(done.err.splitlines())) == (2, "", 1)
        assert "taken" in done.err
    assert (tmp_path / "taken").read_text() == "my own work"


def test_only_an_earlier_report_is_replaced(kept, tmp_path):
    write_file(tmp_path / "site" / "index.html", "<p>my own page</p>")
    odd = write_odd_set(tmp_path / "set")
    done = kept("bench", odd, "--no-baselines", "--report", tmp_path / "site")
    assert (done.code, len(done.err.splitlines())) == (2, 1)
    assert tree_of(tmp_path / "site") == {"index.html": b"<p>my own page</p>"}
    for _ in range(2):
        done = kept("bench", odd, "--no-baselines", "--report", tmp_path / "new")
        assert done.code == 0, done.err
        assert done.out.splitlines()[-1] == f"Wrote the report to {tmp_path / 'new' / 'index.html'}."


def test_a_starter_set_has_no_report(kept, tmp_path):
    done = kept("bench", "--init", tmp_path / "mine", "--report", tmp_path / "page")
    assert (done.code, len(done.err.splitlines())) == (2, 1)
    assert not (tmp_path / "mine").exists()


# points and coordinates, worked out by hand


def hit(document: str, *, tokens: int = 10, score: float = 0.5) -> ReturnedHit:
    return ReturnedHit(frozenset((document,)), tokens, score)


def test_recall_by_tokens_counts_hits_that_fit_whole():
    judged = [
        ([hit("x", tokens=90), hit("a", tokens=60)], {"a": 1.0, "b": 1.0}),
        ([hit("c", tokens=101)], {"c": 1.0}),
    ]
    points = {point.tokens: (point.recall, point.filled) for point in recall_by_tokens(judged)}
    assert points[100] == (0.0, 1.0)
    assert points[150] == (0.75, 0.5)
    assert points[4000] == (0.75, 0.0)
    assert recall_by_tokens([]) == ()


def test_first_hits_fall_into_tenths_of_the_score_and_a_bound_belongs_above():
    judged = [
        ([hit("a", score=score), hit("b", score=0.9)], {"a": 1.0} if score < 1 else {"b": 1.0})
        for score in (-0.1, 0.0, 0.3, 0.7, 0.69, 1.0)
    ]
    bins = calibration_curve([*judged, ([], {"a": 1.0})])
    assert [score_bin.hits for score_bin in bins] == [2, 0, 0, 1, 0, 0, 1, 1, 0, 1]
    assert [score_bin.right for score_bin in bins] == [2, 0, 0, 1, 0, 0, 1, 1, 0, 0]


def test_points_are_drawn_where_their_values_belong():
    line = PlotLine("a & b", (PlotPoint(100, 0.0), PlotPoint(1_000, 0.5), PlotPoint(20_000, 1.0, hollow=True)))
    plot = Plot("p", "t", "d", "x", (100, 10_000), log_x=True, lines=(line,))
    middle_x, middle_y = (LEFT + RIGHT) / 2, (TOP + BOTTOM) / 2
    assert scale_x(plot, 1_000) == pytest.approx(middle_x)
    svg = ElementTree.fromstring(draw_plot(plot))
    path = next(element for element in svg.iter("path") if element.get("class") == "line")
    assert path.attrib["d"] == f"M{LEFT:.1f} {BOTTOM:.1f}L{middle_x:.1f} {middle_y:.1f}L{RIGHT:.1f} {TOP:.1f}"
    assert [element.get("class") for element in svg.iter("path")].count("hollow") == 1
    assert "a & b" in {text.text for text in svg.iter("text")}
