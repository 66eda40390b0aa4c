"""Times llama.cpp on one GGUF file through llama-cpp-python, one JSON line on standard output.

usage: bench_peer.py MODEL THREADS PROMPT_TOKENS DECODED_TOKENS REPEATS
The best of the repeats counts; the C interface is called directly, so no Python work is timed.
"""
import ctypes
import json
import sys
import time

import llama_cpp as lc


def decode(context, tokens):
    array = (lc.llama_token * len(tokens))(*tokens)
    if lc.llama_decode(context, lc.llama_batch_get_one(array, len(tokens))) != 0:
        sys.exit("llama_decode failed")


def main(path, threads, prompt_tokens, decoded_tokens, repeats):
    quiet = lc.llama_log_callback(lambda level, text, data: None)
    lc.llama_log_set(quiet, ctypes.c_void_p(0))
    lc.llama_backend_init()
    model_params = lc.llama_model_default_params()
    model_params.n_gpu_layers = 0
    model = lc.llama_model_load_from_file(path.encode(), model_params)
    params = lc.llama_context_default_params()
    params.n_ctx = prompt_tokens + decoded_tokens + 64
    params.n_batch = params.n_ubatch = max(512, prompt_tokens)
    params.n_threads = params.n_threads_batch = threads
    context = lc.llama_init_from_model(model, params)
    memory = lc.llama_get_memory(context)
    prompt = [(7 + 31 * i) % 1000 + 100 for i in range(prompt_tokens)]
    best_prompt = best_decode = 0.0
    for _ in range(repeats):
        lc.llama_memory_clear(memory, True)
        start = time.perf_counter()
        decode(context, prompt)
        best_prompt = max(best_prompt, prompt_tokens / (time.perf_counter() - start))
        lc.llama_memory_clear(memory, True)
        decode(context, prompt[:8])
        start = time.perf_counter()
        for i in range(decoded_tokens):
            decode(context, [prompt[i % prompt_tokens]])
            lc.llama_get_logits(context)
        best_decode = max(best_decode, decoded_tokens / (time.perf_counter() - start))
    print(json.dumps({"prompt": best_prompt, "decode": best_decode}))


main(sys.argv[1], *map(int, sys.argv[2:6]))
