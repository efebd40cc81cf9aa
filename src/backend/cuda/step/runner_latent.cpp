// The launches of latent attention (kernels/mla, docs/decisions/0029-mla.md): generated rows and prompts
// differ in the matrices' kernels and in who merges the splits.
#include <algorithm>

#include "backend/cuda/step/runner.h"
#include "kernels/attention/attention_params.h"
#include "kernels/mla/mla_params.h"

namespace fourfold::backend::cuda {
namespace {

constexpr float kLog2E = 1.44269504088896341f;

// Few rows read each weight once; more of them share it in an SM's cache.
int head_tokens(int rows) { return rows <= 16 ? 16 : 32; }

}  // namespace

// From the projections to the query's latent and to the rows' pages.
void Runner::prepare_latent(const DeviceLatent& mixer) {
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
  const char* element = shape_.role == Role::prefill ? "bf16" : "f32";
  machine_.launch(multiplier_.step_row(mla::latent_rows_row(mixer.page_latent, element)),
                  static_cast<int>(mla::latent_rows_blocks(shape_.rows)), params);
}

// From the second projection, or from the first where there is none behind it, to [rows, heads, latent + 64].
void Runner::absorb_queries(const DeviceLatent& mixer) {
  const char* element = shape_.role == Role::prefill ? "bf16" : "f32";
  const int stride = mixer.has_query_latent() ? mixer.query.width : mixer.in.width;
  mla::TurnQueriesParams turn{};
  turn.tables = places_.tables;
  turn.projection = buffers_.projection;
  turn.projection_stride = stride;
  turn.column = mixer.turned_column;
  turn.heads = mixer.heads;
  turn.rotary_pairs = mixer.rotary_pairs;
  turn.rotary = mixer.rotary;
  turn.query = buffers_.query;
  turn.latent_columns = mixer.latent_columns();
  turn.page_latent = mixer.page_latent;
  machine_.launch(multiplier_.step_row(mla::turn_queries_row(element)),
                  static_cast<int>(mla::turn_queries_blocks(shape_.rows, mixer.heads)), turn);

  mla::HeadLinearParams absorb{};
  const int element_bytes = shape_.role == Role::prefill ? 2 : 4;
  absorb.in = static_cast<const unsigned char*>(buffers_.projection) + mixer.plain_column * element_bytes;
  absorb.in_stride = stride;
  absorb.in_head_stride = absorb.in_columns = mixer.plain_columns;
  absorb.weight = mixer.key_up;
  absorb.weight_stride = mixer.up_stride;
  absorb.heads = mixer.heads;
  absorb.out_columns = mixer.latent_columns();
  absorb.out = buffers_.query;
  absorb.out_head_stride = mixer.page_latent + mla::kPanelColumns;
  absorb.out_stride = mixer.query_columns();
  absorb.row_count = shape_.rows;
  const int tokens = head_tokens(shape_.rows);
  machine_.launch(
      multiplier_.step_row(mla::head_linear_row(true, element, tokens)),
      static_cast<int>(mla::head_linear_blocks(shape_.rows, mixer.heads, absorb.out_columns, tokens)),
      absorb);
}

void Runner::attend_latent(const DeviceLatent& mixer) {
  mla::AttendParams attend{};
  attend.tables = places_.tables;
  attend.query = buffers_.query;
  attend.pages = mixer.pages;
  attend.heads = mixer.heads;
  attend.scale_log2 = mixer.scale * kLog2E;
  attend.growth_positions = mixer.growth_positions;
  attend.grown_scale = mixer.grown_scale;
  const int vectors = mixer.heads * shape_.sequence_rows, mma_tile = mla::mma_tile(vectors);
  if (shape_.role == Role::prefill) {
    attend.out = buffers_.attended;
    // wgmma has bits of its own, so the chip decides and no batch does. With few vectors it is as fast as mma
    // at latent 256 (docs/decisions/0044).
    const bool wgmma = machine_.arch().has_wgmma;
    const int tile = wgmma ? mla::wgmma_tile(mixer.page_latent) : mma_tile;
    // A block a unit, and for each sequence one that may stay without any.
    const std::int64_t units = mla::vector_tiles(shape_.rows, mixer.heads, tile) + shape_.sequences;
    machine_.launch(multiplier_.step_row(mla::prompt_row(mixer.page_latent, tile, wgmma)),
                    static_cast<int>(units), attend);
    return;
  }
  // Two numbers for every page_latent of them: the workspace is divided so, whatever its size.
  attend.partial = static_cast<float*>(buffers_.workspace);
  const std::size_t room = buffers_.workspace_bytes -
                           buffers_.workspace_bytes / static_cast<std::size_t>(mixer.page_latent + 2) * 2;
  attend.partial_scale =
      reinterpret_cast<float*>(static_cast<unsigned char*>(buffers_.workspace) + room / 256 * 256);
  machine_.launch(multiplier_.step_row(mla::attend_row(mixer.page_latent, mma_tile)), 2 * machine_.sm_count(),
                  attend);
  attention::CombineParams combine{};
  combine.tables = places_.tables;
  combine.partial = attend.partial;
  combine.partial_scale = attend.partial_scale;
  combine.heads = mixer.heads;
  combine.out = buffers_.attended;
  machine_.launch(multiplier_.step_row(attention::combine_row(mixer.page_latent)),
                  static_cast<int>(attention::combine_blocks(shape_.rows, mixer.heads)), combine);
}

// What attention gave, from the latent's space to the rows of the output matrix.
void Runner::expand_heads(const DeviceLatent& mixer) {
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
  const int tokens = head_tokens(shape_.rows);
  machine_.launch(
      multiplier_.step_row(mla::head_linear_row(false, "bf16", tokens)),
      static_cast<int>(mla::head_linear_blocks(shape_.rows, mixer.heads, expand.out_columns, tokens)),
      expand);
}

void Runner::mix(const DeviceLatent& mixer) {
  if (wants(Stage::attention_in))
    multiplier_.generated(mixer.in, shape_.rows, normed_input(mixer.norm),
                          {.out = buffers_.projection, .stride = mixer.in.width}, buffers_.normed);
  if (wants(Stage::attention)) {
    prepare_latent(mixer);
    if (mixer.has_query_latent())
      multiplier_.generated(mixer.query, shape_.rows, {.rows = buffers_.mixed},
                            {.out = buffers_.projection, .stride = mixer.query.width}, nullptr);
    absorb_queries(mixer);
    attend_latent(mixer);
    expand_heads(mixer);
  }
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
    absorb_queries(mixer);
    attend_latent(mixer);
    expand_heads(mixer);
  }
  if (wants(Stage::attention_out)) prompt_output(mixer.out);
}

}  // namespace fourfold::backend::cuda
