// Holds a backend against the numbers of an independent implementation (reference_file.h).
//
// With f32 activations every number must agree to 1e-3: both sides do the same arithmetic in another order.
// Other activation formats round the inputs of every matrix, which no bound in advance can follow through
// routers that choose: a choice that was nearly a tie flips and the numbers jump. There the bound is derived
// by experiment on the model at hand (input_noise.h): kNoiseRuns runs of the reference backend with random
// errors of the format's size. The typical row (the median of the rows' root mean squares, which a few flips
// do not move) may differ by twice what theirs did, and the largest single difference by four times.
//
// Where a number lies beyond that, routers' choices that are nearly ties (router_ties.h) are looked at. The
// one whose turn brings the numbers nearest is turned in the reference; then another, kTurnsMax at most. When
// the numbers lie within the same bounds of what the reference gives then, they are fine, and the choices are
// named. Else the judgement stays as it was.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "backend/backend.h"
#include "evaluate/reference_file.h"
#include "evaluate/router_ties.h"

namespace fourfold::evaluate {

inline constexpr double kExactBound = 1e-3;
inline constexpr int kNoiseRuns = 4;
inline constexpr double kLargestFactor = 4;
inline constexpr double kTypicalFactor = 2;
inline constexpr std::size_t kTurnsMax = 4;

// Numbers of one kind: "logits", "layer 3", "mtp logits".
struct NumberDifference {
  std::string prompt;
  std::string what;
  double largest = 0;
  double typical = 0;  // median over the rows of their root mean square
  double largest_bound = 0;
  double typical_bound = 0;
  bool fine() const { return largest <= largest_bound && typical <= typical_bound; }  // NaN is not fine
};

// Tokens of one kind: "greedy", "drafts". A token that differs is wrong when the reference's best and second
// logit are further apart than twice what the bound lets that row's logits differ.
struct TokenDifference {
  std::string prompt;
  std::string what;
  std::int64_t count = 0;
  std::int64_t same = 0;
  std::int64_t undecided = 0;  // differ, and may
  bool fine() const { return same + undecided == count; }
};

// A router's choice that was made the other way, and might be.
struct TurnedChoice {
  std::string prompt;
  RouterTie tie;
};

struct Comparison {
  std::vector<NumberDifference> numbers;
  std::vector<TokenDifference> tokens;
  std::vector<TurnedChoice> turned;  // numbers and tokens are held against a reference that chose so, too
  bool hidden_compared = false;      // the backend kept its values
  bool mtp_compared = false;
  double noise_bf16 = 0, noise_nvfp4 = 0, noise_fp8 = 0;  // relative, of the formats in use; 0: not in use
  double noise_kv = 0;                                    // of keys and values in fp8
  bool fine() const;
};

// How far every number may be off, by the activation formats a program has in use. Limit: derived bounds
// come from the reference backend, which is made for models of test size.
class Bounds {
 public:
  struct Kind {
    std::string what;  // as in NumberDifference
    double largest = 0, typical = 0;
  };
  struct Prompt {
    std::vector<Kind> kinds;
    std::vector<double> greedy_rows, draft_rows;  // the largest of each row, for the token chosen from it
  };

  // capacity: of the runs to judge, which cut their prompts alike.
  Bounds(const backend::Program& program, const ReferenceFile& reference, const backend::Capacity& capacity);
  const Prompt& of(std::size_t prompt) const { return prompts_[prompt]; }
  const backend::Program& program() const { return program_; }
  const backend::Program& exact() const { return exact_; }  // in f32
  const backend::Capacity& capacity() const { return capacity_; }

  double noise_bf16 = 0, noise_nvfp4 = 0, noise_fp8 = 0, noise_kv = 0;  // as in Comparison

 private:
  void derive(const ReferenceFile& reference);

  backend::Program program_, exact_;
  backend::Capacity capacity_;
  std::vector<Prompt> prompts_;
};

// `prepared` has run nothing yet.
Comparison compare(backend::Prepared& prepared, const ReferenceFile& reference, const Bounds& bounds);
// With the bounds of its own program.
Comparison compare(backend::Prepared& prepared, const ReferenceFile& reference);
// Where the prepared program is one part of several: bounds come from the whole one.
Comparison compare(backend::Prepared& prepared, const backend::Program& whole,
                   const ReferenceFile& reference);

}  // namespace fourfold::evaluate
