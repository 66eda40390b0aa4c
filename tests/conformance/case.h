// One execution of an op: what goes in, how it is laid out, and how it is asked for.
//
// A Case is plain data; Prepare() makes the bytes from its seed alone, computes the result with the
// op's reference kernel, and the error that a device may make on each element (bounds.h). The same
// case gives the same bytes everywhere, so that a name and a seed are a bug report.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "graph/op.h"
#include "graph/shape.h"

namespace tandem::conformance {

// What the elements are.
enum class Values : uint8_t {
  kNormal,     // Standard normal, one of 64 a thousand times larger.
  kModest,     // Standard normal, one of 64 ten times larger: what exponentials can take.
  kTies,       // Few different values, so that the largest is there more than once.
  kIds,        // Whole numbers in [0, range), no two equal while there are enough.
  kPositions,  // Whole numbers in [0, range), growing.
  kMask,       // 0 or minus infinity, in each row at least one 0.
  kFactors,    // Between 1 and 8.
};

// How an operand lies in the bytes that it is a view of; gaps hold NaNs.
enum class Arrangement : uint8_t {
  kPacked,      // Contiguous.
  kSliced,      // Some columns of a wider tensor: rows have gaps, and it begins off any alignment.
  kPermuted,    // The first two dimensions (of three or more) are exchanged: [T,H,D] as [H,T,D].
  kTransposed,  // The last two dimensions are exchanged: the last one has a stride.
};

// What a case costs.
enum class Extent : uint8_t {
  kSmall,
  kLarge,  // Enough for every thread and every tile; not for simulated devices.
  kModel,  // As in a real model; only when all is asked for.
};

struct Operand {
  Type type = Type::kF32;
  std::vector<int64_t> dims{};
  Values values = Values::kNormal;
  Arrangement arrangement = Arrangement::kPacked;
  int64_t range = 0;      // kIds, kPositions.
  bool present = true;    // False: an optional input that is not given.
  bool constant = false;  // A weight: the device may want it packed.
  // The largest dims of the size box, where the kernel is asked for more than this run needs.
  std::vector<int64_t> largest{};
};

struct Case {
  const OpDefinition* op = nullptr;
  std::vector<double> attributes;
  std::vector<Operand> inputs;
  bool in_place = false;  // The output is written over the op's in-place input.
  Extent extent = Extent::kSmall;
  uint64_t seed = 0;

  // "matmul F32[3,96] sliced, Q4_1[5,96] constant; exact=1".
  std::string Name() const;
};

// A tensor's bytes as a view of something larger.
struct Arranged {
  Layout layout;
  std::vector<std::byte> bytes;  // All that the view looks at, gaps included.
  int64_t offset = 0;            // Of the first element.

  HostTensor host() { return {layout, bytes.data() + offset}; }
};

// A tensor of that type, size and arrangement, full of gaps' NaNs.
Arranged Arrange(Type type, const std::vector<int64_t>& dims, Arrangement arrangement);

struct Prepared {
  std::vector<Arranged> inputs;
  std::vector<Layout> query_inputs;  // As the kernel is asked for.
  Layout query_output;
  Arranged want;              // Packed; what the reference kernel makes.
  std::vector<double> bound;  // Parallel to the elements of `want`, row-major.
};

// Errors: those of the op's shape rule and reference kernel, with the case's name.
Result<Prepared> Prepare(const Case& c);

// The shape rule of the op on these operands, `largest` taken where asked for.
Result<Layout> OutputLayout(const Case& c, bool largest);

// The elements of a tensor, row-major; and back, rounded to its type.
std::vector<double> Decode(const HostTensor& tensor);
void Encode(const std::vector<double>& values, const HostTensor& tensor);

}  // namespace tandem::conformance
