"""Places, the config file and the environment."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.support.command_line import run_command

from lakestate.cli.config import Place, Settings, read_settings
from lakestate.config import StoreConfig
from lakestate.errors import InvalidInputError, NotFoundError

FILE = """
default = "prod"
output = "csv"

[places]
laptop = "/data/checkpoints"

[places.prod]
url = "s3://bucket/checkpoints"
options = { region = "eu-west-1", virtual_hosted_style = true }
pipeline = "shop.jobs:pipeline"
"""


def settings_of(folder: Path, text: str) -> Settings:
    file = folder / "lakestate.toml"
    file.write_text(text)
    return read_settings({"LAKESTATE_CONFIG": str(file)})


def test_the_config_file_names_places(tmp_path: Path) -> None:
    found = settings_of(tmp_path, FILE)
    options = {"region": "eu-west-1", "virtual_hosted_style": "true"}
    prod = Place(StoreConfig("s3://bucket/checkpoints", options), "prod", "shop.jobs:pipeline")
    laptop = Place(StoreConfig("/data/checkpoints"), "laptop")
    assert found == Settings(
        tmp_path / "lakestate.toml", {"laptop": laptop, "prod": prod}, default="prod", output="csv"
    )
    assert found.place(None) == prod
    assert found.place("laptop") == laptop
    assert found.place("./here").store == StoreConfig("./here")


def test_a_place_that_is_not_known_comes_with_the_nearest(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError, match=r"no such place: prd; found laptop, prod; did you mean prod\?"):
        settings_of(tmp_path, FILE).place("prd")


def test_the_only_place_need_not_be_named(tmp_path: Path) -> None:
    assert settings_of(tmp_path, 'places.one = "/data"').place(None).name == "one"
    with pytest.raises(InvalidInputError, match="which checkpoints"):
        settings_of(tmp_path, 'places = {one = "/data", two = "/other"}').place(None)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("defualt = 1", "did you mean default"),
        ("places = 1", "a table for each place"),
        ("places.a = 1", "a URL, or a table"),
        ("places.a = {url = '/x', option = {}}", "did you mean options"),
        ("places.a = {url = '/x', options = 1}", "expected a table"),
        ("default = 'x'", "not one of the places"),
        ("output = 1", "expected text"),
        ("= 1", "cannot be read"),
    ],
)
def test_a_mistake_in_the_config_file_is_told(tmp_path: Path, text: str, told: str) -> None:
    with pytest.raises(InvalidInputError, match=told):
        settings_of(tmp_path, text)


def test_a_config_file_that_is_named_must_exist(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError, match="LAKESTATE_CONFIG names a file that does not exist"):
        read_settings({"LAKESTATE_CONFIG": str(tmp_path / "none.toml")})


def test_a_place_the_form_and_the_environment_decide_what_is_printed(
    state: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (state.parent / "config.toml").write_text(f'output = "csv"\n[places]\nprod = "{state}"\n')
    monkeypatch.delenv("LAKESTATE_AT")
    as_csv = run_command("tags", "shop")
    assert (as_csv.code, as_csv.out) == (0, "tag,epoch,created,fork\n")
    assert run_command("--at", "prod", "-o", "json", "tags", "shop").out == "[]\n"
    monkeypatch.setenv("LAKESTATE_OUTPUT", "json")
    assert run_command("tags", "shop", "--at", "prod").out == "[]\n"
    # What stands after the command counts most.
    assert run_command("--at", "nowhere", "tags", "shop", "--at", "prod", "-o", "csv").out == as_csv.out
