# Regenerates the light skeletons that the package ships (or OUT=file.json OUT_ARM64=file.json):
# make -f memtui/probes/pages/pagetable/bpf.mk skeleton
# Needs clang, bpftool and the libbpf headers (Debian: clang bpftool libbpf-dev), and a kernel with BTF to build on.
PAGES := $(dir $(lastword $(MAKEFILE_LIST)))
PYTHON ?= python3
OUT ?= $(PAGES)pagetable.lskel.json
OUT_ARM64 ?= $(PAGES)pagetable.arm64.lskel.json

.PHONY: skeleton
skeleton:
	$(PYTHON) $(PAGES)build_skeleton.py --source $(PAGES)pagetable.bpf.c --output $(OUT)
	$(PYTHON) $(PAGES)build_skeleton.py --source $(PAGES)pagetable.bpf.c --arch arm64 --output $(OUT_ARM64)
