"""COCO, Karpathy, VQA and easy-vqa files."""

import json

import pytest

from saccade.data.formats.image_rows import ImageSettings, read_image_rows
from saccade.errors import DataError


def read(path, *roles):
    return read_image_rows(path, roles, ImageSettings())


def refused(path, *roles):
    with pytest.raises(DataError) as error:
        read(path, *roles)
    return str(error.value)


def names(rows):
    return ["/".join(rows.pictures.name(int(number)).split("/")[-2:]) for number in rows.picture]


def save(path, content):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content))
    return path


def test_coco_captions(write, tmp_path):
    write("train2014/COCO_train2014_000000000009.png", "val2014/COCO_val2014_000000000042.png")
    for part, number in (("train", 9), ("val", 42)):
        image = {"id": number, "file_name": f"COCO_{part}2014_{number:012}.png"}
        captions = [{"image_id": number, "id": index, "caption": f"{part} {index}"} for index in range(2)]
        save(tmp_path / f"annotations/captions_{part}2014.json", {"images": [image], "annotations": captions})
    save(tmp_path / "annotations/instances_train2014.json", {"images": [], "annotations": [{"segmentation": []}]})
    rows = read(tmp_path, "caption")
    assert list(rows.texts["caption"]) == ["train 0", "train 1", "val 0", "val 1"]
    assert rows.parts.tolist() == [0, 0, 1, 1]
    assert names(rows)[2] == "val2014/COCO_val2014_000000000042.png"
    single = read(tmp_path / "annotations/captions_val2014.json", "caption")
    assert list(single.texts["caption"]) == ["val 0", "val 1"]
    assert single.origins.describe(0) == "val2014/COCO_val2014_000000000042.png"


def test_karpathy_splits(write, tmp_path):
    write("pictures/1.png", "pictures/2.png", "pictures/3.png")
    images = [
        {"filename": f"{number}.png", "split": split, "sentences": [{"raw": f"a {split}"}]}
        for number, split in enumerate(("train", "val", "restval"), 1)
    ]
    path = save(tmp_path / "dataset_flickr8k.json", {"images": images, "dataset": "flickr8k"})
    for given in (path, tmp_path):
        rows = read(given, "caption")
        assert list(rows.texts["caption"]) == ["a train", "a val", "a restval"]
        assert rows.parts.tolist() == [0, 1, 0]


def vqa(tmp_path, part):
    answers = [{"answer": answer} for answer in ("yes", "no", "yes")]
    questions = [{"question_id": 1, "image_id": 7, "question": f"is it {part}?"}]
    save(
        tmp_path / f"v2_OpenEnded_mscoco_{part}2014_questions.json",
        {"questions": questions, "data_subtype": f"{part}2014"},
    )
    annotations = [{"question_id": 1, "image_id": 7, "answers": answers, "multiple_choice_answer": "yes"}]
    return save(tmp_path / f"v2_mscoco_{part}2014_annotations.json", {"annotations": annotations})


def test_vqa_questions_and_annotations(write, tmp_path):
    write("images/COCO_train2014_000000000007.png")
    vqa(tmp_path, "train")
    for path in (tmp_path, tmp_path / "v2_OpenEnded_mscoco_train2014_questions.json"):
        rows = read(path, "question", "answer")
        assert list(rows.texts["question"]) == ["is it train?"]
        assert list(rows.texts["answer"]) == ["yes\nno\nyes"]
        assert names(rows) == ["images/COCO_train2014_000000000007.png"]


def test_questions_without_answers_are_refused(write, tmp_path):
    write("images/COCO_train2014_000000000007.png")
    vqa(tmp_path, "train").unlink()
    message = refused(tmp_path, "question", "answer")
    assert (
        "question 1: no answer to the question id 1, expected a file of answers beside it; put the annotations"
        in message
    )


def test_easy_vqa(write, tmp_path):
    write("data/train/images/0.png", "data/train/images/1.png", "data/test/images/0.png")
    save(tmp_path / "data/train/questions.json", [["what shape?", "circle", 0], ["what colour?", "red", 1]])
    save(tmp_path / "data/test/questions.json", [["what shape?", "square", 0]])
    (tmp_path / "data/answers.txt").write_text("circle\nsquare\nred\n")
    rows = read(tmp_path / "data", "question", "answer")
    assert list(rows.texts["answer"]) == ["square", "circle", "red"]
    assert rows.parts.tolist() == [2, 0, 0]
    assert [rows.pictures.name(int(number)).split("/")[-3:] for number in rows.picture] == [
        ["test", "images", "0.png"],
        ["train", "images", "0.png"],
        ["train", "images", "1.png"],
    ]


def test_problems_name_the_entry(write, tmp_path):
    write("1.png")
    images = [{"id": 1, "file_name": "1.png"}, {"id": 2, "file_name": "gone.png"}]
    captions = [
        {"image_id": 1, "caption": "good"},
        {"image_id": 1, "caption": ""},
        {"image_id": 5, "caption": "no such picture"},
        {"image_id": 2, "caption": "a missing file"},
        7,
    ]
    path = save(tmp_path / "captions.json", {"images": images, "annotations": captions})
    message = refused(path, "caption")
    assert f"{path}: annotation 2: 'caption' is '', expected some text" in message
    assert f"{path}: annotation 3: no picture with the id 5, expected an id under 'images'" in message
    assert f"{path}: no picture 'gone.png', expected a picture in '{tmp_path}'" in message
    assert f"{path}: item 5 of 'annotations' is 7, expected an object" in message


def test_other_roles_and_broken_json(write, tmp_path):
    write("1.png")
    path = save(tmp_path / "captions.json", {"images": [], "annotations": [{"image_id": 1, "caption": "x"}]})
    assert "a JSON file of captions, expected a class for each picture" in refused(path, "label")
    path.write_text('{"images": [], "annotations": [}')
    assert f"{path}:1:32: invalid JSON (Expecting value), expected one JSON document" in refused(path, "caption")
