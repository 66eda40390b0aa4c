#include "allocator/budget.h"

#include <gtest/gtest.h>

namespace tandem::planning {
namespace {

TEST(BudgetTest, StepsAreSpentOnce) {
  Budget budget = Budget::Steps(3);
  EXPECT_TRUE(budget.Spend(2));
  EXPECT_TRUE(budget.Has(1));
  EXPECT_FALSE(budget.Has(2));
  EXPECT_TRUE(budget.Spend());
  EXPECT_FALSE(budget.Spend());
  EXPECT_FALSE(budget.Has(0));
}

TEST(BudgetTest, WhatAPartSpendsTheWholeSpends) {
  Budget whole = Budget::Steps(100);
  Budget half = whole.Part(0.5);
  EXPECT_FALSE(half.Has(51));
  EXPECT_TRUE(half.Spend(40));
  EXPECT_TRUE(whole.Has(60));
  EXPECT_FALSE(whole.Has(61));
}

TEST(BudgetTest, SecondsRenewStepsUntilTheyHavePassed) {
  Budget late = Budget::Seconds(-1);
  EXPECT_FALSE(late.Spend(1'000'000));
  Budget early = Budget::Seconds(3600);
  EXPECT_TRUE(early.Spend(1'000'000));
  EXPECT_TRUE(early.Has(1'000'000'000));
  EXPECT_TRUE(early.Part(0.5).Spend(1'000'000));
}

}  // namespace
}  // namespace tandem::planning
