// The arguments and sizes of the sampling kernels. A choice is one token to be chosen: one row of logits.
//
// The vocabulary is cut into parts of 2,048 tokens, a block each, and these into groups of 64. The cut
// depends on nothing else, and every sum is one of whole numbers, so a choice does not depend on its batch.
#pragma once

#include <cstdint>

#include "kernels/step/step_tables.h"

namespace fourfold::sampling {

// Names of the rows.
inline constexpr const char* kScoresRow = "sampling scores";
inline constexpr const char* kPeaksRow = "sampling peaks";
inline constexpr const char* kArgmaxRow = "sampling argmax";
inline constexpr const char* kWeighRow = "sampling weigh";
inline constexpr const char* kChooseRow = "sampling choose";
inline constexpr const char* kAcceptRow = "sampling accept";
inline constexpr const char* kEmbedRow = "embed bf16";
inline constexpr const char* kTakeRowsRow = "take_rows";

inline constexpr int kGroupTokens = 64;
inline constexpr int kPartTokens = 2048;
inline constexpr int kPartThreads = 128;
inline constexpr int kChooseThreads = 512;
inline constexpr int kGroupsPerThread = 8;
inline constexpr int kPartsMost = 128;
// A block that chooses holds the best key of every group in registers.
inline constexpr int kTokensMost = kPartsMost * kPartTokens;
static_assert(kTokensMost == kChooseThreads * kGroupsPerThread * kGroupTokens);
// Drafts a sequence verifies in one step.
inline constexpr int kDraftsMost = 16;
// Candidates that are ranked in shared memory; where more are needed, the row is searched (search.h).
inline constexpr int kRankedMost = 4096;

constexpr int groups_of(int tokens) { return (tokens + kGroupTokens - 1) / kGroupTokens; }
constexpr int parts_of(int tokens) { return (tokens + kPartTokens - 1) / kPartTokens; }

// What a request asks of a choice (sample/params.h), and where its history is.
struct alignas(16) SampleRow {
  std::uint64_t seed;
  double temperature;  // 0: the most probable token
  double top_p;
  double min_p;
  double repetition_penalty;
  double presence_penalty;
  double frequency_penalty;
  std::int32_t top_k;  // 0: all
  // Index of the history that penalties and biases come from; -1: there are none.
  std::int32_t history;
  // So many of the step's tokens, up to and including the one at the choice's row, are drafts: they count as
  // part of the answer.
  std::int32_t draft_count;
  std::int32_t reserved[3];
};
static_assert(sizeof(SampleRow) == 80);

// A token that sampling treats in its own way. Each token stands in a history at most once.
struct alignas(16) Seen {
  std::int32_t token;
  std::int32_t count;  // in the answer; 0: in the prompt only; -1: neither, it has a bias only
  double bias;
};

// Histories of all sequences, in device memory from step to step. `accept` notes tokens there.
struct Histories {
  Seen* seen;            // [histories, limit]
  std::int32_t* counts;  // [histories] entries in use
  std::int32_t limit;
};

// The best of a part: its key above the complement of its token, so that the larger word is the better one
// and of equals the lower token.
struct alignas(16) PartBest {
  std::uint64_t best;
  std::uint32_t not_finite;  // 1: a logit is NaN or infinite
  std::uint32_t reserved;
};

inline constexpr std::uint32_t kNotFinite = 1;

// One struct for scores, peaks, weigh, choose and argmax; argmax and peaks alone need only the logits,
// choice_rows, parts and what they write.
struct ChoiceParams {
  // [choices, stride], 16-byte aligned. `scores` overwrites those of tokens in the history.
  float* logits;
  std::int64_t stride;              // a multiple of 4
  std::int32_t tokens;              // only ids below are ever chosen
  std::int32_t choices;             // places; those with choice_rows -1 are skipped
  const std::int32_t* choice_rows;  // [choices] the step's row whose logits these are
  const SampleRow* sampling;        // [choices]
  const step::RowPlace* rows;       // positions; the token chosen stands one further
  const std::int32_t* step_tokens;  // [row_limit] the tokens of the step's rows
  Histories histories;

  std::uint32_t* group_keys;     // [choices, groups_of(tokens)]
  PartBest* parts;               // [choices, parts_of(tokens)]
  std::uint64_t* group_weights;  // [choices, groups_of(tokens)]

  std::int32_t* chosen;              // [choices]
  float* chosen_scores;              // [choices], or null
  std::uint32_t* faults;             // [choices] kNotFinite or 0, or null
  std::int32_t* draft_tokens;        // where the token goes besides, as a draft of a step to come; or null
  const std::int32_t* draft_places;  // [choices] at which place there
};

// Where a sequence's choices lie: rows [t, d1..dk] of the step and a choice for each.
struct alignas(16) AcceptPlace {
  std::int32_t first_choice;
  std::int32_t choice_count;  // drafts + 1; 0: no sequence here
  std::int32_t first_row;     // the row of the first choice
  std::int32_t history;       // -1: none
};

struct AcceptParams {
  const AcceptPlace* places;        // [sequences]
  const std::int32_t* chosen;       // [choices]
  const std::int32_t* step_tokens;  // [row_limit]
  const step::RowPlace* rows;
  Histories histories;

  std::int32_t* emitted;         // [sequences, kDraftsMost + 1]; -1 behind the last
  std::int32_t* accepted;        // [sequences] drafts that stand; one token more is emitted
  std::int32_t* next_tokens;     // [sequences] the last token emitted
  std::int32_t* next_rows;       // [sequences] the row whose output it was chosen from
  std::int32_t* next_positions;  // [sequences] where it stands
  std::uint32_t* faults;         // [sequences] 1: the history is full; or null
};

struct EmbedParams {
  const std::uint16_t* table;  // [vocabulary, columns] bf16
  const std::int32_t* tokens;  // [rows]; negative: no row here
  float* out;                  // [rows, columns]
  std::int32_t rows;
  std::int32_t columns;  // a multiple of 8
};

struct TakeRowsParams {
  const void* from;             // rows of row_bytes
  const std::int32_t* indices;  // [rows]; negative: no row here
  void* out;                    // [rows]
  std::int32_t rows;
  std::int32_t row_bytes;  // a multiple of 16
};

inline constexpr int kCopyThreads = 128;
inline constexpr int kEmbedColumnsPerBlock = kCopyThreads * 8;
inline constexpr int kTakeBytesPerBlock = kCopyThreads * 32;

// Blocks of each kernel.
constexpr int part_blocks(const ChoiceParams& params) { return params.choices * parts_of(params.tokens); }
constexpr int choice_blocks(const ChoiceParams& params) { return params.choices; }
constexpr int embed_blocks(const EmbedParams& params) {
  return params.rows * ((params.columns + kEmbedColumnsPerBlock - 1) / kEmbedColumnsPerBlock);
}
constexpr int take_rows_blocks(const TakeRowsParams& params) {
  return params.rows * ((params.row_bytes + kTakeBytesPerBlock - 1) / kTakeBytesPerBlock);
}

// Workspace of ChoiceParams; 16-byte aligned each.
constexpr std::int64_t group_keys_bytes(int choices, int tokens) {
  return std::int64_t{choices} * groups_of(tokens) * 4;
}
constexpr std::int64_t group_weights_bytes(int choices, int tokens) {
  return std::int64_t{choices} * groups_of(tokens) * 8;
}
constexpr std::int64_t parts_bytes(int choices, int tokens) {
  return std::int64_t{choices} * parts_of(tokens) * static_cast<std::int64_t>(sizeof(PartBest));
}

}  // namespace fourfold::sampling
