# Everything runs in .venv, which is made and filled on first use.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PYTEST := $(BIN)/python -m pytest --numprocesses auto --dist worksteal
export PIP_DISABLE_PIP_VERSION_CHECK := 1

.PHONY: demo test check bench reliability docs format clean

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
	$(BIN)/python bench/serve.py
	$(BIN)/python bench/decode.py
	$(BIN)/python bench/quantize.py
	$(BIN)/python bench/plan.py
	$(BIN)/python bench/distributed.py

# The long forms, whose figures are written to docs/reliability.md; `make test` runs short ones.
reliability: $(VENV)/test.stamp
	$(BIN)/python tests/reliability/report.py

# The reference from the program, then the site: open site/index.html.
docs: $(VENV)/docs.stamp
	$(BIN)/python docs/reference.py
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

format: $(VENV)/test.stamp
	$(BIN)/ruff check --fix saccade tests bench docs
	$(BIN)/ruff format saccade tests bench docs

clean:
	rm -rf $(VENV) site .mypy_cache .ruff_cache .pytest_cache .hypothesis

$(BIN)/python:
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or newer is needed, this is " + sys.version.split()[0])'
	$(PYTHON) -m venv $(VENV)

$(VENV)/demo.stamp: $(BIN)/python pyproject.toml constraints.txt
	$(BIN)/pip install --quiet --constraint constraints.txt --editable '.[demo,serve,images,gguf,fast]'
	touch $@

$(VENV)/test.stamp: $(BIN)/python pyproject.toml constraints.txt
	$(BIN)/pip install --quiet --constraint constraints.txt --editable '.[test,serve]'
	command -v chromium || command -v chromium-browser || command -v google-chrome \
	  || $(BIN)/playwright install chromium || (apt-get update && apt-get install --yes chromium) \
	  || echo "no browser was found or installed: the browser tests will be skipped" >&2
	touch $@ $(VENV)/demo.stamp $(VENV)/docs.stamp

$(VENV)/docs.stamp: $(BIN)/python pyproject.toml constraints.txt
	$(BIN)/pip install --quiet --constraint constraints.txt --editable '.[docs]'
	touch $@

$(VENV)/bench.stamp: $(VENV)/test.stamp
	$(BIN)/pip install --quiet --constraint constraints.txt --editable '.[bench]'
	touch $@
