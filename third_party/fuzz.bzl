"""cc_fuzz_test: a libFuzzer target that is a plain replay test elsewhere.

  bazel test //...                                    replays the corpus
  bazel run --config=fuzz //models:gguf_fuzz -- -runs=N    fuzzes (clang)
"""

def cc_fuzz_test(name, srcs, corpus = [], deps = [], **kwargs):
    native.cc_test(
        name = name,
        srcs = srcs,
        args = ["$(locations %s)" % c for c in corpus],
        data = corpus,
        deps = deps + select({
            "//tests/testing:fuzzing": [],
            "//conditions:default": ["//tests/testing:fuzz_replay_main"],
        }),
        linkopts = select({
            "//tests/testing:fuzzing": ["-fsanitize=fuzzer"],
            "//conditions:default": [],
        }),
        **kwargs
    )
