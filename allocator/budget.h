// How much work strategies may do.
//
// Work is counted in steps and not in seconds, so that equal input gives equal plans: a step is a
// buffer placed, a valley visited or a few ranges looked at, some 50 to 200 ns. Only a caller that
// asks for a time gets a limit by the clock.
#pragma once

#include <chrono>
#include <cstdint>
#include <limits>
#include <optional>

namespace tandem::planning {

class Budget {
 public:
  static Budget Unlimited() { return Budget(std::numeric_limits<int64_t>::max()); }
  static Budget Steps(int64_t steps) { return Budget(steps); }
  static Budget Seconds(double seconds) {
    Budget budget(kInstalment);
    budget.deadline_ = Clock::now() + std::chrono::duration_cast<Clock::duration>(
                                          std::chrono::duration<double>(seconds));
    return budget;
  }

  // A share of what is left of this, which must outlive it. What the part spends, this spends.
  Budget Part(double share) {
    Budget part(static_cast<int64_t>(share * static_cast<double>(steps_)));
    if (deadline_) part = Seconds(share * Left());
    part.whole_ = this;
    return part;
  }

  // False once it is used up; a strategy then gives up.
  bool Spend(int64_t steps = 1) {
    steps_ -= steps;
    if (whole_ != nullptr) whole_->Spend(steps);
    return steps_ >= 0 || Renew();
  }

  // Whether so much can be spent, as far as that is known.
  bool Has(int64_t steps) { return steps_ >= steps || Renew(); }

 private:
  using Clock = std::chrono::steady_clock;
  static constexpr int64_t kInstalment = 1000;  // Steps between two looks at the clock.

  explicit Budget(int64_t steps) : steps_(steps) {}
  double Left() const { return std::chrono::duration<double>(*deadline_ - Clock::now()).count(); }
  bool Renew() {
    if (!deadline_ || Left() <= 0) return false;
    steps_ = kInstalment;
    return true;
  }

  int64_t steps_;
  std::optional<Clock::time_point> deadline_;
  Budget* whole_ = nullptr;
};

}  // namespace tandem::planning
