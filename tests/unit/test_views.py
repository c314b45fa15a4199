"""What the reading verbs show."""

from __future__ import annotations

import pytest

from sweep.views import has_desktop


@pytest.mark.parametrize(
    ("platform", "environment", "there"),
    [
        ("linux", {}, False),
        ("linux", {"DISPLAY": ""}, False),
        ("linux", {"DISPLAY": ":0"}, True),
        ("linux", {"WAYLAND_DISPLAY": "wayland-0"}, True),
        ("darwin", {}, True),
    ],
)
def test_a_page_is_opened_only_where_people_see_it(
    platform: str, environment: dict[str, str], there: bool
) -> None:
    """On a machine reached by SSH, `view` prints the path and nothing else."""
    assert has_desktop(platform, environment) is there
