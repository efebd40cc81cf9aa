#include "kernels/launch/work_machine.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "base/weight_format.h"
#include "kernels/attention/attention_params.h"
#include "kernels/delta/delta_params.h"
#include "kernels/dense/dense_pair.h"
#include "kernels/dense/dense_params.h"
#include "kernels/dense/dense_table_params.h"
#include "kernels/dense/many_pair.h"
#include "kernels/dense/many_params.h"
#include "kernels/mla/mla_params.h"
#include "kernels/moe/paths.h"
#include "kernels/moe_combine/combine_params.h"
#include "kernels/record/record.h"

namespace fourfold::kernels {
namespace {

using plan::KernelWork;

constexpr double kGroupBytes = 2 * 64;  // 32 columns of a staged row, read and written
constexpr int kFewWarps = 8;            // that multiply in a block of either few-token kernel

// Of a record of a row's weights, by its format's name.
double record_bytes_of(std::string_view format) {
  if (format == record::Bf16Format::name) return record::kRecordBytes<record::Bf16Format>;
  if (format == record::Fp8Format::name) return record::kRecordBytes<record::Fp8Format>;
  if (format == record::Nvfp4::name) return record::kRecordBytes<record::Nvfp4>;
  check(format == record::Mxfp4::name, "a format that has records");
  return record::kRecordBytes<record::Mxfp4>;
}

constexpr double kFp4Bytes = 4.5 / 8;  // of a number in a token record

// Of a number of the rows that a GEMM reads.
double token_bytes_of(std::string_view path) {
  return path == moe::W4a4::name ? kFp4Bytes : moe::takes_fp8(path) ? 1 : 2;
}

// The rows of a GEMM, in and out. `read`: of those that it finds in memory; slots may share one.
double gemm_row_bytes(const plan::RowFacts& facts, const moe::GemmParams& params, double read, double rows) {
  const double columns = 1.0 * params.strips * record::kRows;
  const bool is_fp4 = facts.path == moe::W4a4::name;
  const double in = read * params.records * record::kColumns * token_bytes_of(facts.path);
  if (params.op == moe::Op::gate_up) return in + rows * columns / 2 * (is_fp4 ? kFp4Bytes : 2);
  if (params.op == moe::Op::add_f32) return in + rows * columns * 8;
  return in + rows * columns * (moe::stores_f32(params.op, facts.role == "decode") ? 4 : 2);
}

void add_matrix(KernelWork& work, double records, std::string_view format, double tokens, double tile) {
  work.weight_bytes += records * record_bytes_of(format);
  work.visits += records * std::ceil(tokens / tile);
  work.visit_tokens += records * tokens;
}

// Splits of 64 to 512 positions, dealt out to the grid's blocks; two blocks share an SM where there are more
// than SMs. A page is read once for every tile of query vectors.
void note_attend(KernelWork& work, const plan::RowFacts& facts, const attention::AttendParams& params,
                 const StepScene& scene, int sms) {
  const double element = facts.format == "fp8" ? 1 : 2;
  const int last = static_cast<int>(scene.context) + scene.sequence_rows - 1;
  const double tiles = std::ceil(static_cast<double>(scene.sequence_rows) * params.heads_per_kv / facts.m);
  const int first = static_cast<int>(scene.context);
  const int splits = attention::split_count(first, last, params.window);
  const double units = scene.sequences * splits * params.kv_heads * tiles;
  // Whole pages, from the first that a row sees something of.
  const int read =
      last + 1 - attention::first_seen(first, params.window) / step::kPageTokens * step::kPageTokens;
  const int last_split = attention::split_of(last);
  const int longest =
      splits < 2
          ? read
          : std::min(read, attention::split_begin(last_split + 1) - attention::split_begin(last_split));
  work.chain = std::ceil(units / work.blocks) * (units > sms ? 2 : 1);
  work.link_bytes = longest * 2.0 * facts.k * element;
  work.other_bytes = scene.sequences * params.kv_heads * tiles * read * 2.0 * facts.k * element;
}

// Half of a prompt's own positions lie before a row, on average; a window has fewer.
void note_attend_prompt(KernelWork& work, const plan::RowFacts& facts, const attention::PromptParams& params,
                        const StepScene& scene) {
  const double head_dim = facts.k, element = facts.format == "fp8" ? 1 : 2;
  double seen = scene.context + scene.sequence_rows / 2.0;
  if (params.window > 0) seen = std::min(seen, 1.0 * params.window);
  work.flops = 4.0 * scene.rows * seen * params.heads * head_dim;
  const double read = 2.0 * (scene.context + scene.sequence_rows) * scene.sequences * params.kv_heads;
  work.row_bytes =
      head_dim * (element * read + 2.0 * (params.gate != nullptr ? 3 : 2) * scene.rows * params.heads);
}

// Queries, keys and values of the projection, and the same again normed and turned.
void note_prepare(KernelWork& work, const plan::RowFacts& facts, const attention::PrepareParams& params,
                  const StepScene& scene) {
  const double numbers = 1.0 * scene.rows * (params.heads + 2 * params.kv_heads) * facts.head_dim;
  work.row_bytes = numbers * ((facts.from_f32 ? 4 : 2) + 2);
}

// The chunk form (kernels/delta/README.md). Of a chunk: keys with keys and queries with keys for every key
// head, W and U for every value head; then W S, Q S, P U and the state's own product.
void note_delta_prompt(KernelWork& work, const delta::PromptParams& params, const StepScene& scene) {
  const delta::Layout& layout = params.layout;
  const double chunks = params.chunk_limit, rows = scene.rows, dim = layout.head_dim;
  const double square = 2.0 * delta::kBlockRows * delta::kBlockRows * dim;
  const double state = 2.0 * delta::kBlockRows * dim * dim;
  const delta::PromptSizes sizes{params.chunk_limit, scene.rows, layout};
  const double answers = static_cast<double>(sizes.answers());
  const double handed = static_cast<double>(sizes.bytes()) - answers;
  work.chain = chunks / scene.sequences;
  if (work.kernel == delta::kPrepareKernel) {
    work.flops = chunks * square * (2 * layout.key_heads + 2 * layout.value_heads);
    work.row_bytes = handed + 2 * rows * (2 * layout.key_dim + layout.value_dim);
  } else if (work.kernel == delta::kScanKernel) {
    work.flops = chunks * layout.value_heads * (square + 3 * state);
    work.row_bytes = handed + answers + 8.0 * scene.sequences * layout.value_dim * dim;  // S in and out
  } else {
    work.row_bytes = answers + 2 * 2 * rows * layout.value_dim;  // the gate in, the result out
  }
}

// A latent row is read from memory once for all heads; the blocks of other vectors find it in the L2 cache.
void note_attend_latent(KernelWork& work, const plan::RowFacts& facts, const mla::AttendParams& params,
                        const StepScene& scene) {
  const bool is_prompt = facts.kernel == "attend_latent_prompt";
  const double seen = is_prompt ? scene.context + scene.sequence_rows / 2.0 : scene.context + 1.0;
  work.other_bytes = scene.sequences * (scene.context + scene.sequence_rows) * 2.0 * facts.k;
  work.flops = 2.0 * scene.rows * seen * params.heads * (facts.k + facts.head_dim);
  work.latent = facts.head_dim;
}

void note_head_linear(KernelWork& work, const mla::HeadLinearParams& head) {
  const double in = head.in_columns, out = head.out_columns;
  work.other_bytes = 2.0 * head.heads * (in * out + head.row_count * (in + out));
  work.flops = 2.0 * head.row_count * head.heads * in * out;
}

// The anchor of a sequence's first block is zero and not read; behind it the rows since it are.
void note_delta_decode(KernelWork& work, const delta::DecodeParams& params, const StepScene& scene) {
  const delta::Layout& layout = params.layout;
  const bool has_anchor = scene.context >= delta::kBlockRows;
  const double cells = has_anchor ? static_cast<double>(layout.value_dim) * layout.head_dim : 0;
  const double rows = has_anchor ? delta::kBlockRows / 2.0 : std::max(1.0, scene.context);
  work.other_bytes = 4.0 * scene.sequences * (cells + rows * (layout.key_dim + layout.value_dim));
  work.chain = scene.sequence_rows;
}

template <class Params>
const Params& as(const void* params) {
  return *static_cast<const Params*>(params);
}

// Of a number that a prompt's norm reads, writes back and leaves in the forms that are wanted.
double prompt_rows_bytes(const dense::PromptRows& rows) {
  return 8.0 + (rows.plain ? 2 : 0) + (rows.staged ? 2 : 0) + (rows.codes ? 1 : 0);
}

// The experts' rows, the residual stream read and written, and its norm.
void note_combine_norm(KernelWork& work, const moe_combine::CombineParams& combine) {
  work.tokens = combine.tokens;
  work.other_bytes = static_cast<double>(combine.tokens) * combine.columns * (combine.top_k * 4 + 10);
}

void note_dense(KernelWork& work, const dense::DenseParams& params, std::string_view format, double tile) {
  work.tokens = params.token_count;
  add_matrix(work, static_cast<double>(params.strips) * params.records, format, params.token_count, tile);
}
// Of the segments that dense_many leaves.
double sum_bytes(const dense::DenseParams& params) {
  return static_cast<double>(dense::partial_bytes(params.strips * record::kRows,
                                                  params.records * record::kColumns, params.token_count));
}

}  // namespace

void WorkMachine::launch(RowHandle row, int blocks, const void* params, std::size_t params_bytes) {
  if (blocks == 0) return;
  CountingMachine::launch(row, blocks, params, params_bytes);
  const plan::RowFacts& its = facts(row);
  KernelWork work;
  work.kernel = its.kernel;
  work.row = told_name(row.kind, its);
  work.tokens = scene_.rows;
  if (row.kind == RowKind::basic) {
    note_basic(work, its, params);
  } else {
    work.format = its.format;
    work.shared_bytes = its.total_bytes;
    note(work, its, blocks, params);
  }
  work_.push_back(std::move(work));
}

void WorkMachine::note_basic(KernelWork& work, const plan::RowFacts& facts, const void* params) {
  const std::string& kernel = work.kernel;
  if (kernel == moe_tokens::kStageRow) {
    work.other_bytes = kGroupBytes * static_cast<double>(as<moe_tokens::StageParams>(params).groups);
  } else if (kernel == moe_tokens::kQuantizeRow) {
    // bf16 rows in, records of 4.5 bits a number out.
    const auto& quantize = as<moe_tokens::QuantizeParams>(params);
    const bool is_routed = route_.tables.tiles != nullptr && quantize.tiles == route_.tables.tiles;
    const double rows = is_routed ? 1.0 * route_.tokens * route_.top_k : scene_.rows;
    work.other_bytes = (2 + kFp4Bytes) * 64.0 * quantize.column_records * rows;
  } else if (kernel == "combine") {
    const auto& combine = as<moe_combine::CombineParams>(params);
    const double number_bytes = facts.format == "f32" ? 4 : 2;
    work.tokens = combine.tokens;
    work.other_bytes = static_cast<double>(combine.tokens) * combine.columns *
                       (combine.top_k * number_bytes + (combine.residual != nullptr ? 8 : 2) +
                        (combine.joined.rows != nullptr ? 2 : 0));
  } else if (kernel.starts_with("route_")) {
    note_route(work, as<moe_route::RouteParams>(params));
  }
}

void WorkMachine::note_route(KernelWork& work, const moe_route::RouteParams& params) {
  work.tokens = params.tokens;
  // One kernel ranks: choose where there is one, else table.
  const bool chooses = work.kernel == moe_route::kChooseRow;
  const bool ranks =
      chooses || work.kernel == dense::kDenseTable || work.kernel == dense::kManyTable ||
      (work.kernel == moe_route::kTableRow && moe_route::in_one_block(params.tokens, params.experts));
  work.experts = ranks ? params.experts : 0;
  if (chooses) work.other_bytes = kGroupBytes * static_cast<double>(params.stage.groups);
  route_ = params;
}

// A routed GEMM reads the tiles that routing wrote; a dense one has all rows of the step as one expert's.
void WorkMachine::note_gemm(KernelWork& work, const plan::RowFacts& facts, const moe::GemmParams& params) {
  const int tile_tokens = facts.n;
  work.tile_tokens = tile_tokens;
  if (params.op == moe::Op::gate_up) work.part = "gate_up";
  if (params.op == moe::Op::down) work.part = "down";
  const double records = static_cast<double>(params.strips) * params.records;
  if (route_.tables.tiles == nullptr || params.tiles != route_.tables.tiles) {
    work.row_bytes = gemm_row_bytes(facts, params, scene_.rows, scene_.rows);
    return add_matrix(work, records, work.format, scene_.rows, tile_tokens);
  }
  const double slots = 1.0 * route_.tokens * route_.top_k;
  work.row_bytes = gemm_row_bytes(facts, params, params.slot_token != nullptr ? route_.tokens : slots, slots);
  const plan::ExpectedTiles expected =
      plan::expected_tiles(route_.tokens, route_.top_k, route_.experts, tile_tokens, scene_.routing);
  work.tokens = route_.tokens;
  work.weight_bytes = records * expected.experts * record_bytes_of(work.format);
  work.visits = records * expected.tiles;
  work.visit_tokens = records * route_.tokens * route_.top_k;
}

// GEMM1: a warp a segment of K, so several strips at a time where segments are few, or all segments of a
// block's strips. GEMM2: a block has a
// strip of outputs and all pairs; its units wait with their weights for GEMM1.
void WorkMachine::note_few(KernelWork& work, const moe_few::FewCall& call) {
  const moe_few::FewParams& few = call.few;
  const moe::GemmParams& params = call.gemm;
  const double records = static_cast<double>(params.strips) * params.records;
  const plan::ExpectedTiles expected =
      plan::expected_tiles(few.tokens, few.top_k, few.experts, moe_few::kFewTokens, scene_.routing);
  work.tokens = few.tokens;
  work.weight_bytes = records * expected.experts * record_bytes_of(work.format);
  work.visits = records * expected.tiles;
  work.visit_tokens = records * few.tokens * few.top_k;
  const int segments = (params.records + dense::kSegmentRecords - 1) / dense::kSegmentRecords;
  const double segment_records = std::min(params.records, dense::kSegmentRecords);
  if (work.kernel != "moe_few_down") work.experts = few.experts;
  if (work.kernel == moe_few::kStreamKernel) {  // a block's segments, dealt out to its warps
    const double strips = std::ceil(params.strips * expected.tiles / sm_count());
    work.chain = segment_records * std::ceil(strips * segments / kFewWarps);
    return;
  }
  if (work.kernel == "moe_few_gate_up") {
    const double groups = std::max(1, kFewWarps / segments);
    work.chain = segment_records * std::ceil(params.strips * expected.tiles / (sm_count() * groups));
    return;
  }
  work.chain = segment_records * std::ceil(1.0 * few.tokens * few.top_k * segments / kFewWarps);
  if (few.shared.weights != nullptr)
    add_matrix(work, static_cast<double>(params.strips) * few.shared.records, format_name(few.shared.format),
               few.tokens, moe_few::kFewTokens);
}

// Blocks of grouped GEMMs stay and walk a list, as many as the chip holds; those of the other kernels are
// part of what they have to do.
void WorkMachine::note(KernelWork& work, const plan::RowFacts& facts, int blocks, const void* params) {
  const std::string& kernel = work.kernel;
  if (kernel == "moe_gemm" || kernel == "moe_stream")
    return note_gemm(work, facts, as<moe::GemmParams>(params));
  if (kernel == "moe_few_gate_up" || kernel == moe_few::kStreamKernel || kernel == "moe_few_down")
    return note_few(work, as<moe_few::FewCall>(params));
  work.blocks = blocks;
  if (kernel == "dense_few" || kernel == "dense_near") {
    note_dense(work, as<dense::DenseParams>(params), facts.format, 8);
  } else if (kernel == "dense_pair") {
    const auto& pair = as<dense::PairParams>(params);
    work.format = facts.row.find("fp8") != std::string::npos ? "fp8" : "nvfp4";  // the second one's
    note_dense(work, pair.first, "bf16", 8);
    note_dense(work, pair.second, work.format, 8);
  } else if (kernel == dense::kDenseTable) {
    const auto& both = as<dense::DenseTableParams>(params);
    note_route(work, both.route);
    note_dense(work, both.dense, facts.format, facts.n);
  } else if (kernel == dense::kManyTable) {
    note_route(work, as<dense::ManyTableParams>(params).route);
    note_dense(work, as<dense::ManyTableParams>(params).many.dense, facts.format, facts.n);
  } else if (kernel == "dense_many" || kernel == "dense_tall") {
    note_dense(work, as<dense::ManyParams>(params).dense, facts.format, facts.n);
  } else if (kernel == "dense_many_pair") {
    const auto& pair = as<dense::ManyPairParams>(params);
    note_dense(work, pair.first.dense, "bf16", facts.n);
    note_dense(work, pair.second.dense, facts.format, facts.n);
  } else if (kernel == "dense_sum" || kernel == "dense_sum_norm") {
    work.other_bytes = sum_bytes(as<dense::ManyParams>(params).dense);
  } else if (kernel == "dense_sum_pair") {
    const auto& pair = as<dense::ManyPairParams>(params);
    work.other_bytes = sum_bytes(pair.first.dense) + sum_bytes(pair.second.dense);
  } else if (kernel == "combine_norm") {
    note_combine_norm(work, as<moe_combine::CombineNormParams>(params).combine);
  } else if (kernel == "norm_rows") {
    work.other_bytes = 10.0 * blocks * as<dense::NormParams>(params).columns;
  } else if (kernel == dense::kNormPromptRow) {
    const auto& norm = as<dense::NormPromptParams>(params);
    work.other_bytes = prompt_rows_bytes(norm.rows) * blocks * norm.norm.columns;
  } else if (kernel == dense::kNormFp4Row) {
    const auto& norm = as<dense::NormFp4Params>(params);
    double bytes = prompt_rows_bytes(norm.rows);
    for (const dense::Fp4Rows& set : norm.fp4) bytes += set.records != nullptr ? kFp4Bytes : 0;
    work.other_bytes = bytes * norm.row_count * norm.norm.columns;
  } else if (kernel == dense::kQuantizeRowsRow) {
    const auto& quantize = as<dense::QuantizeRowsParams>(params);
    work.other_bytes = 3.0 * quantize.row_count * quantize.columns;
  } else if (kernel == "row_squares") {
    const auto& squares = as<attention::SquaresParams>(params);
    work.other_bytes = (facts.from_f32 ? 4.0 : 2.0) * blocks * (squares.query_columns + squares.key_columns);
  } else if (kernel == "attend") {
    note_attend(work, facts, as<attention::AttendParams>(params), scene_, sm_count());
  } else if (kernel == "attend_prompt") {
    note_attend_prompt(work, facts, as<attention::PromptParams>(params), scene_);
  } else if (kernel == "attend_latent" || kernel == "attend_latent_prompt") {
    note_attend_latent(work, facts, as<mla::AttendParams>(params), scene_);
  } else if (kernel == "head_linear") {
    note_head_linear(work, as<mla::HeadLinearParams>(params));
  } else if (kernel == "absorb_queries") {
    note_head_linear(work, as<mla::AbsorbParams>(params).absorb);
  } else if (kernel == "combine_expand") {
    note_head_linear(work, as<mla::CombineExpandParams>(params).expand);
  } else if (kernel == "delta_decode") {
    note_delta_decode(work, as<delta::DecodeParams>(params), scene_);
  } else if (kernel.starts_with("delta_")) {
    note_delta_prompt(work, as<delta::PromptParams>(params), scene_);
  } else if (kernel == "prepare") {
    note_prepare(work, facts, as<attention::PrepareParams>(params), scene_);
  }
}

}  // namespace fourfold::kernels
