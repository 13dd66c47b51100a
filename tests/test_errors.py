"""Secrets in addresses are neither shown nor kept."""

import pytest

from components.core.errors import SesameError, without_secrets


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("postgresql://joe:secret@host:5432/db", "postgresql://host:5432/db"),
        ("postgresql+psycopg2://joe:se/cr?et@host/db", "postgresql+psycopg2://host/db"),
        ("https://joe:s@cret@host/a@b", "https://host/a@b"),
        ("https://ghp_secret@host/a", "https://host/a"),
        ("https://host/a?token=secret&page=2", "https://host/a?token=***&page=2"),
        ("https://host/a?page=2&Password=secret#part", "https://host/a?page=2&Password=***#part"),
        (
            "https://s3/a?X-Amz-Credential=secret%2F1&X-Amz-Signature=secret&x=1",
            "https://s3/a?X-Amz-Credential=***&X-Amz-Signature=***&x=1",
        ),
        ("https://host/a?pass=secret&page=2&pin=1234#x=1", "https://host/a?pass=***&page=2&pin=***#x=1"),
        ("https://blob/a?sv=1&sig=secret%3D", "https://blob/a?sv=1&sig=***"),
        ('can\'t open "http://a:secret@b/c", nor http://d:secret@e: no', 'can\'t open "http://b/c", nor http://e: no'),
        ("https://host:8080/a/b.csv?design=2", "https://host:8080/a/b.csv?design=2"),
        ("sqlite:////home/joe/mlflow.db", "sqlite:////home/joe/mlflow.db"),
        ("joe@host wrote: key=value", "joe@host wrote: key=value"),
        ("no scheme: joe:secret@host/x, 'http:/joe:secret@host'", "no scheme: host/x, 'http:/host'"),
        ("git@github.com:a/b models:/gpt@champion 10:30 @joe", "git@github.com:a/b models:/gpt@champion 10:30 @joe"),
    ],
)
def test_addresses_are_shown_without_secrets(text, shown):
    assert without_secrets(text) == shown == str(SesameError(text))
