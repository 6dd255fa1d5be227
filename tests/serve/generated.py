"""Requests that schemathesis generates from the OpenAPI document, valid and invalid."""

import contextlib

import schemathesis
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis.errors import Unsatisfiable
from schemathesis import GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

CHECKS = [not_a_server_error, content_type_conformance, response_schema_conformance, status_code_conformance]


def send_generated(address, headers, document, examples, number=0):
    """Send up to this many valid and invalid requests of each operation, check the answers, and return their number.

    number: another one gives other requests.
    """
    schema, count = schemathesis.openapi.from_dict(document), 0
    for result in schema.get_all_operations():
        operation = result.ok()
        for mode in (GenerationMode.POSITIVE, GenerationMode.NEGATIVE):
            strategy = operation.as_strategy(generation_mode=mode)

            @seed(number)
            @settings(
                max_examples=examples,
                deadline=None,
                database=None,
                phases=[Phase.generate],
                suppress_health_check=list(HealthCheck),
            )
            @given(case=strategy)
            def send(case):
                nonlocal count
                response = case.call(base_url=address, headers=headers, timeout=60)
                case.validate_response(response, checks=CHECKS)
                count += 1

            with contextlib.suppress(Unsatisfiable):  # of an operation without parameters nothing is invalid
                send()
    return count
