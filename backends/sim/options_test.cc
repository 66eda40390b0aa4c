#include <gtest/gtest.h>

#include "backends/sim/sim.h"

namespace tandem {
namespace {

TEST(ParseSimOptions, NothingIsTheDefault) {
  const auto options = ParseSimOptions("");
  ASSERT_TRUE(options) << options.error().message;
  EXPECT_EQ(*options, SimOptions{});
}

TEST(ParseSimOptions, TakesEveryKey) {
  const auto options = ParseSimOptions(
      "name=a-1,memory=64M,largest=16K,alignment=128,scratch=1G,unsupported=rope|softmax,"
      "packs_weights,host_readable=true,reads_host=1,declines_copies=yes,waits_for_others=false,"
      "synchronous");
  ASSERT_TRUE(options) << options.error().message;
  SimOptions expected;
  expected.name = "a-1";
  expected.memory = 64 << 20;
  expected.largest_buffer = 16 << 10;
  expected.alignment = 128;
  expected.scratch = 1 << 30;
  expected.unsupported = {"rope", "softmax"};
  expected.packs_weights = true;
  expected.host_readable = true;
  expected.reads_host = true;
  expected.declines_copies = true;
  expected.waits_for_others = false;
  expected.synchronous = true;
  EXPECT_EQ(*options, expected);
}

struct BadSpec {
  const char* spec;
  const char* says;
};

class ParseSimOptionsBad : public testing::TestWithParam<BadSpec> {};

TEST_P(ParseSimOptionsBad, SaysWhatIsWrong) {
  const auto options = ParseSimOptions(GetParam().spec);
  ASSERT_FALSE(options);
  EXPECT_EQ(options.error().code, ErrorCode::kInvalid);
  EXPECT_NE(options.error().message.find(GetParam().says), std::string::npos)
      << options.error().message;
  EXPECT_EQ(options.error().message.find('\n'), std::string::npos);
}

INSTANTIATE_TEST_SUITE_P(
    Specs, ParseSimOptionsBad,
    testing::Values(BadSpec{"memroy=1", "'memroy'"}, BadSpec{"memory=", "no size"},
                    BadSpec{"memory=12X", "12X"}, BadSpec{"memory=-1", "-1"},
                    BadSpec{"memory=K", "no size"}, BadSpec{"memory=9999999999G", "63 bits"},
                    BadSpec{"memory=99999999999999999999", "no size"}, BadSpec{"memory", "no size"},
                    BadSpec{"alignment=3", "power of two"}, BadSpec{"alignment=0", "power of two"},
                    BadSpec{"alignment=1G", "power of two"}, BadSpec{"name=", "name="},
                    BadSpec{"name", "needs a value"}, BadSpec{"name=a b", "a b"},
                    BadSpec{"unsupported=rpoe", "rope"}, BadSpec{"unsupported", "needs a value"},
                    BadSpec{"synchronous=perhaps", "neither"}, BadSpec{"memory=1,,name=a", "empty"},
                    BadSpec{"memory=1,memory=2", "twice"}, BadSpec{"0", "'0'"}));

}  // namespace
}  // namespace tandem
