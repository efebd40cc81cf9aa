// What rounding the inputs of every matrix does to the numbers of one model, found by experiment: the program
// in f32 with every weight off by a random factor 1 + r x, x of deviation 1. A sum over w (1 + r x) v has the
// deviation of the sum over w v (1 + r x), so this is the noise of inputs that are off by r each, without
// using any rounding of the format in question: a backend that rounds wrongly does not widen its own bound.
#pragma once

#include <cstdint>
#include <list>
#include <vector>

#include "backend/program.h"

namespace fourfold::evaluate {

// Root mean square of the relative error that rounding to a format makes on the inputs of a matrix; derived
// in input_noise.cpp.
double relative_input_noise(backend::InputFormat format);

// The same for keys and values on their way into the cache. 0 for f32, and for bf16, whose share is in
// relative_input_noise already.
double relative_kv_noise(backend::KvFormat format);

class NoisyProgram {
 public:
  // `program` is a program in the activation format whose noise is wanted; it must outlive this.
  NoisyProgram(const backend::Program& program, std::uint64_t seed);
  // All inputs f32. Points into this object.
  const backend::Program& program() const { return program_; }

 private:
  backend::Program program_;
  std::list<std::vector<float>> values_;
  std::list<checkpoint::Matrix> matrices_;
};

}  // namespace fourfold::evaluate
