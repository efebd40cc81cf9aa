// A program small enough to write by hand: embed, one linear layer, logits.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include "backend/program.h"
#include "base/error.h"
#include "base/random.h"

namespace fourfold::backend {

inline std::vector<float> random_floats(std::size_t count, std::uint64_t seed, double scale = 1) {
  Random random(seed);
  std::vector<float> values(count);
  for (float& x : values) x = static_cast<float>(scale * random.normal());
  return values;
}

struct SmallModel {
  SmallModel() {
    table = {"table", 5, 4, checkpoint::F32Storage{table_values}, {}};
    head = {"head", 5, 4, checkpoint::F32Storage{head_values}, {}};
    program.hidden_size = 4;
    program.vocab_size = 5;
    program.position_limit = 100;
    program.matrices = {{&table, InputFormat::f32}, {&head, InputFormat::f32}};
    program.values = {{.name = "x", .columns = 4},
                      {.name = "asked", .columns = 4, .rows = RowSet::logits},
                      {.name = "logits", .columns = 5, .rows = RowSet::logits}};
    program.main = {Embed{{0}, {{0}}}, KeepHidden{{0}}, TakeLogitsRows{{0}, {{1}}}, Linear{{1}, {1}, {{2}}}};
    program.main_logits = {2};
  }
  SmallModel(const SmallModel&) = delete;

  std::vector<float> table_values = random_floats(20, 1);
  std::vector<float> head_values = random_floats(20, 2);
  checkpoint::Matrix table, head;
  Program program;
};

inline void expect_refused(const std::vector<std::string>& parts, const std::function<void()>& run) {
  try {
    run();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::invalid_request) << error.what();
    for (const std::string& part : parts)
      EXPECT_NE(std::string(error.what()).find(part), std::string::npos)
          << part << " is not in: " << error.what();
    return;
  }
  ADD_FAILURE() << "nothing was refused; expected " << (parts.empty() ? "an Error" : parts.front());
}

}  // namespace fourfold::backend
