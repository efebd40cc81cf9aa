// Sequences of one length on a prepared program, for benches: each with pages and a state slot of its own.
// Their past is whatever the memory holds.
#pragma once

#include <cstdint>
#include <vector>

#include "backend/backend.h"
#include "base/random.h"

namespace fourfold::cli {

class Users {
 public:
  // room: positions of a sequence.
  Users(backend::Prepared& prepared, int count, std::int64_t context, std::int64_t room);

  // One token for everybody, chosen on the GPU and read back. Seconds. The next inputs are drawn: what random
  // weights choose repeats itself, and would send everybody to the same experts.
  double decode();
  // A prompt of `count` tokens for the first user, from position 0. Seconds.
  double prompt(int count, int chunk);

  // Everybody's newest token and the drafts behind it in one pass, a token chosen behind each. Seconds.
  double verify(int drafts);
  // Drafts behind a verification all of whose rows stand, for the next one. Seconds.
  double draft(int drafts);

 private:
  std::int32_t random_token();
  // Rows of everybody, `count` each, from position_ on.
  backend::Batch rows_of(int count, std::vector<std::int32_t>& asked, bool last_alone);

  backend::Prepared& prepared_;
  Random random_{1};
  std::int64_t position_;
  std::vector<backend::SequenceRows> sequences_;
  std::vector<std::int32_t> pages_, tokens_, rows_;
  std::vector<std::int32_t> row_tokens_, chosen_, hidden_rows_, drafts_;
  std::vector<backend::Choice> choices_;  // greedy
};

}  // namespace fourfold::cli
