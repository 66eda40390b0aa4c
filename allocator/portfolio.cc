#include "allocator/portfolio.h"

#include <algorithm>
#include <array>
#include <optional>
#include <utility>

#include "allocator/first_fit.h"
#include "allocator/online.h"
#include "allocator/orders.h"
#include "allocator/search.h"
#include "allocator/valley.h"

namespace tandem::planning {
namespace {

// The best plan so far, and what the strategies share.
class Portfolio {
 public:
  Portfolio(const Problem& problem, Budget* budget) : problem_(problem), budget_(*budget) {}

  bool AtBound() const { return !best_.strategy.empty() && best_.height == problem_.lower_bound; }
  // Within a thousandth of the bound: no more is worth the time of the thorough strategies.
  bool IsClose() const {
    return best_.height - problem_.lower_bound <= problem_.lower_bound / 1000;
  }
  // Every strategy but the first takes about this much, so it is not begun on less.
  bool CanAfford() { return budget_.Has(6 * static_cast<int64_t>(problem_.buffers.size())); }
  Found Take() { return std::move(best_); }

  void Keep(std::optional<Offsets> offsets, std::string_view strategy) {
    if (!offsets) return;
    const Units height = Height(problem_, *offsets);
    if (height < ceiling()) best_ = {std::move(*offsets), height, strategy};
  }

  std::optional<Offsets> Online() { return PlanOnline(problem_); }

  std::optional<Offsets> Valleys(Key key) {
    const Order order = OrderBy(key, problem_, timeline());
    if (!index_) index_.emplace(timeline(), order);
    return PlanValleys(problem_, timeline(), order, &*index_, ceiling(), &budget_);
  }

  std::optional<Offsets> FirstFit(Key key) {
    return FitAround(Offsets(problem_.buffers.size(), kNoPlace), key);
  }

  std::optional<Offsets> Core();
  std::optional<Offsets> Search();

 private:
  Units ceiling() const { return best_.strategy.empty() ? kUnlimited : best_.height; }
  const Timeline& timeline() {
    if (!timeline_) timeline_ = BuildTimeline(problem_);
    return *timeline_;
  }
  std::optional<Offsets> FitAround(Offsets offsets, Key key) {
    return PlanFirstFit(problem_, timeline(), OrderBy(key, problem_, timeline()),
                        std::move(offsets), ceiling(), &budget_);
  }
  Order LiveAbove(double share);
  std::optional<Offsets> AroundCore(const Order& core);

  const Problem& problem_;
  Budget& budget_;
  Found best_;  // Without a strategy: nothing yet.
  std::optional<Timeline> timeline_;
  std::optional<SpanIndex> index_;
};

struct Strategy {
  std::string_view name;
  std::optional<Offsets> (*plan)(Portfolio&);
};

constexpr std::array kStrategies = {
    Strategy{"online", [](Portfolio& p) { return p.Online(); }},
    Strategy{"valley-size", [](Portfolio& p) { return p.Valleys(Key::kSize); }},
    Strategy{"valley-area", [](Portfolio& p) { return p.Valleys(Key::kArea); }},
    Strategy{"valley-duration", [](Portfolio& p) { return p.Valleys(Key::kDuration); }},
    Strategy{"valley-breadth", [](Portfolio& p) { return p.Valleys(Key::kBreadth); }},
    Strategy{"first-fit-breadth", [](Portfolio& p) { return p.FirstFit(Key::kBreadth); }},
    Strategy{"first-fit-size", [](Portfolio& p) { return p.FirstFit(Key::kSize); }},
    Strategy{"core", [](Portfolio& p) { return p.Core(); }},
    Strategy{"search", [](Portfolio& p) { return p.Search(); }},
};
constexpr size_t kForCore = 5;  // The first so many serve for the core.
constexpr size_t kThorough =
    7;  // From here on they improve on a plan, and cost many times as much.
constexpr size_t kSearch = kStrategies.size() - 1;

constexpr std::array kNames = [] {
  std::array<std::string_view, kStrategies.size()> names;
  for (size_t i = 0; i < names.size(); ++i) names[i] = kStrategies[i].name;
  return names;
}();

Found PlanByFirst(const Problem& problem, Budget* budget, size_t count) {
  Portfolio portfolio(problem, budget);
  for (size_t i = 0; i < count; ++i) {
    if (i > 0 && !portfolio.CanAfford()) break;
    if (i >= kThorough && portfolio.IsClose()) break;
    portfolio.Keep(kStrategies[i].plan(portfolio), kStrategies[i].name);
    if (portfolio.AtBound()) break;
  }
  return portfolio.Take();
}

// The buffers that are live at a section whose sum reaches that share of the lower bound.
Order Portfolio::LiveAbove(double share) {
  const Timeline& t = timeline();
  const double least = share * static_cast<double>(problem_.lower_bound);
  std::vector<int32_t> crowded(t.live.size() + 1, 0);  // How many sections before.
  for (size_t s = 0; s < t.live.size(); ++s)
    crowded[s + 1] = crowded[s] + (static_cast<double>(t.live[s]) >= least);
  Order core;
  for (size_t i = 0; i < t.spans.size(); ++i)
    if (crowded[t.spans[i].last + 1] > crowded[t.spans[i].first])
      core.push_back(static_cast<BufferIndex>(i));
  return core;
}

std::optional<Offsets> Portfolio::AroundCore(const Order& core) {
  Problem part;
  part.chunk = problem_.chunk;
  part.buffers.reserve(core.size());
  for (const BufferIndex i : core) part.buffers.push_back(problem_.buffers[i]);
  Complete(&part);
  Budget half = budget_.Part(0.5);
  const Found found = PlanByFirst(part, &half, kForCore);
  if (found.height >= ceiling()) return std::nullopt;
  Offsets offsets(problem_.buffers.size(), kNoPlace);
  for (size_t k = 0; k < core.size(); ++k) offsets[core[k]] = found.offsets[k];
  return FitAround(std::move(offsets), Key::kSize);
}

std::optional<Offsets> Portfolio::Core() {
  std::optional<Offsets> best;
  size_t last_size = problem_.buffers.size();
  for (const double share : {0.98, 0.9, 0.8, 0.6}) {
    const Order core = LiveAbove(share);
    if (core.size() == last_size) continue;
    last_size = core.size();
    if (!CanAfford()) break;
    std::optional<Offsets> offsets = AroundCore(core);
    if (!offsets) continue;
    const Units height = Height(problem_, *offsets);
    if (best && height >= Height(problem_, *best)) continue;
    best = std::move(offsets);
    if (height == problem_.lower_bound) break;
  }
  return best;
}

std::optional<Offsets> Portfolio::Search() {
  if (!CanSearch(timeline())) return std::nullopt;
  Units low = problem_.lower_bound;
  // Only for plans within one chunk.
  Units high = problem_.chunk == kUnlimited ? ceiling() : std::min(ceiling(), problem_.chunk + 1);
  std::optional<Offsets> best;
  // Half of what is left for each target: at first the bound, then between what failed and what
  // was found.
  for (Units target = low; target < high && budget_.Has(1);) {
    Budget part = budget_.Part(0.5);
    SearchOptions options;
    options.capacity = target;
    SearchResult result = SearchWithin(problem_, timeline(), options, &part);
    if (result.outcome == SearchOutcome::kFound) {
      high = Height(problem_, result.offsets);
      best = std::move(result.offsets);
    } else {
      low = target + 1;
    }
    target = low + (high - low) / 2;
  }
  return best;
}

}  // namespace

std::span<const std::string_view> Names() { return kNames; }

Found PlanByAll(const Problem& problem, Budget budget) {
  if (problem.buffers.empty()) return {{}, 0, kNames.front()};
  return PlanByFirst(problem, &budget, kStrategies.size());
}

Found PlanByOne(const Problem& problem, size_t index, Budget search_budget) {
  const Strategy& strategy = kStrategies[index];
  if (problem.buffers.empty()) return {{}, 0, strategy.name};
  Budget unlimited = Budget::Unlimited();
  Portfolio portfolio(problem, index == kSearch ? &search_budget : &unlimited);
  if (index >= kThorough) portfolio.Keep(portfolio.Online(), kNames.front());
  portfolio.Keep(strategy.plan(portfolio), strategy.name);
  return portfolio.Take();
}

}  // namespace tandem::planning
