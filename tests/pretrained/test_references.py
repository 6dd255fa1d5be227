"""References: which strings name a pretrained model, and what they resolve to."""

import re

import pytest

from saccade.errors import UsageError
from saccade.pretrained import hub
from saccade.pretrained.references import is_pretrained, resolve


def test_what_can_name_a_pretrained_model(bert_folder, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "runs").mkdir()
    assert all(map(is_pretrained, ["minilm", str(bert_folder), "model.gguf", "owner/name"]))
    assert not any(map(is_pretrained, ["book-1", "runs/book-1", str(tmp_path), "a/b/c"]))


@pytest.mark.parametrize("ref", ["../name", "owner/../name", "-owner/name", "owner/na me", "owner/name/", "é/name"])
def test_there_is_one_form_of_a_hub_id(ref):
    assert not hub.is_hub_id(ref) and not is_pretrained(ref)
    with pytest.raises(UsageError, match=re.escape(f"no model '{ref}'")):
        resolve(ref)


def test_folders_and_gguf_files_resolve_to_themselves(bert_folder, tmp_path):
    (tmp_path / "a.gguf").write_bytes(b"")
    assert resolve(str(bert_folder)) == bert_folder and resolve(str(tmp_path / "a.gguf")) == tmp_path / "a.gguf"
