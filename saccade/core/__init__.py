"""The contracts between tasks, the training loop and every front end, and nothing else."""

from saccade.core.attention import AttentionMap, AttentionMaps, Weights
from saccade.core.axes import Axis, GridAxis, NodeAxis, Role, StepAxis, TimeAxis, TokenAxis
from saccade.core.callback import Callback, Callbacks, Progress, StopTraining, ignore_progress
from saccade.core.evaluation import Evaluation, Metric, Table
from saccade.core.fields import Audio, Field, Graph, Image, Text, Vector, World, bind, bind_line
from saccade.core.generation import Candidate, Distribution, NextTokens, StreamControl
from saccade.core.metric_names import describe_metric
from saccade.core.options import PredictOptions
from saccade.core.outputs import (
    ActionsOutput,
    ImageOutput,
    LabelOutput,
    NumberOutput,
    Output,
    SpanOutput,
    TagOutput,
    TextOutput,
    VectorOutput,
)
from saccade.core.prediction import ForwardTrace, GeneratedToken, OutputLayer, Prediction, TokenScores
from saccade.core.pretrained import Base, Pretrained
from saccade.core.source import Batch, Source, Split
from saccade.core.task import InputLength, Task

__all__ = [
    "ActionsOutput",
    "AttentionMap",
    "AttentionMaps",
    "Audio",
    "Axis",
    "Base",
    "Batch",
    "Callback",
    "Callbacks",
    "Candidate",
    "Distribution",
    "Evaluation",
    "Field",
    "ForwardTrace",
    "GeneratedToken",
    "Graph",
    "GridAxis",
    "Image",
    "ImageOutput",
    "InputLength",
    "LabelOutput",
    "Metric",
    "NextTokens",
    "NodeAxis",
    "NumberOutput",
    "Output",
    "OutputLayer",
    "PredictOptions",
    "Prediction",
    "Pretrained",
    "Progress",
    "Role",
    "Source",
    "SpanOutput",
    "Split",
    "StepAxis",
    "StopTraining",
    "StreamControl",
    "Table",
    "TagOutput",
    "Task",
    "Text",
    "TextOutput",
    "TimeAxis",
    "TokenAxis",
    "TokenScores",
    "Vector",
    "VectorOutput",
    "Weights",
    "World",
    "bind",
    "bind_line",
    "describe_metric",
    "ignore_progress",
]
