#include "allocator/online.h"

#include <array>
#include <bit>

namespace tandem::planning {
namespace {

using BlockIndex = int32_t;
constexpr BlockIndex kNone = -1;

// An address space that grows at the top, cut into blocks that are taken or free. Blocks are
// linked by address, so that free neighbours join at once; free ones also hang in lists by size.
class Heap {
 public:
  Heap(size_t buffers, Units chunk) : chunk_(chunk) {
    blocks_.reserve(2 * buffers + 1);
    lists_.fill(kNone);
  }

  BlockIndex Take(Units size) {
    BlockIndex block = FindHole(size);
    if (block == kNone) {
      const Units start = OutOfStraddle(top_, size, chunk_);
      if (start > top_) Hang(Append(start - top_));
      block = Append(size);
    } else {
      Unhang(block);
      if (blocks_[block].size > size) Hang(SplitOff(block, size));
    }
    return block;
  }

  void Release(BlockIndex block) {
    if (const BlockIndex above = blocks_[block].above; IsFree(above) && !StartsChunk(above)) {
      Unhang(above);
      Join(block, above);
    }
    if (const BlockIndex below = blocks_[block].below; IsFree(below) && !StartsChunk(block)) {
      Unhang(below);
      Join(below, block);
      block = below;
    }
    if (block == last_) {
      RemoveLast();
    } else {
      Hang(block);
    }
  }

  Units offset(BlockIndex block) const { return blocks_[block].offset; }

 private:
  struct Block {
    Units offset = 0, size = 0;
    BlockIndex below = kNone, above = kNone;    // By address.
    BlockIndex previous = kNone, next = kNone;  // In a list of free ones.
    bool free = false;
  };

  // Sizes fall into lists by their first five bits, so a hole of the next list is at most 1/16
  // larger than one of this.
  static constexpr int kSub = 4;
  static constexpr size_t kLists = (64 - kSub) << kSub;
  // How much of a list is searched for its best fit: a bound on the work, rarely reached.
  static constexpr int kLook = 16;

  static size_t ListOf(Units size) {
    const auto bits = static_cast<uint64_t>(size);
    if (bits < (1u << kSub)) return bits;
    const int exponent = std::bit_width(bits) - 1;
    const size_t sub = (bits >> (exponent - kSub)) & ((1u << kSub) - 1);
    return (static_cast<size_t>(exponent - kSub + 1) << kSub) + sub;
  }

  bool IsFree(BlockIndex block) const { return block != kNone && blocks_[block].free; }
  bool StartsChunk(BlockIndex block) const {
    return chunk_ != kUnlimited && blocks_[block].offset % chunk_ == 0;
  }

  BlockIndex FindHole(Units size) const {
    size_t list = ListOf(size);
    BlockIndex best = BestOf(list, size);
    while (best == kNone) {
      list = NextFilled(list + 1);
      if (list == kLists) return kNone;
      best = BestOf(list, size);
    }
    return best;
  }

  BlockIndex BestOf(size_t list, Units size) const {
    BlockIndex best = kNone, block = lists_[list];
    for (int looks = 0; block != kNone && looks < kLook; ++looks, block = blocks_[block].next) {
      if (blocks_[block].size < size) continue;
      if (best == kNone || blocks_[block].size < blocks_[best].size) best = block;
      if (blocks_[best].size == size) break;
    }
    return best;
  }

  size_t NextFilled(size_t list) const {
    for (size_t word = list / 64; word < filled_.size(); ++word) {
      uint64_t bits = filled_[word];
      if (word == list / 64) bits &= ~uint64_t{0} << (list % 64);
      if (bits != 0) return 64 * word + static_cast<size_t>(std::countr_zero(bits));
    }
    return kLists;
  }

  void Hang(BlockIndex block) {
    Block& b = blocks_[block];
    const size_t list = ListOf(b.size);
    b.free = true;
    b.previous = kNone;
    b.next = lists_[list];
    if (b.next != kNone) blocks_[b.next].previous = block;
    lists_[list] = block;
    filled_[list / 64] |= uint64_t{1} << (list % 64);
  }

  void Unhang(BlockIndex block) {
    Block& b = blocks_[block];
    b.free = false;
    if (b.next != kNone) blocks_[b.next].previous = b.previous;
    if (b.previous != kNone) {
      blocks_[b.previous].next = b.next;
      return;
    }
    const size_t list = ListOf(b.size);
    lists_[list] = b.next;
    if (b.next == kNone) filled_[list / 64] &= ~(uint64_t{1} << (list % 64));
  }

  BlockIndex NewBlock(const Block& block) {
    if (unused_ == kNone) {
      blocks_.push_back(block);
      return static_cast<BlockIndex>(blocks_.size() - 1);
    }
    const BlockIndex index = unused_;
    unused_ = blocks_[index].next;
    blocks_[index] = block;
    return index;
  }

  void Retire(BlockIndex block) {
    blocks_[block].next = unused_;
    unused_ = block;
  }

  BlockIndex Append(Units size) {
    const BlockIndex block = NewBlock({.offset = top_, .size = size, .below = last_});
    if (last_ != kNone) blocks_[last_].above = block;
    last_ = block;
    top_ += size;
    return block;
  }

  void RemoveLast() {
    const BlockIndex block = last_;
    top_ = blocks_[block].offset;
    last_ = blocks_[block].below;
    if (last_ != kNone) blocks_[last_].above = kNone;
    Retire(block);
  }

  // Shortens the block to `size` and returns the rest, a block of its own.
  BlockIndex SplitOff(BlockIndex block, Units size) {
    const Block whole = blocks_[block];
    const BlockIndex rest = NewBlock({.offset = whole.offset + size,
                                      .size = whole.size - size,
                                      .below = block,
                                      .above = whole.above});
    blocks_[block].size = size;
    blocks_[block].above = rest;
    if (whole.above != kNone)
      blocks_[whole.above].below = rest;
    else
      last_ = rest;
    return rest;
  }

  void Join(BlockIndex block, BlockIndex above) {
    blocks_[block].size += blocks_[above].size;
    blocks_[block].above = blocks_[above].above;
    if (blocks_[block].above != kNone)
      blocks_[blocks_[block].above].below = block;
    else
      last_ = block;
    Retire(above);
  }

  const Units chunk_;
  Units top_ = 0;            // All above is free.
  BlockIndex last_ = kNone;  // The block that ends at the top.
  std::vector<Block> blocks_;
  BlockIndex unused_ = kNone;                      // Retired blocks, linked by `next`.
  std::array<BlockIndex, kLists> lists_;           // First of each.
  std::array<uint64_t, kLists / 64> filled_ = {};  // A bit for each list that has blocks.
};

}  // namespace

Offsets PlanOnline(const Problem& problem) {
  const std::vector<Buffer>& buffers = problem.buffers;
  Heap heap(buffers.size(), problem.chunk);
  std::vector<BlockIndex> blocks(buffers.size());
  Offsets offsets(buffers.size());
  size_t dead = 0;
  for (size_t i = 0; i < buffers.size(); ++i) {
    for (; buffers[problem.deaths[dead]].end <= buffers[i].begin; ++dead)
      heap.Release(blocks[problem.deaths[dead]]);
    blocks[i] = heap.Take(buffers[i].size);
    offsets[i] = heap.offset(blocks[i]);
  }
  return offsets;
}

}  // namespace tandem::planning
