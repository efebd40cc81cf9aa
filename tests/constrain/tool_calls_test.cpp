// What every format's calls may be is in guide_test.cpp; here is what one format has alone.
#include <gtest/gtest.h>

#include <initializer_list>
#include <string>

#include "base/format.h"
#include "constrain/guide.h"
#include "tests/constrain/accepts.h"

namespace fourfold::constrain {
namespace {

// Kimi's calls are counted from 0: a call that has another's number could not be told from it.
TEST(ToolCalls, NumberedOnesCountFromZero) {
  const auto tools_of = [](int count) {
    std::string list;
    for (int i = 0; i < count; ++i)
      list += (i == 0 ? "" : ", ") +
              fourfold::format(R"({"function": {"name": "a_tool_with_a_long_name_{}"}})", i);
    return "[" + list + "]";
  };
  const auto calls = [](std::initializer_list<const char*> numbers) {
    std::string text = "<|tool_calls_section_begin|>";
    for (const char* number : numbers)
      text += std::string("<|tool_call_begin|>functions.a_tool_with_a_long_name_0:") + number +
              "<|tool_call_argument_begin|>{}<|tool_call_end|>";
    return text + "<|tool_calls_section_end|>";
  };
  const auto grammar = compile_tool_calls(tools_of(2), {.format = text::CallFormat::kimi});
  EXPECT_TRUE(accepts(*grammar, calls({"0"})));
  EXPECT_TRUE(accepts(*grammar, calls({"0", "1", "2", "3", "4", "5", "6", "7", "8", "9", "10", "11"})));
  for (const auto& wrong : {calls({"1"}), calls({"0", "0"}), calls({"0", "2"}), calls({"00"}), calls({""}),
                            calls({"1", "0"}), calls({"0", "1", "1"})})
    EXPECT_FALSE(accepts(*grammar, wrong)) << wrong;
  const auto one = compile_tool_calls(tools_of(2), {.format = text::CallFormat::kimi, .several = false});
  EXPECT_TRUE(accepts(*one, calls({"0"})));
  EXPECT_FALSE(accepts(*one, calls({"0", "1"})));
  // As many tools as a request may bring: still within what a form may cost.
  const auto many = compile_tool_calls(tools_of(512), {.format = text::CallFormat::kimi});
  EXPECT_TRUE(accepts(*many, calls({"0", "1", "2", "3"})));
  EXPECT_FALSE(accepts(*many, calls({"0", "1", "2", "3", "4"})));
}

}  // namespace
}  // namespace fourfold::constrain
