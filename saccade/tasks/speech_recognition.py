"""Speech recognition: the text of a recording."""

from saccade.core import Pretrained
from saccade.models.speech.whisper import Whisper
from saccade.tasks._pretrained import cannot_run
from saccade.tasks._speech.whisper import WhisperTask


class Task(WhisperTask):
    """Runs a pretrained Whisper."""

    @classmethod
    def from_pretrained(cls, pretrained: Pretrained) -> WhisperTask:
        if not isinstance(pretrained.network, Whisper):
            raise cannot_run(pretrained, "speech_recognition")
        return WhisperTask(pretrained)
