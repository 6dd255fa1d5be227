"""The process that renders chat templates: run as a script, it reads requests from stdin and has no other rights.

A template is code of a stranger. Jinja's sandbox keeps it from Python's internals; the limits of this process keep it
from using up time or memory, from opening files and from starting processes, whatever the template finds.
"""

from __future__ import annotations

import importlib
import json
import os
import resource
import signal
import sys
import threading
import time
from datetime import datetime
from functools import lru_cache
from typing import Any

CPU_SECONDS = 1.5  # of one request
MEMORY = 512 << 20  # bytes of the process
MAX_OUTPUT = 8_000_000  # characters of a conversation
# Jinja imports these when they are needed.
MODULES = ("jinja2.constants", "jinja2.debug", "jinja2.ext", "pprint")
MAX_REASON = 300  # characters of a message
# What Python loads when it is first used: codecs, the time zone.
WARM_UP = "{{ 'a\\n\u00e9' ~ [1] | tojson ~ strftime_now('%c') }}"


class Refused(Exception):
    """The template calls raise_exception: it does not accept the conversation."""


class Forbidden(Exception):
    """The template uses what no chat template needs."""


@lru_cache(maxsize=4)
def compile_template(source: str) -> Any:
    """Return a template, compiled in an environment with the settings and functions that transformers gives it."""
    import jinja2
    from jinja2 import nodes
    from jinja2.exceptions import SecurityError
    from jinja2.ext import Extension
    from jinja2.sandbox import ImmutableSandboxedEnvironment
    from jinja2.utils import Namespace

    class Environment(ImmutableSandboxedEnvironment):
        """A sandbox in which an unsafe attribute is an error at once, and not an undefined value."""

        def unsafe_undefined(self, obj: Any, attribute: str) -> Any:
            raise SecurityError(f"the attribute {attribute!r:.80} of a {type(obj).__name__}")

    class Generation(Extension):
        """The tag `generation`, which marks what the assistant says."""

        tags = {"generation"}  # noqa: RUF012 - as Jinja declares it

        def parse(self, parser: Any) -> Any:
            line = next(parser.stream).lineno
            body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
            return nodes.CallBlock(self.call_method("_body"), [], [], body).set_lineno(line)

        def _body(self, caller: Any) -> Any:
            return caller()

    class TemplateNamespace(Namespace):
        """A namespace without private names."""

        def __init__(*args: Any, **kwargs: Any) -> None:
            self, values = args[0], dict(*args[1:], **kwargs)
            for name in values:
                check_name(name)
            Namespace.__init__(self, values)

        def __setitem__(self, name: str, value: Any) -> None:
            check_name(name)
            super().__setitem__(name, value)

    environment = Environment(trim_blocks=True, lstrip_blocks=True, extensions=[Generation, "jinja2.ext.loopcontrols"])
    environment.filters["tojson"] = to_json
    environment.globals |= {
        "raise_exception": raise_exception,
        "strftime_now": lambda format: datetime.now().strftime(format),
        "dict": TemplateDict(),
        "namespace": TemplateNamespace,
    }
    tree = environment.parse(source)
    kinds = (nodes.Import, nodes.FromImport, nodes.Include, nodes.Extends)
    other_file = next(iter(tree.find_all(kinds)), None)
    if other_file is not None:
        raise Forbidden(f"line {other_file.lineno}: it uses {type(other_file).__name__.lower()}, another file")
    code = environment.compile(source)
    return jinja2.Template.from_code(environment, code, environment.make_globals(None))


def check_name(name: object) -> None:
    """Refuse a private name in a namespace."""
    if isinstance(name, str) and name.startswith("_"):
        raise Forbidden(f"it stores the private name {name!r:.80} in a namespace")


class TemplateDict:
    """The function `dict`, without the attributes of the class."""

    def __call__(self, *args: Any, **kwargs: Any) -> dict[Any, Any]:
        return dict(*args, **kwargs)

    def fromkeys(self, *args: Any) -> dict[Any, Any]:
        return dict.fromkeys(*args)


def to_json(
    value: Any, ensure_ascii: bool = False, indent: Any = None, separators: Any = None, sort_keys: bool = False
) -> str:
    """Return a value as JSON; Jinja's own filter would escape characters for HTML."""
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def raise_exception(message: object) -> None:
    """Refuse a conversation, called by the template."""
    raise Refused(str(message))


def render(source: str, conversations: list[Any], variables: dict[str, Any]) -> list[str]:
    """Return the text of each conversation, up to the start of the answer."""
    template, texts = compile_template(source), []
    for messages in conversations:
        values = {"messages": messages, "tools": None, "documents": None, "add_generation_prompt": True, **variables}
        parts, size = [], 0
        for part in template.generate(values):
            parts.append(part)
            size += len(part)
            if size > MAX_OUTPUT:
                raise Forbidden(f"it writes more than {MAX_OUTPUT:,} characters")
        texts.append("".join(parts))
    return texts


def answer(line: bytes) -> dict[str, Any]:
    """Return the result of a request, or why there is none."""
    from jinja2.exceptions import SecurityError, TemplateSyntaxError

    request = json.loads(line)
    try:
        return {"texts": render(request["template"], request["conversations"], request["variables"])}
    except Refused as error:
        return {"refused": shorten(str(error))}
    except Forbidden as error:
        reason = str(error)
    except TemplateSyntaxError as error:
        reason = f"line {error.lineno}: {error.message}"
    except SecurityError as error:
        reason = f"it uses what the sandbox forbids ({error})"
    except RecursionError:
        reason = "it is nested, or calls itself, too deeply"
    except MemoryError:
        reason = f"it needs more than {MEMORY >> 20} MB of memory"
    except OSError:
        reason = "it needs a part of Python, or a file, that the sandbox does not have"
    except Exception as error:  # noqa: BLE001 - a template can raise anything; all of it is its own mistake
        reason = f"{type(error).__name__}: {error}"
    return {"error": shorten(reason)}


def shorten(text: str) -> str:
    """Return a reason as one short line."""
    line = " ".join(text.split())
    return line if len(line) <= MAX_REASON else f"{line[:MAX_REASON]}..."


def give_up_rights() -> None:
    """Limit memory and forbid to open files, write them or start processes; everything needed is imported before."""
    for name in MODULES:
        importlib.import_module(name)
    render(WARM_UP, [[]], {})
    if sys.platform == "linux":
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    else:  # the limit of the address space is not kept
        threading.Thread(target=watch_memory, daemon=True).start()
    resource.setrlimit(resource.RLIMIT_NPROC, (0, 0))
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
    resource.setrlimit(resource.RLIMIT_NOFILE, (3, 3))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def watch_memory() -> None:
    """End the process when it has used more memory than it may."""
    unit = 1 if sys.platform == "darwin" else 1024
    while resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit < MEMORY:
        time.sleep(0.02)
    os.kill(os.getpid(), signal.SIGKILL)


def main() -> None:
    """Answer requests, one line each, until stdin ends; after an error the process ends too."""
    sys.path += sys.argv[1:]
    give_up_rights()
    sys.stdout.buffer.write(b"ready\n")
    sys.stdout.buffer.flush()
    for line in sys.stdin.buffer:
        signal.setitimer(signal.ITIMER_PROF, CPU_SECONDS)  # SIGPROF ends the process, also within a long operation
        result = answer(line)
        signal.setitimer(signal.ITIMER_PROF, 0)
        sys.stdout.buffer.write(json.dumps(result).encode() + b"\n")
        sys.stdout.buffer.flush()
        if "error" in result:
            return


if __name__ == "__main__":
    main()
