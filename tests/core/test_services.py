"""The unit and the configuration of docs/how-to/run-as-a-service.md, as far as they can be looked at."""

from __future__ import annotations

import configparser
import re

from duckrow.node import config
from duckrow.node.addresses import Tcp, Unix
from duckrow.node.configtext import load
from reference import ROOT

PAGE = (ROOT / "docs" / "how-to" / "run-as-a-service.md").read_text()


def block(language: str) -> str:
    (found,) = re.findall(rf"^```{language}\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)
    return str(found)


def unit() -> configparser.ConfigParser:
    parser = configparser.ConfigParser(interpolation=None, strict=True)
    parser.optionxform = str  # type: ignore[assignment]  # names are as they are written
    parser.read_string(block("ini"))
    return parser


def test_the_configuration_of_the_page_is_one() -> None:
    loaded = load(text=block("toml"), path="duckrow.toml", environ={}, flags={})
    node = loaded.checked().node

    assert node.addresses(Unix("/own")) == (Unix("/run/duckrow/node.sock"), Tcp("127.0.0.1", 3825))


def test_the_unit_waits_longer_than_the_node_may_take_to_stop() -> None:
    service = unit()["Service"]

    assert service["Type"] == "notify"
    assert int(service["TimeoutStopSec"]) > config.NodeSection().drain
    assert int(service["LimitNOFILE"]) >= config.NodeSection().connections + 256


def test_the_unit_gives_the_node_the_folders_of_its_configuration() -> None:
    service, toml = unit()["Service"], block("toml")

    assert f'data = "/var/lib/{service["StateDirectory"]}"' in toml
    assert f'"unix:/run/{service["RuntimeDirectory"]}/node.sock"' in toml
    assert service["User"] in PAGE.split("useradd")[1].splitlines()[0]
