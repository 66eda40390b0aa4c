#include "allocator/search.h"

#include <algorithm>
#include <span>
#include <utility>

namespace tandem::planning {
namespace {

constexpr int64_t kLargestArea = 4'000'000;  // Sum of spans.
constexpr int32_t kDeepest = 20'000;         // Decisions on one path: what the stack bears.

uint64_t Mix(uint64_t x) {  // SplitMix64.
  x += 0x9e3779b97f4a7c15u;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

// 1 1 2 1 1 2 4 1 1 2 ...: within a constant factor of the best fixed series of limits.
int64_t Luby(int64_t i) {
  int64_t k = 1;
  while (2 * k <= i) k *= 2;
  return i == 2 * k - 1 ? k : Luby(i - k + 1);
}

// The state of one path of the search: who is undecided, and how low everything can be. All
// changes go through a trail, so that a path can be taken back.
class State {
 public:
  State(const Problem& problem, const Timeline& timeline, const SearchOptions& options)
      : options_(options),
        buffers_(problem.buffers),
        spans_(timeline.spans),
        offsets_(problem.buffers.size(), 0),
        live_(timeline.live.size()),
        count_(timeline.live.size()),
        total_(timeline.live),
        joins_(timeline.live.size(), 0),
        floor_(timeline.live.size(), 0),
        weight_(timeline.live.size(), 1.0),
        minimum_(problem.buffers.size(), 0),
        slots_(problem.buffers.size()),
        dirty_(timeline.live.size()) {
    for (BufferIndex i = 0; i < static_cast<BufferIndex>(buffers_.size()); ++i) {
      slots_[i] = static_cast<int64_t>(slot_of_.size());
      for (Section s = spans_[i].first; s <= spans_[i].last; ++s) {
        slot_of_.push_back(static_cast<int32_t>(live_[s].size()));
        live_[s].push_back(i);
        if (s < spans_[i].last) ++joins_[s];
      }
      smallest_ = std::min(smallest_, buffers_[i].size);
    }
    work_ = static_cast<int64_t>(slot_of_.size());
    for (size_t s = 0; s < live_.size(); ++s) count_[s] = static_cast<int32_t>(live_[s].size());
  }

  Section sections() const { return static_cast<Section>(floor_.size()); }
  const Offsets& offsets() const { return offsets_; }
  const Buffer& buffer(BufferIndex i) const { return buffers_[i]; }
  const Span& span(BufferIndex i) const { return spans_[i]; }
  // The undecided buffers of a section.
  std::span<const BufferIndex> Undecided(Section s) const {
    return {live_[s].data(), static_cast<size_t>(count_[s])};
  }
  bool Joined(Section s) const { return joins_[s] > 0; }  // With the next by an undecided buffer.
  Units floor(Section s) const { return floor_[s]; }
  double weight(Section s) const { return weight_[s]; }       // Failures seen.
  Units minimum(BufferIndex i) const { return minimum_[i]; }  // The lowest it can lie.
  Units smallest() const { return smallest_; }
  // What the section can still leave empty.
  Units Slack(Section s) const { return options_.capacity - floor_[s] - total_[s]; }
  size_t mark() const { return trail_.size(); }
  // Elementary operations since the last call.
  int64_t TakeWork() { return std::exchange(work_, 0); }
  void AddWork(int64_t work) { work_ += work; }

  // Both return false if the capacity can no longer be held.
  bool Place(BufferIndex i, Units offset) {
    const Span& span = spans_[i];
    offsets_[i] = offset;
    trail_.push_back({Change::kPlace, i, 0});
    work_ += span.last - span.first + 1;
    for (Section s = span.first; s <= span.last; ++s) {
      // Swapped with the last undecided one, so that undoing in reverse order is a mere ++count.
      const BufferIndex moved = live_[s][--count_[s]];
      int32_t& hole = Slot(i, s);
      std::swap(live_[s][hole], live_[s][count_[s]]);
      Slot(moved, s) = hole;
      hole = count_[s];
      total_[s] -= buffers_[i].size;
      if (s < span.last) --joins_[s];
    }
    bool fits = true;
    for (Section s = span.first; s <= span.last && fits; ++s) {
      MarkDirty(s);
      fits = Raise(s, offset + buffers_[i].size);
    }
    return Propagate(fits);
  }

  bool RaiseFloor(Section s, Units level) { return Propagate(Raise(s, level)); }

  void Undo(size_t mark) {
    for (; trail_.size() > mark; trail_.pop_back()) {
      const Change& change = trail_.back();
      switch (change.kind) {
        case Change::kFloor:
          floor_[change.index] = change.old;
          break;
        case Change::kMinimum:
          minimum_[change.index] = change.old;
          break;
        case Change::kPlace:
          for (Section s = spans_[change.index].first; s <= spans_[change.index].last; ++s) {
            ++count_[s];
            total_[s] += buffers_[change.index].size;
            if (s < spans_[change.index].last) ++joins_[s];
          }
          break;
      }
    }
  }

 private:
  struct Change {
    enum Kind { kFloor, kMinimum, kPlace } kind;
    int32_t index;  // Section or buffer.
    Units old;
  };

  int32_t& Slot(BufferIndex i, Section s) { return slot_of_[slots_[i] + s - spans_[i].first]; }

  bool Raise(Section s, Units level) {
    if (count_[s] == 0 || floor_[s] >= level) return true;
    trail_.push_back({Change::kFloor, s, floor_[s]});
    floor_[s] = level;
    raised_.push_back(s);
    if (Slack(s) >= 0) return true;
    weight_[s] += 1;
    return false;
  }

  void MarkDirty(Section s) {
    if (dirty_[s]) return;
    dirty_[s] = true;
    dirty_list_.push_back(s);
  }

  // Brings minima and floors to their common fixpoint.
  bool Propagate(bool fits) {
    while (fits && !(raised_.empty() && dirty_list_.empty())) {
      while (!raised_.empty()) {
        const Section s = raised_.back();
        raised_.pop_back();
        work_ += count_[s];
        for (const BufferIndex i : Undecided(s)) {
          if (minimum_[i] >= floor_[s]) continue;
          trail_.push_back({Change::kMinimum, i, minimum_[i]});
          minimum_[i] = floor_[s];
          work_ += spans_[i].last - spans_[i].first + 1;
          for (Section t = spans_[i].first; t <= spans_[i].last; ++t) MarkDirty(t);
        }
      }
      while (fits && !dirty_list_.empty()) {
        const Section s = dirty_list_.back();
        dirty_list_.pop_back();
        dirty_[s] = false;
        if (!options_.infer_floors || count_[s] == 0) continue;
        Units lowest = kUnlimited;
        for (const BufferIndex i : Undecided(s)) {
          ++work_;
          lowest = std::min(lowest, minimum_[i]);
          if (lowest <= floor_[s]) break;
        }
        fits = Raise(s, lowest);
      }
    }
    if (!fits) {
      raised_.clear();
      for (const Section s : dirty_list_) dirty_[s] = false;
      dirty_list_.clear();
    }
    return fits;
  }

  const SearchOptions& options_;
  const std::vector<Buffer>& buffers_;
  const std::vector<Span>& spans_;
  Offsets offsets_;

  // By section.
  std::vector<Order> live_;     // Undecided buffers first.
  std::vector<int32_t> count_;  // How many are undecided.
  std::vector<Units> total_;    // Their sizes.
  std::vector<int32_t> joins_;  // Undecided buffers in this and the next.
  std::vector<Units> floor_;
  std::vector<double> weight_;
  // By buffer.
  std::vector<Units> minimum_;
  std::vector<int64_t> slots_;    // Start of its entries in slot_of_.
  std::vector<int32_t> slot_of_;  // Place in live_[s], for each section of its span.
  Units smallest_ = kUnlimited;

  std::vector<Change> trail_;
  std::vector<Section> raised_, dirty_list_;  // Work of Propagate.
  std::vector<bool> dirty_;
  int64_t work_ = 0;
};

class Search {
 public:
  Search(const Problem& problem, const Timeline& timeline, const SearchOptions& options,
         Budget* budget)
      : options_(options),
        budget_(*budget),
        lower_bound_(problem.lower_bound),
        state_(problem, timeline, options_),
        rank_(problem.buffers.size()) {}

  SearchResult Run() {
    SearchResult result;
    if (lower_bound_ > options_.capacity) {
      result.outcome = SearchOutcome::kInfeasible;
      return result;
    }
    for (int run = 0;; ++run) {
      // Each order is used by four runs' worth of rules before the limits grow.
      SetRanks(run);
      weigh_ = options_.weigh_failures && run / kOrders % 2 == 1;
      failures_left_ = options_.restart ? kFailures * Luby(run / kOrders + 1) : kUnlimited;
      result.outcome = SolveRange(0, state_.sections() - 1);
      if (result.outcome == SearchOutcome::kFound) result.offsets = state_.offsets();
      if (result.outcome != SearchOutcome::kStopped || spent_) return result;
      state_.Undo(0);
    }
  }

 private:
  static constexpr int kOrders = 4;
  static constexpr int64_t kFailures = 100;  // In a unit of Luby's sequence.
  static constexpr int64_t kWorkPerStep = 32;

  // The order in which candidates are tried; from the second round on, jittered.
  void SetRanks(int run) {
    const auto count = static_cast<BufferIndex>(rank_.size());
    std::vector<std::pair<double, BufferIndex>> keyed;
    keyed.reserve(rank_.size());
    for (BufferIndex i = 0; i < count; ++i) {
      const Buffer& buffer = state_.buffer(i);
      const double sections = state_.span(i).last - state_.span(i).first + 1;
      const auto size = static_cast<double>(buffer.size);
      const double duration = static_cast<double>(buffer.end) - static_cast<double>(buffer.begin);
      const double keys[kOrders] = {sections + size / (static_cast<double>(options_.capacity) + 1),
                                    sections * size, size + sections / (state_.sections() + 1.0),
                                    duration * size};
      double key = keys[run % kOrders];
      if (run >= kOrders) {
        const uint64_t random =
            Mix(options_.seed + static_cast<uint64_t>(run) * 1'000'003 + static_cast<uint64_t>(i));
        key *= 0.5 + static_cast<double>(random >> 11) / static_cast<double>(uint64_t{1} << 53);
      }
      keyed.emplace_back(-key, i);
    }
    std::sort(keyed.begin(), keyed.end());
    for (size_t k = 0; k < keyed.size(); ++k) rank_[keyed[k].second] = static_cast<int32_t>(k);
  }

  // Decides what is undecided in [first, last]; nothing undecided crosses its ends. The caller
  // takes back what did not lead to a plan.
  SearchOutcome SolveRange(Section first, Section last) {
    std::vector<Span> parts;
    for (Section s = first; s <= last; ++s) {
      if (state_.Undecided(s).empty()) continue;
      Section end = s;
      while (state_.Joined(end)) ++end;
      if (options_.decompose || parts.empty())
        parts.push_back({s, end});
      else
        parts.back().last = end;
      s = end;
    }
    state_.AddWork(last - first + 1);
    if (parts.size() > 1)  // Small parts fail cheaply.
      std::stable_sort(parts.begin(), parts.end(), [](const Span& a, const Span& b) {
        return a.last - a.first < b.last - b.first;
      });
    for (const Span& part : parts)
      if (const SearchOutcome outcome = SolvePart(part); outcome != SearchOutcome::kFound)
        return outcome;
    return SearchOutcome::kFound;
  }

  SearchOutcome SolvePart(const Span& part) {
    if (!budget_.Spend(1 + state_.TakeWork() / kWorkPerStep) || depth_ >= kDeepest) spent_ = true;
    if (spent_ || failures_left_ <= 0) return SearchOutcome::kStopped;
    ++depth_;
    const SearchOutcome outcome = Branch(part);
    --depth_;
    if (outcome == SearchOutcome::kInfeasible) --failures_left_;
    return outcome;
  }

  SearchOutcome Branch(const Span& part) {
    const Section section = ChooseSection(part);
    const Units level = state_.floor(section);
    Order candidates;
    for (const BufferIndex i : state_.Undecided(section))
      if (state_.minimum(i) == level) candidates.push_back(i);
    std::sort(candidates.begin(), candidates.end(),
              [&](BufferIndex a, BufferIndex b) { return rank_[a] < rank_[b]; });
    const size_t mark = state_.mark();
    for (const BufferIndex i : candidates) {
      SearchOutcome outcome = SearchOutcome::kInfeasible;
      if (state_.Place(i, level)) outcome = SolveRange(part.first, part.last);
      if (outcome == SearchOutcome::kFound) return outcome;
      state_.Undo(mark);
      if (outcome == SearchOutcome::kStopped) return outcome;
    }
    if (state_.Slack(section) < 1) return SearchOutcome::kInfeasible;
    const Units next = NextLevel(section);
    if (next == kUnlimited) return SearchOutcome::kInfeasible;
    SearchOutcome outcome = SearchOutcome::kInfeasible;
    if (state_.RaiseFloor(section, next)) outcome = SolveRange(part.first, part.last);
    if (outcome != SearchOutcome::kFound) state_.Undo(mark);
    return outcome;
  }

  // The section with the fewest branches, then with the least slack, of those in a valley: only a
  // valley can be filled from its bottom.
  Section ChooseSection(const Span& part) {
    Section best = -1;
    double best_score = 0;
    for (Section first = part.first, last = first; first <= part.last; first = last + 1) {
      const Units level = state_.floor(first);
      last = first;
      while (last < part.last && state_.floor(last + 1) == level && state_.Joined(last)) ++last;
      if (state_.Undecided(first).empty()) continue;
      Units bank = kUnlimited;
      if (first > part.first && state_.Joined(first - 1)) bank = state_.floor(first - 1);
      if (last < part.last && state_.Joined(last)) bank = std::min(bank, state_.floor(last + 1));
      if (bank < level) continue;
      for (Section s = first; s <= last; ++s) {
        int32_t branches = 0;
        for (const BufferIndex i : state_.Undecided(s)) branches += state_.minimum(i) == level;
        state_.AddWork(static_cast<int64_t>(state_.Undecided(s).size()));
        // Can the floor rise at all, to a bank or the top of some buffer?
        branches += state_.Slack(s) >= std::min(state_.smallest(), bank - level);
        if (branches <= 1) return s;  // Forced: can not be wrong.
        const double score = weigh_ ? branches / state_.weight(s) : branches;
        if (best < 0 || score < best_score ||
            (score == best_score && state_.Slack(s) < state_.Slack(best))) {
          best = s;
          best_score = score;
        }
      }
    }
    return best;
  }

  // The lowest height above the floor at which the lowest undecided buffer of the section can
  // rest on something.
  Units NextLevel(Section section) {
    const Units level = state_.floor(section);
    Units next = kUnlimited;
    for (const BufferIndex i : state_.Undecided(section)) {
      if (state_.minimum(i) > level) {
        next = std::min(next, state_.minimum(i));
        continue;
      }
      for (Section s = state_.span(i).first; s <= state_.span(i).last; ++s) {
        state_.AddWork(static_cast<int64_t>(state_.Undecided(s).size()));
        for (const BufferIndex other : state_.Undecided(s)) {
          const Span& span = state_.span(other);
          if (span.first <= section && section <= span.last) continue;
          next = std::min(next, state_.minimum(other) + state_.buffer(other).size);
        }
      }
    }
    return next;
  }

  const SearchOptions options_;
  Budget& budget_;
  const Units lower_bound_;
  State state_;
  std::vector<int32_t> rank_;  // By buffer.
  bool weigh_ = false;         // Of this run.
  int64_t failures_left_ = 0;  // Of this run.
  int32_t depth_ = 0;
  bool spent_ = false;
};

}  // namespace

bool CanSearch(const Timeline& timeline) {
  int64_t area = 0;
  for (const Span& span : timeline.spans) area += span.last - span.first + 1;
  return area <= kLargestArea;
}

SearchResult SearchWithin(const Problem& problem, const Timeline& timeline,
                          const SearchOptions& options, Budget* budget) {
  return Search(problem, timeline, options, budget).Run();
}

}  // namespace tandem::planning
