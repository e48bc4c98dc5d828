# People and CI use the same targets. `make` lists them.

SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

PYTHON ?= python3
CXX ?= g++
NVCC ?= nvcc
JOBS ?= $(shell nproc)
VENV := .venv
BIN := $(VENV)/bin
STAMPS := $(VENV)/stamps
PROTOS := kvmanager/v1/kvmanager.proto kvmanager/v1/inspection.proto gpuworker/v1/gpuworker.proto
CSRC := $(shell find csrc -name '*.h' -o -name '*.cpp' -o -name '*.cu' -o -name CMakeLists.txt)
NATIVE := $(filter-out %.txt,$(CSRC))
PYTHONS := services tests benchmarks
DOCKER_HERE := ../shared/docker/docker_here.sh
EXAMPLE ?= The capital of France is

# Each stage says how long it took: $(call timed,NAME,COMMAND)
timed = @started=$$(date +%s%N); echo "  … $(1)"; $(2); \
	printf '  ✓ %-12s %6.1f s\n' "$(1)" "$$(( ($$(date +%s%N) - started) / 100000000 ))e-1"

.PHONY: help install kernels cuda emulated device-check model proto serve test test-kernels check stubs-check fmt wheels compose-up \
	compose-down test-compose ci clean

help: ## list the commands
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-14s %s\n", $$1, $$2}'

## Set-up. Every step leaves a stamp, so that a repeated run costs nothing.

install: $(STAMPS)/install ## make .venv with everything that development needs

$(STAMPS)/environment:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	  echo "Octavo needs Python 3.11 or later; name one with PYTHON=python3.12" >&2; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' || { \
	  echo "Python's venv module is missing; on Debian or Ubuntu: apt-get install python3-venv" >&2; exit 1; }
	@command -v $(CXX) >/dev/null || { \
	  echo "A C++ compiler ($(CXX)) is missing; on Debian or Ubuntu: apt-get install g++" >&2; exit 1; }
	$(call timed,environment,$(PYTHON) -m venv $(VENV))
	@mkdir -p $(STAMPS) && touch $@

$(STAMPS)/torch: $(STAMPS)/environment
	$(call timed,torch,$(BIN)/python -m pip install -qq torch==2.13.0)
	@touch $@

# The kernels are built by `make kernels`; the editable install only points at services/.
$(STAMPS)/install: pyproject.toml | $(STAMPS)/torch
	$(call timed,install,OCTAVO_NO_KERNELS=1 $(BIN)/python -m pip install -qq \
	  --config-settings editable.mode=inplace --editable '.[dev]')
	@touch $@

# $(call cmake,FOLDER,OPTIONS)
cmake = $(BIN)/cmake -S csrc -B build/$(1) -G Ninja -DCMAKE_MAKE_PROGRAM=$(CURDIR)/$(BIN)/ninja \
	-DCMAKE_CXX_COMPILER=$(CXX) -DCMAKE_BUILD_TYPE=Release $(2)

kernels: build/kernels.stamp ## build the C++ kernels into services/gpuworker/lib

build/kernels.stamp: $(CSRC) | $(STAMPS)/install
	@mkdir -p build
	$(call timed,kernels,$(call cmake,kernels,) >build/kernels.log && $(BIN)/cmake --build build/kernels \
	  >>build/kernels.log && $(BIN)/cmake --install build/kernels --prefix services/gpuworker/lib >>build/kernels.log \
	  || { cat build/kernels.log >&2; exit 1; })
	@touch $@

cuda: $(STAMPS)/install ## build the CUDA kernels into services/gpuworker/lib (needs nvcc, no device)
	@command -v $(NVCC) >/dev/null || { \
	  echo "nvcc is missing: install the CUDA toolkit, 13.0 or later, or name it with NVCC=/path/to/nvcc" >&2; exit 1; }
	@mkdir -p build/cuda
	$(call timed,cuda,CUDACXX=$$(command -v $(NVCC)) $(call cmake,cuda,-DOCTAVO_CUDA=ON) >build/cuda/build.log \
	  && $(BIN)/cmake --build build/cuda --parallel $(JOBS) --target octavo_cuda >>build/cuda/build.log \
	  && $(BIN)/cmake --install build/cuda --component cuda --prefix services/gpuworker/lib >>build/cuda/build.log \
	  || { cat build/cuda/build.log >&2; exit 1; })

emulated: build/emulated.stamp ## build the CUDA kernels for the CPU, as tests/contract runs them

build/emulated.stamp: $(CSRC) | $(STAMPS)/install
	@mkdir -p build/emulated
	$(call timed,emulated,$(call cmake,emulated,-DOCTAVO_BUILD_TESTS=ON) >build/emulated/build.log \
	  && $(BIN)/cmake --build build/emulated --parallel $(JOBS) --target octavo_cuda_emulated fallback_test \
	  >>build/emulated/build.log || { cat build/emulated/build.log >&2; exit 1; })
	@touch $@

model: | $(STAMPS)/install ## fetch the default model into the cache folder
	@$(BIN)/octavo model fetch

## Run.

serve: build/kernels.stamp ## set everything up, start a cluster, show a completion, stay in the foreground
	@exec $(BIN)/octavo up --example "$(EXAMPLE)"

## Develop.

proto: | $(STAMPS)/install ## generate the gRPC stubs into services/<owner>/v1
	@$(call protoc,services)

# $(call protoc,FOLDER)
protoc = PATH=$(CURDIR)/$(BIN):$$PATH $(BIN)/python -m grpc_tools.protoc -I proto --python_out=$(1) \
	--grpc_python_out=$(1) --mypy_out=quiet:$(1) --mypy_grpc_out=quiet:$(1) $(PROTOS)

test: build/kernels.stamp model ## run all tests that need no Docker engine
	$(BIN)/pytest -m 'not compose' $(ARGS)

test-kernels: $(STAMPS)/install build/emulated.stamp ## test all kernels, CUDA's emulated, under sanitizers, and what nvcc makes
	@mkdir -p build/kernels-sanitized
	$(call timed,test builds,$(call cmake,kernels-sanitized,-DOCTAVO_BUILD_TESTS=ON -DOCTAVO_SANITIZE=ON) \
	  >build/kernels-sanitized/build.log && $(BIN)/cmake --build build/kernels-sanitized --parallel $(JOBS) \
	  >>build/kernels-sanitized/build.log || { cat build/kernels-sanitized/build.log >&2; exit 1; })
	$(call timed,sanitized tests,$(BIN)/ctest --test-dir build/kernels-sanitized --output-on-failure --parallel $(JOBS))
	$(call timed,race builds,$(BIN)/cmake --build build/emulated --parallel $(JOBS) --target race_tests \
	  >build/emulated/races.log || { cat build/emulated/races.log >&2; exit 1; })
	$(call timed,race tests,$(BIN)/ctest --test-dir build/emulated --label-regex races --output-on-failure --parallel $(JOBS))
	@if ! command -v qemu-x86_64 >/dev/null && [ "$${CI:-}" = true ] && [ "$$(id -u)" = 0 ]; then \
	  echo "installing qemu-user, which the fallbacks are tested with"; \
	  apt-get -qq update && apt-get -qq install --yes qemu-user >/dev/null; fi
	$(BIN)/pytest csrc/tests $(ARGS)
	$(call timed,emulated suite,$(BIN)/pytest tests/contract/kernel_ops -k emulated $(ARGS))

device-check: ## build, test and time the CUDA kernels on this machine's device; docs/device-figures.md
	@test -e /dev/nvidiactl -o -e /dev/dxg || { \
	  echo "make device-check needs a CUDA device, but there is no NVIDIA driver here (/dev/nvidiactl)" >&2; exit 1; }
	@$(MAKE) --no-print-directory install
	@$(BIN)/python benchmarks/device_check.py $(ARGS)

check: $(STAMPS)/install ## formatting, lint, types, import rules, stub drift
	$(BIN)/ruff format --check $(PYTHONS)
	$(BIN)/ruff check $(PYTHONS)
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache
	$(BIN)/clang-format --dry-run --Werror $(NATIVE)
	@$(MAKE) --no-print-directory stubs-check

stubs-check: $(STAMPS)/install
	@fresh=$$(mktemp -d); trap 'rm -rf "$$fresh"' EXIT; $(call protoc,$$fresh); \
	for owner in kvmanager gpuworker; do \
	  diff -r --exclude=__init__.py --exclude=__pycache__ "$$fresh/$$owner/v1" "services/$$owner/v1" \
	    || { echo "services/$$owner/v1 is not what proto/ says; run make proto" >&2; exit 1; }; done; \
	echo "The stubs match proto/"

fmt: $(STAMPS)/install ## format all sources
	$(BIN)/ruff format $(PYTHONS)
	$(BIN)/ruff check --fix $(PYTHONS)
	$(BIN)/clang-format -i $(NATIVE)

## Containers.

ARCH := $(shell uname -m)
GLIBCS := 2_5 2_12 2_17 2_24 2_26 2_27 2_28 2_31 2_34 2_35 2_36
IMAGE_PYTHON := --only-binary=:all: --python-version 3.11 --implementation cp --abi cp311 --abi abi3 --abi none \
	$(foreach glibc,$(GLIBCS),--platform manylinux_$(glibc)_$(ARCH)) --platform manylinux2014_$(ARCH) --platform linux_$(ARCH)
SERVICES := scheduler kvmanager gpuworker
# pip asks the host's Python, not the images', whether a conditional dependency applies: redis needs this one before 3.11.3.
MORE_kvmanager := async-timeout
MORE_scheduler := async-timeout

wheels: $(SERVICES:%=build/wheels/%.stamp) build/wheels/octavo.stamp ## collect what the container images install

# Octavo itself, without kernels and with them: only the gpuworker's image needs these.
PACKAGED := $(shell find services -type f -not -path '*/__pycache__/*' -not -path '*/lib/*' -not -name Dockerfile)
build/wheels/octavo.stamp: pyproject.toml $(CSRC) $(PACKAGED) | $(STAMPS)/install
	@rm -rf build/wheels/octavo && mkdir -p build/wheels
	$(call timed,octavo wheels,$(call wheel,plain,OCTAVO_NO_KERNELS=1) && $(call wheel,kernels,))
	@touch $@

# $(call wheel,FOLDER,SETTING)
wheel = PATH=$(CURDIR)/$(BIN):$$PATH CXX=$(CXX) $(2) $(BIN)/python -m pip wheel -qq --no-deps --no-build-isolation \
	--wheel-dir build/wheels/octavo/$(1) .

# What a service depends on, in wheels for the images' Python.
build/wheels/%.stamp: pyproject.toml Makefile | $(STAMPS)/install
	@rm -rf build/wheels/$* && mkdir -p build/wheels
	$(call timed,$* wheels,$(call wheel,$*.own,OCTAVO_NO_KERNELS=1) && $(BIN)/python -m pip download -qq \
	  $(IMAGE_PYTHON) --dest build/wheels/$* "octavo[$*] @ file://$$(ls $(CURDIR)/build/wheels/octavo/$*.own/*.whl)" $(MORE_$*))
	@rm -rf build/wheels/$*/octavo-*.whl build/wheels/octavo/$*.own && touch $@

compose-up: wheels model ## build the images and start the services in containers
	docker compose up --build --detach --wait

compose-down: ## end the containers; the volumes stay
	docker compose down

test-compose: wheels model ## build, start, use, break and remove the containers for real
	@if [ -f $(DOCKER_HERE) ] && [ "$$(id -u)" = 0 ]; then bash $(DOCKER_HERE) up; fi
	@if docker info >/dev/null 2>&1; then $(BIN)/pytest tests/compose $(ARGS); \
	elif [ "$${CI:-}" = true ]; then echo "No Docker engine answers, and CI needs one" >&2; exit 1; \
	else echo "No Docker engine answers (docker info): the compose test is skipped"; fi

## Everything.

ci: ## what CI runs: check, test, test-kernels, test-compose
	$(MAKE) --no-print-directory check
	$(MAKE) --no-print-directory test
	$(MAKE) --no-print-directory test-kernels
	$(MAKE) --no-print-directory test-compose

clean: ## remove what was built; .venv and the cache folder stay
	rm -rf build dist services/gpuworker/lib
