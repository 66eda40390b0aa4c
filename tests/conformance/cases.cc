#include "tests/conformance/cases.h"

#include <algorithm>
#include <initializer_list>

#include "graph/ops.h"

namespace tandem::conformance {
namespace {

using Dims = std::vector<int64_t>;

constexpr Type kReal[] = {Type::kF32, Type::kF16, Type::kBF16};
constexpr Type kWeightTypes[] = {Type::kF32,  Type::kF16,  Type::kBF16,
                                 Type::kQ4_0, Type::kQ4_1, Type::kQ8_0};
constexpr Type kIndexTypes[] = {Type::kI32, Type::kI64};
constexpr Arrangement kPacked = Arrangement::kPacked, kSliced = Arrangement::kSliced,
                      kPermuted = Arrangement::kPermuted, kTransposed = Arrangement::kTransposed;

Operand Activation(Dims dims, Arrangement arrangement = kPacked, Values values = Values::kModest) {
  return {.dims = std::move(dims), .values = values, .arrangement = arrangement};
}
Operand Outliers(Dims dims, Arrangement arrangement = kPacked) {
  return Activation(std::move(dims), arrangement, Values::kNormal);
}
Operand Weight(Type type, Dims dims, bool constant = true) {
  return {.type = type, .dims = std::move(dims), .values = Values::kModest, .constant = constant};
}
Operand Ids(Type type, Dims dims, int64_t range) {
  return {.type = type, .dims = std::move(dims), .values = Values::kIds, .range = range};
}
Operand Positions(Dims dims, int64_t range) {
  return {
      .type = Type::kI32, .dims = std::move(dims), .values = Values::kPositions, .range = range};
}
Operand Absent(Type type = Type::kF32) { return {.type = type, .present = false}; }
Operand Planned(Operand operand, Dims largest) {
  operand.largest = std::move(largest);
  return operand;
}

// Collects the cases of one op.
class Table {
 public:
  Table(const OpDefinition& op, uint64_t seed) : op_(op), seed_(seed) {}

  Case& Add(std::vector<Operand> inputs, std::vector<double> attributes = {}) {
    Case c;
    c.op = &op_;
    c.inputs = std::move(inputs);
    for (size_t i = 0; i < op_.attributes.size(); ++i)
      c.attributes.push_back(i < attributes.size() ? attributes[i] : op_.attributes[i].value);
    c.seed = seed_ + 0x100000001B3ull * (cases_.size() + 1);
    cases_.push_back(std::move(c));
    return cases_.back();
  }
  void AddLarge(std::vector<Operand> inputs, std::vector<double> attributes = {}) {
    Add(std::move(inputs), std::move(attributes)).extent = Extent::kLarge;
  }
  void AddModel(std::vector<Operand> inputs, std::vector<double> attributes = {}) {
    Add(std::move(inputs), std::move(attributes)).extent = Extent::kModel;
  }
  void AddInPlace(std::vector<Operand> inputs, std::vector<double> attributes = {}) {
    Add(std::move(inputs), std::move(attributes)).in_place = true;
  }

  std::vector<Case> Take() && {
    std::stable_sort(cases_.begin(), cases_.end(),
                     [](const Case& a, const Case& b) { return a.extent < b.extent; });
    return std::move(cases_);
  }

 private:
  const OpDefinition& op_;
  uint64_t seed_;
  std::vector<Case> cases_;
};

void AddMatmuls(Table& table) {
  for (const Type type : kWeightTypes)
    for (const double exact : {1.0, 0.0})
      for (const bool constant : {true, false}) {
        const bool is_block = Info(type).is_block;
        const auto add = [&](Operand x, Dims w) -> Case& {
          return table.Add({std::move(x), Weight(type, std::move(w), constant)}, {exact});
        };
        add(Outliers({1, 32}), {1, 32});
        add(Outliers({3, 96}), {5, 96});
        add(Outliers({1, 64}), {67, 64});
        add(Outliers({7, 576}), {48, 576});
        add(Outliers({33, 160}), {19, 160});
        add(Activation({101, 96}), {32, 96});
        add(Activation({1, 1536}), {40, 1536});
        if (!is_block) {
          add(Outliers({1, 1}), {1, 1});
          add(Outliers({3, 37}), {5, 37});
          add(Outliers({2, 577}), {9, 577});
          add(Outliers({2, 0}), {3, 0});
        }
        add(Outliers({0, 32}), {5, 32});
        add(Outliers({3, 32}), {0, 32});
        // Batches: of x alone, broadcast, in groups, and both.
        add(Outliers({2, 3, 64}), {5, 64});
        add(Outliers({3, 4, 64}), {1, 5, 64});
        add(Outliers({4, 5, 64}), {2, 7, 64});
        add(Outliers({2, 6, 3, 64}), {1, 3, 5, 64});
        add(Outliers({0, 3, 64}), {5, 64});
        // Views.
        add(Outliers({5, 96}, kSliced), {6, 96});
        add(Outliers({4, 3, 64}, kPermuted), {2, 5, 64});
        add(Outliers({6, 64}, kTransposed), {5, 64});
        if (!constant) {
          for (const Arrangement arrangement : {kSliced, kPermuted, kTransposed}) {
            if (is_block && arrangement == kTransposed) continue;
            Operand w = Weight(type, {2, 5, 64}, false);
            w.arrangement = arrangement;
            table.Add({Outliers({4, 3, 64}), w}, {exact});
          }
        }
        // Asked for a whole prompt, run with less.
        for (const int64_t tokens : {1, 5, 64})
          add(Planned(Outliers({tokens, 96}), {128, 96}), {40, 96});
        if (constant)
          table.AddLarge({Outliers({130, 576}), Weight(type, {320, 576}, true)}, {exact});
        if (constant)
          table.AddLarge({Activation({1, 576}), Weight(type, {6144, 576}, true)}, {exact});
        if (!constant || type == Type::kF32 || type == Type::kBF16) continue;
        table.AddModel({Outliers({512, 576}), Weight(type, {1536, 576}, true)}, {exact});
        table.AddModel({Activation({1, 576}), Weight(type, {49152, 576}, true)}, {exact});
      }
}

void AddRows(Table& table) {
  for (const Type type : kWeightTypes)
    for (const Type ids : kIndexTypes)
      for (const bool constant : {true, false}) {
        const auto add = [&](Dims w, Dims ids_dims) {
          const int64_t range = w[0];
          table.Add({Weight(type, std::move(w), constant), Ids(ids, std::move(ids_dims), range)});
        };
        add({1, 32}, {1});
        add({7, 64}, {5});
        add({300, 96}, {2, 3});
        add({300, 576}, {33});
        add({3, 32}, {7});
        add({3, 32}, {});
        add({3, 32}, {0});
        if (!Info(type).is_block) add({9, 37}, {4});
        table.Add({Weight(type, {50, 64}, constant), Planned(Ids(ids, {3}, 50), {64})});
        if (!constant) {
          Operand view = Weight(type, {9, 64}, false);
          view.arrangement = kSliced;
          table.Add({view, Ids(ids, {4}, 9)});
        }
        if (constant && ids == Type::kI32)
          table.AddLarge({Weight(type, {8192, 576}, true), Ids(ids, {101}, 8192)});
      }
}

void AddRmsNorms(Table& table) {
  const auto with_weights = [&](const Operand& x) {
    const int64_t columns = x.dims.back();
    table.Add({x, Absent()});
    table.Add({x, Weight(Type::kF32, {columns}, true)});
    table.Add({x, Weight(Type::kF32, {columns}, false)});
  };
  with_weights(Outliers({1, 1}));
  with_weights(Outliers({1, 576}));
  with_weights(Outliers({3, 37}));
  with_weights(Outliers({2, 3, 64}));
  with_weights(Outliers({0, 64}));
  with_weights(Outliers({5, 96}, kSliced));
  with_weights(Outliers({3, 4, 32}, kPermuted));
  with_weights(Outliers({6, 40}, kTransposed));
  with_weights(Planned(Outliers({2, 64}), {64, 64}));
  with_weights(Outliers({64}));
  table.Add({Outliers({3, 64}), Absent()}, {0.5});
  table.AddInPlace({Outliers({5, 96}), Weight(Type::kF32, {96}, true)});
  table.AddLarge({Outliers({301, 2048}), Weight(Type::kF32, {2048}, true)});
}

void AddRopes(Table& table) {
  for (const double halves : {0.0, 1.0}) {
    const auto attributes = [&](double rotated, double base = 10000, double scale = 1) {
      return std::vector<double>{rotated, base, scale, halves};
    };
    table.Add({Outliers({1, 1, 2}), Positions({1}, 1), Absent()}, attributes(0));
    table.Add({Outliers({1, 9, 64}), Positions({1}, 2000), Absent()}, attributes(0, 100000));
    table.Add({Outliers({5, 3, 64}), Positions({5}, 300), Absent()}, attributes(0));
    table.Add({Outliers({3, 2, 80}), Positions({3}, 60), Absent()}, attributes(48));
    table.Add({Outliers({3, 2, 36}), Positions({3}, 60), Absent()}, attributes(18, 500, 0.25));
    table.Add({Outliers({4, 2, 64}), Positions({4}, 90), Weight(Type::kF32, {32})},
              attributes(0, 10000, 0.5));
    table.Add({Outliers({4, 2, 64}), Positions({4}, 90), Weight(Type::kF32, {32}, false)},
              attributes(64));
    table.Add({Outliers({0, 2, 64}), Positions({0}, 90), Absent()}, attributes(0));
    table.Add({Outliers({7, 3, 64}, kSliced), Positions({7}, 40), Absent()}, attributes(0));
    table.Add({Outliers({7, 3, 64}, kPermuted), Positions({7}, 40), Absent()}, attributes(0));
    table.Add(
        {Planned(Outliers({2, 3, 64}), {64, 3, 64}), Planned(Positions({2}, 40), {64}), Absent()},
        attributes(0));
    table.AddInPlace({Outliers({5, 3, 64}), Positions({5}, 300), Absent()}, attributes(0));
    table.AddInPlace({Outliers({5, 3, 40}), Positions({5}, 300), Absent()}, attributes(20));
    table.AddLarge({Outliers({257, 32, 128}), Positions({257}, 4000), Absent()},
                   attributes(0, 500000));
  }
}

void AddSoftmaxes(Table& table) {
  const auto mask = [](Dims dims) {
    Operand operand = Activation(std::move(dims));
    operand.values = Values::kMask;
    return operand;
  };
  const auto with_masks = [&](const Operand& x, double scale) {
    const size_t rank = x.dims.size();
    table.Add({x, Absent()}, {scale});
    if (rank >= 2) table.Add({x, mask({x.dims[rank - 2], x.dims[rank - 1]})}, {scale});
  };
  with_masks(Activation({1, 1}), 1);
  with_masks(Outliers({1, 33}), 0.125);
  with_masks(Activation({3, 37}), 1);
  with_masks(Activation({9, 5, 64}), 0.125);
  with_masks(Activation({2, 3, 4, 17}), 0.5);
  with_masks(Activation({0, 8}), 1);
  with_masks(Activation({5, 40}, kSliced), 1);
  with_masks(Activation({3, 4, 32}, kPermuted), 1);
  with_masks(Activation({6, 40}, kTransposed), 1);
  with_masks(Activation({50}), 1);
  table.Add({Planned(Activation({4, 3, 20}), {4, 64, 512}), Absent()}, {0.125});
  table.AddInPlace({Activation({3, 5, 33}), mask({5, 33})}, {0.125});
  table.AddLarge({Activation({9, 101, 513}), mask({101, 513})}, {0.125});
}

void AddAttentions(Table& table) {
  const Type types[] = {Type::kF32, Type::kF16};
  for (const Type k_type : types)
    for (const Type v_type : types) {
      struct Sizes {
        int64_t tokens, heads, d, keys, groups, e;
      };
      const auto key = [&](Dims dims, Arrangement arrangement = kPacked) {
        Operand operand = Activation(std::move(dims), arrangement);
        operand.type = k_type;
        return operand;
      };
      const auto value = [&](Dims dims, Arrangement arrangement = kPacked) {
        Operand operand = Activation(std::move(dims), arrangement);
        operand.type = v_type;
        return operand;
      };
      for (const Sizes s :
           {Sizes{1, 1, 1, 1, 1, 1}, Sizes{1, 9, 64, 65, 3, 64}, Sizes{5, 4, 32, 17, 4, 32},
            Sizes{7, 6, 40, 33, 2, 24}, Sizes{3, 4, 37, 11, 1, 5}, Sizes{33, 2, 64, 33, 1, 64}}) {
        const Operand q = Activation({s.tokens, s.heads, s.d});
        const Operand k = key({s.keys, s.groups, s.d}), v = value({s.keys, s.groups, s.e});
        table.Add({q, k, v, Absent(Type::kI32)});
        table.Add({q, k, v, Positions({s.tokens}, s.keys)}, {0.2});
      }
      table.Add({Activation({0, 4, 32}), key({8, 2, 32}), value({8, 2, 32}), Positions({0}, 8)});
      // Views of a fused product, of a cache with all heads in a row, and heads first.
      table.Add({Activation({5, 4, 32}, kSliced), key({9, 2, 32}, kSliced),
                 value({9, 2, 32}, kSliced), Positions({5}, 9)});
      table.Add({Activation({5, 4, 32}, kPermuted), key({9, 2, 32}, kPermuted),
                 value({9, 2, 32}, kPermuted), Positions({5}, 9)});
      // Asked for a long prompt, run with less.
      for (const int64_t tokens : {1, 6})
        table.Add({Planned(Activation({tokens, 6, 64}), {128, 6, 64}),
                   Planned(key({40, 2, 64}), {512, 2, 64}),
                   Planned(value({40, 2, 64}), {512, 2, 64}),
                   Planned(Positions({tokens}, 40), {128})});
      // Some tokens see few keys.
      table.Add(
          {Activation({4, 2, 64}), key({100, 2, 64}), value({100, 2, 64}), Positions({4}, 3)});
      table.AddLarge({Activation({101, 9, 64}), key({301, 3, 64}), value({301, 3, 64}),
                      Positions({101}, 301)});
      table.AddLarge(
          {Activation({1, 9, 64}), key({2048, 3, 64}), value({2048, 3, 64}), Positions({1}, 2048)});
    }
}

// Ops on each element of one tensor.
void AddUnary(Table& table, const std::vector<double>& attributes) {
  for (const Dims& dims : {Dims{1}, Dims{577}, Dims{3, 37}, Dims{2, 3, 4, 5}, Dims{0, 7}})
    table.Add({Outliers(dims)}, attributes);
  table.Add({Outliers({})}, attributes);
  table.Add({Outliers({5, 33}, kSliced)}, attributes);
  table.Add({Outliers({3, 4, 9}, kPermuted)}, attributes);
  table.Add({Outliers({6, 35}, kTransposed)}, attributes);
  table.Add({Planned(Outliers({3, 37}), {64, 37})}, attributes);
  table.AddInPlace({Outliers({7, 93})}, attributes);
  table.AddLarge({Outliers({301, 1536})}, attributes);
}

void AddSwiglus(Table& table) {
  for (const Dims& dims : {Dims{1}, Dims{577}, Dims{3, 37}, Dims{2, 3, 4, 5}, Dims{0, 7}})
    table.Add({Outliers(dims), Outliers(dims)});
  for (const Arrangement arrangement : {kSliced, kPermuted, kTransposed}) {
    table.Add({Outliers({3, 4, 9}, arrangement), Outliers({3, 4, 9})});
    table.Add({Outliers({3, 4, 9}), Outliers({3, 4, 9}, arrangement)});
  }
  table.Add({Planned(Outliers({3, 37}), {64, 37}), Planned(Outliers({3, 37}), {64, 37})});
  table.AddInPlace({Outliers({7, 93}), Outliers({7, 93})});
  table.AddLarge({Outliers({301, 1536}), Outliers({301, 1536})});
}

void AddBinary(Table& table) {
  const auto pair = [&](Operand a, Operand b) { table.Add({std::move(a), std::move(b)}); };
  pair(Outliers({}), Outliers({}));
  pair(Outliers({577}), Outliers({577}));
  pair(Outliers({3, 37}), Outliers({3, 37}));
  pair(Outliers({0, 7}), Outliers({0, 7}));
  // Broadcasts: a row, a column, a scalar, in the middle, and of lower rank.
  pair(Outliers({3, 37}), Outliers({37}));
  pair(Outliers({3, 37}), Outliers({1, 37}));
  pair(Outliers({3, 37}), Outliers({3, 1}));
  pair(Outliers({3, 37}), Outliers({1}));
  pair(Outliers({3, 37}), Outliers({}));
  pair(Outliers({2, 3, 4, 5}), Outliers({2, 1, 4, 1}));
  pair(Outliers({2, 3, 4, 5}), Outliers({3, 1, 5}));
  pair(Outliers({0, 7}), Outliers({7}));
  for (const bool constant : {true, false})
    pair(Outliers({5, 96}), Weight(Type::kF32, {96}, constant));
  pair(Outliers({5, 96}), Weight(Type::kF32, {5, 96}, true));
  for (const Arrangement arrangement : {kSliced, kPermuted, kTransposed}) {
    pair(Outliers({3, 4, 9}, arrangement), Outliers({3, 4, 9}));
    pair(Outliers({3, 4, 9}), Outliers({3, 4, 9}, arrangement));
  }
  pair(Planned(Outliers({3, 37}), {64, 37}), Planned(Outliers({3, 37}), {64, 37}));
  table.AddInPlace({Outliers({7, 93}), Outliers({7, 93})});
  table.AddInPlace({Outliers({7, 93}), Outliers({93})});
  table.AddLarge({Outliers({301, 1536}), Outliers({301, 1536})});
}

void AddCopies(Table& table) {
  for (const Type from : kReal) {
    const auto source = [&](Dims dims, Arrangement arrangement = kPacked) {
      Operand operand = Outliers(std::move(dims), arrangement);
      operand.type = from;
      return operand;
    };
    for (const double to : {-1.0, double(Type::kF32), double(Type::kF16), double(Type::kBF16)}) {
      for (const Dims& dims : {Dims{}, Dims{1}, Dims{577}, Dims{3, 37}, Dims{0, 7}})
        table.Add({source(dims)}, {to});
      for (const bool constant : {true, false}) table.Add({Weight(from, {5, 64}, constant)}, {to});
      table.Add({source({5, 33}, kSliced)}, {to});
      table.Add({source({3, 4, 9}, kPermuted)}, {to});
      table.Add({source({2, 3, 4, 5}, kPermuted)}, {to});
      table.Add({source({6, 35}, kTransposed)}, {to});
      table.Add({source({2, 3, 4, 5}, kTransposed)}, {to});
      table.Add({Planned(source({3, 37}), {64, 37})}, {to});
      table.AddLarge({source({301, 9, 64}, kPermuted)}, {to});
    }
  }
}

void AddUpdates(Table& table) {
  for (const Type state : kReal)
    for (const Type rows : kReal)
      for (const Type ids : kIndexTypes) {
        const auto of = [](Type type, Dims dims) {
          Operand operand = Activation(std::move(dims));
          operand.type = type;
          return operand;
        };
        table.Add({of(state, {1, 1}), of(rows, {1, 1}), Ids(ids, {1}, 1)});
        table.Add({of(state, {9, 64}), of(rows, {3, 64}), Ids(ids, {3}, 9)});
        table.Add({of(state, {40, 3, 32}), of(rows, {17, 3, 32}), Ids(ids, {17}, 40)});
        table.Add({of(state, {5, 37}), of(rows, {5, 37}), Ids(ids, {5}, 5)});
        table.Add({of(state, {5, 37}), of(rows, {0, 37}), Ids(ids, {0}, 5)});
        table.Add({of(state, {64, 96}), Planned(of(rows, {2, 96}), {32, 96}),
                   Planned(Ids(ids, {2}, 64), {32})});
        for (const Arrangement arrangement : {kSliced, kPermuted}) {
          Operand view = of(rows, {4, 3, 32});
          view.arrangement = arrangement;
          table.Add({of(state, {9, 3, 32}), view, Ids(ids, {4}, 9)});
        }
        if (ids == Type::kI32)
          table.AddLarge({of(state, {2048, 192}), of(rows, {101, 192}), Ids(ids, {101}, 2048)});
      }
}

void AddArgmaxes(Table& table) {
  for (const Values values : {Values::kNormal, Values::kTies}) {
    for (const Dims& dims : {Dims{1}, Dims{577}, Dims{3, 37}, Dims{2, 3, 64}, Dims{0, 7}})
      table.Add({Activation(dims, kPacked, values)});
    table.Add({Activation({5, 33}, kSliced, values)});
    table.Add({Activation({3, 4, 9}, kPermuted, values)});
    table.Add({Activation({6, 35}, kTransposed, values)});
    table.Add({Planned(Activation({2, 64}, kPacked, values), {64, 64})});
    table.AddLarge({Activation({5, 49152}, kPacked, values)});
  }
}

enum UserAttribute { kUserFactor };
constexpr AttributeSpec kUserAttributes[] = {{"factor", 1.0}};

Result<OpOutput> InferUser(const InferenceContext& context) {
  const OpInput& x = context.inputs[0];
  for (const OpInput& input : context.inputs)
    if (input.present && (input.type != Type::kF32 || !(input.shape == x.shape)))
      return Fail(ErrorCode::kInvalid, "squares: {} {} next to x {} {}", Info(input.type).name,
                  ToString(input.shape, context.symbols), Info(x.type).name,
                  ToString(x.shape, context.symbols));
  return OpOutput{x.type, x.shape};
}

OpCost CostUser(std::span<const Layout>, const Layout& output) {
  const auto elements = static_cast<double>(output.Elements());
  return {.flops = 3 * elements, .bytes = 12 * elements};
}

Result<void> ReferenceUser(std::span<const HostTensor> inputs, const HostTensor& output,
                           std::span<const double> attributes) {
  std::vector<double> values = Decode(inputs[0]);
  const bool has_z = inputs.size() > 1 && inputs[1].data != nullptr;
  const std::vector<double> z = has_z ? Decode(inputs[1]) : std::vector<double>();
  for (size_t i = 0; i < values.size(); ++i)
    values[i] = attributes[kUserFactor] * values[i] * values[i] + (has_z ? z[i] : 0.0);
  Encode(values, output);
  return {};
}

constexpr OpDefinition kSquares{
    .name = "squares",
    .required_inputs = 1,
    .optional_inputs = 1,
    .attributes = kUserAttributes,
    .infer = InferUser,
    .cost = CostUser,
    .reference = ReferenceUser,
};

void AddUsers(Table& table) {
  for (const Dims& dims : {Dims{1}, Dims{3, 37}, Dims{2, 3, 4, 5}, Dims{0, 7}}) {
    table.Add({Activation(dims), Absent()}, {0.5});
    table.Add({Activation(dims), Activation(dims)}, {2});
    table.Add({Activation(dims), Weight(Type::kF32, dims, true)}, {2});
  }
  table.Add({Activation({5, 33}, kSliced), Activation({5, 33}, kTransposed)}, {2});
}

}  // namespace

const OpDefinition& UserOp() { return kSquares; }

std::vector<Case> CasesFor(const OpDefinition& op, uint64_t seed) {
  Table table(op, seed);
  if (&op == &ops::kMatmul) AddMatmuls(table);
  if (&op == &ops::kRows) AddRows(table);
  if (&op == &ops::kRmsNorm) AddRmsNorms(table);
  if (&op == &ops::kRope) AddRopes(table);
  if (&op == &ops::kSoftmax) AddSoftmaxes(table);
  if (&op == &ops::kAttention) AddAttentions(table);
  if (&op == &ops::kSilu) AddUnary(table, {});
  if (&op == &ops::kSwiglu) AddSwiglus(table);
  if (&op == &ops::kAdd || &op == &ops::kMul) AddBinary(table);
  if (&op == &ops::kScale) {
    AddUnary(table, {0.3, -1.7});
    AddUnary(table, {});
  }
  if (&op == &ops::kCopy) AddCopies(table);
  if (&op == &ops::kUpdateRows) AddUpdates(table);
  if (&op == &ops::kArgmax) AddArgmaxes(table);
  if (&op == &kSquares) AddUsers(table);
  return std::move(table).Take();
}

}  // namespace tandem::conformance
