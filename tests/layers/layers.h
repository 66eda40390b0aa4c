// Includes go down the layers only. This checks the text of the sources, so that it also sees
// what compiles by accident.
//
//   tools > models > scheduler > backends > allocator > graph;  tests includes them all
//
// and more narrowly: models includes graph alone; allocator includes graph/result.h alone; what is
// in backends/X includes nothing of backends/Y; tests/ is included by tests only (*_test.cc,
// *_fuzz.cc, *_bench.cc anywhere). Files of the tree are named from its root.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace tandem::layers {

struct Violation {
  std::string file;  // From the root of the tree.
  int line = 0;
  std::string include;
  std::string reason;
};

// One file with its contents; `path` is from the root of the tree.
std::vector<Violation> CheckSource(std::string_view path, std::string_view contents);

// All sources below `root` but those of third_party/ and of hidden and generated folders, from
// the root and in order.
std::vector<std::string> Sources(const std::filesystem::path& root);

}  // namespace tandem::layers
