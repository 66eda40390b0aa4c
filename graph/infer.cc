#include "graph/infer.h"

#include <cmath>

#include "graph/ops.h"

namespace tandem::infer {
namespace {

std::string Describe(const InferenceContext& c, size_t input) {
  return fmt::format("{} {}", Info(c.inputs[input].type).name,
                     ToString(c.inputs[input].shape, c.symbols));
}

bool IsReal(Type type) { return Info(type).is_float || Info(type).is_block; }
bool IsId(Type type) { return type == Type::kI32 || type == Type::kI64; }

Result<void> NeedType(const InferenceContext& c, size_t input, std::string_view name, bool fits,
                      std::string_view wanted) {
  if (fits) return {};
  return Fail(ErrorCode::kInvalid, "{} is {}, but must be {}", name, Describe(c, input), wanted);
}
Result<void> NeedF32(const InferenceContext& c, size_t input, std::string_view name) {
  return NeedType(c, input, name, c.inputs[input].type == Type::kF32, "F32");
}
Result<void> NeedRank(const InferenceContext& c, size_t input, std::string_view name, int least,
                      int most) {
  const int rank = c.inputs[input].shape.rank;
  if (rank >= least && rank <= most) return {};
  if (least == most)
    return Fail(ErrorCode::kInvalid, "{} is {}, but must have rank {}", name, Describe(c, input),
                least);
  return Fail(ErrorCode::kInvalid, "{} is {}, but must have rank {} to {}", name,
              Describe(c, input), least, most);
}
bool IsGiven(const InferenceContext& c, size_t input) {
  return input < c.inputs.size() && c.inputs[input].present;
}

}  // namespace

Result<OpOutput> Matmul(const InferenceContext& c) {
  TANDEM_CHECK(NeedF32(c, 0, "x"));
  TANDEM_CHECK(NeedType(c, 1, "w", IsReal(c.inputs[1].type), "real or in blocks"));
  TANDEM_CHECK(NeedRank(c, 0, "x", 2, kMaxRank));
  TANDEM_CHECK(NeedRank(c, 1, "w", 2, kMaxRank));
  const Shape &x = c.inputs[0].shape, &w = c.inputs[1].shape;
  const auto both = [&] { return fmt::format("x {}, w {}", Describe(c, 0), Describe(c, 1)); };
  if (x.Last() != w.Last()) return Fail(ErrorCode::kInvalid, "inner sizes differ: {}", both());
  if (w.rank > x.rank) return Fail(ErrorCode::kInvalid, "w has more batch dimensions: {}", both());
  for (int i = 0; i < w.rank - 2; ++i) {
    const Dim have = x[x.rank - w.rank + i], want = w[i];
    const bool divides =
        have.IsConstant() && want.IsConstant() && want.factor > 0 && have.factor % want.factor == 0;
    if (have != want && want != Dim(1) && !divides)
      return Fail(ErrorCode::kInvalid, "batch sizes do not fit: {}", both());
  }
  OpOutput output{Type::kF32, x};
  output.shape[x.rank - 1] = w[w.rank - 2];
  return output;
}

Result<OpOutput> Rows(const InferenceContext& c) {
  TANDEM_CHECK(NeedType(c, 0, "table", IsReal(c.inputs[0].type), "real or in blocks"));
  TANDEM_CHECK(NeedType(c, 1, "ids", IsId(c.inputs[1].type), "I32 or I64"));
  TANDEM_CHECK(NeedRank(c, 0, "table", 2, 2));
  TANDEM_CHECK(NeedRank(c, 1, "ids", 0, kMaxRank - 1));
  OpOutput output{Type::kF32, c.inputs[1].shape};
  output.shape[output.shape.rank++] = c.inputs[0].shape.Last();
  return output;
}

Result<OpOutput> RmsNorm(const InferenceContext& c) {
  TANDEM_CHECK(NeedF32(c, 0, "x"));
  TANDEM_CHECK(NeedRank(c, 0, "x", 1, kMaxRank));
  if (IsGiven(c, 1)) {
    TANDEM_CHECK(NeedF32(c, 1, "weight"));
    if (c.inputs[1].shape != Shape{c.inputs[0].shape.Last()})
      return Fail(ErrorCode::kInvalid, "weight {} does not fit x {}", Describe(c, 1),
                  Describe(c, 0));
  }
  return OpOutput{Type::kF32, c.inputs[0].shape};
}

Result<OpOutput> Rope(const InferenceContext& c) {
  TANDEM_CHECK(NeedF32(c, 0, "x"));
  TANDEM_CHECK(NeedRank(c, 0, "x", 3, 3));
  TANDEM_CHECK(NeedType(c, 1, "positions", c.inputs[1].type == Type::kI32, "I32"));
  const Shape& x = c.inputs[0].shape;
  if (c.inputs[1].shape != Shape{x[0]})
    return Fail(ErrorCode::kInvalid, "positions {} do not fit x {}", Describe(c, 1),
                Describe(c, 0));
  if (!x[2].IsConstant())
    return Fail(ErrorCode::kInvalid, "the last size of x {} must be constant", Describe(c, 0));
  const double given = c.attributes[ops::kRopeDims];
  const double dims = given == 0 ? static_cast<double>(x[2].factor) : given;
  if (!(dims >= 2 && dims <= static_cast<double>(x[2].factor)) || std::fmod(dims, 2) != 0)
    return Fail(ErrorCode::kInvalid, "can not rotate {} of the last size of x {}", dims,
                Describe(c, 0));
  if (!(c.attributes[ops::kRopeBase] > 0) || !std::isfinite(c.attributes[ops::kRopeScale]))
    return Fail(ErrorCode::kInvalid, "base {} or scale {} is no sensible number",
                c.attributes[ops::kRopeBase], c.attributes[ops::kRopeScale]);
  if (IsGiven(c, 2)) {
    TANDEM_CHECK(NeedF32(c, 2, "factors"));
    if (c.inputs[2].shape != Shape{static_cast<int64_t>(dims / 2)})
      return Fail(ErrorCode::kInvalid, "factors {} are not one for each of {} pairs",
                  Describe(c, 2), dims / 2);
  }
  return OpOutput{Type::kF32, x};
}

Result<OpOutput> Softmax(const InferenceContext& c) {
  TANDEM_CHECK(NeedF32(c, 0, "x"));
  TANDEM_CHECK(NeedRank(c, 0, "x", 1, kMaxRank));
  if (IsGiven(c, 1)) {
    TANDEM_CHECK(NeedF32(c, 1, "mask"));
    const Shape& x = c.inputs[0].shape;
    if (x.rank < 2 || c.inputs[1].shape != Shape{x[x.rank - 2], x[x.rank - 1]})
      return Fail(ErrorCode::kInvalid, "mask {} does not fit x {}", Describe(c, 1), Describe(c, 0));
  }
  return OpOutput{Type::kF32, c.inputs[0].shape};
}

Result<OpOutput> Attention(const InferenceContext& c) {
  TANDEM_CHECK(NeedF32(c, 0, "q"));
  for (const size_t i : {0, 1, 2})
    TANDEM_CHECK(NeedRank(c, i, i == 0 ? "q" : i == 1 ? "k" : "v", 3, 3));
  for (const size_t i : {1, 2}) {
    const Type type = c.inputs[i].type;
    TANDEM_CHECK(
        NeedType(c, i, i == 1 ? "k" : "v", type == Type::kF32 || type == Type::kF16, "F32 or F16"));
  }
  const Shape &q = c.inputs[0].shape, &k = c.inputs[1].shape, &v = c.inputs[2].shape;
  const auto all = [&] {
    return fmt::format("q {}, k {}, v {}", Describe(c, 0), Describe(c, 1), Describe(c, 2));
  };
  if (q[2] != k[2]) return Fail(ErrorCode::kInvalid, "widths of q and k differ: {}", all());
  if (k[0] != v[0] || k[1] != v[1])
    return Fail(ErrorCode::kInvalid, "k and v have other sizes: {}", all());
  const bool groups = q[1] == k[1] || (q[1].IsConstant() && k[1].IsConstant() && k[1].factor > 0 &&
                                       q[1].factor % k[1].factor == 0);
  if (!groups) return Fail(ErrorCode::kInvalid, "heads do not divide into groups: {}", all());
  if (IsGiven(c, 3)) {
    TANDEM_CHECK(NeedType(c, 3, "positions", c.inputs[3].type == Type::kI32, "I32"));
    if (c.inputs[3].shape != Shape{q[0]})
      return Fail(ErrorCode::kInvalid, "positions {} do not fit q {}", Describe(c, 3),
                  Describe(c, 0));
  }
  return OpOutput{Type::kF32, Shape{q[0], q[1], v[2]}};
}

Result<OpOutput> Like(const InferenceContext& c) {
  TANDEM_CHECK(NeedF32(c, 0, "x"));
  return OpOutput{Type::kF32, c.inputs[0].shape};
}

Result<OpOutput> SameShapes(const InferenceContext& c) {
  TANDEM_CHECK(NeedF32(c, 0, "gate"));
  TANDEM_CHECK(NeedF32(c, 1, "up"));
  if (c.inputs[0].shape != c.inputs[1].shape)
    return Fail(ErrorCode::kInvalid, "shapes differ: {} and {}", Describe(c, 0), Describe(c, 1));
  return OpOutput{Type::kF32, c.inputs[0].shape};
}

Result<OpOutput> Broadcast(const InferenceContext& c) {
  TANDEM_CHECK(NeedF32(c, 0, "a"));
  TANDEM_CHECK(NeedF32(c, 1, "b"));
  const Shape &a = c.inputs[0].shape, &b = c.inputs[1].shape;
  bool fits = b.rank <= a.rank;
  for (int i = 1; fits && i <= b.rank; ++i)
    fits = b[b.rank - i] == a[a.rank - i] || b[b.rank - i] == Dim(1);
  if (!fits)
    return Fail(ErrorCode::kInvalid, "b {} does not broadcast to a {}", Describe(c, 1),
                Describe(c, 0));
  return OpOutput{Type::kF32, a};
}

Result<OpOutput> Copy(const InferenceContext& c) {
  TANDEM_CHECK(NeedType(c, 0, "x", Info(c.inputs[0].type).is_float, "F32, F16 or BF16"));
  const double wanted = c.attributes[ops::kCopyType];
  OpOutput output{c.inputs[0].type, c.inputs[0].shape};
  if (wanted == -1) return output;
  if (!(wanted >= 0 && wanted < kTypeCount) || std::fmod(wanted, 1) != 0 ||
      !Info(static_cast<Type>(static_cast<int>(wanted))).is_float)
    return Fail(ErrorCode::kInvalid, "type {} is not F32, F16 or BF16", wanted);
  output.type = static_cast<Type>(static_cast<int>(wanted));
  return output;
}

Result<OpOutput> UpdateRows(const InferenceContext& c) {
  TANDEM_CHECK(NeedType(c, 0, "state", Info(c.inputs[0].type).is_float, "F32, F16 or BF16"));
  TANDEM_CHECK(NeedType(c, 1, "rows", Info(c.inputs[1].type).is_float, "F32, F16 or BF16"));
  TANDEM_CHECK(NeedType(c, 2, "ids", IsId(c.inputs[2].type), "I32 or I64"));
  TANDEM_CHECK(NeedRank(c, 0, "state", 1, kMaxRank));
  const Shape &state = c.inputs[0].shape, &rows = c.inputs[1].shape;
  bool fits = rows.rank == state.rank && c.inputs[2].shape == Shape{rows[0]};
  for (int i = 1; fits && i < state.rank; ++i) fits = rows[i] == state[i];
  if (!fits)
    return Fail(ErrorCode::kInvalid, "rows {} and ids {} do not fit state {}", Describe(c, 1),
                Describe(c, 2), Describe(c, 0));
  return OpOutput{c.inputs[0].type, state};
}

Result<OpOutput> Argmax(const InferenceContext& c) {
  TANDEM_CHECK(NeedF32(c, 0, "x"));
  TANDEM_CHECK(NeedRank(c, 0, "x", 1, kMaxRank));
  OpOutput output{Type::kI32, c.inputs[0].shape};
  --output.shape.rank;
  return output;
}

}  // namespace tandem::infer
