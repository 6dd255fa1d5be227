"""The page that tries the models, in a real browser: forms from the document, streams, uploads, the key, curl."""

import io
import os
import subprocess
from pathlib import Path

import pytest
from PIL import Image

from tests.serve.live import KEY, serving, wait_for

SHOTS = Path(os.environ.get("SACCADE_SHOTS", Path(__file__).parents[2] / ".shots"))


@pytest.fixture(scope="module")
def open_server(runs):
    """A server without a key."""
    refs = ("prose", "chat", "sentence_vectors", "image_classification", "translation")
    with serving(runs, refs) as server:
        yield server


@pytest.fixture
def visit(browser):
    """Opens the page of a server, and fails at the end if it reported an error or made a request elsewhere."""
    complaints, contexts, origins, requests = [], [], [], []

    def opened(server, width=1280, **options):
        origins.append(server.address)
        contexts.append(browser.new_context(viewport={"width": width, "height": 900}, **options))
        tab = contexts[-1].new_page()
        tab.on("pageerror", lambda error: complaints.append(str(error)))
        tab.on("console", lambda message: complaints.append(message.text) if message.type == "error" else None)
        tab.on("request", lambda request: requests.append(request.url))
        tab.goto(server.address)
        return tab

    opened.complaints = complaints
    yield opened
    for context in contexts:
        context.close()
    assert not complaints
    assert [url for url in requests if not url.startswith((*origins, "blob:", "data:"))] == []


def shoot(tab, name):
    SHOTS.mkdir(exist_ok=True)
    tab.screenshot(path=SHOTS / f"{name}.png", full_page=True)


def pick(tab, model, title):
    tab.select_option("#model", model)
    tab.click(f"#endpoints button:has-text('{title}')")


def send(tab):
    tab.click("#send")
    tab.wait_for_selector("#send:enabled")
    wait_for(lambda: tab.inner_text("#figures") or tab.is_visible("#problem"))
    return tab.inner_text("#output")


def test_a_completion_is_streamed(open_server, visit):
    tab = visit(open_server)
    tab.fill("#input-prompt", "the cat")
    tab.click("#more summary")
    tab.fill("#option-max_tokens", "9")
    tab.fill("#option-temperature", "0")
    expected = open_server.complete(max_tokens=9, temperature=0).json()["choices"][0]["text"]
    assert send(tab) == expected.strip("\n")
    assert "9 chunks" in tab.inner_text("#figures") and tab.inner_text("#status") == "5 models ready"
    shoot(tab, "serve-completion-1280")


def test_a_chat_goes_on_after_the_answer(open_server, visit):
    tab = visit(open_server, 390, color_scheme="dark")
    pick(tab, "chat", "Chat")
    tab.fill(".message textarea", "red cat")
    tab.click("#more summary")
    tab.fill("#option-max_completion_tokens", "8")
    tab.click("#more summary")
    text = send(tab)
    assert tab.locator(".message").count() == 3
    assert tab.locator(".message textarea").nth(1).input_value().strip() == text.strip()
    shoot(tab, "serve-chat-390-dark")
    assert tab.evaluate("document.documentElement.scrollWidth <= innerWidth")


def test_an_image_is_uploaded_and_its_labels_are_drawn(open_server, visit, tmp_path):
    stream = io.BytesIO()
    Image.new("RGB", (24, 24), (200, 30, 30)).save(stream, "PNG")
    (tmp_path / "red.png").write_bytes(stream.getvalue())
    tab = visit(open_server)
    pick(tab, "image_classification", "Task")
    tab.set_input_files("#input-image", tmp_path / "red.png")
    assert "%" in send(tab) and tab.locator(".bars i").count() >= 2
    tab.click("#curl")
    shell = tab.inner_text("#shell") if tab.locator("#command[open]").count() else tab.text_content("#shell")
    assert "-F 'image=@red.png'" in shell
    done = subprocess.run(
        ["bash", "-c", shell.replace("curl", "curl -s", 1)], cwd=tmp_path, capture_output=True, text=True
    )
    assert '"predictions"' in done.stdout
    shoot(tab, "serve-image-1280")


def test_curl_sends_the_same_request(open_server, visit):
    tab = visit(open_server)
    pick(tab, "translation", "Task")
    tab.fill("#input-source", "the cat")
    text = send(tab)
    tab.click("#curl")
    shell = tab.text_content("#shell")
    done = subprocess.run(["bash", "-c", shell.replace("curl", "curl -s", 1)], capture_output=True, text=True)
    assert text in done.stdout


def test_embeddings_and_errors_are_shown(open_server, visit):
    tab = visit(open_server, color_scheme="dark")
    pick(tab, "sentence_vectors", "Embeddings")
    tab.fill("#input-input", "a cat")
    assert send(tab).startswith("32 numbers: ")
    tab.fill("#input-input", "  ")
    send(tab)
    assert "input must hold text" in tab.inner_text("#problem")
    shoot(tab, "serve-error-1280-dark")
    assert any("400" in text for text in visit.complaints)
    visit.complaints.clear()


def test_a_generation_can_be_stopped(open_server, visit):
    tab = visit(open_server)
    tab.fill("#input-prompt", "the cat")
    tab.click("#more summary")
    tab.fill("#option-max_tokens", "400")
    tab.check("#option-ignore_eos")
    with open_server.slow(0.02):
        tab.click("#send")
        tab.wait_for_selector("#output .text")
        tab.click("#stop")
        tab.wait_for_selector("#send:enabled")
        assert tab.inner_text("#figures") == "stopped"


def test_the_key_is_asked_for(live, visit):
    tab = visit(live, 390)
    tab.wait_for_selector("#login:not([hidden])")
    shoot(tab, "serve-key-390")
    tab.fill("#key", "wrong-key-0123456789")
    tab.click("#login button")
    wait_for(lambda: tab.inner_text("#status") == "the key is wrong")
    tab.fill("#key", KEY)
    tab.click("#login button")
    tab.wait_for_selector("#tool:not([hidden])")
    tab.fill("#input-prompt", "the cat")
    assert send(tab) and KEY not in tab.text_content("#shell")
    assert tab.evaluate("document.documentElement.scrollWidth <= innerWidth")
    assert all("401" in text for text in visit.complaints)
    visit.complaints.clear()
