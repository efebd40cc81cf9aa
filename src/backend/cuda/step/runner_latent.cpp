// The launches of latent attention (kernels/mla, docs/decisions/0029-mla.md): generated rows and prompts
// differ in the matrices' kernels and in who merges the splits.
#include <algorithm>

#include "backend/cuda/step/runner.h"
#include "backend/cuda/step/short_grid.h"
#include "kernels/attention/attention_params.h"
#include "kernels/mla/mla_params.h"

namespace fourfold::backend::cuda {
namespace {

constexpr float kLog2E = 1.44269504088896341f;

// Few rows read each weight once; more of them share it in an SM's cache.
int head_tokens(int rows) { return rows <= 16 ? 16 : 32; }

}  // namespace

// From the projections to the query's latent and to the rows' pages.
mla::LatentRowsParams Runner::latent_rows(const DeviceLatent& mixer) const {
  mla::LatentRowsParams params{};
  params.tables = places_.tables;
  params.projection = buffers_.projection;
  params.projection_stride = mixer.in.width;
  if (mixer.has_query_latent()) {
    params.query_column = mixer.in.first_column[0];
    params.query_columns = mixer.query_norm.columns;
    params.query_weight = mixer.query_norm.weight;
    params.query_epsilon = mixer.query_norm.epsilon;
    params.query_latent = buffers_.mixed;
    params.query_stride = mixer.query.matrices.front().columns();
  }
  params.latent_column = mixer.latent_column;
  params.latent_columns = mixer.latent_columns();
  params.latent_weight = mixer.latent_norm.weight;
  params.latent_epsilon = mixer.latent_norm.epsilon;
  params.key_column = mixer.key_column;
  params.rotary_pairs = mixer.rotary_pairs;
  params.rotary = mixer.rotary;
  params.pages = mixer.pages;
  return params;
}

void Runner::prepare_latent(const DeviceLatent& mixer) {
  const char* element = shape_.role == Role::prefill ? "bf16" : "f32";
  machine_.launch(multiplier_.step_row(mla::latent_rows_row(mixer.page_latent, element)),
                  static_cast<int>(mla::latent_rows_blocks(shape_.rows)), latent_rows(mixer));
}

// Whether the query's second matrix norms the latent itself, which saves a launch in front of it: few rows,
// and a latent as wide as the matrix is packed.
bool Runner::norms_query(const DeviceLatent& mixer) {
  return mixer.has_query_latent() && shape_.rows <= dense::kTokens &&
         mixer.query_norm.columns == mixer.query.matrices.front().columns() &&
         !multiplier_.norms_apart(mixer.query, shape_.rows);
}

// Of generated rows: through the query's second matrix, if there is one. Where it norms, the projection stays
// as it is for the cache, and the result lies behind it.
Runner::LatentQueries Runner::query_latent(const DeviceLatent& mixer, bool norms) {
  if (!mixer.has_query_latent()) return {buffers_.projection, mixer.in.width};
  auto* const projection = static_cast<float*>(buffers_.projection);
  float* const out = norms ? projection + std::int64_t{shape_.rows} * mixer.in.width : projection;
  DenseInput in{.rows = buffers_.mixed};
  if (norms)
    in = {.x = projection + mixer.in.first_column[0], .norm = &mixer.query_norm, .x_stride = mixer.in.width};
  multiplier_.generated(mixer.query, shape_.rows, in, {.out = out, .stride = mixer.query.width}, nullptr);
  return {out, mixer.query.width};
}

// From the second projection, or from the first where there is none behind it, to [rows, heads, latent + 64].
mla::TurnQueriesParams Runner::turned(const DeviceLatent& mixer, const LatentQueries& queries) const {
  mla::TurnQueriesParams turn{};
  turn.tables = places_.tables;
  turn.projection = queries.rows;
  turn.projection_stride = queries.stride;
  turn.column = mixer.turned_column;
  turn.heads = mixer.heads;
  turn.rotary_pairs = mixer.rotary_pairs;
  turn.rotary = mixer.rotary;
  turn.query = buffers_.query;
  turn.latent_columns = mixer.latent_columns();
  turn.page_latent = mixer.page_latent;
  return turn;
}

mla::HeadLinearParams Runner::absorbed(const DeviceLatent& mixer, const LatentQueries& queries) const {
  mla::HeadLinearParams absorb{};
  const int element_bytes = shape_.role == Role::prefill ? 2 : 4;
  absorb.in = static_cast<const unsigned char*>(queries.rows) + mixer.plain_column * element_bytes;
  absorb.in_stride = queries.stride;
  absorb.in_head_stride = absorb.in_columns = mixer.plain_columns;
  absorb.weight = mixer.key_up;
  absorb.weight_stride = mixer.up_stride;
  absorb.heads = mixer.heads;
  absorb.out_columns = mixer.latent_columns();
  absorb.out = buffers_.query;
  absorb.out_head_stride = mixer.page_latent + mla::kPanelColumns;
  absorb.out_stride = mixer.query_columns();
  absorb.row_count = shape_.rows;
  return absorb;
}

void Runner::absorb_queries(const DeviceLatent& mixer, const LatentQueries& queries) {
  const char* element = shape_.role == Role::prefill ? "bf16" : "f32";
  machine_.launch(multiplier_.step_row(mla::turn_queries_row(element)),
                  static_cast<int>(mla::turn_queries_blocks(shape_.rows, mixer.heads)),
                  turned(mixer, queries));
  const mla::HeadLinearParams absorb = absorbed(mixer, queries);
  const int tokens = head_tokens(shape_.rows);
  machine_.launch(
      multiplier_.step_row(mla::head_linear_row(true, element, tokens)),
      static_cast<int>(mla::head_linear_blocks(shape_.rows, mixer.heads, absorb.out_columns, tokens)),
      absorb);
}

// Both in one launch, and the rows of the cache where they are not written yet.
void Runner::join_queries(const DeviceLatent& mixer, const LatentQueries& queries, bool caches) {
  const mla::AbsorbParams params{
      .cache = latent_rows(mixer),
      .turn = turned(mixer, queries),
      .absorb = absorbed(mixer, queries),
      .cache_blocks = caches ? static_cast<int>(mla::warp_blocks(shape_.rows)) : 0,
      .turn_blocks = static_cast<int>(mla::turn_queries_blocks(shape_.rows, mixer.heads))};
  machine_.launch(multiplier_.step_row(mla::absorb_row(mixer.page_latent)),
                  static_cast<int>(mla::absorb_blocks(params)), params);
}

mla::AttendParams Runner::latent_pages(const DeviceLatent& mixer) const {
  mla::AttendParams attend{};
  attend.tables = places_.tables;
  attend.query = buffers_.query;
  attend.pages = mixer.pages;
  attend.heads = mixer.heads;
  attend.scale_log2 = mixer.scale * kLog2E;
  attend.growth_positions = mixer.growth_positions;
  attend.grown_scale = mixer.grown_scale;
  return attend;
}

void Runner::attend_latent_prompt(const DeviceLatent& mixer) {
  mla::AttendParams attend = latent_pages(mixer);
  attend.out = buffers_.attended;
  // wgmma has bits of its own, so the chip decides and no batch does. With few vectors it is as fast as mma
  // at latent 256 (docs/decisions/0044).
  const bool wgmma = machine_.arch().has_wgmma;
  const int tile =
      wgmma ? mla::wgmma_tile(mixer.page_latent) : mla::mma_tile(mixer.heads * shape_.sequence_rows);
  // A block a unit, and for each sequence one that may stay without any.
  const std::int64_t units = mla::vector_tiles(shape_.rows, mixer.heads, tile) + shape_.sequences;
  machine_.launch(multiplier_.step_row(mla::prompt_row(mixer.page_latent, tile, wgmma)),
                  static_cast<int>(units), attend);
}

// Generated rows: what the splits leave, and what merges it.
attention::CombineParams Runner::attend_latent(const DeviceLatent& mixer) {
  mla::AttendParams attend = latent_pages(mixer);
  // Two numbers for every page_latent of them: the workspace is divided so, whatever its size.
  attend.partial = static_cast<float*>(buffers_.workspace);
  const std::size_t room = buffers_.workspace_bytes -
                           buffers_.workspace_bytes / static_cast<std::size_t>(mixer.page_latent + 2) * 2;
  attend.partial_scale =
      reinterpret_cast<float*>(static_cast<unsigned char*>(buffers_.workspace) + room / 256 * 256);
  const int tile = mla::mma_tile(mixer.heads * shape_.sequence_rows);
  // One key for all heads.
  const int most = 2 * machine_.sm_count();
  const int blocks =
      shape_.is_short ? short_grid(most, shape_.sequences, shape_.sequence_rows, mixer.heads, 1, tile) : most;
  machine_.launch(multiplier_.step_row(mla::attend_row(mixer.page_latent, tile)), blocks, attend);
  attention::CombineParams combine{};
  combine.tables = places_.tables;
  combine.partial = attend.partial;
  combine.partial_scale = attend.partial_scale;
  combine.heads = mixer.heads;
  combine.out = buffers_.attended;
  return combine;
}

// What attention gave, from the latent's space to the rows of the output matrix.
mla::HeadLinearParams Runner::expanded(const DeviceLatent& mixer) const {
  mla::HeadLinearParams expand{};
  expand.in = buffers_.attended;
  expand.in_head_stride = mixer.page_latent;
  expand.in_stride = mixer.heads * mixer.page_latent;
  expand.in_columns = mixer.latent_columns();
  expand.weight = mixer.value_up;
  expand.weight_stride = mixer.up_stride;
  expand.heads = mixer.heads;
  expand.out_columns = expand.out_head_stride = mixer.value_columns;
  expand.out = buffers_.mixed;
  expand.out_stride = mixer.mixed_columns();
  expand.pad_columns = mixer.mixed_columns() - mixer.heads * mixer.value_columns;
  expand.row_count = shape_.rows;
  return expand;
}

void Runner::expand_heads(const DeviceLatent& mixer) {
  const mla::HeadLinearParams expand = expanded(mixer);
  const int tokens = head_tokens(shape_.rows);
  machine_.launch(
      multiplier_.step_row(mla::head_linear_row(false, "bf16", tokens)),
      static_cast<int>(mla::head_linear_blocks(shape_.rows, mixer.heads, expand.out_columns, tokens)),
      expand);
}

// Generated rows. Few of them are worth no launch that could be part of another.
void Runner::attend(const DeviceLatent& mixer) {
  const bool joins = ways_.joins_latent && shape_.rows <= mla::kAbsorbTokens;
  const bool norms = joins && norms_query(mixer);
  // The projection is still there when the queries are absorbed.
  const bool caches = joins && (norms || !mixer.has_query_latent());
  if (!caches) prepare_latent(mixer);
  const LatentQueries queries = query_latent(mixer, norms);
  if (joins)
    join_queries(mixer, queries, caches);
  else
    absorb_queries(mixer, queries);
  const attention::CombineParams combine = attend_latent(mixer);
  const mla::HeadLinearParams expand = expanded(mixer);
  if (joins && mla::combine_expands(shape_.rows, mixer.heads, expand.in_columns, expand.out_columns)) {
    machine_.launch(
        multiplier_.step_row(mla::combine_expand_row(mixer.page_latent)),
        static_cast<int>(mla::combine_expand_blocks(shape_.rows, mixer.heads, expand.out_columns)),
        mla::CombineExpandParams{combine, expand});
    return;
  }
  machine_.launch(multiplier_.step_row(attention::combine_row(mixer.page_latent)),
                  static_cast<int>(attention::combine_blocks(shape_.rows, mixer.heads)), combine);
  expand_heads(mixer);
}

void Runner::mix(const DeviceLatent& mixer) {
  if (wants(Stage::attention_in))
    multiplier_.generated(mixer.in, shape_.rows, normed_input(mixer.norm),
                          {.out = buffers_.projection, .stride = mixer.in.width}, buffers_.normed);
  if (wants(Stage::attention)) attend(mixer);
  if (wants(Stage::attention_out)) add_mixed(mixer.out);
}

void Runner::prompt_mix(const DeviceLatent& mixer) {
  if (wants(Stage::attention_in))
    multiplier_.prompt(
        mixer.in, shape_.rows, prompt_input(mixer.norm, false, mixer.in),
        {.out = buffers_.projection, .stride = mixer.in.width, .op = dense::PlainOp::store_bf16});
  if (wants(Stage::attention)) {
    prepare_latent(mixer);
    if (mixer.has_query_latent())
      multiplier_.prompt(
          mixer.query, shape_.rows, {.rows = buffers_.mixed},
          {.out = buffers_.projection, .stride = mixer.query.width, .op = dense::PlainOp::store_bf16});
    absorb_queries(mixer,
                   {buffers_.projection, mixer.has_query_latent() ? mixer.query.width : mixer.in.width});
    attend_latent_prompt(mixer);
    expand_heads(mixer);
  }
  if (wants(Stage::attention_out)) prompt_output(mixer.out);
}

}  // namespace fourfold::backend::cuda
