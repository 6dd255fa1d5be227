"""The `openai` package against a running server: forty scripted calls."""

import asyncio
import base64
import struct
from concurrent.futures import ThreadPoolExecutor

import openai
import pytest

from tests.serve.live import KEY

QUESTION = [{"role": "user", "content": "red cat"}]
CALLS = []


def call(function):
    """Register a call of the script."""
    CALLS.append(function)
    return function


def text(client, prompt="the cat", **more):
    return client.completions.create(model="prose", prompt=prompt, **{"max_tokens": 6, "temperature": 0, **more})


def answer(client, **more):
    return client.chat.completions.create(
        model="chat", messages=QUESTION, **{"max_tokens": 6, "temperature": 0, **more}
    )


@call
def list_models(client):
    assert [model.id for model in client.models.list()][:3] == ["prose", "chat", "sentence_vectors"]


@call
def retrieve_a_model(client):
    model = client.models.retrieve("prose")
    assert (model.id, model.object, model.owned_by) == ("prose", "model", "saccade")


@call
def retrieve_no_model(client):
    with pytest.raises(openai.NotFoundError, match="no model 'prosa'; did you mean 'prose'") as caught:
        client.models.retrieve("prosa")
    assert (caught.value.status_code, caught.value.code, caught.value.param) == (404, "model_not_found", "model")


@call
def complete_a_prompt(client):
    result = text(client)
    assert result.object == "text_completion" and result.model == "prose"
    assert (result.choices[0].index, result.choices[0].finish_reason) == (0, "length")
    assert len(result.choices[0].text) == 6  # the tokens are characters


@call
def default_of_sixteen_tokens(client):
    assert client.completions.create(model="prose", prompt="a").usage.completion_tokens <= 16


@call
def usage_of_a_completion(client):
    usage = text(client, "the cat").usage
    assert (usage.prompt_tokens, usage.completion_tokens, usage.total_tokens) == (7, 6, 13)


@call
def several_prompts(client):
    result = text(client, ["the cat", "a dog", "the cat"])
    assert [choice.index for choice in result.choices] == [0, 1, 2]
    assert result.choices[0].text == result.choices[2].text == text(client, "the cat").choices[0].text
    assert result.usage.prompt_tokens == 7 + 5 + 7


@call
def a_prompt_of_tokens(client):
    ids = client.engine.encode("the cat")
    assert text(client, ids).choices[0].text == text(client).choices[0].text
    assert text(client, ids).usage.prompt_tokens == len(ids)


@call
def prompts_of_tokens(client):
    ids = [client.engine.encode(prompt) for prompt in ("the cat", "a dog")]
    assert [choice.text for choice in text(client, ids).choices] == [
        choice.text for choice in text(client, ["the cat", "a dog"]).choices
    ]


@call
def an_empty_prompt(client):
    assert len(text(client, "").choices[0].text) == 6


@call
def several_choices(client):
    result = text(client, n=3, temperature=1, seed=5)
    assert len(result.choices) == 3 and len({choice.text for choice in result.choices}) > 1
    assert result.usage.completion_tokens == 18


@call
def the_same_seed_gives_the_same_text(client):
    first, second = (text(client, temperature=1, seed=11, max_tokens=20).choices[0].text for _ in range(2))
    assert first == second


@call
def another_seed_gives_another_text(client):
    texts = {text(client, temperature=1, seed=seed, max_tokens=20).choices[0].text for seed in range(4)}
    assert len(texts) > 1


@call
def a_random_seed_is_returned(client):
    result = text(client, temperature=1, max_tokens=20)
    again = text(client, temperature=1, max_tokens=20, seed=result.seed)
    assert again.choices[0].text == result.choices[0].text and result.system_fingerprint == again.system_fingerprint


@call
def stop_before_a_string(client):
    whole = text(client, max_tokens=30).choices[0].text
    stop = whole[4:6]
    result = text(client, max_tokens=30, stop=stop)
    assert (result.choices[0].text, result.choices[0].finish_reason) == (whole[: whole.index(stop)], "stop")


@call
def stop_before_one_of_several(client):
    whole = text(client, max_tokens=30).choices[0].text
    assert text(client, max_tokens=30, stop=["\0", whole[3:6]]).choices[0].finish_reason == "stop"


@call
def log_probabilities(client):
    choice = text(client, logprobs=3).choices[0]
    assert "".join(choice.logprobs.tokens) == choice.text
    assert choice.logprobs.text_offset == [0, 1, 2, 3, 4, 5]
    for token, logprob, top in zip(
        choice.logprobs.tokens, choice.logprobs.token_logprobs, choice.logprobs.top_logprobs, strict=True
    ):
        assert len(top) == 3 and max(top, key=top.get) == token and top[token] == logprob < 0


@call
def log_probabilities_end_before_a_stop_string(client):
    whole = text(client, max_tokens=30).choices[0].text
    choice = text(client, max_tokens=30, stop=whole[4:7], logprobs=0).choices[0]
    assert "".join(choice.logprobs.tokens) == choice.text == whole[: whole.index(whole[4:7])]


@call
def echo_the_prompt(client):
    assert text(client, echo=True).choices[0].text == "the cat" + text(client).choices[0].text


@call
def bias_a_token(client):
    (token,) = client.engine.encode("m")
    assert text(client, logit_bias={str(token): 100}).choices[0].text == "m" * 6


@call
def penalties_change_the_text(client):
    repeated = text(client, logit_bias={str(client.engine.encode("m")[0]): 5}, max_tokens=20)
    varied = text(client, logit_bias={str(client.engine.encode("m")[0]): 5}, max_tokens=20, frequency_penalty=2)
    assert repeated.choices[0].text.count("m") > varied.choices[0].text.count("m")


@call
def fields_of_our_own(client):
    own = {"top_k": 1, "min_p": 0.1, "repetition_penalty": 1.0, "lookup": 4}
    assert text(client, temperature=1, extra_body=own).choices[0].text == text(client).choices[0].text


@call
def a_top_p_of_0_is_greedy(client):
    assert text(client, temperature=1, top_p=0).choices[0].text == text(client).choices[0].text


@call
def stream_a_completion(client):
    chunks = list(text(client, stream=True))
    assert "".join(chunk.choices[0].text for chunk in chunks) == text(client).choices[0].text
    assert [chunk.choices[0].finish_reason for chunk in chunks][-1] == "length" and len(chunks) == 6


@call
def stream_with_usage(client):
    *chunks, last = text(client, stream=True, stream_options={"include_usage": True})
    assert last.choices == [] and last.usage.total_tokens == 13
    assert all(chunk.usage is None for chunk in chunks)


@call
def stream_several_choices(client):
    texts = ["", ""]
    for chunk in text(client, stream=True, n=2, temperature=1, seed=3):
        texts[chunk.choices[0].index] += chunk.choices[0].text
    assert texts == [choice.text for choice in text(client, n=2, temperature=1, seed=3).choices]


@call
def chat(client):
    result = answer(client)
    assert result.object == "chat.completion" and result.choices[0].message.role == "assistant"
    assert result.choices[0].message.content is not None and result.usage.prompt_tokens > 7


@call
def chat_with_parts_and_a_system_message(client):
    parts = [{"role": "user", "content": [{"type": "text", "text": "red "}, {"type": "text", "text": "cat"}]}]
    same = client.chat.completions.create(model="chat", messages=parts, max_completion_tokens=6, temperature=0)
    assert same.choices[0].message.content == answer(client).choices[0].message.content
    longer = [{"role": "developer", "content": "on a mat"}, *QUESTION]
    other = client.chat.completions.create(model="chat", messages=longer, max_tokens=6, temperature=0)
    assert other.usage.prompt_tokens > same.usage.prompt_tokens


@call
def stream_a_chat(client):
    chunks = list(answer(client, stream=True))
    assert chunks[0].choices[0].delta.role == "assistant" and chunks[-1].choices[0].finish_reason
    content = "".join(chunk.choices[0].delta.content or "" for chunk in chunks)
    assert content == answer(client).choices[0].message.content


@call
def log_probabilities_of_a_chat(client):
    choice = answer(client, logprobs=True, top_logprobs=2).choices[0]
    assert "".join(token.token for token in choice.logprobs.content) == choice.message.content
    assert all(len(token.top_logprobs) == 2 and token.bytes for token in choice.logprobs.content)


@call
def harmless_parameters(client):
    more = {"user": "me", "metadata": {"a": "b"}, "store": False, "response_format": {"type": "text"}}
    assert answer(client, **more).choices[0].message.content == answer(client).choices[0].message.content


@call
def embeddings_by_default_come_in_base64(client):
    result = client.embeddings.create(model="sentence_vectors", input="the cat")
    assert len(result.data[0].embedding) == 32 and isinstance(result.data[0].embedding[0], float)
    assert result.usage.prompt_tokens == result.usage.total_tokens > 0


@call
def embeddings_as_numbers_and_as_base64_are_the_same(client):
    numbers = client.embeddings.create(model="sentence_vectors", input="the cat", encoding_format="float")
    encoded = client.embeddings.create(model="sentence_vectors", input="the cat", encoding_format="base64")
    data = base64.b64decode(encoded.data[0].embedding)
    assert list(struct.unpack(f"<{len(data) // 4}f", data)) == numbers.data[0].embedding


@call
def embeddings_of_several_texts(client):
    result = client.embeddings.create(model="sentence_vectors", input=["the cat", "a dog", "the cat"])
    vectors = [entry.embedding for entry in result.data]
    assert [entry.index for entry in result.data] == [0, 1, 2]
    assert vectors[0] == pytest.approx(vectors[2], abs=1e-5) and vectors[0] != pytest.approx(vectors[1], abs=1e-3)


@call
def a_bad_value(client):
    with pytest.raises(openai.BadRequestError, match="temperature must be less than or equal to 2, but is 9") as caught:
        text(client, temperature=9)
    assert (caught.value.param, caught.value.code, caught.value.type) == (
        "temperature",
        "invalid_value",
        "invalid_request_error",
    )


@call
def a_parameter_that_is_not_supported(client):
    with pytest.raises(openai.BadRequestError, match="tools is not supported") as caught:
        answer(client, tools=[{"type": "function", "function": {"name": "f"}}])
    assert (caught.value.param, caught.value.code) == ("tools", "unsupported_parameter")


@call
def a_prompt_that_is_too_long(client):
    with pytest.raises(openai.BadRequestError, match="the context of 512, but has 600") as caught:
        text(client, "a" * 600)
    assert caught.value.code == "context_length_exceeded"


@call
def a_wrong_key(client):
    with pytest.raises(openai.AuthenticationError) as caught:
        client.with_options(api_key="wrong-key-0123456789").models.list()
    assert (caught.value.status_code, caught.value.code) == (401, "invalid_api_key")


@call
def a_timeout_cancels_the_generation(client):
    with client.live.slow(0.05), pytest.raises(openai.APITimeoutError):
        text(client.with_options(timeout=0.3, max_retries=0), max_tokens=400, extra_body={"ignore_eos": True})


@call
def asynchronous_calls(client):
    async def run():
        async with openai.AsyncOpenAI(base_url=f"{client.live.address}/v1", api_key=KEY) as parallel:
            results = await asyncio.gather(*(text(parallel, prompt) for prompt in ("the cat", "a dog", "the mat")))
            stream = await text(parallel, stream=True)
            return [result.choices[0].text for result in results], [chunk async for chunk in stream]

    with ThreadPoolExecutor(1) as pool:  # a browser of other tests has an event loop in this thread
        texts, chunks = pool.submit(lambda: asyncio.run(run())).result()
    assert texts == [text(client, prompt).choices[0].text for prompt in ("the cat", "a dog", "the mat")]
    assert "".join(chunk.choices[0].text for chunk in chunks) == texts[0]


@call
def a_full_queue_is_retried(client):
    """A request that is refused waits as long as the server asks for, and is sent again."""
    live = client.live
    patient, hasty = client.with_options(max_retries=4), client.with_options(max_retries=0)
    places = live.generator().capacity
    live.generator().reserve(places)
    with pytest.raises(openai.RateLimitError) as caught:
        text(hasty)
    seconds = int(caught.value.response.headers["retry-after"])  # from the mean duration of the texts before
    assert seconds >= 1 and caught.value.code == "queue_full"
    loop = live.generator()._loop
    loop.call_soon_threadsafe(loop.call_later, 0.5, live.generator().release, places)
    assert len(text(patient).choices[0].text) == 6


@pytest.fixture(scope="module")
def client(live):
    with openai.OpenAI(base_url=f"{live.address}/v1", api_key=KEY, max_retries=0) as client:
        client.engine, client.live = live.generator().engine, live
        yield client


@pytest.mark.parametrize("function", CALLS, ids=lambda function: function.__name__)
def test_call(client, function):
    function(client)


def test_there_are_forty_calls():
    assert len(CALLS) >= 40
    print(f"{len(CALLS)} calls of openai {openai.__version__}")
