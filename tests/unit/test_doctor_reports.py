"""A doctor's report lies beside its model, or in the data folder, and is no longer believed when a
file of the model was exchanged.
"""

from __future__ import annotations

import pytest

from webui.store import doctor_reports


@pytest.fixture
def model(tmp_path):
    root = tmp_path / "models" / "own"
    root.mkdir(parents=True)
    (root / "llm.pt").write_bytes(b"weights")
    return root


def test_a_report_lies_beside_the_model(model, tmp_path):
    folder = doctor_reports.save(model, tmp_path / "data", {"seconds": 1}, {"a.wav": b"RIFF"})
    assert folder == model
    assert doctor_reports.load(model, tmp_path / "data")["seconds"] == 1
    assert (model / "a.wav").read_bytes() == b"RIFF"


def test_a_report_of_a_folder_that_cannot_be_written_lies_in_the_data_folder(
    model, tmp_path, monkeypatch
):
    write = doctor_reports.write_file

    def refuse(path, data):
        if path.parent == model:
            raise PermissionError(13, "read only")
        write(path, data)

    monkeypatch.setattr(doctor_reports, "write_file", refuse)
    folder = doctor_reports.save(model, tmp_path / "data", {"seconds": 2}, {})
    assert tmp_path / "data" in folder.parents
    assert doctor_reports.load(model, tmp_path / "data")["seconds"] == 2


def test_a_report_of_other_files_is_not_believed(model, tmp_path):
    doctor_reports.save(model, tmp_path, {}, {})
    assert doctor_reports.load(model, tmp_path) is not None
    (model / "llm.pt").write_bytes(b"other weights")
    assert doctor_reports.load(model, tmp_path) is None


def test_a_damaged_report_is_none(model, tmp_path):
    (model / doctor_reports.FILE).write_text("{")
    assert doctor_reports.load(model, tmp_path) is None
