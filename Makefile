# Everything runs in .venv, which is made and filled on first use.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PYTEST := $(BIN)/python -m pytest --numprocesses auto --dist worksteal
export PIP_DISABLE_PIP_VERSION_CHECK := 1

.PHONY: demo test check bench reliability format clean

demo: $(VENV)/demo.stamp
	$(BIN)/saccade demo

test: $(VENV)/test.stamp
	$(BIN)/ruff check saccade tests bench docs
	$(BIN)/ruff format --check saccade tests bench docs
	$(BIN)/mypy
	$(PYTEST)

check: $(VENV)/test.stamp
	$(BIN)/ruff check saccade tests bench docs
	$(BIN)/ruff format --check saccade tests bench docs
	$(BIN)/mypy
	$(PYTEST) -m "not slow"

bench: $(VENV)/bench.stamp
	$(BIN)/python bench/train_gpt.py
	$(BIN)/python bench/train_translation.py
	$(BIN)/python bench/translate.py
	$(BIN)/python bench/probe.py
	$(BIN)/python bench/time_to_loss.py
	$(BIN)/python bench/encode.py
	$(BIN)/python bench/encode.py --shape base --sentences 128
	$(BIN)/python bench/finetune.py
	$(BIN)/python bench/train_vit.py
	$(BIN)/python bench/classify_images.py
	$(BIN)/python bench/load_images.py
	$(BIN)/python bench/studio.py

# The long forms; `make test` runs short ones.
reliability: $(VENV)/test.stamp
	$(BIN)/python tests/reliability/kill.py --kills 20
	$(BIN)/python tests/reliability/damage.py --count 500
	$(BIN)/python tests/reliability/disk.py
	$(BIN)/python tests/reliability/broken_files.py
	$(BIN)/python tests/reliability/broken_images.py
	$(BIN)/python tests/reliability/hostile_models.py --count 500
	$(BIN)/python tests/reliability/hostile_requests.py --count 3000
	$(BIN)/python tests/reliability/studio_delay.py

format: $(VENV)/test.stamp
	$(BIN)/ruff check --fix saccade tests bench docs
	$(BIN)/ruff format saccade tests bench docs

clean:
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis

$(BIN)/python:
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or newer is needed, this is " + sys.version.split()[0])'
	$(PYTHON) -m venv $(VENV)

$(VENV)/demo.stamp: $(BIN)/python pyproject.toml constraints.txt
	$(BIN)/pip install --quiet --constraint constraints.txt --editable '.[demo,serve,images,gguf]'
	touch $@

$(VENV)/test.stamp: $(BIN)/python pyproject.toml constraints.txt
	$(BIN)/pip install --quiet --constraint constraints.txt --editable '.[test,serve]'
	command -v chromium || command -v chromium-browser || command -v google-chrome \
	  || $(BIN)/playwright install chromium || (apt-get update && apt-get install --yes chromium) \
	  || echo "no browser was found or installed: the browser tests will be skipped" >&2
	touch $@ $(VENV)/demo.stamp

$(VENV)/bench.stamp: $(VENV)/test.stamp
	$(BIN)/pip install --quiet --constraint constraints.txt --editable '.[bench]'
	touch $@
