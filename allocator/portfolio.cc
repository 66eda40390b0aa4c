#include "allocator/portfolio.h"

#include <array>
#include <optional>

#include "allocator/first_fit.h"
#include "allocator/online.h"
#include "allocator/orders.h"
#include "allocator/valley.h"

namespace tandem::planning {
namespace {

class Portfolio {
 public:
  Portfolio(const Problem& problem, int64_t steps) : problem_(problem), budget_{steps} {}

  bool AtBound() const { return best_.height == problem_.lower_bound && !best_.strategy.empty(); }
  int64_t steps_left() const { return budget_.steps; }
  Found Take() { return std::move(best_); }

  void Keep(std::optional<Offsets> offsets, std::string_view strategy) {
    if (!offsets) return;
    const Units height = Height(problem_, *offsets);
    if (height < ceiling()) best_ = {std::move(*offsets), height, strategy};
  }

  std::optional<Offsets> Valleys(Key key) {
    const Order order = OrderBy(key, problem_, timeline());
    if (!index_) index_.emplace(timeline(), order);
    return PlanValleys(problem_, timeline(), order, &*index_, ceiling(), &budget_);
  }

  std::optional<Offsets> FirstFit(Key key) {
    return PlanFirstFit(problem_, timeline(), OrderBy(key, problem_, timeline()),
                        Offsets(problem_.buffers.size(), kNoPlace), ceiling(), &budget_);
  }

  const Problem& problem() const { return problem_; }

 private:
  Units ceiling() const { return best_.strategy.empty() ? kUnlimited : best_.height; }
  const Timeline& timeline() {
    if (!timeline_) timeline_ = BuildTimeline(problem_);
    return *timeline_;
  }

  const Problem& problem_;
  Budget budget_;
  Found best_;  // Without a strategy: nothing yet.
  std::optional<Timeline> timeline_;
  std::optional<SpanIndex> index_;
};

struct Strategy {
  std::string_view name;
  std::optional<Offsets> (*plan)(Portfolio&);
};

constexpr std::array kStrategies = {
    Strategy{"online", [](Portfolio& p) { return std::optional(PlanOnline(p.problem())); }},
    Strategy{"valley-size", [](Portfolio& p) { return p.Valleys(Key::kSize); }},
    Strategy{"valley-area", [](Portfolio& p) { return p.Valleys(Key::kArea); }},
    Strategy{"valley-duration", [](Portfolio& p) { return p.Valleys(Key::kDuration); }},
    Strategy{"valley-breadth", [](Portfolio& p) { return p.Valleys(Key::kBreadth); }},
    Strategy{"first-fit-breadth", [](Portfolio& p) { return p.FirstFit(Key::kBreadth); }},
    Strategy{"first-fit-size", [](Portfolio& p) { return p.FirstFit(Key::kSize); }},
    Strategy{"first-fit-birth", [](Portfolio& p) { return p.FirstFit(Key::kBirth); }},
};

constexpr std::array kNames = [] {
  std::array<std::string_view, kStrategies.size()> names;
  for (size_t i = 0; i < names.size(); ++i) names[i] = kStrategies[i].name;
  return names;
}();

// A strategy takes at least this many steps for each buffer, so it is not begun on less.
constexpr int64_t kLeastSteps = 3;

}  // namespace

std::span<const std::string_view> Names() { return kNames; }

Found PlanByAll(const Problem& problem, int64_t steps) {
  if (problem.buffers.empty()) return {{}, 0, kStrategies.front().name};
  Portfolio portfolio(problem, steps);
  const int64_t least = kLeastSteps * static_cast<int64_t>(problem.buffers.size());
  for (const Strategy& strategy : kStrategies) {
    const bool first = &strategy == &kStrategies.front();
    if (!first && portfolio.steps_left() < least) break;
    portfolio.Keep(strategy.plan(portfolio), strategy.name);
    if (portfolio.AtBound()) break;
  }
  return portfolio.Take();
}

Found PlanByOne(const Problem& problem, size_t index) {
  if (problem.buffers.empty()) return {{}, 0, kStrategies[index].name};
  Portfolio portfolio(problem, kUnlimited);
  portfolio.Keep(kStrategies[index].plan(portfolio), kStrategies[index].name);
  return portfolio.Take();
}

}  // namespace tandem::planning
