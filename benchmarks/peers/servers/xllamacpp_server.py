"""llama.cpp's server as the package xllamacpp carries it, compiled for many machines.

``python xllamacpp_server.py MODEL.gguf PORT THREADS MAX_SEQS CONTEXT_TOKENS``, in an environment of its own.
"""

import signal
import sys

import xllamacpp

model, port, threads, max_seqs, context_tokens = sys.argv[1:]
params = xllamacpp.CommonParams()
params.model.path = model
params.port = int(port)
params.n_parallel = int(max_seqs)
params.n_ctx = int(max_seqs) * int(context_tokens)
params.kv_unified = True
params.cpuparams.n_threads = params.cpuparams_batch.n_threads = int(threads)
server = xllamacpp.Server(params)
signal.sigwait({signal.SIGTERM, signal.SIGINT})
