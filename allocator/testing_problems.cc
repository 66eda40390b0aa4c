#include "allocator/testing_problems.h"

#include <algorithm>
#include <utility>

namespace tandem::testing_problems {
namespace {

int64_t Below(std::mt19937_64& random, int64_t limit) {
  return static_cast<int64_t>(random() % static_cast<uint64_t>(limit));
}

}  // namespace

std::vector<Lifetime> Scattered(std::mt19937_64& random, int count, Position horizon,
                                int64_t largest) {
  std::vector<Lifetime> lifetimes(static_cast<size_t>(count));
  for (Lifetime& lifetime : lifetimes) {
    lifetime.begin = Below(random, horizon) - horizon / 4;
    lifetime.end = lifetime.begin + Below(random, horizon / 2 + 2) - 1;
    lifetime.bytes = Below(random, largest + 1);
  }
  return lifetimes;
}

std::vector<Lifetime> Layered(std::mt19937_64& random, int count) {
  std::vector<int64_t> classes(12);
  for (int64_t& bytes : classes) bytes = 64 * (1 + Below(random, 4096));
  std::vector<Lifetime> lifetimes(static_cast<size_t>(count));
  for (int i = 0; i < count; ++i) {
    const Position reach = Below(random, 10) == 0 ? 1 + Below(random, 200) : 1 + Below(random, 4);
    lifetimes[i] = {i, i + 1 + reach, classes[Below(random, std::ssize(classes))]};
  }
  return lifetimes;
}

std::vector<Lifetime> Guillotine(std::mt19937_64& random, int count, Position horizon,
                                 int64_t height) {
  std::vector<Lifetime> pieces = {{0, horizon, height}};
  while (std::ssize(pieces) < count) {
    Lifetime& piece = pieces[Below(random, std::ssize(pieces))];
    const Position duration = piece.end - piece.begin;
    Lifetime rest = piece;
    if (duration > 1 && (piece.bytes == 1 || Below(random, 2) == 0)) {
      piece.end = rest.begin = piece.begin + 1 + Below(random, duration - 1);
    } else if (piece.bytes > 1) {
      piece.bytes = 1 + Below(random, piece.bytes - 1);
      rest.bytes -= piece.bytes;
    } else {
      continue;
    }
    pieces.push_back(rest);
  }
  std::shuffle(pieces.begin(), pieces.end(), random);
  return pieces;
}

}  // namespace tandem::testing_problems
