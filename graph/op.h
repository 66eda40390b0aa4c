// What an op is: a definition, not an enumerator.
//
// An OpDefinition says which shape an op makes, what it may do in place, what it costs and what
// it computes (the reference kernel, in double). Those in ops.h are the built-in ones; a user
// defines another by filling in a constant of this type and passing it to GraphBuilder::Add.
// Devices look kernels up by name and types and may decline.
//
// Definitions are immutable and live as long as the program; all functions are pure and thread
// safe.
#pragma once

#include <cstddef>
#include <span>
#include <string_view>
#include <vector>

#include "graph/result.h"
#include "graph/shape.h"

namespace tandem {

// A tensor in memory that the calling thread can read: a layout and where its first element is.
struct HostTensor {
  Layout layout;
  std::byte* data = nullptr;  // Null only where there is no element.
};

// What an op makes.
struct OpOutput {
  Type type = Type::kF32;
  Shape shape;
};

struct OpInput {
  Type type = Type::kF32;
  Shape shape;
  bool present = true;  // False for an optional input that was not given.
};

struct InferenceContext {
  std::span<const OpInput> inputs;
  std::span<const double> attributes;
  std::span<const std::string> symbols;  // Names, for messages.
};

struct OpCost {
  double flops = 0;  // Multiply and add count as two.
  double bytes = 0;  // Read and written, each tensor once.
};

struct AttributeSpec {
  std::string_view name;
  double value;  // Where the caller gives none.
};

struct OpDefinition {
  std::string_view name;  // "matmul"; unique.
  int required_inputs = 1;
  int optional_inputs = 0;                    // After the required ones; each may be absent.
  std::span<const AttributeSpec> attributes;  // Numbers; an index into them is an enum in ops.h.

  // Shape and type of the output, or an error that names the op and both shapes.
  Result<OpOutput> (*infer)(const InferenceContext&) = nullptr;
  // Input whose bytes the output may overwrite when nobody reads it later; -1 for none.
  // The output then has the same type and dimensions as that input.
  int in_place_input = -1;
  // Input that is a version of a state: the output is the next version, in the same bytes.
  // The op reads what it does not write. -1 for ops that change no state.
  int state_input = -1;
  OpCost (*cost)(std::span<const Layout> inputs, const Layout& output) = nullptr;
  // The meaning of the op, in double: inputs are decoded, computed, and rounded once into the
  // output. `inputs[i].data` is null for an absent optional input with zero elements. Handles
  // any strides and zero sizes. Errors only on data that no shape rule can see (an id out of
  // range), and then writes nothing more.
  Result<void> (*reference)(std::span<const HostTensor> inputs, const HostTensor& output,
                            std::span<const double> attributes) = nullptr;
};

}  // namespace tandem
