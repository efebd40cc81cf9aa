"""Python's jinja2 in the settings Hugging Face renders chat templates with."""

import copy
import datetime
import json

import jinja2
from jinja2.ext import Extension, loopcontrols
from jinja2.sandbox import ImmutableSandboxedEnvironment

NOW = datetime.datetime(2025, 3, 4, 5, 6, 7)


class Generation(Extension):
    """{% generation %}: marks the assistant's part; its text is printed as it is."""

    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        return jinja2.nodes.CallBlock(self.call_method("_text"), [], [], body).set_lineno(line)

    def _text(self, caller):
        return caller()


def tojson(value, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
    return json.dumps(
        value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys
    )


def raise_exception(message):
    raise jinja2.exceptions.TemplateError(message)


def make_environment():
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[Generation, loopcontrols]
    )
    environment.filters["tojson"] = tojson
    environment.globals["raise_exception"] = raise_exception
    environment.globals["strftime_now"] = lambda form: NOW.strftime(form)
    return environment


def render(environment, source, variables):
    """(True, text) or (False, the error's text)."""
    try:
        # A copy, because |indent of a list changes the list.
        return True, environment.from_string(source).render(**copy.deepcopy(variables))
    except Exception as error:  # the kind of a failure is Python's own affair
        return False, f"{type(error).__name__}: {error}"
