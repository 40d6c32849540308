"""Proves that the pictures of the documents show today's pages, or those of this release."""

import json

import pytest

from tests.browser.screenshots import FOLDER, PICTURES, TAKEN, Picture, release


@pytest.mark.parametrize("picture", PICTURES, ids=lambda picture: picture.name)
def test_a_picture_is_of_this_release_or_its_page_is_the_same(picture: Picture) -> None:
    taken = json.loads(TAKEN.read_text())[picture.name]
    assert release() == taken["release"] or picture.digest() == taken["templates"], "run make screenshots"


def test_each_picture_is_one_that_is_taken() -> None:
    assert {file.stem for file in FOLDER.glob("*.png")} == {picture.name for picture in PICTURES}
