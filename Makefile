PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PROTOS := kvmanager/v1/kvmanager.proto gpuworker/v1/gpuworker.proto

.DEFAULT_GOAL := help
.PHONY: help proto

help: ## list the commands
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-14s %s\n", $$1, $$2}'

proto: ## generate the gRPC stubs into services/<owner>/v1
	PATH=$(CURDIR)/$(BIN):$$PATH $(BIN)/python -m grpc_tools.protoc -I proto --python_out=services --grpc_python_out=services \
	  --mypy_out=services --mypy_grpc_out=services $(PROTOS)
