"""Images in the studio, in a real browser: choose one, look at words and patches over it, play and watch films."""

import base64

import pytest

from tests.studio.test_pages import until

pytestmark = pytest.mark.slow
HEAT = """() => {
    const canvas = document.querySelector('#view .picture .heat');
    const { data } = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height);
    return [canvas.width, canvas.height, Array.from(data).filter((_, i) => i % 4 === 3)];
}"""
DROP = """([selector, name, type, body]) => {
    const transfer = new DataTransfer();
    transfer.items.add(new File([Uint8Array.from(atob(body), (c) => c.charCodeAt(0))], name, { type }));
    const node = document.querySelector(selector);
    const paste = selector === 'body';
    node.dispatchEvent(paste ? new ClipboardEvent('paste', { clipboardData: transfer, bubbles: true })
        : new DragEvent('drop', { dataTransfer: transfer, bubbles: true, cancelable: true }));
}"""


def strongest_cell(tab, rows, columns):
    """Row and column of the strongest colour of the heat map."""
    width, height, opacity = tab.evaluate(HEAT)
    row, column = divmod(opacity.index(max(opacity)), width)
    return row * rows // height, column * columns // width


def captions(visit, photo, path="/look?model=captions", **options):
    tab = visit(path, studio="caption_address", **options)
    until(tab, "document.body.dataset.ready")
    tab.set_input_files("#input-image", photo)
    until(tab, "document.querySelector('#inputs .preview').naturalWidth === 240")
    tab.click("#submit")
    until(tab, "document.body.dataset.shown")
    tab.wait_for_selector("#view .picture .heat")
    return tab


def select(tab, word):
    tab.click(f"#view .strip .token >> text=/^{word}$/")
    tab.wait_for_selector(f"#view .strip .token.on >> text=/^{word}$/")


def test_a_word_shows_where_it_looks_and_a_patch_which_words_look_at_it(visit, shoot, photo):
    tab = captions(visit, photo)
    assert tab.text_content("#output") == "a bright square on the right"
    assert tab.text_content("#selection") == "Alignment" and tab.text_content("[data-view=query]") == "Picture"
    select(tab, "square")
    assert strongest_cell(tab, 4, 6) == (0, 5), "the disc is at the top right"
    assert tab.text_content("#status").startswith("square \u2190 0,5 0.")
    box = tab.locator("#view .picture").bounding_box()
    assert box["width"] / box["height"] == pytest.approx(1.5, rel=0.02)
    tab.click("#view .picture", position={"x": box["width"] * 11 / 12, "y": box["height"] / 8})
    tab.wait_for_selector("#view h3 >> text=patch 0,5")
    words = tab.locator("#view .strip .token span").all_text_contents()
    opacity = "all => all.map(t => +t.style.getPropertyValue('--opacity'))"
    weights = dict(zip(words, tab.eval_on_selector_all("#view .strip .token", opacity), strict=True))
    assert max(weights, key=weights.get) == "square"
    shoot(tab, "look-caption")
    tab.click("[data-map='decoder.0.cross'][data-head='1']")
    until(tab, "document.getElementById('selection').textContent.includes('head 1')")
    until(tab, "document.getElementById('largest').textContent === '0.04'")
    shoot(tab, "look-caption-head")


def test_opacity_and_smoothness_change_the_picture_and_are_kept(visit, photo):
    tab = captions(visit, photo)
    width, height, opacity = tab.evaluate(HEAT)
    assert (width, height) == (96, 64) and max(opacity) == int(255 * 0.7), "16 pixels of a cell"
    tab.locator(".opacity").fill("40")
    assert max(tab.evaluate(HEAT)[2]) == int(255 * 0.4)
    tab.uncheck(".smooth")
    width, height, opacity = tab.evaluate(HEAT)
    assert (width, height, len(opacity)) == (6, 4, 24)
    assert "opacity=40" in tab.get_attribute("#export a >> text=PNG", "href")
    assert "smooth=0" in tab.get_attribute("#export a >> text=GIF", "href")
    tab.reload()
    until(tab, "document.body.dataset.shown")
    tab.wait_for_selector("#view .picture .heat")
    assert tab.evaluate(HEAT)[:2] == [6, 4] and tab.input_value(".opacity") == "40"


def test_a_film_plays_one_gaze_for_each_word(visit, shoot, photo):
    tab = captions(visit, photo)
    points = "document.querySelector('#view polyline').getAttribute('points').split(',').length"
    assert tab.evaluate(points) == 1
    tab.click("#next")
    until(tab, f"{points} === 2")
    tab.click("#previous")
    until(tab, f"{points} === 1")
    tab.click("#play")
    until(tab, f"{points} === 3")
    tab.click("#play")
    assert tab.text_content("#play") == "Play"
    count = tab.evaluate(points)
    tab.wait_for_timeout(900)
    assert tab.evaluate(points) == count, "paused"
    ring = tab.evaluate("(({ left, top }) => [left, top].map(parseFloat))(document.querySelector('#view .gaze').style)")
    if count == 3:
        assert ring[0] > 80 and ring[1] < 25, "the third word is 'square'"
    tab.focus("#play")
    tab.keyboard.press("Enter")
    until(tab, f"{points} === 6")
    until(tab, "document.getElementById('play').textContent === 'Play'")
    shoot(tab, "look-film")
    tab.uncheck("#path")
    until(tab, "!document.querySelector('#view polyline')")
    assert "path=0" in tab.url


def test_a_patch_is_clicked_and_walked_from_with_the_keyboard(visit, shoot, photo):
    tab = captions(visit, photo)
    tab.click("[data-map='encoder.1.self'][data-head='0']")
    tab.wait_for_selector("#direction")
    assert tab.locator("#view .picture").count() == 1
    assert tab.text_content("#status").startswith("class \u2190 class 0.5000, 0,5 0.5000")
    tab.click("#view .picture", position={"x": 10, "y": 10})
    until(tab, "document.querySelector('#view .picture').dataset.selected === '1'")
    tab.focus("#view .picture")
    for key in ("ArrowDown", "ArrowRight", "ArrowRight"):
        tab.keyboard.press(key)
    until(tab, "document.querySelector('#view .picture').dataset.selected === '9'")
    assert tab.text_content("#status").startswith("1,2 \u2190 ")
    assert "at=1%2C2" in tab.get_attribute("#export a >> text=PNG", "href")
    tab.select_option("#direction", "1")
    until(tab, "document.getElementById('status').textContent.startsWith('1,2 \u2192 ')")
    shoot(tab, "look-patch")
    tab.click("[data-map=rollout]")
    until(tab, "document.getElementById('selection').textContent === 'Attention rollout'")
    until(tab, "document.getElementById('status').textContent.startsWith('1,2 \u2192 ')")  # stays pinned


def test_a_link_holds_the_picture_as_long_as_the_studio_does(visit, photo):
    tab = captions(visit, photo)
    select(tab, "square")
    assert "image=upload%3A" in tab.url and "data%3A" not in tab.url
    again = visit(tab.url[tab.url.index("/look") :], studio="caption_address")
    until(again, "document.body.dataset.shown")
    again.wait_for_selector("#view .strip .token.on >> text=square")
    assert again.evaluate("document.querySelector('#inputs .preview').naturalWidth") == 240
    lost = visit("/look?model=captions&image=upload:0123", studio="caption_address")
    lost.wait_for_selector("#inputs .error")
    assert "choose it again" in lost.text_content("#inputs .error")
    visit.complaints.clear()  # the browser names every refused request


def test_an_image_is_dropped_pasted_or_taken_from_the_validation_data(visit, shoot, photo):
    tab = visit("/try?model=captions", studio="caption_address")
    until(tab, "document.body.dataset.ready")
    width = "document.querySelector('#inputs .preview').naturalWidth"
    until(tab, f"{width} === 12")
    body = base64.b64encode(photo.read_bytes()).decode()
    tab.evaluate(DROP, ["#inputs .drop", "disc.png", "image/png", body])
    until(tab, f"{width} === 240")
    assert tab.locator(".sample").count() == 3
    tab.click(".sample >> nth=1")
    until(tab, f"{width} === 12")
    tab.evaluate(DROP, ["body", "disc.png", "image/png", body])
    until(tab, f"{width} === 240")
    tab.fill("#input-question", "which side is it on?")
    tab.click("#submit")
    tab.wait_for_selector("#predictions .card")
    assert tab.text_content("#predictions .output") == "right"
    assert "question=which+side" in tab.url and "image=upload%3A" in tab.url
    shoot(tab, "try-image")
    tab.click("#predictions a")
    until(tab, "document.body.dataset.shown")
    assert tab.input_value("#input-question") == "which side is it on?" and tab.text_content("#output") == "right"


def test_an_image_that_is_read_slowly_does_not_replace_a_later_one(visit, photo):
    tab = visit("/try?model=captions", studio="caption_address")
    until(tab, "document.body.dataset.ready")
    tab.evaluate("""() => {
        const read = FileReader.prototype.readAsDataURL;
        FileReader.prototype.readAsDataURL = function (file) {
            this.addEventListener('load', () => setTimeout(() => { document.body.dataset.read = '1'; }, 50));
            setTimeout(() => read.call(this, file), 500);
        };
    }""")
    body = base64.b64encode(photo.read_bytes()).decode()
    tab.evaluate(DROP, ["#inputs .drop", "disc.png", "image/png", body])
    tab.click(".sample >> nth=1")
    until(tab, "document.body.dataset.read")
    assert tab.evaluate("document.querySelector('#inputs .preview').naturalWidth") == 12


@pytest.mark.parametrize(
    ("name", "type", "size", "message"),
    [
        ("large.png", "image/png", 9 << 20, "large.png must be at most 8 MB, but has 9.0 MB; choose a smaller one"),
        ("notes.txt", "text/plain", 5, "notes.txt must be an image, but is text/plain"),
    ],
)
def test_a_wrong_file_is_refused_in_the_form(visit, tmp_path, name, type, size, message):
    (tmp_path / name).write_bytes(b"\x89PNG" + bytes(size - 4))
    tab = visit("/try?model=captions", studio="caption_address")
    until(tab, "document.body.dataset.ready")
    tab.set_input_files("#input-image", tmp_path / name)
    tab.wait_for_selector("#inputs .error")
    assert tab.text_content("#inputs .error") == message
    assert not tab.is_visible("#inputs .preview")
    tab.click(".sample >> nth=0")
    tab.wait_for_selector("#inputs .preview")
    assert not tab.is_visible("#inputs .error")


def test_a_picture_that_cannot_be_read_is_told_where_it_was_chosen(visit, tmp_path):
    (tmp_path / "broken.png").write_bytes(b"\x89PNG\r\n\x1a\n")
    tab = visit("/try?model=squares", studio="image_address")
    until(tab, "document.body.dataset.ready")
    tab.set_input_files("#input-image", tmp_path / "broken.png")
    until(tab, "document.querySelector('#inputs .preview').hidden")
    assert "cannot be shown" in tab.text_content("#inputs .drop")


def test_attention_over_an_image_is_a_heat_map_with_explanations(visit, shoot, tmp_path):
    from PIL import Image

    picture = Image.new("L", (12, 12), 30)
    picture.paste(220, (1, 5, 5, 9))
    picture.save(tmp_path / "square.png")
    tab = visit("/look?model=squares", studio="image_address")
    until(tab, "document.body.dataset.ready")
    tab.set_input_files("#input-image", tmp_path / "square.png")
    tab.wait_for_selector("#inputs .preview[src^='data:image/png']")
    tab.click("#submit")
    until(tab, "document.body.dataset.shown")
    tab.wait_for_selector("#view .picture .heat")
    assert tab.text_content("#output") in ("left", "right")
    assert tab.locator("#view .picture img").count() == 1, "queries and keys are the same cells"
    shoot(tab, "look-image")
    tab.click("[data-explanation=attribution]")
    tab.wait_for_selector("#explanation .picture .heat")
    tab.click("[data-view=matrix]")
    tab.wait_for_selector(".matrix canvas")
    shoot(tab, "look-image-matrix")


def test_attention_over_images_is_watched_while_it_forms(visit, shoot):
    tab = visit("/watch/captions", studio="caption_address")
    tab.wait_for_selector("#heads .picture .heat")
    assert tab.locator("#charts h3").all_text_contents()[-1] == "images per second"
    titles = ["Encoder 0 \u00b7 self-attention", "Encoder 1 \u00b7 self-attention", "Decoder 0 \u00b7 cross-attention"]
    assert tab.locator("#layer option").all_text_contents() == titles
    assert tab.locator("#query option").all_text_contents()[:4] == ["mean of all", "a", "bright", "square"]
    assert tab.locator("#heads figure").count() == 2
    tab.select_option("#query", "2")
    tab.select_option("#layer", "0")
    until(tab, "document.getElementById('query').value === '0'")
    assert tab.locator("#query option").all_text_contents() == ["mean of all", "class"]
    tab.click("#heads .picture >> nth=0", position={"x": 5, "y": 5})
    until(tab, "document.getElementById('query').selectedOptions[0].text === 'patch 0,0'")
    shoot(tab, "watch-image")


@pytest.mark.parametrize("page", ["/look", "/try", "/watch/captions"])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_pages_with_pictures_fit_a_phone_in_both_schemes(visit, shoot, photo, page, scheme):
    if page == "/look":
        tab = captions(visit, photo, color_scheme=scheme)
    else:
        tab = visit(page + ("?model=captions" if page == "/try" else ""), studio="caption_address", color_scheme=scheme)
        tab.wait_for_selector("#heads .picture, .sample")
    tab.set_viewport_size({"width": 390, "height": 800})
    tab.wait_for_timeout(300)
    until(tab, "document.documentElement.scrollWidth <= 390")
    shoot(tab, f"phone{page.replace('/', '-')}-{scheme}")
