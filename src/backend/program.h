// A model as data: tables of values, weights and caches, and two flat lists of ops over them. Every value is
// written once, so programs can be printed, compared op by op between backends, and laid out in memory by
// whoever runs them. Weights are not owned: the checkpoint's structs must outlive the program.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "backend/ops.h"
#include "base/token_grain.h"
#include "checkpoint/matrix.h"

namespace fourfold::backend {

enum class RowSet { tokens, logits };  // one row per token of the batch, or per row whose logits were asked
enum class ValueType { f32, i32 };

struct Value {
  std::string name;  // "layers.3.mixer.query"
  std::int64_t columns = 0;
  RowSet rows = RowSet::tokens;
  ValueType type = ValueType::f32;
};

// How a matrix takes its input. Fixed when the program is made, never by the batch.
enum class InputFormat {
  f32,   // as it is: the arithmetic of the float32 reference
  bf16,  // rounded to bf16: W4A16, W8A16, W16A16
  // Quantised with the matrix's own input scale: W4A4. Rows are bf16 before they are quantised, as they come
  // out of every engine's kernels; an expert's own activation, which never leaves its kernel, is not.
  nvfp4,
  // W4A4 for prefill rows, whose speed is the tensor cores'; W4A16 for decode rows, whose speed is the
  // memory's, and which it leaves exact. Rows that ask for logits are decode rows of the head.
  nvfp4_prefill,
  // Rounded to bf16, then to E4M3, with the matrix's own input scale or, where it has none, a power of two
  // for every row (base/fp8_rows.h): W8A8. In programs always for prefill rows alone; decode rows take bf16.
  fp8,
  fp8_prefill
};
// Whether such an input is ever quantised to FP4, so that the matrix must have an input scale.
constexpr bool quantises(InputFormat format) {
  return format == InputFormat::nvfp4 || format == InputFormat::nvfp4_prefill;
}

struct MatrixUse {
  const checkpoint::Matrix* matrix = nullptr;
  InputFormat input = InputFormat::bf16;
};

struct VectorUse {
  std::string name;
  std::span<const float> values;
};

struct ExpertMatrices {
  MatrixId gate;
  MatrixId up;
  MatrixId down;
};
struct ExpertSet {
  std::string name;
  std::vector<ExpertMatrices> experts;
  // Where the experts are shared out among ranks: these are number `first` and those behind it, of
  // `whole_count` that rows choose from. What a row chose elsewhere adds nothing here.
  std::int64_t first = 0;
  std::int64_t whole_count = 0;  // 0: as many as are here
  // A row of numbers for each of these experts, one row after another, added in f32: gate and up
  // [experts, rows of gate], down [experts, rows of down]. Of ranks that share experts' columns one alone has
  // the bias of down.
  OptionalVectorId gate_bias = {};
  OptionalVectorId up_bias = {};
  OptionalVectorId down_bias = {};
  std::int64_t count() const {
    return whole_count != 0 ? whole_count : static_cast<std::int64_t>(experts.size());
  }
};

// Which part of a model a program computes. With more than one rank its AllReduce and AllGather meet those of
// the other parts.
struct PartOf {
  int rank = 0;
  int count = 1;
};

// fp8: E4M3 codes of the numbers themselves, saturated.
enum class KvFormat { f32, bf16, fp8 };
constexpr std::int64_t element_bytes(KvFormat format) {
  return format == KvFormat::f32 ? 4 : format == KvFormat::bf16 ? 2 : 1;
}
constexpr std::string_view format_name(KvFormat format) {
  return format == KvFormat::f32 ? "f32" : format == KvFormat::bf16 ? "bf16" : "fp8";
}

// One layer's keys (after norm and RoPE) and values. All caches share one page table per sequence: page p of
// a sequence is page p of every cache.
//
// MLA has a latent cache: one head whose value is the first latent_dim columns of its key, and is not stored
// again. DeepSeek-V3's keys have 576 columns, 512 of the latent and 64 that RoPE turned.
struct KvCache {
  std::string name;
  std::int64_t kv_head_count = 0;
  std::int64_t head_dim = 0;  // of a key; of a value, too, unless the cache is latent
  KvFormat format = KvFormat::bf16;
  std::int64_t latent_dim = 0;  // 0: values are stored apart
  // Rows see their own position and window - 1 before it, so that a sequence keeps no more (window_pages.h);
  // 0: every position is kept. Caches of the main pass alone have one.
  std::int64_t window = 0;
  bool is_latent() const { return latent_dim != 0; }
  std::int64_t value_dim() const { return is_latent() ? latent_dim : head_dim; }
  std::int64_t columns() const { return kv_head_count * head_dim; }  // of keys
  // Numbers that a position takes, keys and values together.
  std::int64_t stored_columns() const { return is_latent() ? columns() : 2 * columns(); }
};

// One layer's recurrent state, in every state slot.
struct DeltaState {
  std::string name;
  std::int64_t key_head_count = 0;
  std::int64_t value_head_count = 0;  // grouped: value head h belongs to key head h / values_per_key()
  std::int64_t key_head_dim = 0;
  std::int64_t value_head_dim = 0;
  std::int64_t conv_taps = 0;
  std::int64_t key_dim() const { return key_head_count * key_head_dim; }
  std::int64_t value_dim() const { return value_head_count * value_head_dim; }
  std::int64_t conv_dim() const { return 2 * key_dim() + value_dim(); }
  std::int64_t values_per_key() const { return value_head_count / key_head_count; }
};

// The state changes at absolute multiples of this many tokens only; see reference/delta.h.
inline constexpr std::int64_t kAnchorTokens = kTokenGrain;

// Column j and column j + n of the first 2n are a pair, rotated by position * inverse_frequency[j].
struct Rope {
  std::vector<double> inverse_frequency;
  double amplitude = 1;  // YaRN's factor on cos and sin
};

enum class Pass { main, draft };
std::string_view pass_name(Pass pass);

struct Program {
  std::int64_t hidden_size = 0;
  std::int64_t vocab_size = 0;
  std::int64_t position_limit = 0;
  PartOf part;

  std::vector<Value> values;
  std::vector<MatrixUse> matrices;
  std::vector<VectorUse> vectors;
  std::vector<ExpertSet> expert_sets;
  std::vector<KvCache> kv_caches;
  std::vector<DeltaState> delta_states;
  std::vector<Rope> ropes;

  // draft is the MTP layer; empty when the checkpoint has none.
  std::vector<Op> main, draft;
  ValueId main_logits, draft_logits;   // [logits rows, vocab]
  ValueId final_hidden, draft_hidden;  // [tokens, hidden]: what the head reads, all rows
  std::vector<ValueId> layer_outputs;  // the embedding, then each layer's residual stream

  const std::vector<Op>& ops(Pass pass) const { return pass == Pass::main ? main : draft; }
  ValueId logits(Pass pass) const { return pass == Pass::main ? main_logits : draft_logits; }
  const Value& value(ValueId id) const { return values[static_cast<std::size_t>(id.index)]; }
  const MatrixUse& matrix(MatrixId id) const { return matrices[static_cast<std::size_t>(id.index)]; }
  const VectorUse& vector(VectorId id) const { return vectors[static_cast<std::size_t>(id.index)]; }
  const ExpertSet& expert_set(ExpertSetId id) const {
    return expert_sets[static_cast<std::size_t>(id.index)];
  }
  const KvCache& kv_cache(KvCacheId id) const { return kv_caches[static_cast<std::size_t>(id.index)]; }
  const DeltaState& delta_state(DeltaStateId id) const {
    return delta_states[static_cast<std::size_t>(id.index)];
  }
  const Rope& rope(RopeId id) const { return ropes[static_cast<std::size_t>(id.index)]; }
};

// What a kept state takes (Prepared::save_anchor): for each recurrent layer the anchor, and the convolution's
// inputs before it; for each layer with a window the pages that rows behind it see.
std::int64_t anchor_bytes(const Program& program, std::int64_t page_tokens);

// One op a line: "layers.0.norm = rms_norm(in=embedding, weight=..., ...)".
std::string to_text(const Program& program, Pass pass);

// What is wrong with a program: ids outside their tables, values read before they are written or written
// twice, sizes that disagree. Empty for every program a model makes; backends check it when they prepare.
std::vector<std::string> problems_of(const Program& program);

}  // namespace fourfold::backend
