"""The documents agree with the code: printed pages, links, public names, commands, settings, dependencies."""

import re
import tomllib
from pathlib import Path

import pytest
import typer.main

import tenure
from tenure.cli.app import app
from tenure.cli.pages import PAGES as PRINTED
from tenure.settings import PREFIX, READ_ELSEWHERE, fields
from tests.docs.reading import PAGES, README, ROOT, prose

DOCS = ROOT / "docs"
CODE = re.compile(r"`([^`\n]+)`")
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")


@pytest.mark.parametrize("name", PRINTED)
def test_a_printed_page_is_what_the_code_prints(name: str) -> None:
    assert (DOCS / name).read_text(encoding="utf-8") == PRINTED[name](), "run `make docs`"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_relative_link_leads_somewhere(page: Path) -> None:
    for link in LINK.findall(prose(page)):
        if link.startswith(("https://", "http://")):
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        assert target.is_relative_to(ROOT), link
        assert target.exists(), f"{page.name} links to {link}"
        if anchor:
            assert anchor in anchors(target), f"{page.name} links to {link}"


def anchors(page: Path) -> set[str]:
    """The anchors of its headings, as GitHub makes them."""
    headings = re.findall(r"^#+ (.+)$", prose(page), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_every_page_is_reachable_from_the_index_and_from_the_readme() -> None:
    pages = {page.name for page in DOCS.glob("*.md")} - {"index.md"}
    for start in (DOCS / "index.md", README):
        linked = {Path(link.partition("#")[0]).name for link in LINK.findall(prose(start))}
        assert pages <= linked, start.name


def test_the_page_on_python_tells_every_public_name_and_no_other() -> None:
    told = re.findall(r"^\| `(\w+)` \|", (DOCS / "python.md").read_text(), re.MULTILINE)
    assert sorted(told) == sorted(set(told)) == sorted(tenure.__all__)


def test_the_page_on_architecture_tells_every_floor_and_every_dependency() -> None:
    text = (DOCS / "architecture.md").read_text()
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    floors = [
        [part.strip() for part in layer.split("|")]
        for layer in project["tool"]["importlinter"]["contracts"][0]["layers"]
        if layer != "__main__"
    ]
    _, _, floor_table = text.partition("| floor | what it is |")
    floor_table, _, _ = floor_table.partition("\n\n")
    assert [CODE.findall(row.split("|")[1]) for row in floor_table.splitlines()[2:]] == floors
    _, _, ours = text.partition("## What we did not write")
    named = {name.strip() for row in re.findall(r"^\| ([\w, -]+) \|", ours, re.MULTILINE) for name in row.split(",")}
    needed = {re.split(r"[\[><=]", one)[0] for one in project["project"]["dependencies"]}
    assert named - {"dependency"} == needed


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_setting_that_is_mentioned_exists(page: Path) -> None:
    known = {PREFIX + str(field.alias) for _, _, field in fields()} | READ_ELSEWHERE
    mentioned = set(re.findall(rf"\b{PREFIX}[A-Z0-9_]+\b", page.read_text(encoding="utf-8")))
    assert mentioned <= known


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_command_and_option_that_is_mentioned_exists(page: Path) -> None:
    for words in commands(page.read_text(encoding="utf-8")):
        command = typer.main.get_command(app)
        for position, word in enumerate(words):
            children = getattr(command, "commands", None)
            if children is None:
                break
            assert word in children, f"{page.name}: tenure {' '.join(words[: position + 1])}"
            command = children[word]
        known = {name for one in command.params for name in (*one.opts, *one.secondary_opts)} | {"--help", "-h"}
        used = {word.partition("=")[0] for word in words if word.startswith("-") and len(word) > 1}
        assert used <= known, f"{page.name}: tenure {' '.join(words)}"


def commands(text: str) -> list[list[str]]:
    """What follows `tenure` in code spans and on command lines."""
    spans = CODE.findall(re.sub(r"^```.*?^```$", "", text, flags=re.DOTALL | re.MULTILINE))
    lines = re.findall(r"^\$ (.+)$", text, re.MULTILINE)
    found = []
    for code in (*spans, *lines):
        for rest in re.findall(r"(?:^|[\s(/])tenure ((?:[a-z]|--)[^&|;#)`\"]*)", code):
            found.append(rest.partition(" -- ")[0].split())  # what follows is somebody else's command
    return found


def test_commands_are_found_where_they_stand() -> None:
    text = "Run `tenure serve --no-workers`.\n```console\n$ A=1 .venv/bin/tenure jobs list --state dead  # all\n```\n"
    assert commands(text) == [["serve", "--no-workers"], ["jobs", "list", "--state", "dead"]]
    assert commands("`tenure verify-worker --only cancel -- node worker.mjs --slow`") == [
        ["verify-worker", "--only", "cancel"]
    ]
    assert commands("the schema `tenure` and `tenure.enqueue`") == []
