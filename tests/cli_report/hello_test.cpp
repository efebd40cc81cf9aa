#include "cli/hello.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace fourfold::cli {
namespace {

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

TEST(Hello, IsTenLinesOnEveryMachine) {
  HelloFacts facts{.version = "1.2.3", .gpus = {}, .cores = 1, .cpu_kernels = "avx2", .models = {}};
  const auto lines = [&] {
    const std::string text = hello_text(facts);
    return std::count(text.begin(), text.end(), '\n');
  };
  EXPECT_EQ(lines(), 10);
  EXPECT_TRUE(contains(hello_text(facts), "GPU     none found; models run on the CPU\n"));
  EXPECT_TRUE(contains(hello_text(facts), "CPU     1 core, kernels for avx2\n"));
  EXPECT_TRUE(contains(hello_text(facts), "  fourfold chat  "));

  facts.gpus = {{.name = "NVIDIA H200", .bytes = 141e9}};
  EXPECT_TRUE(contains(hello_text(facts), "NVIDIA H200, 141 GB; this program was built without CUDA"));
  EXPECT_FALSE(contains(hello_text(facts), "--backend cuda"));

  facts.has_cuda = true;
  facts.gpus.push_back(facts.gpus.front());
  facts.models = {"a/b", "c/d", "e/f"};
  EXPECT_TRUE(contains(hello_text(facts), "GPU     2 x NVIDIA H200, 141 GB\n"));
  EXPECT_TRUE(contains(hello_text(facts), "fourfold chat a/b --backend cuda  "));
  EXPECT_TRUE(contains(hello_text(facts), "a/b, c/d, and 1 more: fourfold list\n"));
  EXPECT_EQ(lines(), 10);
}

}  // namespace
}  // namespace fourfold::cli
