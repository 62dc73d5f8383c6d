"""`tenure serve --tour`: what it prints can be pasted, from the first line to the last."""

import json

import pytest
from rich.console import Console

from tenure.cli.tour import tour
from tests.docs.reading import one_liners
from tests.docs.test_readme_tour import paste
from tests.story.harness import Stage

pytestmark = pytest.mark.story


def printed(url: str, width: int = 60) -> list[str]:
    """The tour's lines as a narrow terminal gets them."""
    console = Console(highlight=False, soft_wrap=True, width=width)
    with console.capture() as captured:
        console.print(tour(url))
    return one_liners(captured.get())


async def test_every_line_of_the_tour_does_what_it_says(stage: Stage) -> None:
    service = await stage.serve(APP="")
    lines = printed(service.url)
    said = await paste(lines, service.url, stage.folder)
    spoken = [text for line, text in zip(lines, said, strict=True) if line.startswith("curl")]
    live, waited, listed, letters, retried, receipt = spoken
    assert "event: succeeded" in live
    assert json.loads(waited)["result"] == {"slept_ms": 500, "attempt": 1}
    assert {job["state"] for job in json.loads(listed)["items"]} == {"succeeded"}
    assert [job["state"] for job in json.loads(letters)["items"]] == ["dead"]
    assert retried.count('"state":"succeeded"') >= 1
    assert json.loads(receipt)["outcome"] == "stopped"


def test_no_line_of_the_tour_has_to_be_filled_in_or_is_broken_by_the_terminal() -> None:
    url = "http://[::1]:8080"
    lines = printed(url)
    assert all(line.startswith(("curl -s", "ID=$(", "DEAD=$(", "LONG=$(")) for line in lines)
    assert all(url in line for line in lines)
    assert not any("/ID" in line for line in lines)
