"""Values that are secret appear in no error and no log."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from penstock import secrets
from penstock.errors import EngineError
from penstock.runtime.logs import masked
from penstock.secrets import conceal, concealed, secret_values, secretive


@pytest.fixture(autouse=True)
def _as_before(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(secrets, "_concealed", frozenset())
    yield


@pytest.mark.parametrize(
    "name",
    ["AWS_SECRET_ACCESS_KEY", "azure_storage_sas_token", "spark.hadoop.fs.azure.account.key.x", "db.password", "SAS"],
)
def test_a_setting_is_secret_by_its_name(name: str) -> None:
    assert secretive(name, "x")


@pytest.mark.parametrize("name", ["AWS_REGION", "spark.kerberos.keytab", "spark.executor.memory", "spark.sql.saslike"])
def test_ordinary_settings_are_not(name: str) -> None:
    assert not secretive(name, "x")


def test_an_address_is_secret_by_its_password() -> None:
    assert secretive("state", "postgresql://me:abcdef@there/db")
    assert secret_values({"state": "postgresql://me:abcdef@there/db", "region": "eu"}) == {"abcdef"}


def test_errors_and_logs_show_no_secret() -> None:
    conceal(secret_values({"AWS_SECRET_ACCESS_KEY": "abc/def", "AWS_SESSION_TOKEN": "abc/defghi", "short_key": "id"}))
    error = EngineError("403 for abc/def", hint="is abc/defghi right?")
    assert (error.message, error.hint, str(error)) == ("403 for ***", "is *** right?", "403 for ***")
    assert masked("signed with abc/defghi") == "signed with ***"
    assert concealed("idle") == "idle"
