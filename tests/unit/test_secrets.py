"""Values that are secret appear in no error and no log."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock import secrets
from penstock.answers.doctor import examine
from penstock.errors import EngineError
from penstock.runtime.process.logs import masked
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


@pytest.mark.parametrize(
    ("address", "hidden"),
    [
        ("postgres://u:hidden@host/db?mail=a@b", {"hidden"}),
        ("postgres://u:hid@den@host/db", {"hid@den"}),
        ("postgres://u:hid,den@host/db", {"hid,den"}),
        ("redis://u:first1@h:1,redis://u:second2@h2", {"first1", "second2"}),
        ("a://u:first1@h b://:second2@h", {"first1", "second2"}),
        ("jdbc:a://u:first1@hb://u:second2@h", {"first1", "second2"}),
    ],
)
def test_a_password_is_hidden_alone_too(address: str, hidden: set[str]) -> None:
    conceal(secret_values({"x": address}))
    assert [concealed(f"no {password} here") for password in hidden] == ["no *** here"] * len(hidden)
    assert not any(password in concealed(address) for password in hidden)


def test_a_port_is_no_password() -> None:
    assert not secretive("endpoint", "http://host:9000/some/@path")
    assert secret_values({"endpoint": "http://host:9000/some/@path"}) == frozenset()
    assert secret_values({"endpoint": "http://host:90001a/some@path"}) == {"90001a/some"}


def test_errors_and_logs_show_no_secret() -> None:
    conceal(secret_values({"AWS_SECRET_ACCESS_KEY": "abc/def", "AWS_SESSION_TOKEN": "abc/defghi", "short_key": "id"}))
    error = EngineError("403 for abc/def", hint="is abc/defghi right?")
    assert (error.message, error.hint, str(error)) == ("403 for ***", "is *** right?", "403 for ***")
    assert masked("signed with abc/defghi") == "signed with ***"
    assert concealed("idle") == "idle"


PROJECT = """
name: shop
databases: {external: raw, transformation: shop}
targets:
  dev:
    state: postgresql://me:${STATE_PASSWORD}@127.0.0.1:1/db
    warehouse: "ROOT/${SIGNED}"
    spark: {conf: {spark.ssl.keyPassword: "${SIGNED}"}}
"""


def test_doctor_shows_no_secret(tmp_path: Path) -> None:
    (tmp_path / "penstock.yml").write_text(PROJECT.replace("ROOT", str(tmp_path)))
    (tmp_path / "models").mkdir()
    environ = {"PATH": "", "HOME": str(tmp_path), "STATE_PASSWORD": "hush-one", "SIGNED": "hush-two"}
    seen = {found.name: found for found in examine(tmp_path, None, None, environ)}
    assert not seen["postgresql"].ok
    assert "***" in f"{seen['warehouse']}"
    assert "hush" not in f"{seen}"
