// Problems for tests and benchmarks, each from a seed.
#pragma once

#include <cstdint>
#include <random>
#include <vector>

#include "allocator/planner.h"

namespace tandem::testing_problems {

// Lifetimes anywhere, among them empty ones, reversed ones and ones of no bytes.
std::vector<Lifetime> Scattered(std::mt19937_64& random, int count, Position horizon,
                                int64_t largest);

// Like a deep network: most results die soon, some skip far ahead, sizes come from a few classes.
std::vector<Lifetime> Layered(std::mt19937_64& random, int count);

// A rectangle of `horizon` by `height`, cut in two at random until there are `count` pieces: the
// optimum is `height`, and equals the lower bound. Each piece is at least one by one.
std::vector<Lifetime> Guillotine(std::mt19937_64& random, int count, Position horizon,
                                 int64_t height);

}  // namespace tandem::testing_problems
