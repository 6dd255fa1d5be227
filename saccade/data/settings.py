"""Settings of data that several tasks have: the validation split, and which texts are read."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from saccade.data.splitting import SplitSettings
from saccade.data.tables.files import find, skipped_notes
from saccade.data.tables.sniffing import DataFile, sniff

Header = Literal["auto", "yes", "no"]
HEADERS: dict[str, bool | None] = {"auto": None, "yes": True, "no": False}
"""what `sniff` is told for each setting of a header"""


@dataclass(frozen=True)
class ValidationSplit:
    """The data a run is evaluated on."""

    valid: str = ""
    """a file of validation data; without it a fraction of the data is held out"""
    valid_fraction: float = 0.1
    """fraction of the data held out for validation"""

    def __post_init__(self) -> None:
        if not 0 < self.valid_fraction < 1:
            raise ValueError(f"valid_fraction must be above 0 and below 1, but is {self.valid_fraction}")
        if self.valid:  # a run can be resumed from anywhere
            object.__setattr__(self, "valid", str(Path(self.valid).resolve()))


@dataclass(frozen=True)
class TextSettings(ValidationSplit):
    """Which texts are read."""

    text_column: str = ""
    """column of a table that holds the text; without it the usual names are tried"""
    encoding: str = ""
    """encoding of the files, if not UTF-8"""
    header: Header = "auto"
    """whether the first row of a table names its columns; auto: decided by the rows"""

    def find(self, data: Path) -> tuple[list[DataFile], list[DataFile] | None]:
        """Return the files of the training path and of the validation path."""
        return self._sniff(data), self._sniff(Path(self.valid)) if self.valid else None

    def notes(self, data: Path) -> list[str]:
        """Return notes for the user on files of a folder that are not read."""
        return skipped_notes(data, self.encoding or None)

    def split(self) -> SplitSettings:
        """Return how the validation data are chosen."""
        return SplitSettings(fraction=self.valid_fraction, column=self.text_column or None)

    def _sniff(self, path: Path) -> list[DataFile]:
        encoding = self.encoding or None
        return [sniff(file, encoding=encoding, header=HEADERS[self.header]) for file in find(path, encoding)]


@dataclass(frozen=True)
class TableSettings(ValidationSplit):
    """Which columns of a table are read, and how; a subclass names the columns."""

    encoding: str = ""
    """encoding of the table, if not UTF-8"""
    header: Header = "auto"
    """whether the first row of a table names its columns; auto: decided by the rows"""

    def column(self, role: str) -> str:
        """Return the given column for a role such as label, text or speaker; empty if none was given."""
        return str(getattr(self, f"{role}_column"))


@dataclass(frozen=True)
class ImageSettings(TableSettings):
    """Which pictures and texts are read."""

    image_column: str = ""
    """column of a table that holds the paths of the pictures; without it the usual names and contents are tried"""
    label_column: str = ""
    """column of the class of a picture"""
    caption_column: str = ""
    """column of the description of a picture"""
    question_column: str = ""
    """column of the question about a picture"""
    answer_column: str = ""
    """column of the answer to the question"""
    text_column: str = ""
    """column of the text that a picture shows"""
    action_column: str = ""
    """column of the action that was taken when a picture was seen"""
    episode_column: str = ""
    """column of the name or number of the episode that a picture is part of"""
    reward_column: str = ""
    """column of the reward of the action, for the return of recorded episodes; only read if it is given"""


@dataclass(frozen=True)
class AudioSettings(TableSettings):
    """Which recordings and texts are read."""

    split: Literal["recordings", "speakers"] = "recordings"
    """what is held out for validation: recordings, or all recordings of some speakers, where the data name them"""
    audio_column: str = ""
    """column of a table that holds the paths of the recordings; without it the usual names and contents are tried"""
    text_column: str = ""
    """column of what is said in a recording"""
    label_column: str = ""
    """column of the class of a recording"""
    speaker_column: str = ""
    """column of the speaker of a recording"""


@dataclass(frozen=True)
class GraphSettings(ValidationSplit):
    """Which graphs are read, and how they are divided."""

    label_column: str = ""
    """column of the label or the number; without it the usual names are tried"""
    smiles_column: str = ""
    """column of a table that holds molecules as SMILES; without it a column called smiles"""
    directed: bool = False
    """whether the edges of tables have a direction; files that say so themselves are followed"""
    folds: int = 0
    """cross-validation of graphs: number of parts of equal size, each with its fraction of every label; 0: none"""
    fold: int = 0
    """the part that is held out for validation, 0 to folds - 1"""
    encoding: str = ""
    """encoding of the files, if not UTF-8"""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.folds < 0 or self.folds == 1:
            raise ValueError(f"folds must be 0, or 2 or more, but is {self.folds}")
        if not 0 <= self.fold < max(1, self.folds):
            raise ValueError(f"fold must be 0 to {max(0, self.folds - 1)}, but is {self.fold}")
        if self.folds and self.valid:
            raise ValueError(f"folds must be 0 where a file of validation data is given, but is {self.folds}")
