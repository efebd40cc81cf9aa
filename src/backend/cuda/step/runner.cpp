#include "backend/cuda/step/runner.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "backend/cuda/step/short_grid.h"
#include "base/error.h"
#include "base/format.h"
#include "kernels/attention/attention_params.h"
#include "kernels/delta/delta_params.h"
#include "kernels/step/step_params.h"

namespace fourfold::backend::cuda {
namespace {

constexpr float kLog2E = 1.44269504088896341f;

std::size_t rounded(std::size_t bytes) { return (bytes + 255) / 256 * 256; }

moe_layer::Request request_of(const DeviceMoe& mlp, int tokens, Role role) {
  moe_layer::Request request;
  request.shape = mlp.shape();
  request.format = mlp.experts.format;
  request.role = role == Role::prefill ? moe_layer::Role::prefill : moe_layer::Role::decode;
  request.tokens = tokens;
  request.packed_for_w4a4 = quantises(mlp.experts.input);
  request.clamped = mlp.clamped;
  if (input_of(mlp.experts.input, role) == InputFormat::nvfp4)
    request.activations = moe_layer::Activations::w4a4;
  return request;
}

// Any choice of rows: tiles of eight tokens have the longest tables.
std::size_t experts_bytes(KernelSelector& selector, const moe_layer::Request& request) {
  moe_layer::Choice choice = selector.experts(request);
  const std::size_t chosen = moe_layer::workspace_layout(request, choice).total;
  choice.few = false;
  choice.tile_tokens = moe::kSlotGroup;
  return std::max(chosen, moe_layer::workspace_layout(request, choice).total);
}

}  // namespace

Runner::Runner(kernels::Machine& machine, const DeviceModel& model, const Buffers& buffers,
               const BatchTables& tables, Multiplier& multiplier, DeviceSampler& sampler,
               all_reduce::Exchange* exchange, const StepWays& ways)
    : machine_(machine),
      model_(model),
      buffers_(buffers),
      tables_(tables),
      multiplier_(multiplier),
      sampler_(sampler),
      exchange_(exchange),
      ways_(ways) {}

void Runner::run(const PassShape& shape, const PassPlaces& places, const Watch& watch) {
  shape_ = shape;
  places_ = places;
  place_ = first_place();
  normed_ = false;
  if (shape.pass == Pass::draft) {
    const DeviceDraft& draft = *model_.draft;
    draft_input(draft, places_.hidden);
    layer(draft.layer, {});
    leave_hidden(draft.head, places_.hidden_out);
    head(draft.head, 0);
    return;
  }
  embed(model_.embedding);
  watch(0);
  for (std::size_t i = 0; i < model_.layers.size(); ++i) {
    const DeviceLayer* next = i + 1 < model_.layers.size() ? &model_.layers[i + 1] : nullptr;
    layer(model_.layers[i], next != nullptr ? next_of(next->mixer) : Next{});
    watch(static_cast<int>(i) + 1);
  }
  if (model_.keeps_hidden) leave_hidden(model_.head, places_.hidden_out);
  head(model_.head, 0);
}

void Runner::more_logits(const PassShape& shape, const PassPlaces& places, int begin, int count, bool last) {
  shape_ = shape;
  places_ = places;
  shape_.logits_rows = count;
  shape_.all_logits = false;
  shape_.more_logits = !last;
  head(shape.pass == Pass::main ? model_.head : model_.draft->head, begin);
}

void Runner::layer(const DeviceLayer& layer, const Next& next) {
  const bool prompt = shape_.role == Role::prefill;
  behind_mixer_ = next_of(layer.mlp);
  behind_layer_ = next;
  std::visit([&](const auto& mixer) { prompt ? prompt_mix(mixer) : mix(mixer); }, layer.mixer);
  reduce(behind_mixer_);
  std::visit([&](const auto& mlp) { prompt ? prompt_apply(mlp) : apply(mlp); }, layer.mlp);
  reduce(next);
}

// Both halves' sums; queries and keys, too, where they are normed over the heads of all ranks.
int Runner::exchanges_of(const DeviceLayer& layer) {
  const auto* mixer = std::get_if<DeviceAttention>(&layer.mixer);
  return mixer != nullptr && mixer->norms_rows ? 4 : 2;
}

int Runner::exchanges_of_main() const {
  int count = 0;
  for (const DeviceLayer& layer : model_.layers) count += exchanges_of(layer);
  return count;
}

int Runner::first_place() const { return shape_.pass == Pass::main ? 0 : exchanges_of_main() + 1; }

int Runner::logits_place() const {
  return first_place() +
         (shape_.pass == Pass::main ? exchanges_of_main() : exchanges_of(model_.draft->layer));
}

void Runner::reduce(const Next& next) {
  if (exchange_ == nullptr || !wants(Stage::all_reduce)) return;
  // Few generated rows are mostly normed by the matrix's own kernel, prompt rows staged behind their norm.
  normed_ = next.norm != nullptr && shape_.role != Role::prefill && exchange_->norm_pays(shape_.rows) &&
            multiplier_.norms_apart(*next.group, shape_.rows);
  if (normed_)
    exchange_->launch_norm(model_.part.rank, buffers_.x, buffers_.part, shape_.rows,
                           {next.norm->weight, next.norm->epsilon, buffers_.normed}, place_++);
  else
    exchange_->launch(model_.part.rank, buffers_.x, buffers_.part, shape_.rows, place_++);
}

DenseInput Runner::normed_input(const DeviceNorm& norm) {
  if (std::exchange(normed_, false)) return {.rows = buffers_.normed};
  return {.x = buffers_.x, .norm = &norm};
}

void Runner::add_mixed(const DenseGroup& group) {
  const DenseOutput out{.out = sum(), .stride = model_.hidden, .op = dense::PlainOp::add_f32};
  // Ranks have a part each here: what joins their sums norms it (reduce()).
  normed_ =
      ways_.sums_norm && exchange_ == nullptr && is_kept(Stage::router) &&
      multiplier_.norms_apart(*behind_mixer_.group, shape_.rows) &&
      multiplier_.add_and_norm(group, shape_.rows, buffers_.mixed, out, *behind_mixer_.norm, buffers_.normed);
  if (!normed_) multiplier_.generated(group, shape_.rows, {.rows = buffers_.mixed}, out, buffers_.normed);
}

void Runner::embed(const std::uint16_t* table) {
  if (!wants(Stage::embed)) return;
  const sampling::EmbedParams params{table, places_.tokens, buffers_.x, shape_.rows, model_.hidden};
  machine_.launch(multiplier_.step_row(sampling::kEmbedRow), sampling::embed_blocks(params), params);
}

void Runner::mix(const DeviceDelta& mixer) {
  if (wants(Stage::delta_in))
    multiplier_.generated(mixer.in, shape_.rows, normed_input(mixer.norm),
                          {.out = buffers_.projection, .stride = mixer.in.width}, buffers_.normed);
  delta::DecodeParams params{};
  params.sequences = places_.tables.sequences;
  params.sequence_limit = shape_.sequences;
  params.mixed = {buffers_.projection,      mixer.in.width,           mixer.in.first_column[0],
                  mixer.in.first_column[1], mixer.in.first_column[2], mixer.in.first_column[3]};
  params.weights = mixer.weights;
  params.state = mixer.state;
  params.layout = mixer.layout;
  params.out = buffers_.mixed;
  params.out_stride = mixer.out_columns;
  if (wants(Stage::delta))
    machine_.launch(multiplier_.step_row(delta::decode_row(mixer.layout.head_dim)),
                    delta::decode_blocks(shape_.sequences, mixer.layout), params);
  if (wants(Stage::delta_out)) add_mixed(mixer.out);
}

void Runner::mix(const DeviceAttention& mixer) {
  if (wants(Stage::attention_in))
    multiplier_.generated(mixer.in, shape_.rows, normed_input(mixer.norm),
                          {.out = buffers_.projection, .stride = mixer.in.width}, buffers_.normed);
  if (wants(Stage::attention)) attend(mixer);
  if (wants(Stage::attention_out)) add_mixed(mixer.out);
}

// For the norm over all heads; of several ranks each sends its part to the others, queries and keys at once.
void Runner::sum_squares(const DeviceAttention& mixer, const char* element) {
  attention::SquaresParams params{};
  params.tables = places_.tables;
  params.projection = buffers_.projection;
  params.projection_stride = mixer.in.width;
  params.query_column = mixer.in.first_column[0];
  params.query_columns = mixer.heads * mixer.head_dim;
  params.key_column = mixer.in.first_column[1];
  params.key_columns = mixer.kv_heads * mixer.head_dim;
  params.squares = buffers_.squares;
  machine_.launch(multiplier_.step_row(attention::squares_row(element)), shape_.rows, params);
  if (exchange_ == nullptr) return;
  if (wants(Stage::all_reduce))
    exchange_->gather(model_.part.rank, shape_.rows,
                      {reinterpret_cast<float*>(buffers_.squares), 4, 4,
                       reinterpret_cast<float*>(buffers_.all_squares), 4 * model_.part.count},
                      place_);
  place_ += 2;
  multiplier_.selector().enter(static_cast<unsigned>(Stage::attention));  // what follows is of it again
}

step::Tables Runner::tables_of(const DeviceAttention& mixer) const {
  step::Tables tables = places_.tables;
  if (mixer.has_window_pages) tables.pages = places_.window_pages;
  return tables;
}

void Runner::prepare_heads(const DeviceAttention& mixer) {
  const char* element = shape_.role == Role::prefill ? "bf16" : "f32";
  attention::PrepareParams prepare{};
  prepare.tables = tables_of(mixer);
  prepare.projection = buffers_.projection;
  prepare.projection_stride = mixer.in.width;
  prepare.query_column = mixer.in.first_column[0];
  prepare.head_stride = mixer.head_dim * (mixer.is_gated ? 2 : 1);
  prepare.key_column = mixer.in.first_column[1];
  prepare.value_column = mixer.in.first_column[2];
  prepare.heads = mixer.heads;
  prepare.kv_heads = mixer.kv_heads;
  prepare.query_weight = mixer.query_weight;
  prepare.key_weight = mixer.key_weight;
  prepare.epsilon = mixer.epsilon;
  prepare.query_bias = mixer.query_bias;
  prepare.key_bias = mixer.key_bias;
  prepare.value_bias = mixer.value_bias;
  if (mixer.norms_rows) {
    sum_squares(mixer, element);
    prepare.squares = buffers_.all_squares;
    prepare.square_parts = model_.part.count;
    prepare.per_query_column = 1.0f / static_cast<float>(mixer.query_columns);
    prepare.per_key_column = 1.0f / static_cast<float>(mixer.key_columns);
  }
  prepare.rotary_pairs = mixer.rotary_pairs;
  prepare.rotary = mixer.rotary;
  prepare.query = buffers_.query;
  prepare.keys = mixer.keys;
  prepare.values = mixer.values;
  const bool is_biased = mixer.norms_rows || mixer.query_bias != nullptr || mixer.key_bias != nullptr ||
                         mixer.value_bias != nullptr;
  machine_.launch(
      multiplier_.step_row(attention::prepare_row(mixer.head_dim, format_name(mixer.kv), element, is_biased)),
      static_cast<int>(attention::prepare_blocks(shape_.rows, mixer.heads, mixer.kv_heads)), prepare);
}

void Runner::attend(const DeviceAttention& mixer) {
  prepare_heads(mixer);
  const step::Tables tables = tables_of(mixer);
  // Two numbers for every head_dim of them: the workspace is divided so, whatever its size.
  auto* partial = static_cast<float*>(buffers_.workspace);
  const std::size_t partial_room =
      buffers_.workspace_bytes - buffers_.workspace_bytes / static_cast<std::size_t>(mixer.head_dim + 2) * 2;
  auto* partial_scale =
      reinterpret_cast<float*>(static_cast<unsigned char*>(buffers_.workspace) + partial_room / 256 * 256);
  attention::AttendParams attend{};
  attend.tables = tables;
  attend.query = buffers_.query;
  attend.keys = mixer.keys;
  attend.values = mixer.values;
  attend.partial = partial;
  attend.partial_scale = partial_scale;
  attend.heads = mixer.heads;
  attend.kv_heads = mixer.kv_heads;
  attend.heads_per_kv = mixer.heads / mixer.kv_heads;
  attend.scale_log2 = mixer.scale * kLog2E;
  attend.window = mixer.window;
  const AttendForm form = multiplier_.selector().attend(
      {mixer.head_dim, mixer.heads, mixer.kv_heads, std::string(format_name(mixer.kv)), shape_.sequence_rows,
       shape_.rows, mixer.is_windowed});
  const kernels::RowHandle row = multiplier_.step_row(form.row);
  const int blocks = shape_.is_short ? short_grid(form.blocks, shape_.sequences, shape_.sequence_rows,
                                                  mixer.heads, mixer.kv_heads, machine_.facts(row).m)
                                     : form.blocks;
  machine_.launch(row, blocks, attend);

  attention::CombineParams combine{};
  combine.tables = tables;
  combine.partial = partial;
  combine.partial_scale = partial_scale;
  if (mixer.is_gated)
    combine.gate = static_cast<const float*>(buffers_.projection) + mixer.in.first_column[0] + mixer.head_dim;
  combine.gate_stride = mixer.in.width;
  combine.gate_head_stride = mixer.head_dim * (mixer.is_gated ? 2 : 1);
  combine.heads = mixer.heads;
  combine.out = buffers_.mixed;
  combine.window = mixer.window;
  combine.sinks = mixer.sinks;
  machine_.launch(multiplier_.step_row(attention::combine_row(mixer.head_dim, mixer.is_windowed)),
                  static_cast<int>(attention::combine_blocks(shape_.rows, mixer.heads)), combine);
}

const moe_layer::Prepared& Runner::prepared_experts(const DeviceMoe& mlp) {
  const moe_layer::Request request = request_of(mlp, shape_.rows, shape_.role);
  const std::array key{static_cast<int>(request.format),
                       request.shape.intermediate,
                       request.shape.experts,
                       request.tokens,
                       static_cast<int>(request.activations),
                       static_cast<int>(request.packed_for_w4a4),
                       static_cast<int>(request.clamped),
                       static_cast<int>(request.role)};
  auto found = layers_.find(key);
  if (found == layers_.end())
    found =
        layers_
            .emplace(key, moe_layer::prepare_with(machine_, request, multiplier_.selector().experts(request)))
            .first;
  return found->second;
}

void Runner::apply(const DeviceMlp& mlp) {
  if (!wants(Stage::mlp)) return;
  multiplier_.generated(
      mlp.gate_up, shape_.rows, normed_input(mlp.norm),
      {.inner = buffers_.inner, .inner_stride = mlp.inner, .inner_records = buffers_.fp4.inner},
      buffers_.normed);
  multiplier_.generated(mlp.down, shape_.rows, {.rows = buffers_.inner, .records = buffers_.fp4.inner},
                        {.out = sum(), .stride = model_.hidden, .op = dense::PlainOp::add_f32}, nullptr);
}

void Runner::select_norm(const DeviceNorm& norm, int count, const float* x, const std::int32_t* in_rows,
                         std::uint16_t* out, std::int64_t out_stride, float* out_f32,
                         const std::int32_t* out_rows) {
  const step::SelectNormParams params{x,   in_rows,    norm.weight, norm.epsilon, norm.columns,
                                      out, out_stride, out_f32,     out_rows};
  machine_.launch(multiplier_.step_row(step::kSelectNorm), count, params);
}

void Runner::draft_input(const DeviceDraft& draft, const float* hidden) {
  embed(draft.embedding);
  const int width = 2 * model_.hidden;
  select_norm(draft.embedding_norm, shape_.rows, buffers_.x, nullptr, buffers_.mixed, width, nullptr,
              nullptr);
  select_norm(draft.hidden_norm, shape_.rows, hidden, places_.hidden_rows, buffers_.mixed + model_.hidden,
              width, nullptr, nullptr);
  multiplier_.generated(draft.combine, shape_.rows, {.rows = buffers_.mixed},
                        {.out = buffers_.x, .stride = model_.hidden}, nullptr, shape_.role);
}

void Runner::leave_hidden(const DeviceHead& head, float* to) {
  select_norm(head.norm, shape_.rows, buffers_.x, nullptr, nullptr, 0, to, places_.batch_rows);
}

// The head's arithmetic is that of generated rows for every role: few rows ask for logits.
void Runner::head(const DeviceHead& head, int begin) {
  if (shape_.logits_rows == 0) return;
  float* logits = exchange_ != nullptr ? buffers_.logits_part : buffers_.logits;
  const DenseOutput out{.out = logits, .stride = head.matrix.width};
  if (!wants(Stage::head)) {
  } else if (shape_.all_logits && shape_.logits_rows <= dense::kTokens) {
    multiplier_.generated(head.matrix, shape_.logits_rows, {.x = buffers_.x, .norm = &head.norm}, out,
                          buffers_.normed);
  } else {
    select_norm(head.norm, shape_.logits_rows, buffers_.x, places_.logits_rows + begin, buffers_.normed,
                model_.hidden, nullptr, nullptr);
    multiplier_.generated(head.matrix, shape_.logits_rows, {.rows = buffers_.normed}, out, nullptr);
  }
  if (exchange_ != nullptr && wants(Stage::all_reduce))
    exchange_->gather(model_.part.rank, shape_.logits_rows,
                      {logits, head.matrix.width, head.columns, buffers_.logits, head.logits_stride},
                      logits_place());
  if (shape_.choice.token_limit == 0 || !wants(Stage::choice)) return;
  sampler_.launch(shape_.choice, places_.choices,
                  {buffers_.logits, head.logits_stride, begin, shape_.logits_rows, !shape_.more_logits,
                   places_.tables.rows, places_.tokens},
                  multiplier_);
}

std::size_t Runner::workspace_bytes(KernelSelector& selector, const DeviceModel& model,
                                    const Capacity& capacity) {
  std::size_t most = 0;
  const int rows = std::min(static_cast<int>(capacity.row_count), kGeneratedRows);
  const auto prompt_rows = static_cast<int>(capacity.row_count);
  const auto last = static_cast<int>(model.position_count) - 1;
  const auto see_dense = [&](const DenseGroup& group) {
    most = std::max(most, Multiplier::workspace_bytes(selector, group, rows));
  };
  see_dense(model.head.matrix);
  const auto see = [&](const DeviceLayer& layer) {
    std::visit([&](const auto& mixer) { see_dense(mixer.in), see_dense(mixer.out); }, layer.mixer);
    if (const auto* mlp = std::get_if<DeviceMlp>(&layer.mlp)) see_dense(mlp->gate_up), see_dense(mlp->down);
    if (const auto* mlp = std::get_if<DeviceMoe>(&layer.mlp)) {
      see_dense(mlp->in), see_dense(mlp->shared_down);
      most = std::max(most, experts_bytes(selector, request_of(*mlp, rows, Role::decode)));
      most = std::max(most, experts_bytes(selector, request_of(*mlp, prompt_rows, Role::prefill)));
      most = std::max(most, experts_bytes(selector, request_of(*mlp, 1, Role::decode)));
    }
    if (const auto* mixer = std::get_if<DeviceDelta>(&layer.mixer)) {
      const std::int64_t chunks = prompt_rows / step::kPageTokens + 2 * capacity.state_slot_count;
      most = std::max(
          most, static_cast<std::size_t>(delta::PromptSizes{chunks, prompt_rows, mixer->layout}.bytes()));
    }
    if (const auto* mixer = std::get_if<DeviceLatent>(&layer.mixer)) {
      if (mixer->has_query_latent()) see_dense(mixer->query);
      const std::int64_t slots = attention::slots_of(last, rows);
      most = std::max(most,
                      rounded(attention::partial_bytes(slots, mixer->heads, mixer->page_latent + 2)) + 1024);
    }
    if (const auto* mixer = std::get_if<DeviceAttention>(&layer.mixer)) {
      // Rows of one sequence at its longest, or of many that share the pages: the first needs more.
      const std::int64_t slots = attention::slots_of(last, rows);
      most =
          std::max(most, rounded(attention::partial_bytes(slots, mixer->heads, mixer->head_dim + 2)) + 1024);
    }
  };
  for (const DeviceLayer& layer : model.layers) see(layer);
  if (model.draft) see(model.draft->layer), see_dense(model.draft->combine);
  return rounded(most);
}

}  // namespace fourfold::backend::cuda
