// attention: softmax(q k^T * scale) v, heads in groups that share keys and values.
//
// A few tokens (decoding) read the cache where it lies, one load of a key serving the heads of its
// group. Each group's rows are cut into parts of kPartRows, which members share; parts and the
// order in which they are added up depend on the sizes alone. Many tokens (a prompt) take the
// heads' queries six at a time against panels of keys and values that were widened once for a
// block of tokens, with the running maximum and sum of each row. Both leave out keys that no
// query at hand can see.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "backends/cpu/element_rows.h"
#include "backends/cpu/kernel.h"
#include "graph/ops.h"

namespace tandem::cpu {
namespace {

constexpr int64_t kFewTokens = 4;    // Up to here the cache is read in place.
constexpr int64_t kPartRows = 128;   // Of the cache, in one part.
constexpr int64_t kPanelKeys = 128;  // Keys widened at once for many tokens.
constexpr int64_t kBlockQueries = 96;
constexpr float kLowest = -std::numeric_limits<float>::infinity();

int64_t Ceil(int64_t n, int64_t by) { return (n + by - 1) / by; }
int64_t RoundUp(int64_t n, int64_t to) { return Ceil(n, to) * to; }

struct Problem {
  const KernelCall& call;
  int64_t tokens, heads, width, keys, groups, value_width, per_group;
  float scale;
  const TensorArg *q, *k, *v, *positions;

  explicit Problem(const KernelCall& c)
      : call(c),
        tokens(c.inputs[0].layout.dims[0]),
        heads(c.inputs[0].layout.dims[1]),
        width(c.inputs[0].layout.dims[2]),
        keys(c.inputs[1].layout.dims[0]),
        groups(c.inputs[1].layout.dims[1]),
        value_width(c.inputs[2].layout.dims[2]),
        per_group(groups == 0 ? 0 : heads / groups),
        q(&c.inputs[0]),
        k(&c.inputs[1]),
        v(&c.inputs[2]),
        positions(c.inputs.size() > 3 && c.inputs[3].buffer != nullptr ? &c.inputs[3] : nullptr) {
    const double asked = c.attributes[ops::kAttentionScale];
    scale = static_cast<float>(asked != 0 ? asked : 1.0 / std::sqrt(static_cast<double>(width)));
  }

  // Keys [0, n) are seen by a token.
  int64_t Visible(int64_t token) const {
    if (positions == nullptr) return keys;
    const int64_t position = ReadInteger(positions->layout.type,
                                         Data(*positions) + token * LastStride(positions->layout));
    return std::clamp<int64_t>(position, -1, keys - 1) + 1;
  }
};

bool IsCacheRow(const Layout& layout) {
  const int64_t element = layout.type == Type::kF16 ? 2 : layout.type == Type::kF32 ? 4 : 0;
  return element != 0 && layout.strides[2] == element && layout.dims[2] % kAttendMultiple == 0;
}
// Whether the form for few tokens can read these where they are.
bool ReadsInPlace(const Layout& q, const Layout& k, const Layout& v) {
  return HasFloatRows(q) && k.type == v.type && IsCacheRow(k) && IsCacheRow(v);
}

// ---- Few tokens -------------------------------------------------------------------------------

struct FewScratch {
  int64_t parts;        // Of one group and token.
  int64_t part_floats;  // Results of one part: heads x (value_width + 2).
  int64_t each;         // Bytes for a member: scores.
  int64_t shared;

  FewScratch(int64_t tokens, int64_t keys, int64_t groups, int64_t per_group, int64_t value_width)
      : parts(std::max<int64_t>(1, Ceil(keys, kPartRows))),
        part_floats(per_group * (value_width + 2)),
        each(per_group * kPartRows * 4),
        shared(RoundUp(std::min(tokens, kFewTokens) * groups * parts * part_floats * 4, 64)) {}
};

int Members(const KernelCall& call, int64_t shared, int64_t each) {
  if (each == 0) return 1;
  return static_cast<int>(std::clamp<int64_t>((call.scratch_bytes - shared) / each, 1, INT32_MAX));
}

void Few(const KernelContext& context, const Problem& p) {
  const FewScratch plan(p.tokens, p.keys, p.groups, p.per_group, p.value_width);
  const bool half = p.k->layout.type == Type::kF16;
  float* results = reinterpret_cast<float*>(Scratch(p.call));
  std::byte* scores = Scratch(p.call) + plan.shared;
  const Layout &q = p.q->layout, &k = p.k->layout, &v = p.v->layout, &out = p.call.output.layout;
  const int members = Members(p.call, plan.shared, plan.each);

  const auto attend = [&](int member, int64_t token, int64_t group, int64_t part, int64_t visible) {
    constexpr int64_t kHeadsAtOnce = 64;
    float* result = results + ((token * p.groups + group) * plan.parts + part) * plan.part_floats;
    AttendPart work;
    work.width = p.width;
    work.value_width = p.value_width;
    work.half = half;
    work.keys = Data(*p.k) + part * kPartRows * k.strides[0] + group * k.strides[1];
    work.values = Data(*p.v) + part * kPartRows * v.strides[0] + group * v.strides[1];
    work.key_stride = k.strides[0];
    work.value_stride = v.strides[0];
    work.count = std::min(kPartRows, visible - part * kPartRows);
    work.scale = p.scale;
    work.scores = reinterpret_cast<float*>(scores + member * plan.each);
    for (int64_t h = 0; h < p.per_group; h += kHeadsAtOnce) {
      const float* queries[kHeadsAtOnce];
      work.heads = static_cast<int>(std::min(kHeadsAtOnce, p.per_group - h));
      for (int64_t i = 0; i < work.heads; ++i)
        queries[i] = reinterpret_cast<const float*>(Data(*p.q) + token * q.strides[0] +
                                                    (group * p.per_group + h + i) * q.strides[1]);
      work.queries = queries;
      work.out = result + h * (p.value_width + 2);
      context.simd.attend(work);
    }
  };

  // Adds up the parts of a head, in their order, relative to the largest score of all.
  const RowWriter writer(context.simd, out, Data(p.call.output));
  const auto combine = [&](int64_t token, int64_t head, int64_t parts) {
    const int64_t group = head / p.per_group, stride = p.value_width + 2;
    const float* first = results + (token * p.groups + group) * plan.parts * plan.part_floats +
                         head % p.per_group * stride;
    const int64_t row = token * out.strides[0] + head * out.strides[1];
    float largest = kLowest;
    for (int64_t i = 0; i < parts; ++i)
      largest = std::max(largest, first[i * plan.part_floats + p.value_width]);
    double sum = 0;
    for (int64_t i = 0; i < parts; ++i) {
      const float* part = first + i * plan.part_floats + p.value_width;
      sum += part[1] * std::exp(static_cast<double>(part[0] - largest));
    }
    for (int64_t i = 0; i < p.value_width; i += kRowBlock) {
      float buffer[kRowBlock], add[kRowBlock];
      const int64_t n = std::min(kRowBlock, p.value_width - i);
      float* target = writer.Target(row, i, buffer);
      if (parts == 0) std::memset(target, 0, static_cast<size_t>(n) * 4);
      for (int64_t j = 0; j < parts; ++j) {
        const float* part = first + j * plan.part_floats;
        const float weight =
            static_cast<float>(std::exp(static_cast<double>(part[p.value_width] - largest)) / sum);
        context.simd.scale(part + i, weight, 0.0f, j == 0 ? target : add, n);
        if (j > 0) context.simd.add(target, add, target, n);
      }
      writer.Write(row, i, n, target);
    }
  };

  for (int64_t token = 0; token < p.tokens; ++token) {
    const int64_t visible = p.Visible(token), parts = Ceil(visible, kPartRows);
    context.team.Run(p.groups * parts, members, [&](int member, int64_t i) {
      attend(member, token, i % p.groups, i / p.groups, visible);
    });
    for (int64_t head = 0; head < p.heads; ++head) combine(token, head, parts);
  }
}

// ---- Many tokens ------------------------------------------------------------------------------

// What a member needs: panels of keys [width][64] for each 64 keys and of values [keys][64] for
// each 64 columns, queries, one row of scores for each query of a tile, and for each query of the
// block its sum of values, largest score and sum.
struct ManyScratch {
  int64_t block_tokens;  // Of which all heads of a group are taken together.
  int64_t queries;       // Rounded up to whole tiles.
  int64_t value_columns;
  int64_t key_floats, value_floats, query_floats, score_floats, sum_floats;

  ManyScratch(int64_t per_group, int64_t width, int64_t value_width)
      : block_tokens(std::max<int64_t>(1, kBlockQueries / std::max<int64_t>(1, per_group))),
        queries(RoundUp(block_tokens * per_group, kTokens)),
        value_columns(RoundUp(value_width, kColumns)),
        key_floats(RoundUp(kPanelKeys * width, 16)),
        value_floats(kPanelKeys * value_columns),
        query_floats(RoundUp(queries * width, 16)),
        score_floats(kTokens * kPanelKeys),
        sum_floats(queries * value_columns) {}
  int64_t EachBytes() const {
    return RoundUp(
        (key_floats + value_floats + query_floats + score_floats + sum_floats + 2 * queries) * 4,
        64);
  }
};

class Block {
 public:
  Block(const KernelContext& context, const Problem& p, const ManyScratch& plan, std::byte* scratch)
      : simd_(context.simd), p_(p), plan_(plan) {
    keys_ = reinterpret_cast<float*>(scratch);
    values_ = keys_ + plan.key_floats;
    queries_ = values_ + plan.value_floats;
    scores_ = queries_ + plan.query_floats;
    sums_ = scores_ + plan.score_floats;
    largest_ = sums_ + plan.sum_floats;
    totals_ = largest_ + plan.queries;
  }

  void Run(int64_t group, int64_t first_token, int64_t end_token) {
    first_token_ = first_token;
    group_ = group;
    count_ = (end_token - first_token) * p_.per_group;
    LoadQueries();
    int64_t visible = 0;
    for (int64_t t = first_token; t < end_token; ++t) visible = std::max(visible, p_.Visible(t));
    for (int64_t key = 0; key < visible; key += kPanelKeys) {
      const int64_t n = std::min(kPanelKeys, visible - key);
      LoadKeys(key, n);
      LoadValues(key, n);
      for (int64_t i = 0; i < count_; i += kTokens) Tile(i, key, n);
    }
    Finish();
  }

 private:
  int64_t TokenOf(int64_t query) const { return first_token_ + query / p_.per_group; }
  int64_t HeadOf(int64_t query) const { return group_ * p_.per_group + query % p_.per_group; }

  void LoadQueries() {
    const Layout& q = p_.q->layout;
    const RowReader reader(simd_, q, Data(*p_.q), p_.width);
    for (int64_t i = 0; i < count_; ++i) {
      const int64_t row = TokenOf(i) * q.strides[0] + HeadOf(i) * q.strides[1];
      for (int64_t d = 0; d < p_.width; d += kRowBlock) {
        const int64_t n = std::min(kRowBlock, p_.width - d);
        float* to = queries_ + i * p_.width + d;
        simd_.scale(reader.Read(row, d, n, to), p_.scale, 0.0f, to, n);
      }
      largest_[i] = kLowest;
      totals_[i] = 0;
    }
    std::memset(sums_, 0, static_cast<size_t>(count_ * plan_.value_columns) * 4);
  }

  void LoadKeys(int64_t first, int64_t n) {
    const Layout& k = p_.k->layout;
    const RowReader reader(simd_, k, Data(*p_.k), p_.width);
    for (int64_t s = 0; s < RoundUp(n, kColumns); ++s) {
      float* column = keys_ + s / kColumns * kColumns * p_.width + s % kColumns;
      for (int64_t d = 0; d < p_.width; d += kRowBlock) {
        float buffer[kRowBlock];
        const int64_t m = std::min(kRowBlock, p_.width - d);
        if (s >= n) {  // Never seen, but multiplied.
          for (int64_t i = 0; i < m; ++i) column[(d + i) * kColumns] = 0;
          continue;
        }
        const float* row =
            reader.Read((first + s) * k.strides[0] + group_ * k.strides[1], d, m, buffer);
        for (int64_t i = 0; i < m; ++i) column[(d + i) * kColumns] = row[i];
      }
    }
  }

  void LoadValues(int64_t first, int64_t n) {
    const Layout& v = p_.v->layout;
    const RowReader reader(simd_, v, Data(*p_.v), p_.value_width);
    for (int64_t s = 0; s < n; ++s) {
      const int64_t row = (first + s) * v.strides[0] + group_ * v.strides[1];
      for (int64_t e = 0; e < p_.value_width; e += kColumns) {
        const int64_t m = std::min(kColumns, p_.value_width - e);
        float* to = values_ + e * kPanelKeys + s * kColumns;
        // Blocks of a reader start at multiples of kRowBlock unless it reads plain types.
        const float* values = reader.Read(row, e, m, to);
        if (values != to) std::memcpy(to, values, static_cast<size_t>(m) * 4);
        if (m < kColumns) std::memset(to + m, 0, static_cast<size_t>(kColumns - m) * 4);
      }
    }
  }

  // Six queries against the n keys in the panels.
  void Tile(int64_t first, int64_t key, int64_t n) {
    const int count = static_cast<int>(std::min<int64_t>(kTokens, count_ - first));
    int64_t visible[kTokens], most = 0;
    for (int i = 0; i < count; ++i) {
      visible[i] = std::clamp<int64_t>(p_.Visible(TokenOf(first + i)) - key, 0, n);
      most = std::max(most, visible[i]);
    }
    if (most == 0) return;
    const float* rows[kTokens];
    for (int i = 0; i < kTokens; ++i)
      rows[i] = queries_ + (first + std::min(i, count - 1)) * p_.width;
    for (int64_t s = 0; s < most; s += kColumns)
      simd_.multiply(rows, keys_ + s * p_.width, p_.width, scores_ + s, kPanelKeys, count, false);
    for (int i = 0; i < count; ++i) {
      float* scores = scores_ + i * kPanelKeys;
      if (visible[i] == 0) {
        std::memset(scores, 0, static_cast<size_t>(most) * 4);
        continue;
      }
      const float before = largest_[first + i];
      const float largest = std::max(before, simd_.largest(scores, visible[i]));
      const float total = simd_.exp_sum(scores, visible[i], largest);
      std::memset(scores + visible[i], 0, static_cast<size_t>(most - visible[i]) * 4);
      if (largest > before) {
        const float factor = std::exp(before - largest);
        float* sums = sums_ + (first + i) * plan_.value_columns;
        if (before != kLowest) simd_.scale(sums, factor, 0.0f, sums, plan_.value_columns);
        totals_[first + i] *= factor;
        largest_[first + i] = largest;
      }
      totals_[first + i] += total;
    }
    for (int i = 0; i < kTokens; ++i) rows[i] = scores_ + std::min(i, count - 1) * kPanelKeys;
    for (int64_t e = 0; e < plan_.value_columns; e += kColumns)
      simd_.multiply(rows, values_ + e * kPanelKeys, most, sums_ + first * plan_.value_columns + e,
                     plan_.value_columns, count, true);
  }

  void Finish() {
    const Layout& out = p_.call.output.layout;
    const RowWriter writer(simd_, out, Data(p_.call.output));
    for (int64_t i = 0; i < count_; ++i) {
      const int64_t row = TokenOf(i) * out.strides[0] + HeadOf(i) * out.strides[1];
      const float factor = totals_[i] == 0 ? 0.0f : 1.0f / totals_[i];
      float* sums = sums_ + i * plan_.value_columns;
      for (int64_t e = 0; e < p_.value_width; e += kRowBlock) {
        const int64_t n = std::min(kRowBlock, p_.value_width - e);
        float* target = writer.Target(row, e, sums + e);
        simd_.scale(sums + e, factor, 0.0f, target, n);
        writer.Write(row, e, n, target);
      }
    }
  }

  const Simd& simd_;
  const Problem& p_;
  const ManyScratch& plan_;
  int64_t group_ = 0, first_token_ = 0, count_ = 0;
  float *keys_, *values_, *queries_, *scores_, *sums_, *largest_, *totals_;
};

void Many(const KernelContext& context, const Problem& p) {
  const ManyScratch plan(p.per_group, p.width, p.value_width);
  const int64_t blocks = Ceil(p.tokens, plan.block_tokens), each = plan.EachBytes();
  context.team.Run(blocks * p.groups, Members(p.call, 0, each), [&](int member, int64_t i) {
    // Later tokens see more keys: they go first, so that the members end together.
    const int64_t block = blocks - 1 - i / p.groups;
    const int64_t first = block * plan.block_tokens;
    Block(context, p, plan, Scratch(p.call) + member * each)
        .Run(i % p.groups, first, std::min(p.tokens, first + plan.block_tokens));
  });
}

Result<void> RunAttention(const KernelContext& context, const KernelCall& call) {
  const Problem p(call);
  if (p.tokens <= kFewTokens && ReadsInPlace(p.q->layout, p.k->layout, p.v->layout))
    Few(context, p);
  else
    Many(context, p);
  return {};
}

const CpuKernel kAttentionKernel = {"attention", RunAttention};

}  // namespace

Result<KernelChoice> FindAttention(const KernelQuery& query, int members) {
  const Layout &q = query.inputs[0], &k = query.inputs[1], &v = query.inputs[2];
  for (const Layout* layout : {&k, &v})
    if (!Info(layout->type).is_float)
      return Fail(ErrorCode::kUnsupported, "cpu: attention reads caches of real numbers, not {}",
                  Info(layout->type).name);
  const int64_t groups = k.dims[1], per_group = groups == 0 ? 0 : q.dims[1] / groups;
  // A smaller run may have few tokens where the largest has many, so scratch serves both.
  const FewScratch few(q.dims[0], k.dims[0], groups, per_group, v.dims[2]);
  const ManyScratch many(per_group, q.dims[2], v.dims[2]);
  KernelChoice choice;
  choice.kernel = &kAttentionKernel;
  choice.scratch_bytes = std::max(few.shared + few.each * members, many.EachBytes() * members);
  return choice;
}

}  // namespace tandem::cpu
