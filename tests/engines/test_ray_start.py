"""A Ray that does not start, and one that loses whoever shows a token: a sentence. No Ray is started here."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import Any

import pytest
import ray

import decentral_dp
from decentral_dp.config.loading import load
from decentral_dp.engines import ray as engine
from decentral_dp.engines import ray_cluster
from decentral_dp.engines.protocol import Recovery
from decentral_dp.errors import InputError


def test_a_ray_that_does_not_start_in_time_is_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    def late(**_: Any) -> None:
        raise Exception(
            "The current node timed out during startup. This could happen because some of the raylet\nfailed."
        )

    monkeypatch.setattr(ray, "is_initialized", lambda: False)
    monkeypatch.setattr(ray, "init", late)
    # As one who has decided of tokens, so that this process is left as it was.
    monkeypatch.setenv("RAY_AUTH_MODE", "disabled")
    with pytest.raises(
        InputError, match=r"^run\.engine: no Ray starts .*timed out during startup.*--engine local"
    ) as said:
        decentral_dp.run(load("quadratic", ["algorithm.rounds=2", 'run.engine="ray"']))
    assert "\n" not in str(said.value)


@pytest.mark.parametrize(
    ("token", "said"), [(None, "has no token to show"), ("0" * 64, "shows a token, which is not that")]
)
def test_a_cluster_that_lets_nobody_in_is_told_from_one_that_is_not_there(
    token: str | None, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(**_: Any) -> None:
        raise ConnectionError("Failed to connect to Ray cluster at 127.0.0.1:6379. This may be due to a firewall.")

    monkeypatch.setattr(ray, "is_initialized", lambda: False)
    monkeypatch.setattr(ray, "init", refused)
    monkeypatch.setattr(ray_cluster, "_offer_token", lambda: None)
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH"):
        monkeypatch.delenv(name, raising=False)
    if token is not None:
        monkeypatch.setenv("RAY_AUTH_TOKEN", token)
    with socket.create_server(("127.0.0.1", 0)) as door:
        asked = ['run.engine="ray"', f'run.address="127.0.0.1:{door.getsockname()[1]}"']
        with pytest.raises(InputError, match=rf"^run\.address: something answers .*{said}.*Set RAY_AUTH_TOKEN"):
            decentral_dp.run(load("quadratic", ["algorithm.rounds=2", *asked]))


@pytest.mark.parametrize("joined", [True, False])
@pytest.mark.parametrize("mode", ["token", "disabled"])
def test_actors_that_end_at_once_where_a_token_is_shown_name_it(
    joined: bool, mode: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RAY_AUTH_MODE", mode)
    kept = engine._Driver(None, -1, Recovery(restarts=0), is_joined=joined)
    with pytest.raises(engine.ActorLostError, match="was lost, and actors ended 1 times") as said:
        kept.retry_after_loss(ray.exceptions.RayActorError(), "The actor of agent 0")
    assert ("set RAY_AUTH_MODE=disabled" in str(said.value)) == (joined and mode == "token")
